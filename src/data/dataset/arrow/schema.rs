//! The columns of Arrow tables: the types of their values, and their nodes and buffers in a batch.
//!
//! The numbers of fields and types are those of Arrow's `format/Schema.fbs`.

use super::super::hugging_face;
use super::flat::FlatTable;
use std::rc::Rc;

/// The maximum number of fields of a schema, and the maximum depth of nested structs and lists.
const MAX_FIELDS: usize = 1 << 16;
const DEEPEST: usize = 32;
/// The maximum total size of all column names in bytes. The name of a column includes the names of the structs around
/// it.
const MAX_NAMES: usize = 16 << 20;

pub(super) struct ArrowColumn {
    /// The names of the structs around the column, and its own name. The path ends at the first list or similar type.
    pub(super) path: Vec<String>,
    pub(super) content: Result<ArrowContent, String>,
    /// The id of the dictionary to which the values refer by index, and the integer type of these indices.
    pub(super) dictionary: Option<(i64, ArrowContent)>,
    /// The column's node and first buffer in a batch. `structs` has the nodes and buffers of the structs around the
    /// column.
    pub(super) place: BufferPlace,
    pub(super) structs: Rc<Vec<BufferPlace>>,
    /// Whether the column is in a struct that consists of `bytes`, or of `bytes` and a `path`.
    pub(super) in_bytes_and_path: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct BufferPlace {
    pub(super) node: usize,
    pub(super) buffer: usize,
    /// The number of earlier fields whose number of buffers depends on the batch.
    pub(super) variadic: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArrowContent {
    Bool,
    Integer {
        width: usize,
        signed: bool,
    },
    Float {
        width: usize,
    },
    /// Bytes or strings, with offsets of eight bytes (`is_large`) or four.
    Bytes {
        is_large: bool,
        is_text: bool,
    },
    /// Bytes or strings as views. A short value is in the view itself. For a longer value, the view refers to another
    /// buffer.
    Views {
        is_text: bool,
    },
    FixedBytes(u32),
}

impl ArrowContent {
    pub(super) fn is_text(self) -> bool {
        matches!(self, Self::Bytes { is_text: true, .. } | Self::Views { is_text: true })
    }
}

pub(super) struct ArrowSchema {
    pub(super) columns: Vec<ArrowColumn>,
    pub(super) hugging_face: Option<Vec<u8>>,
}

enum FieldBuffers {
    Leaf(Result<ArrowContent, String>),
    Struct,
    Other { what: &'static str, buffers: usize },
}

enum FieldDictionary {
    Absent,
    By(i64, ArrowContent),
    Refused(String),
}

struct OpenField<'a> {
    field: FlatTable<'a>,
    next: usize,
    path: Vec<String>,
    structs: Rc<Vec<BufferPlace>>,
    is_refused: bool,
    in_bytes_and_path: bool,
}

impl ArrowSchema {
    pub(super) fn read(schema: FlatTable<'_>, version: i16) -> Result<Self, &'static str> {
        const DAMAGED: &str = "its schema is damaged";
        if schema.i16(0).ok_or(DAMAGED)? != 0 {
            return Err("its numbers are big-endian: write it on a little-endian machine");
        }
        let mut found = Self { columns: Vec::new(), hugging_face: None };
        let metadata = schema.tables(2).ok_or(DAMAGED)?;
        for number in 0..metadata.count {
            let pair = metadata.get(number).ok_or(DAMAGED)?;
            if pair.vector(0, 1) == Some(hugging_face::KEY) {
                found.hugging_face = pair.vector(1, 1).map(<[u8]>::to_vec);
                break;
            }
        }
        let mut place = BufferPlace { node: 0, buffer: 0, variadic: 0 };
        let root = OpenField {
            field: schema,
            next: 0,
            path: Vec::new(),
            structs: Rc::default(),
            is_refused: false,
            in_bytes_and_path: false,
        };
        let (mut open, mut names) = (vec![root], 0);
        while let Some(parent) = open.last_mut() {
            // Field 1 of a schema's table is its fields; field 5 of a field's table is its children.
            let children = parent.field.tables(if parent.path.is_empty() { 1 } else { 5 }).ok_or(DAMAGED)?;
            if parent.next == children.count {
                open.pop();
                continue;
            }
            let field = children.get(parent.next).ok_or(DAMAGED)?;
            parent.next += 1;
            if place.node >= MAX_FIELDS || found.columns.len() >= MAX_FIELDS {
                return Err("its schema has too many columns");
            }
            let mut path = parent.path.clone();
            // Items of lists need no name.
            let name = field.text(0).filter(|name| !name.is_empty() || !parent.path.is_empty());
            path.push(name.ok_or(DAMAGED)?);
            let dictionary = dictionary(field).ok_or(DAMAGED)?;
            let layout = layout(field, version).ok_or(DAMAGED)?;
            let own = place;
            let (structs, in_bytes_and_path) = (parent.structs.clone(), parent.in_bytes_and_path);
            let (is_refused, depth) = (parent.is_refused, open.len());
            let numbers =
                if let FieldDictionary::By(id, numbers) = dictionary { Some((id, numbers)) } else { None };
            // The file can store a name once and use it for many fields, so limit the sum of the lengths.
            names += path.iter().map(String::len).sum::<usize>();
            if names > MAX_NAMES {
                return Err("the names of its columns are too long");
            }
            let mut column = |content| {
                if !is_refused {
                    let (path, structs) = (path.clone(), structs.clone());
                    let (dictionary, place) = (numbers, own);
                    found.columns.push(ArrowColumn {
                        path,
                        content,
                        dictionary,
                        place,
                        structs,
                        in_bytes_and_path,
                    });
                }
            };
            place.node += 1;
            // For a field with a dictionary, a batch holds only indices. The field's children are stored in the
            // dictionary.
            if !matches!(dictionary, FieldDictionary::Absent) {
                place.buffer += 2;
                column(match (dictionary, layout) {
                    (FieldDictionary::Refused(why), _) => Err(why),
                    (_, FieldBuffers::Leaf(content)) => content,
                    (_, FieldBuffers::Struct) => {
                        Err("it holds dictionary-encoded structs, which cannot be read".to_owned())
                    }
                    (_, FieldBuffers::Other { what, .. }) => {
                        Err(format!("it holds {what}, which cannot be read"))
                    }
                });
                continue;
            }
            let (mut inner, mut is_refused) = (structs.clone(), is_refused);
            match layout {
                FieldBuffers::Leaf(content) => {
                    place.buffer += buffers(&content);
                    place.variadic += usize::from(matches!(content, Ok(ArrowContent::Views { .. })));
                    column(content);
                    continue;
                }
                FieldBuffers::Struct => {
                    place.buffer += 1;
                    inner = Rc::new(inner.iter().copied().chain([own]).collect());
                }
                FieldBuffers::Other { what, buffers } => {
                    place.buffer += buffers;
                    column(Err(format!("it holds {what}, which cannot be read")));
                    is_refused = true;
                }
            }
            if depth >= DEEPEST {
                return Err("its schema nests structs too deeply (at most 32 levels)");
            }
            let in_bytes_and_path = is_bytes_and_path(field).ok_or(DAMAGED)?;
            open.push(OpenField { field, next: 0, path, structs: inner, is_refused, in_bytes_and_path });
        }
        Ok(found)
    }
}

fn buffers(content: &Result<ArrowContent, String>) -> usize {
    if let Ok(ArrowContent::Bytes { .. }) = content { 3 } else { 2 }
}

/// The dictionary of a field, and the type of the indices that refer to the dictionary's values. `None` for a damaged
/// field.
fn dictionary(field: FlatTable<'_>) -> Option<FieldDictionary> {
    if !field.has(4) {
        return Some(FieldDictionary::Absent);
    }
    let encoding = field.table(4)?;
    // Without a type, the indices have 32 bits.
    let numbers = if encoding.has(1) { integer(encoding.table(1)?)? } else { integer_of(32, true) };
    let id = encoding.i64(0)?;
    Some(numbers.map_or_else(FieldDictionary::Refused, |numbers| FieldDictionary::By(id, numbers)))
}

fn integer(kind: FlatTable<'_>) -> Option<Result<ArrowContent, String>> {
    Some(integer_of(kind.i32(0)?, kind.u8(1)? != 0))
}

fn integer_of(bits: i32, signed: bool) -> Result<ArrowContent, String> {
    match bits {
        8 | 16 | 32 | 64 => Ok(ArrowContent::Integer { width: bits as usize / 8, signed }),
        _ => Err(format!("it holds integers of {bits} bits, which cannot be read")),
    }
}

fn layout(field: FlatTable<'_>, version: i16) -> Option<FieldBuffers> {
    let refused = |what: &str| FieldBuffers::Leaf(Err(format!("it holds {what}, which cannot be read")));
    let other = |what, buffers| FieldBuffers::Other { what, buffers };
    let bytes = |is_large, is_text| FieldBuffers::Leaf(Ok(ArrowContent::Bytes { is_large, is_text }));
    // Each type has a table, also if it says nothing more of the type.
    let kind = field.table(3)?;
    Some(match field.u8(2)? {
        1 => other("no values at all", 0),
        2 => FieldBuffers::Leaf(integer(kind)?),
        3 => match kind.i16(0)? {
            precision @ 0..=2 => FieldBuffers::Leaf(Ok(ArrowContent::Float { width: 2 << precision })),
            _ => return None,
        },
        4 => bytes(false, false),
        5 => bytes(false, true),
        6 => FieldBuffers::Leaf(Ok(ArrowContent::Bool)),
        7 => refused("decimals"),
        8 => refused("dates"),
        9 => refused("times of day"),
        10 => refused("timestamps"),
        11 => refused("intervals"),
        12 => other("lists", 2),
        13 => FieldBuffers::Struct,
        14 => {
            let dense = usize::from(kind.i16(0)? == 1);
            // Unions had a validity bitmap up to Arrow version 4, which is stored as 3.
            other("unions", 1 + dense + usize::from(version < 4))
        }
        15 => match u32::try_from(kind.i32(0)?).ok()? {
            0 => refused("values of 0 bytes"),
            length => FieldBuffers::Leaf(Ok(ArrowContent::FixedBytes(length))),
        },
        16 => other("lists", 1),
        17 => other("maps", 2),
        18 => refused("durations"),
        19 => bytes(true, false),
        20 => bytes(true, true),
        21 => other("lists", 2),
        22 => other("run-end-encoded values", 0),
        23 => FieldBuffers::Leaf(Ok(ArrowContent::Views { is_text: false })),
        24 => FieldBuffers::Leaf(Ok(ArrowContent::Views { is_text: true })),
        25 | 26 => other("lists", 3),
        _ => return None,
    })
}

fn is_bytes_and_path(field: FlatTable<'_>) -> Option<bool> {
    let children = field.tables(5)?;
    let is_part = |number| {
        let child: FlatTable<'_> = children.get(number)?;
        Some(matches!((child.vector(0, 1)?, child.u8(2)?), (b"bytes", 4 | 19 | 23) | (b"path", 5 | 20 | 24)))
    };
    let parts = (0..children.count.min(3)).map(is_part).collect::<Option<Vec<_>>>()?;
    Some(field.u8(2)? == 13 && matches!(parts.as_slice(), [true] | [true, true]))
}
