//! NumPy's `.npy` files, each with one array of numbers, as described in "numpy.lib.format" of NumPy's manual, versions
//! 1 to 3.
//!
//! The existing crates for such files bring a general parser of Python literals and a C compiler as dependencies. The
//! header is one dictionary of three known keys, so this module parses it itself.

use crate::arrays::{
    Arithmetic, BoxCorner, GatheredBox, MemoryOrder, Number, NumberConversion, StoredType, gather,
};
use base::error::DecodeError;
use base::simd::Level;

const MAGIC: [u8; 6] = *b"\x93NUMPY";

/// The number of bytes before the header: the signature, the version, and the length of the header, which has two bytes
/// in version 1.
const PREAMBLE: usize = 12;

const KEYS: [&str; 3] = ["descr", "fortran_order", "shape"];

/// The most characters of a header, as in NumPy.
const LONGEST_HEADER: usize = 10_000;

/// What the header of a file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyHeader {
    /// The type of the elements.
    pub stored: StoredType,
    /// The lengths of the dimensions, outermost first; empty for a single number.
    pub shape: Vec<u64>,
    /// The order of the elements.
    pub order: MemoryOrder,
    /// The position in the file of the first element.
    pub data_at: u64,
}

/// The result of reading the beginning of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NpyPrefix {
    /// The header.
    Header(NpyHeader),
    /// The header needs this many bytes of the file.
    Needs(usize),
}

impl NpyHeader {
    /// Reads the header from the first bytes of a file. As strict as NumPy, so that a damaged header is never read as
    /// another array.
    ///
    /// # Errors
    /// [`DecodeError::Damaged`] if the file is not a `.npy` file, or has elements that are not numbers.
    pub fn parse(prefix: &[u8]) -> Result<NpyPrefix, DecodeError> {
        let Some(&preamble) = prefix.first_chunk::<PREAMBLE>() else {
            let is_magic = prefix.iter().zip(MAGIC).all(|(byte, magic)| *byte == magic);
            return if is_magic {
                Ok(NpyPrefix::Needs(PREAMBLE))
            } else {
                Err(corrupt("its signature is wrong"))
            };
        };
        let [magic @ .., major, minor, a, b, c, d] = preamble;
        if magic != MAGIC {
            return Err(corrupt("its signature is wrong"));
        }
        let (begin, length) = match (major, minor) {
            (1, 0) => (PREAMBLE - 2, usize::from(u16::from_le_bytes([a, b]))),
            (2 | 3, 0) => (PREAMBLE, u32::from_le_bytes([a, b, c, d]) as usize),
            _ => return Err(corrupt(&format!("its format has the version {major}.{minor}"))),
        };
        // A character of UTF-8 has up to four bytes.
        if length > if major == 3 { 4 * LONGEST_HEADER } else { LONGEST_HEADER } {
            return Err(corrupt(&format!("its header has {length} bytes")));
        }
        let Some(header) = prefix.get(begin..begin + length) else {
            return Ok(NpyPrefix::Needs(begin + length));
        };
        let header = match major {
            3 => {
                std::str::from_utf8(header).map_err(|_| corrupt("its header is not valid UTF-8"))?.to_owned()
            }
            _ => header.iter().map(|&latin| char::from(latin)).collect(),
        };
        if header.chars().count() > LONGEST_HEADER {
            return Err(corrupt(&format!("its header has more than {LONGEST_HEADER} characters")));
        }
        let [descr, fortran_order, shape] = values(&header)?;
        let stored = stored_type(descr)?;
        let order = match fortran_order {
            "True" => MemoryOrder::ColumnMajor,
            "False" => MemoryOrder::RowMajor,
            _ => return Err(corrupt("its fortran_order is neither True nor False")),
        };
        let lengths =
            lengths(shape, major < 3).ok_or_else(|| corrupt("its shape is not a tuple of lengths"))?;
        Ok(NpyPrefix::Header(Self { stored, shape: lengths, order, data_at: (begin + length) as u64 }))
    }

    /// Reads the header of a whole file, and returns it with the bytes of the elements.
    ///
    /// # Errors
    /// The errors of [`NpyHeader::parse`]; [`DecodeError::Damaged`] if the file is shorter or longer than its header
    /// says.
    pub fn of_file(file: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let NpyPrefix::Header(header) = Self::parse(file)? else {
            return Err(corrupt("its header is truncated"));
        };
        let data = &file[header.data_at as usize..];
        if header.data_bytes() == Some(data.len() as u64) {
            return Ok((header, data));
        }
        let message = format!("its shape {:?} does not match its {} bytes of data", header.shape, data.len());
        Err(corrupt(&message))
    }

    /// Returns the number of bytes of all elements; `None` if it exceeds 64 bits.
    pub fn data_bytes(&self) -> Option<u64> {
        let size = self.stored.number.size() as u64;
        self.shape.iter().try_fold(size, |product, &length| product.checked_mul(length))
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
        let (header, data) = NpyHeader::of_file(file)?;
        let NpyHeader { stored, shape, order, .. } = &header;
        let bytes = if *order == MemoryOrder::RowMajor && !stored.swapped {
            data.to_vec()
        } else {
            let mut bytes = vec![0; data.len()];
            let at = &vec![0; shape.len()][..];
            let chunk = BoxCorner { at, strides: &order.strides(shape) };
            let row = BoxCorner { at, strides: &MemoryOrder::RowMajor.strides(shape) };
            let unchanged = Arithmetic::default();
            let conversion =
                NumberConversion::new(Level::detect(), *stored, shape, stored.number, &unchanged)
                    .map_err(DecodeError::Damaged)?;
            gather(data, &mut bytes, &GatheredBox { lengths: shape, chunk, row, channel: 0 }, &conversion)?;
            bytes
        };
        Ok(Self { number: stored.number, shape: header.shape, bytes })
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
            Number::Bool | Number::Float(_) | Number::Brain => return None,
        })
    }
}

fn corrupt(message: &str) -> DecodeError {
    DecodeError::Damaged(format!("not a .npy file: {message}"))
}

/// Returns the texts of the values of the three keys: descr, fortran_order and shape. The header must be a dictionary
/// of exactly these.
fn values(header: &str) -> Result<[&str; 3], DecodeError> {
    let wrong = || corrupt("its header is not a dictionary of descr, fortran_order and shape");
    let mut found = [None; 3];
    let mut rest =
        header.trim_start_matches([' ', '\t']).strip_prefix('{').ok_or_else(wrong)?.trim_ascii_start();
    while !rest.starts_with('}') {
        let (key, after) = quoted(rest).ok_or_else(wrong)?;
        let key = KEYS.iter().position(|known| *known == key).filter(|&key| found[key].is_none());
        let key = key.ok_or_else(wrong)?;
        let value = after.trim_ascii_start().strip_prefix(':').ok_or_else(wrong)?.trim_ascii_start();
        let end = end_of_value(value).filter(|&end| end > 0).ok_or_else(wrong)?;
        found[key] = Some(value[..end].trim_ascii_end());
        rest = &value[end..];
        if let Some(next) = rest.strip_prefix(',') {
            rest = next.trim_ascii_start();
        }
    }
    let has_end = rest[1..].trim_ascii_start().is_empty();
    let [Some(descr), Some(order), Some(shape)] = found else {
        let missing = KEYS.iter().zip(found).find_map(|(key, value)| value.is_none().then_some(key));
        return Err(missing.map_or_else(wrong, |key| corrupt(&format!("its header has no {key}"))));
    };
    if has_end { Ok([descr, order, shape]) } else { Err(wrong()) }
}

/// Splits a quoted text without escapes from the text after it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    let (inside, after) = text[1..].split_once(quote)?;
    (!inside.contains(['\\', '\n'])).then_some((inside, after))
}

/// Returns where a value of the dictionary ends: at a comma or at a brace that is in no bracket and in no quotes.
fn end_of_value(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0u32, 0);
    loop {
        let rest = &text[at..];
        match rest.chars().next()? {
            '\'' | '"' => at = text.len() - quoted(rest)?.1.len(),
            ',' | '}' if depth == 0 => return Some(at),
            bracket @ ('(' | '[' | ')' | ']') => {
                depth = depth.checked_add_signed(if matches!(bracket, '(' | '[') { 1 } else { -1 })?;
                at += 1;
            }
            other => at += other.len_utf8(),
        }
    }
}

/// Returns the type of the elements that a value of descr names.
fn stored_type(descr: &str) -> Result<StoredType, DecodeError> {
    let unsupported = || {
        let shown: String = descr.chars().take(60).collect();
        DecodeError::Damaged(format!(
            "is an array of type {shown}, must be of booleans, integers or floats: use foreload.fields.Bytes to get \
             the file unchanged"
        ))
    };
    let (name, after) = quoted(descr).ok_or_else(unsupported)?;
    let (order, code) = match name.strip_prefix(['<', '>', '|', '=']) {
        Some(code) => (&name[..1], code),
        None => ("=", name),
    };
    let number = match code {
        _ if !after.is_empty() => return Err(unsupported()),
        "b1" => Number::Bool,
        "i1" => Number::Signed(1),
        "i2" => Number::Signed(2),
        "i4" => Number::Signed(4),
        "i8" => Number::Signed(8),
        "u1" => Number::Unsigned(1),
        "u2" => Number::Unsigned(2),
        "u4" => Number::Unsigned(4),
        "u8" => Number::Unsigned(8),
        "f2" => Number::Float(2),
        "f4" => Number::Float(4),
        "f8" => Number::Float(8),
        _ => return Err(unsupported()),
    };
    let other = if cfg!(target_endian = "little") { ">" } else { "<" };
    Ok(StoredType { number, swapped: order == other && number.size() > 1 })
}

/// Reads a tuple of lengths. `long` allows the suffix of Python 2's long integers.
fn lengths(tuple: &str, long: bool) -> Option<Vec<u64>> {
    let inside = tuple.strip_prefix('(')?.strip_suffix(')')?.trim_ascii();
    if inside.is_empty() {
        return Some(Vec::new());
    }
    // Without its comma, `(3)` would be a number.
    let listed = inside.strip_suffix(',').or_else(|| inside.contains(',').then_some(inside))?;
    let length = |text: &str| {
        let text = text.trim_ascii();
        let digits = text.strip_suffix('L').filter(|_| long).unwrap_or(text);
        let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
        let is_octal = digits.len() > 1 && digits.starts_with('0');
        digits.parse::<u64>().ok().filter(|_| is_number && !is_octal)
    };
    listed.split(',').map(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let length = header.len() as u32;
        let length =
            if version == 1 { length.to_le_bytes()[..2].to_vec() } else { length.to_le_bytes().to_vec() };
        [&MAGIC[..], &[version, 0], &length, header.as_bytes(), data].concat()
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

    /// NumPy accepts a few of the refused headers, but never writes such headers.
    #[test]
    fn headers_are_read_as_strictly_as_by_numpy() {
        let parse = |version, header: &str| NpyHeader::parse(&file(version, header, b""));
        let shapes = [
            ("()", Some(&[][..])),
            ("( )", Some(&[])),
            ("(0,)", Some(&[0])),
            ("(12, 3)", Some(&[12, 3])),
            ("(\n12 ,3 , )", Some(&[12, 3])),
            ("(3L, 4L)", Some(&[3, 4])),
            ("(3)", None),
            ("(,)", None),
            ("(3,,)", None),
            ("(03,)", None),
            ("(-3,)", None),
            ("(+3,)", None),
            ("(3.0,)", None),
            ("(True,)", None),
            ("(3 4)", None),
            ("[3]", None),
            ("3", None),
            ("(18446744073709551616,)", None),
        ];
        for (shape, lengths) in shapes {
            let header = format!("{{'descr': '<u4', 'fortran_order': False, 'shape': {shape}}}\n");
            let found = parse(1, &header).ok();
            assert_eq!(found.is_some(), lengths.is_some(), "{shape}");
            if let (Some(NpyPrefix::Header(found)), Some(lengths)) = (found, lengths) {
                assert_eq!((&found.shape[..], found.data_at), (lengths, 10 + header.len() as u64));
            }
        }
        let long = "{'descr': '<u4', 'fortran_order': False, 'shape': (3L,)}";
        assert!(parse(2, long).is_ok() && parse(3, long).is_err());
        let whole = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
        let accepted = [
            format!(" \t{whole}"),
            format!("{whole} \t\n"),
            whole.replace(' ', ""),
            whole.replace('\'', "\""),
            whole.replace(", 'shape'", "\n, 'shape'"),
            "{'shape': (3,), 'descr': '=f4', \"fortran_order\": True}".to_owned(),
        ];
        for header in accepted {
            assert!(matches!(parse(1, &header), Ok(NpyPrefix::Header(_))), "{header}");
        }
        let refused = [
            format!("x{whole}"),
            format!("{whole}x"),
            format!("{whole}, "),
            format!("{whole}\0"),
            whole.replace("descr", "descs"),
            whole.replace("'descr'", "descr"),
            whole.replace("'descr'", "'des' 'cr'"),
            whole.replace("'<f4'", "'<f4"),
            whole.replace("'<f4'", "'<f4'x"),
            whole.replace("'<f4'", "'<f+4'"),
            whole.replace("'<f4'", "'<f04'"),
            whole.replace("'<f4'", "'!f4'"),
            whole.replace("'<f4'", "'<V2'"),
            whole.replace("'<f4'", ""),
            whole.replace("False", "Falsy"),
            whole.replace("False", "0"),
            whole.replace("(3,)", "(3,]"),
            whole.replace(", }", ",, }"),
            whole.replace(", }", ", 'more': 1}"),
            whole.replace(", }", ", 'shape': (3,)}"),
            whole.replace(", }", ""),
            whole.replace(':', "="),
            whole.replace("'shape': (3,)", "'shape'"),
        ];
        for header in refused {
            assert!(parse(1, &header).is_err(), "{header}");
        }
    }

    #[test]
    fn a_header_says_how_many_bytes_it_needs() {
        let whole = file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", &[0; 12]);
        let header = NpyHeader::parse(&whole).unwrap();
        let stored = StoredType { number: Number::Float(4), swapped: cfg!(target_endian = "big") };
        let data_at = whole.len() as u64 - 12;
        let expected = NpyHeader { stored, shape: vec![3], order: MemoryOrder::RowMajor, data_at };
        assert_eq!((header, expected.data_bytes()), (NpyPrefix::Header(expected.clone()), Some(12)));
        for length in 0..whole.len() - 12 {
            let needs = if length < PREAMBLE { PREAMBLE } else { whole.len() - 12 };
            assert_eq!(NpyHeader::parse(&whole[..length]).unwrap(), NpyPrefix::Needs(needs));
        }
        let error = |at: usize, byte: u8| {
            let mut file = whole[..20].to_vec();
            file[at] = byte;
            NpyHeader::parse(&file).unwrap_err().to_string()
        };
        assert!(error(7, 1).contains("its format has the version 1.1"));
        assert!(error(6, 4).contains("its format has the version 4.0"));
        assert!(error(9, 200).contains("its header has 51257 bytes"), "{}", error(9, 200));
        assert!(error(3, 0).contains("its signature is wrong"));
        // 10 000 characters may have more bytes, in version 3 only.
        let wide = format!("{{'descr': [('{}', '<f4')]}}", "é".repeat(6000));
        assert!(
            NpyHeader::parse(&file(3, &wide, b"")).unwrap_err().to_string().contains("has no fortran_order")
        );
        assert!(
            NpyHeader::parse(&file(2, &wide, b"")).unwrap_err().to_string().contains("its header has 12")
        );
    }
}
