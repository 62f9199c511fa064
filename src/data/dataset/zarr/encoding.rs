//! How numbers become the bytes of a chunk: data types, fill values and codecs.

use super::ShardFormat;
use super::metadata::{ZarrObject, list, named, shown};
use crate::dataset::arrays::filters::{ChunkFilter, ChunkSum};
use base::json;
use pixels::arrays::Number;

/// The type of an array's elements, as they are in a decoded chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dataset) struct ZarrElement {
    /// The kind of number.
    pub(in crate::dataset) kind: ZarrKind,
    /// Bytes of an element.
    pub(in crate::dataset) size: u8,
    /// Whether its byte order is not this machine's.
    pub(in crate::dataset) swapped: bool,
}

/// A kind of number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dataset) enum ZarrKind {
    /// Booleans of one byte.
    Bool,
    /// Signed integers.
    Signed,
    /// Unsigned integers.
    Unsigned,
    /// IEEE floats.
    Float,
    /// bfloat16.
    Brain,
}

/// The names of the data types in version 3, and the codes in version 2, with the bytes of an element.
const TYPES: [(&str, &str, ZarrKind, u8); 13] = [
    ("bool", "b1", ZarrKind::Bool, 1),
    ("int8", "i1", ZarrKind::Signed, 1),
    ("int16", "i2", ZarrKind::Signed, 2),
    ("int32", "i4", ZarrKind::Signed, 4),
    ("int64", "i8", ZarrKind::Signed, 8),
    ("uint8", "u1", ZarrKind::Unsigned, 1),
    ("uint16", "u2", ZarrKind::Unsigned, 2),
    ("uint32", "u4", ZarrKind::Unsigned, 4),
    ("uint64", "u8", ZarrKind::Unsigned, 8),
    ("float16", "f2", ZarrKind::Float, 2),
    ("float32", "f4", ZarrKind::Float, 4),
    ("float64", "f8", ZarrKind::Float, 8),
    ("bfloat16", "", ZarrKind::Brain, 2),
];

fn refused_type(raw: &[u8]) -> String {
    // The name of an extension, without its configuration.
    let object = ZarrObject::parse(raw).ok().filter(|object| object.get("configuration").is_some());
    let name = shown(object.and_then(|object| object.get("name")).unwrap_or(raw));
    format!(
        "has elements of the type {name}, which is not read: write it as bool, an integer of 8 to 64 bits, float16, \
         float32, float64 or bfloat16"
    )
}

/// Whether this byte order is not the machine's.
fn is_swapped(big_endian: bool) -> bool {
    big_endian != cfg!(target_endian = "big")
}

impl ZarrElement {
    /// The type of the elements, without their byte order.
    pub(super) fn number(self) -> Number {
        match self.kind {
            ZarrKind::Bool => Number::Bool,
            ZarrKind::Signed => Number::Signed(self.size),
            ZarrKind::Unsigned => Number::Unsigned(self.size),
            ZarrKind::Float => Number::Float(self.size),
            ZarrKind::Brain => Number::Brain,
        }
    }

    /// The type of an array of version 2, such as `"<f4"`.
    pub(super) fn v2(raw: &[u8]) -> Result<Self, String> {
        let text = json::text(raw).ok_or_else(|| refused_type(raw))?;
        if text == "bfloat16" {
            return Ok(Self { kind: ZarrKind::Brain, size: 2, swapped: is_swapped(false) });
        }
        let found = text.split_at_checked(1).and_then(|(order, code)| {
            let &(.., kind, size) = TYPES.iter().find(|(_, known, ..)| *known == code && !code.is_empty())?;
            // zarr-python writes and accepts only `|` for single bytes, and no `|` for longer elements.
            let big_endian = match (order, size) {
                ("|", 1) | ("<", 2..) => false,
                (">", 2..) => true,
                _ => return None,
            };
            Some(Self { kind, size, swapped: size > 1 && is_swapped(big_endian) })
        });
        found.ok_or_else(|| refused_type(raw))
    }

    /// The type of an array of version 3, such as `"float32"`. The codec `bytes` states the byte order.
    pub(super) fn v3(raw: &[u8]) -> Result<Self, String> {
        let name = json::text(raw).ok_or_else(|| refused_type(raw))?;
        let found = TYPES.iter().find(|(known, ..)| *known == name);
        let &(.., kind, size) = found.ok_or_else(|| refused_type(raw))?;
        Ok(Self { kind, size, swapped: false })
    }
}

/// The fill value of version 2. zarr-python reads `null` as 0.
pub(super) fn fill_v2(raw: &[u8], element: ZarrElement) -> Result<Box<[u8]>, String> {
    if raw == b"null" { Ok(native(0, element.size)) } else { fill(raw, element, None) }
}

/// The fill value of version 3. A text such as `"0x7fc00000"` has the bits of a float.
pub(super) fn fill_v3(raw: &[u8], element: ZarrElement) -> Result<Box<[u8]>, String> {
    let text = json::text(raw);
    let bits = text.as_deref().and_then(|text| text.strip_prefix("0x")).and_then(|digits| {
        let is_whole = digits.len() == 2 * usize::from(element.size) && !digits.starts_with('+');
        u64::from_str_radix(digits, 16).ok().filter(|_| is_whole)
    });
    fill(raw, element, bits)
}

fn fill(raw: &[u8], element: ZarrElement, bits: Option<u64>) -> Result<Box<[u8]>, String> {
    let text = json::text(raw);
    let number = std::str::from_utf8(raw).unwrap_or_default();
    let float = match text.as_deref().unwrap_or(number) {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => number.parse::<f64>().ok(),
    };
    let found = match element.kind {
        ZarrKind::Bool => match raw {
            b"true" | b"1" => Some(1),
            b"false" | b"0" => Some(0),
            _ => None,
        },
        ZarrKind::Signed | ZarrKind::Unsigned => {
            let width = 8 * u32::from(element.size);
            let (least, most) = match element.kind {
                ZarrKind::Signed => (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1),
                _ => (0, (1i128 << width) - 1),
            };
            let whole = text.as_deref().unwrap_or(number).parse::<i128>().ok();
            // Floats of this size are whole numbers of at most 65 bits.
            let whole = whole.or_else(|| {
                float
                    .filter(|float| float.fract() == 0.0 && float.abs() < 2f64.powi(65))
                    .map(|float| float as i128)
            });
            whole.filter(|value| (least..=most).contains(value)).map(|value| value as u64)
        }
        ZarrKind::Float | ZarrKind::Brain => {
            bits.or_else(|| float.and_then(|float| element.number().bits_of(float)))
        }
    };
    let found =
        found.ok_or_else(|| format!("has the fill_value {}, which its type cannot have", shown(raw)))?;
    Ok(native(found, element.size))
}

/// The bytes of an element in this machine's order.
fn native(bits: u64, size: u8) -> Box<[u8]> {
    match size {
        1 => Box::new([bits as u8]),
        2 => Box::new((bits as u16).to_ne_bytes()),
        4 => Box::new((bits as u32).to_ne_bytes()),
        _ => Box::new(bits.to_ne_bytes()),
    }
}

/// The filter that undoes an order of dimensions; `None` if it changes nothing.
pub(super) fn transpose(element: ZarrElement, shape: &[u64], order: Vec<u32>) -> Option<ChunkFilter> {
    let size = u32::from(element.size);
    let changes = !order.iter().copied().eq(0..shape.len() as u32);
    changes.then(|| ChunkFilter::Transpose { size, shape: shape.to_vec(), order })
}

fn refused_codec(name: &str) -> String {
    format!(
        "is encoded with {name}, which is not read: write it with zstd, blosc, gzip or lz4, and without other codecs \
         (zarr: compressors=...)"
    )
}

/// Adds the `filters` and the `compressor` of an array of version 2. `bytes` is the size of a decoded chunk.
pub(super) fn add_filters_v2(
    array: &ZarrObject<'_>,
    bytes: u64,
    filters: &mut Vec<ChunkFilter>,
) -> Result<(), String> {
    let raw = array.get("filters").unwrap_or(b"null");
    let listed = if raw == b"null" { Some(Vec::new()) } else { list(raw) };
    let listed = listed.ok_or_else(|| format!("has the filters {}, must be a list", shown(raw)))?;
    let compressor = array.get("compressor").filter(|raw| *raw != b"null");
    for raw in listed.into_iter().chain(compressor) {
        let object = ZarrObject::parse(raw)?;
        let id = object.get("id").and_then(json::text);
        let id = id.ok_or_else(|| format!("has the codec {} without an id", shown(raw)))?;
        filters.extend(numcodec(&id, &object, bytes)?);
    }
    Ok(())
}

/// The filter of a codec of numcodecs; `None` if decoding changes nothing.
fn numcodec(id: &str, settings: &ZarrObject<'_>, bytes: u64) -> Result<Option<ChunkFilter>, String> {
    let same_types = || settings.get("astype").is_none_or(|raw| settings.get("dtype") == Some(raw));
    Ok(Some(match id {
        "zlib" => ChunkFilter::Zlib,
        "gzip" => ChunkFilter::Gzip,
        "zstd" => ChunkFilter::Zstd,
        "lz4" => ChunkFilter::Lz4Sized,
        "blosc" => ChunkFilter::Blosc,
        "fletcher32" => ChunkFilter::Checksum { sum: ChunkSum::Fletcher32 },
        "crc32c" if settings.get("location").and_then(json::text).is_none_or(|place| place == "end") => {
            ChunkFilter::Checksum { sum: ChunkSum::Crc32c }
        }
        "shuffle" => {
            let raw = settings.get("elementsize").unwrap_or(b"4");
            let size = std::str::from_utf8(raw).ok().and_then(|size| size.parse::<u32>().ok());
            match size {
                Some(0 | 1) => return Ok(None),
                Some(size) if bytes.is_multiple_of(u64::from(size)) => ChunkFilter::Shuffle { size },
                _ => {
                    return Err(format!("is shuffled by elements of {} bytes, which do not fit", shown(raw)));
                }
            }
        }
        "delta" => {
            let element = settings.need("dtype").and_then(ZarrElement::v2)?;
            if !matches!(element.kind, ZarrKind::Signed | ZarrKind::Unsigned) || !same_types() {
                return Err(refused_codec("delta of floats or of another type"));
            }
            let big_endian = element.swapped != cfg!(target_endian = "big");
            ChunkFilter::Delta { size: u32::from(element.size), big_endian }
        }
        "bitround" => return Ok(None),
        "quantize" if same_types() => return Ok(None),
        other => return Err(refused_codec(other)),
    }))
}

/// What the codecs of an array of version 3 say.
pub(super) struct Encoding {
    /// The shape of a chunk; in a sharded array of a chunk in a shard.
    pub(super) chunk: Vec<u64>,
    pub(super) swapped: bool,
    pub(super) filters: Vec<ChunkFilter>,
    pub(super) shards: Option<ShardFormat>,
}

/// Reads the codecs of an array of version 3: any codecs of arrays, then the one that makes bytes, then any codecs of
/// bytes. `chunk` is the shape of the chunk grid.
pub(super) fn read_codecs(raw: &[u8], element: ZarrElement, chunk: Vec<u64>) -> Result<Encoding, String> {
    let listed = list(raw).ok_or_else(|| format!("has the codecs {}, must be a list", shown(raw)))?;
    let codecs: Vec<_> = listed.into_iter().map(|raw| named(raw, "codec")).collect::<Result<_, _>>()?;
    if let Some((_, settings)) = codecs.iter().find(|(name, _)| name == "sharding_indexed") {
        if codecs.len() > 1 {
            return Err(
                "is sharded with other codecs before or after the codec sharding_indexed, which are not \
                        read: write them inside of the shards"
                    .to_owned(),
            );
        }
        return read_sharding(settings, element, chunk);
    }
    read_chain(&codecs, element, chunk)
}

fn read_chain(
    codecs: &[(String, ZarrObject<'_>)],
    element: ZarrElement,
    chunk: Vec<u64>,
) -> Result<Encoding, String> {
    let bytes = chunk.iter().fold(u64::from(element.size), |bytes, length| bytes.saturating_mul(*length));
    // The shape before the next codec of arrays, and the byte order once the elements are bytes.
    let (mut shape, mut swapped) = (chunk.clone(), None);
    let mut filters = Vec::new();
    for (name, settings) in codecs {
        let id = name.strip_prefix("numcodecs.").unwrap_or(name);
        let is_numcodec = id != name;
        let of_arrays = name == "transpose" || is_numcodec && matches!(id, "delta" | "bitround" | "quantize");
        let known = of_arrays || is_numcodec || matches!(id, "bytes" | "gzip" | "zstd" | "blosc" | "crc32c");
        if !known {
            return Err(refused_codec(name));
        }
        let filter = if is_numcodec { numcodec(id, settings, bytes)? } else { None };
        if swapped.is_some() == (of_arrays || name == "bytes") {
            return Err(format!(
                "has the codec {name} at a wrong place: codecs of arrays, bytes, codecs of bytes"
            ));
        }
        match name.as_str() {
            "bytes" => swapped = Some(bytes_order(settings, element)?),
            "transpose" => {
                let is_delta = |filter: &ChunkFilter| matches!(filter, ChunkFilter::Delta { .. });
                if filters.iter().any(is_delta) {
                    return Err(refused_codec("delta before transpose"));
                }
                let order: Vec<u32> = settings
                    .lengths("order")?
                    .into_iter()
                    .map(|dimension| u32::try_from(dimension).unwrap_or(u32::MAX))
                    .collect();
                let permuted = order.iter().map(|&dimension| shape.get(dimension as usize).copied());
                let permuted: Option<Vec<u64>> = permuted.collect();
                let permuted = permuted.ok_or_else(|| format!("has a transpose by the order {order:?}"))?;
                filters.extend(transpose(element, &shape, order));
                shape = permuted;
            }
            _ if is_numcodec => filters.extend(filter),
            _ => filters.extend(numcodec(id, settings, bytes)?),
        }
    }
    let swapped = swapped.ok_or("has no codec that makes bytes")?;
    if swapped && filters.iter().any(|filter| matches!(filter, ChunkFilter::Delta { .. })) {
        return Err(refused_codec("delta of big-endian integers"));
    }
    Ok(Encoding { chunk, swapped, filters, shards: None })
}

/// Reads the codec `bytes`: whether elements are swapped.
fn bytes_order(settings: &ZarrObject<'_>, element: ZarrElement) -> Result<bool, String> {
    match settings.get("endian") {
        _ if element.size == 1 => Ok(false),
        Some(b"\"little\"") => Ok(is_swapped(false)),
        Some(b"\"big\"") => Ok(is_swapped(true)),
        _ => Err("has the codec bytes without \"endian\", which its type needs".to_owned()),
    }
}

fn read_sharding(
    settings: &ZarrObject<'_>,
    element: ZarrElement,
    shard: Vec<u64>,
) -> Result<Encoding, String> {
    let chunk = settings.lengths("chunk_shape")?;
    let divides = |(shard, chunk): (&u64, &u64)| shard.checked_rem(*chunk) == Some(0);
    if chunk.len() != shard.len() || !shard.iter().zip(&chunk).all(divides) {
        return Err(format!("has shards of the shape {shard:?}, which chunks of {chunk:?} do not divide"));
    }
    let per_shard = shard.iter().zip(&chunk).map(|(shard, chunk)| shard / chunk).collect();
    let raw = settings.need("codecs")?;
    let inner = list(raw).ok_or_else(|| format!("has the codecs {}, must be a list", shown(raw)))?;
    let inner: Vec<_> = inner.into_iter().map(|raw| named(raw, "codec")).collect::<Result<_, _>>()?;
    if inner.iter().any(|(name, _)| name == "sharding_indexed") {
        return Err("has shards inside of shards, which are not read: write one level of shards".to_owned());
    }
    let index = settings.need("index_codecs")?;
    let named_index: Option<Vec<_>> =
        list(index).and_then(|codecs| codecs.into_iter().map(|raw| named(raw, "codec").ok()).collect());
    let number = ZarrElement { kind: ZarrKind::Unsigned, size: 8, swapped: false };
    let (order, has_checksum) = match named_index.unwrap_or_default().as_slice() {
        [(bytes, order)] if bytes == "bytes" => (bytes_order(order, number)?, false),
        [(bytes, order), (sum, _)] if bytes == "bytes" && sum == "crc32c" => {
            (bytes_order(order, number)?, true)
        }
        _ => {
            let shown = shown(index);
            return Err(format!("has shards with the index_codecs {shown}, only bytes and crc32c are read"));
        }
    };
    let at_start = match settings.get("index_location") {
        None | Some(b"\"end\"") => false,
        Some(b"\"start\"") => true,
        Some(other) => return Err(format!("has shards with the index_location {}", shown(other))),
    };
    let big_endian = order != cfg!(target_endian = "big");
    let format = ShardFormat { per_shard, big_endian, has_checksum, at_start };
    Ok(Encoding { shards: Some(format), ..read_chain(&inner, element, chunk)? })
}
