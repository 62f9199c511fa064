//! NumPy's `.npy` files, each with one array of numbers, as described in "numpy.lib.format" of NumPy's manual, versions
//! 1 to 3.
//!
//! The existing crates for such files bring a general parser of Python literals and a C compiler as dependencies. The
//! header is one dictionary of three known keys, so this module parses it itself.

use base::error::DecodeError;

const MAGIC: &[u8] = b"\x93NUMPY";

/// The type of an array's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// Booleans of one byte each.
    Bool,
    /// Signed integers of 1, 2, 4 or 8 bytes.
    Signed(u8),
    /// Unsigned integers of 1, 2, 4 or 8 bytes.
    Unsigned(u8),
    /// IEEE floats of 2, 4 or 8 bytes.
    Float(u8),
}

impl Number {
    /// The number of bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::Signed(bytes) | Self::Unsigned(bytes) | Self::Float(bytes) => usize::from(bytes),
        }
    }
}

/// An array of numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyArray {
    /// The type of the elements.
    pub number: Number,
    /// The lengths of the dimensions, outermost first; empty for a single number.
    pub shape: Vec<u64>,
    /// The elements, row-major, in this machine's byte order.
    pub bytes: Vec<u8>,
}

impl NpyArray {
    /// Reads a whole file.
    ///
    /// # Errors
    /// [`DecodeError::Damaged`] if the file is not a `.npy` file, is shorter or longer than its header says, or has
    /// elements that are not numbers.
    pub fn decode(file: &[u8]) -> Result<Self, DecodeError> {
        let (header, data) =
            split_header(file).ok_or_else(|| corrupt("its signature is wrong, or it is truncated"))?;
        let header = std::str::from_utf8(header).map_err(|_| corrupt("its header is not valid UTF-8"))?;
        let value = |key| value(header, key).ok_or_else(|| corrupt(&format!("its header has no {key}")));
        let (number, swapped) = number(value("descr")?)?;
        let columns_first = match value("fortran_order")? {
            order if order.starts_with("True") => true,
            order if order.starts_with("False") => false,
            _ => return Err(corrupt("its fortran_order is neither True nor False")),
        };
        let shape = shape(value("shape")?).ok_or_else(|| corrupt("its shape is not a tuple of lengths"))?;
        let elements = shape.iter().try_fold(1u64, |product, &length| product.checked_mul(length));
        let bytes = elements.and_then(|elements| elements.checked_mul(number.size() as u64));
        if bytes != Some(data.len() as u64) {
            let message = format!("its shape {shape:?} does not match its {} bytes of data", data.len());
            return Err(corrupt(&message));
        }
        let mut bytes = if columns_first { rows_first(data, &shape, number.size()) } else { data.to_vec() };
        if swapped {
            bytes.chunks_exact_mut(number.size()).for_each(<[u8]>::reverse);
        }
        Ok(Self { number, shape, bytes })
    }

    /// The elements as single-precision floats. `None` for booleans, for two-byte floats, and if a finite element
    /// exceeds the range of `f32`.
    pub fn floats(&self) -> Option<Vec<f32>> {
        macro_rules! read {
            ($type:ty) => {
                self.bytes.as_chunks().0.iter().map(|&bytes| <$type>::from_ne_bytes(bytes) as f32).collect()
            };
        }
        Some(match self.number {
            Number::Signed(1) => read!(i8),
            Number::Signed(2) => read!(i16),
            Number::Signed(4) => read!(i32),
            Number::Signed(_) => read!(i64),
            Number::Unsigned(1) => read!(u8),
            Number::Unsigned(2) => read!(u16),
            Number::Unsigned(4) => read!(u32),
            Number::Unsigned(_) => read!(u64),
            Number::Float(4) => read!(f32),
            Number::Float(8) => {
                let rounded = |&bytes| {
                    let element = f64::from_ne_bytes(bytes);
                    Some(element as f32).filter(|float| float.is_infinite() == element.is_infinite())
                };
                return self.bytes.as_chunks().0.iter().map(rounded).collect();
            }
            Number::Bool | Number::Float(_) => return None,
        })
    }
}

fn corrupt(message: &str) -> DecodeError {
    DecodeError::Damaged(format!("not a .npy file: {message}"))
}

fn split_header(file: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = file.strip_prefix(MAGIC)?;
    let (&[major, _], rest) = rest.split_first_chunk()?;
    let (length, rest) = match major {
        1 => {
            let (length, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        2 | 3 => {
            let (length, rest) = rest.split_first_chunk()?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

fn value<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let quoted = [format!("'{key}'"), format!("\"{key}\"")];
    let rest = quoted.iter().find_map(|quoted| header.split_once(quoted.as_str()))?.1;
    rest.trim_start().strip_prefix(':').map(str::trim_start)
}

/// Returns the type of the elements, and whether their byte order is not this machine's.
fn number(descr: &str) -> Result<(Number, bool), DecodeError> {
    let unsupported = || {
        // A type is a string, or the list of fields of a structured type.
        let end = match descr.chars().next() {
            Some(quote @ ('\'' | '"')) => descr[1..].find(quote).map(|end| end + 2),
            _ => descr.find("'fortran_order'"),
        };
        let shown: String = descr[..end.unwrap_or(descr.len())].chars().take(60).collect();
        let shown = shown.trim_end_matches([' ', ',']);
        DecodeError::Damaged(format!(
            "is an array of type {shown}, must be of booleans, integers or floats: use foreload.fields.Bytes to get \
             the file unchanged"
        ))
    };
    let quote = descr.chars().next().filter(|quote| matches!(quote, '\'' | '"')).ok_or_else(unsupported)?;
    let (descr, _) = descr[1..].split_once(quote).ok_or_else(unsupported)?;
    let (order, rest) = match descr.strip_prefix(['<', '>', '|', '=']) {
        Some(rest) => (&descr[..1], rest),
        None => ("=", descr),
    };
    let size: u8 = rest.get(1..).and_then(|size| size.parse().ok()).ok_or_else(unsupported)?;
    let number = match (rest.as_bytes()[0], size) {
        (b'b' | b'?', 1) => Number::Bool,
        (b'i', 1 | 2 | 4 | 8) => Number::Signed(size),
        (b'u', 1 | 2 | 4 | 8) => Number::Unsigned(size),
        (b'f', 2 | 4 | 8) => Number::Float(size),
        _ => return Err(unsupported()),
    };
    let other = if cfg!(target_endian = "little") { ">" } else { "<" };
    Ok((number, order == other && number.size() > 1))
}

fn shape(tuple: &str) -> Option<Vec<u64>> {
    let (lengths, _) = tuple.strip_prefix('(')?.split_once(')')?;
    let lengths = lengths.split(',').map(str::trim).filter(|length| !length.is_empty());
    lengths.map(|length| length.trim_end_matches('L').parse().ok()).collect()
}

/// Reorders the elements of an array from column-major (first index fastest) to row-major.
fn rows_first(data: &[u8], shape: &[u64], size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(data.len());
    let mut index = vec![0u64; shape.len()];
    for _ in 0..data.len() / size.max(1) {
        let steps = shape.iter().scan(1u64, |step, length| {
            let this = *step;
            *step *= length;
            Some(this)
        });
        let at: u64 = index.iter().zip(steps).map(|(index, step)| index * step).sum();
        bytes.extend(&data[at as usize * size..][..size]);
        for (index, &length) in index.iter_mut().zip(shape).rev() {
            *index += 1;
            if *index < length {
                break;
            }
            *index = 0;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let length = header.len() as u32;
        let length =
            if version == 1 { length.to_le_bytes()[..2].to_vec() } else { length.to_le_bytes().to_vec() };
        [MAGIC, &[version, 0], &length, header.as_bytes(), data].concat()
    }

    #[test]
    fn arrays_are_what_numpy_wrote() {
        let header = "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }          \n";
        let data: Vec<u8> = (0..6i16).flat_map(i16::to_le_bytes).collect();
        for version in [1, 2, 3] {
            let array = NpyArray::decode(&file(version, header, &data)).unwrap();
            assert_eq!((array.number, &array.shape[..]), (Number::Signed(2), &[2, 3][..]));
            assert_eq!(array.bytes, data);
        }
        // Stored in column-major order, with the opposite byte order.
        let header = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }";
        let data: Vec<u8> = [0i16, 3, 1, 4, 2, 5].into_iter().flat_map(i16::to_be_bytes).collect();
        let array = NpyArray::decode(&file(1, header, &data)).unwrap();
        assert_eq!(array.bytes, (0..6i16).flat_map(i16::to_ne_bytes).collect::<Vec<u8>>());
        let one = "{'descr': '<f8', 'fortran_order': False, 'shape': (), }";
        assert!(NpyArray::decode(&file(1, one, &[0; 8])).unwrap().shape.is_empty());
        let vector = "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }";
        assert_eq!(NpyArray::decode(&file(1, vector, &[1, 0, 1])).unwrap().number, Number::Bool);
    }

    #[test]
    fn what_is_no_array_of_numbers_is_refused() {
        let error =
            |header: &str, data: &[u8]| NpyArray::decode(&file(1, header, data)).unwrap_err().to_string();
        let with = |descr: &str, shape: &str| {
            format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}")
        };
        assert!(error(&with("'|O'", "(1,)"), &[0; 8]).contains("is an array of type '|O', must be"));
        assert!(error(&with("[('a', '<f4')]", "(1,)"), &[0; 4]).contains("of type [('a', '<f4')], must"));
        assert!(error(&with("'<f4'", "(2,)"), &[0; 4]).contains("does not match its 4 bytes"));
        assert!(error(&with("'<f4'", &format!("({0}, {0})", u64::MAX)), &[0; 4]).contains("does not match"));
        assert!(error("{}", &[]).contains("no descr"));
        assert!(NpyArray::decode(b"\x93NUMPY").is_err() && NpyArray::decode(b"PK\x03\x04").is_err());
    }
}
