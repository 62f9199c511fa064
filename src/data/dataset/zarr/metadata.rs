//! The documents of zarr: what `.zarray`, `.zattrs`, `.zmetadata` and `zarr.json` say.
//!
//! They are read as strictly as zarr-python reads them. A document that it would refuse must not give values.

use super::super::layouts::is_relative_path;
use super::encoding::{self, Encoding};
use super::{ARRAY, ATTRIBUTES, ChunkKeys, GROUP, ZarrArray, ZarrElement, ZarrKind};
use crate::dataset::arrays::filters::check_filters;
use crate::dataset::arrays::{CfAttributes, CfNumber};
use base::json;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::collections::BTreeMap;

const MOST_DIMENSIONS: usize = 32;

/// The most files of an array, and the most chunks of a sharded array, whose locations are kept in memory.
const MOST_FILES: u64 = u32::MAX as u64;
const MOST_SHARDED: u64 = 64 << 20;

/// What a `zarr.json` describes.
#[derive(Debug)]
pub(in crate::dataset) enum ZarrNode {
    /// An array.
    Array(Box<ZarrArray>),
    /// A group.
    Group {
        /// The `zarr.json` of all nodes below, by path; `None` if the group has no consolidated metadata.
        consolidated: Option<BTreeMap<String, Vec<u8>>>,
    },
}

/// The entries of a JSON object.
pub(super) struct ZarrObject<'a>(Vec<(String, &'a [u8])>);

impl<'a> ZarrObject<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, String> {
        let mut entries = Vec::new();
        let mut is_object = true;
        let add = |key: Option<&'a [u8]>, value| match key.map(|key| (json::text(key), key)) {
            Some((Some(key), _)) => entries.push((key, value)),
            // A key with unpaired surrogates is none of those that are looked for.
            Some((None, raw)) => entries.push((String::from_utf8_lossy(raw).into_owned(), value)),
            None => is_object = false,
        };
        json::scan(text, add).map_err(|error| format!("has metadata that are not JSON: {error}"))?;
        if !is_object || !text.trim_ascii().starts_with(b"{") {
            return Err(format!("has metadata with {}, must be an object", shown(text)));
        }
        Ok(Self(entries))
    }

    /// The value of a key. As for `json.loads`, the last of several values counts.
    pub(super) fn get(&self, key: &str) -> Option<&'a [u8]> {
        self.0.iter().rev().find(|(found, _)| found == key).map(|(_, value)| *value)
    }

    /// The value of a key that must exist.
    pub(super) fn need(&self, key: &str) -> Result<&'a [u8], String> {
        self.get(key).ok_or_else(|| format!("has no {key:?} in its metadata"))
    }

    /// A list of lengths that must exist.
    pub(super) fn lengths(&self, key: &str) -> Result<Vec<u64>, String> {
        let raw = self.need(key)?;
        let lengths =
            list(raw).and_then(|items| items.into_iter().map(integer).collect::<Option<Vec<u64>>>());
        let lengths =
            lengths.ok_or_else(|| format!("has the {key} {}, must be a list of lengths", shown(raw)))?;
        if lengths.len() > MOST_DIMENSIONS {
            return Err(format!("has {} dimensions, at most {MOST_DIMENSIONS} are read", lengths.len()));
        }
        Ok(lengths)
    }

    fn into_texts(self) -> BTreeMap<String, Vec<u8>> {
        // Later entries replace earlier ones.
        self.0.into_iter().map(|(key, value)| (key, value.to_vec())).collect()
    }
}

/// The items of a JSON list; `None` for any other value.
pub(super) fn list(raw: &[u8]) -> Option<Vec<&[u8]>> {
    let mut items = Vec::new();
    json::scan(raw, |_, item| items.push(item)).ok().filter(|()| raw.starts_with(b"["))?;
    Some(items)
}

pub(super) fn integer(raw: &[u8]) -> Option<u64> {
    std::str::from_utf8(raw).ok()?.parse().ok()
}

/// A part of a document, for messages.
pub(super) fn shown(raw: &[u8]) -> String {
    let text = String::from_utf8_lossy(raw.trim_ascii());
    let short: String = text.chars().take(60).collect();
    if short.len() < text.len() { short + "…" } else { short }
}

/// A name, alone or with a configuration, as version 3 writes data types, grids, keys and codecs.
pub(super) fn named<'a>(raw: &'a [u8], what: &str) -> Result<(String, ZarrObject<'a>), String> {
    let none = || ZarrObject(Vec::new());
    if let Some(name) = json::text(raw) {
        return Ok((name, none()));
    }
    let object = ZarrObject::parse(raw)?;
    let name = object.get("name").and_then(json::text);
    let name = name.ok_or_else(|| format!("has the {what} {} without a name", shown(raw)))?;
    let configuration = object.get("configuration").map_or_else(|| Ok(none()), ZarrObject::parse)?;
    Ok((name, configuration))
}

fn decoded(document: &[u8]) -> Result<std::borrow::Cow<'_, [u8]>, String> {
    json::utf8(document).map_err(|error| format!("has metadata that are not text: {error}"))
}

fn has_format(object: &ZarrObject<'_>, format: &str) -> Result<(), String> {
    let found = object.need("zarr_format")?;
    if found == format.as_bytes() {
        return Ok(());
    }
    Err(format!("has the zarr_format {}, must be {format}", shown(found)))
}

fn separator(raw: &[u8]) -> Result<char, String> {
    match raw {
        b"\".\"" => Ok('.'),
        b"\"/\"" => Ok('/'),
        other => Err(format!("has the separator {} in chunk names, must be \".\" or \"/\"", shown(other))),
    }
}

/// Reads an array of version 2 from its `.zarray` and its `.zattrs`.
///
/// # Errors
/// What is wrong or not read, as a continuation of a sentence about the array.
pub(in crate::dataset) fn array_v2(zarray: &[u8], zattrs: Option<&[u8]>) -> Result<ZarrArray, String> {
    let text = decoded(zarray)?;
    let object = ZarrObject::parse(&text)?;
    has_format(&object, "2")?;
    let (shape, chunk) = (object.lengths("shape")?, object.lengths("chunks")?);
    let element = ZarrElement::v2(object.need("dtype")?)?;
    let bytes = chunk_bytes(&shape, &chunk, element)?;
    let mut filters = Vec::new();
    match object.need("order")? {
        b"\"C\"" => {}
        b"\"F\"" => {
            let order = (0..chunk.len() as u32).rev().collect();
            filters.extend(encoding::transpose(element, &chunk, order));
        }
        other => return Err(format!("has the order {}, must be \"C\" or \"F\"", shown(other))),
    }
    encoding::add_filters_v2(&object, bytes, &mut filters)?;
    let fill = object.need("fill_value")?;
    let attributes = match zattrs {
        Some(zattrs) => ZarrObject::parse(&decoded(zattrs)?)?.into_texts(),
        None => BTreeMap::new(),
    };
    let array = ZarrArray {
        shape,
        chunk,
        element,
        fill: encoding::fill_v2(fill, element)?,
        states_fill: fill != b"null",
        filters,
        keys: ChunkKeys {
            is_prefixed: false,
            separator: object.get("dimension_separator").map_or(Ok('.'), separator)?,
        },
        shards: None,
        attributes,
    };
    check(array, bytes)
}

/// Reads a node of version 3 from its `zarr.json`.
///
/// # Errors
/// What is wrong or not read, as a continuation of a sentence about the node.
pub(in crate::dataset) fn node_v3(document: &[u8]) -> Result<ZarrNode, String> {
    let text = decoded(document)?;
    let object = ZarrObject::parse(&text)?;
    has_format(&object, "3")?;
    match object.need("node_type")? {
        b"\"array\"" => array_v3(&object).map(|array| ZarrNode::Array(Box::new(array))),
        b"\"group\"" => {
            let consolidated = object.get("consolidated_metadata").filter(|raw| *raw != b"null");
            Ok(ZarrNode::Group { consolidated: consolidated.map(consolidated_v3).transpose()? })
        }
        other => Err(format!("has the node_type {}, must be \"array\" or \"group\"", shown(other))),
    }
}

fn array_v3(object: &ZarrObject<'_>) -> Result<ZarrArray, String> {
    let known = [
        "zarr_format",
        "node_type",
        "shape",
        "data_type",
        "chunk_grid",
        "chunk_key_encoding",
        "fill_value",
        "codecs",
        "attributes",
        "dimension_names",
        "storage_transformers",
    ];
    for (key, value) in &object.0 {
        let may_be_ignored = || {
            let extension = ZarrObject::parse(value).ok();
            extension.is_some_and(|extension| extension.get("must_understand") == Some(b"false"))
        };
        if !known.contains(&key.as_str()) && !may_be_ignored() {
            return Err(format!("has metadata with the key {key:?}, which is not read"));
        }
    }
    let transformers = object.get("storage_transformers").map(|raw| list(raw).map(|items| items.len()));
    if transformers.is_some_and(|count| count != Some(0)) {
        return Err("has storage_transformers, which are not read".to_owned());
    }
    let shape = object.lengths("shape")?;
    let element = ZarrElement::v3(object.need("data_type")?)?;
    let (grid, configuration) = named(object.need("chunk_grid")?, "chunk_grid")?;
    if grid != "regular" {
        return Err(format!("has a chunk grid {grid:?}, which is not read: write chunks of equal shape"));
    }
    let chunk = configuration.lengths("chunk_shape")?;
    chunk_bytes(&shape, &chunk, element)?;
    let (name, configuration) = named(object.need("chunk_key_encoding")?, "chunk_key_encoding")?;
    let (is_prefixed, default) = match name.as_str() {
        "default" => (true, '/'),
        "v2" => (false, '.'),
        _ => return Err(format!("has the chunk_key_encoding {name:?}, which is not read")),
    };
    let keys =
        ChunkKeys { is_prefixed, separator: configuration.get("separator").map_or(Ok(default), separator)? };
    if let Some(names) = object.get("dimension_names").filter(|raw| *raw != b"null") {
        let is_name = |name: &&[u8]| *name == b"null" || name.starts_with(b"\"");
        let count = list(names).filter(|names| names.iter().all(is_name)).map(|names| names.len());
        if count != Some(shape.len()) {
            return Err(format!("has the dimension_names {} for the shape {shape:?}", shown(names)));
        }
    }
    let Encoding { chunk, swapped, filters, shards } =
        encoding::read_codecs(object.need("codecs")?, element, chunk)?;
    let bytes = chunk_bytes(&shape, &chunk, element)?;
    let array = ZarrArray {
        shape,
        chunk,
        element: ZarrElement { swapped, ..element },
        fill: encoding::fill_v3(object.need("fill_value")?, element)?,
        states_fill: true,
        filters,
        keys,
        shards,
        attributes: object
            .get("attributes")
            .map_or(Ok(BTreeMap::new()), |raw| ZarrObject::parse(raw).map(ZarrObject::into_texts))?,
    };
    check(array, bytes)
}

/// The number of bytes of a chunk.
fn chunk_bytes(shape: &[u64], chunk: &[u64], element: ZarrElement) -> Result<u64, String> {
    if shape.len() != chunk.len() || chunk.contains(&0) {
        return Err(format!("has the shape {shape:?} and chunks of the shape {chunk:?}, which do not match"));
    }
    let bytes = chunk.iter().try_fold(u64::from(element.size), |bytes, length| bytes.checked_mul(*length));
    bytes.ok_or_else(|| format!("has chunks of the shape {chunk:?}, which is too large"))
}

/// Checks what the parts of an array's metadata say together.
fn check(array: ZarrArray, bytes: u64) -> Result<ZarrArray, String> {
    check_filters(&array.filters, bytes)?;
    let product =
        |lengths: &[u64]| lengths.iter().try_fold(1u64, |product, length| product.checked_mul(*length));
    let (files, chunks) = (product(&array.files()), product(&array.grid()));
    if files.is_none_or(|count| count > MOST_FILES) {
        return Err(format!("has more than {MOST_FILES} chunk files: write larger chunks, or shards"));
    }
    let in_shard = array.shards.as_ref().map(|shards| product(&shards.per_shard));
    let is_too_many = |count: Option<u64>| count.is_none_or(|count| count > MOST_SHARDED);
    if in_shard.is_some_and(|count| is_too_many(count) || is_too_many(chunks)) {
        return Err(format!("has more than {MOST_SHARDED} chunks in shards: write larger chunks"));
    }
    let elements = product(&array.shape).and_then(|count| count.checked_mul(u64::from(array.element.size)));
    if elements.is_none() {
        return Err(format!("has the shape {:?}, which is too large", array.shape));
    }
    Ok(array)
}

/// The paths of the documents of all arrays below the root, which a `.zmetadata` (version 2) lists.
///
/// # Errors
/// What is wrong, as a continuation of a sentence about the store. Paths that lead out of the store are an error.
pub(super) fn consolidated_v2(zmetadata: &[u8]) -> Result<Vec<String>, String> {
    let text = decoded(zmetadata)?;
    let object = ZarrObject::parse(&text)?;
    let mut arrays = Vec::new();
    for key in ZarrObject::parse(object.need("metadata")?)?.into_texts().into_keys() {
        let (path, name) = key.rsplit_once('/').unwrap_or(("", &key));
        check_path(&key, path)?;
        match name {
            ARRAY if !path.is_empty() => arrays.push(key),
            ARRAY | ATTRIBUTES | GROUP => {}
            _ => return Err(format!("has consolidated metadata with the key {key:?}, which is not read")),
        }
    }
    Ok(arrays)
}

fn consolidated_v3(raw: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let object = ZarrObject::parse(raw)?;
    if object.need("kind")? != b"\"inline\"" {
        return Err(format!("has consolidated metadata of the kind {}, which is not read", shown(raw)));
    }
    let nodes = ZarrObject::parse(object.need("metadata")?)?.into_texts();
    nodes.keys().try_for_each(|path| check_path(path, path))?;
    Ok(nodes)
}

fn check_path(key: &str, path: &str) -> Result<(), String> {
    if path.is_empty() || is_relative_path(path) {
        return Ok(());
    }
    Err(format!("has consolidated metadata with the key {key:?}, which is no path below it"))
}

impl ZarrArray {
    /// The attributes that decode elements, as xarray reads them.
    pub(super) fn cf_attributes(&self, is_v2: bool) -> Result<CfAttributes, String> {
        let numbers = |name: &str| -> Result<Vec<CfNumber>, String> {
            let Some(raw) = self.attributes.get(name) else { return Ok(Vec::new()) };
            let mut items = Vec::new();
            if !raw.starts_with(b"[") || json::scan(raw, |_, item| items.push(item)).is_err() {
                items = vec![raw];
            }
            let found =
                items.into_iter().map(|raw| cf_number(raw, name == "_FillValue")).collect::<Option<_>>();
            found.ok_or_else(|| format!("has the attribute {name}={}", String::from_utf8_lossy(raw)))
        };
        let fill = match self.element.kind {
            // Version 2 has no other place for xarray's `_FillValue`.
            _ if is_v2 && !self.states_fill => Vec::new(),
            kind if is_v2 => vec![fill_number(&self.fill, kind)],
            _ => numbers("_FillValue")?,
        };
        let (scale, offset) = (numbers("scale_factor")?, numbers("add_offset")?);
        let unsigned = self.attributes.get("_Unsigned").and_then(|raw| json::text(raw));
        Ok(CfAttributes { scale, offset, fill, missing: numbers("missing_value")?, unsigned })
    }
}

/// A number of an attribute. `_FillValue` of floats is the base64 of a float64.
fn cf_number(raw: &[u8], is_fill: bool) -> Option<CfNumber> {
    if let Some(text) = json::text(raw) {
        let packed = || Some(f64::from_le_bytes(BASE64_STANDARD.decode(&text).ok()?.try_into().ok()?));
        return match is_fill {
            true => packed().map(CfNumber::Double),
            false => text.parse().ok().map(CfNumber::Double),
        };
    }
    let text = std::str::from_utf8(raw).ok()?;
    text.parse().map(CfNumber::Integer).or_else(|_| text.parse().map(CfNumber::Double)).ok()
}

/// A fill value in this machine's byte order as a number.
fn fill_number(fill: &[u8], kind: ZarrKind) -> CfNumber {
    let mut bytes = [0; 8];
    let size = fill.len().min(8);
    bytes[..size].copy_from_slice(&fill[..size]);
    if cfg!(target_endian = "big") {
        bytes[..size].reverse();
    }
    let (bits, unused) = (u64::from_le_bytes(bytes), 64 - 8 * size as u32);
    match (kind, size) {
        (ZarrKind::Bool | ZarrKind::Unsigned, _) => CfNumber::Integer(bits.into()),
        (ZarrKind::Signed, _) => CfNumber::Integer(((bits << unused).cast_signed() >> unused).into()),
        (ZarrKind::Brain, _) => CfNumber::Single(f32::from_bits((bits as u32) << 16)),
        (ZarrKind::Float, 2) => CfNumber::Double(half::f16::from_bits(bits as u16).into()),
        (ZarrKind::Float, 4) => CfNumber::Single(f32::from_bits(bits as u32)),
        (ZarrKind::Float, _) => CfNumber::Double(f64::from_bits(bits)),
    }
}
