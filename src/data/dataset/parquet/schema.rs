//! The columns of a Parquet file: the leaves of its schema, the types of their values, and the names by which fields
//! select them.

use super::super::gather::damaged;
use super::super::table::NULL_TYPE;
use super::footer::{LogicalType, SchemaElement};
use crate::source::Malformed;
use std::collections::HashMap;

const DEEPEST: usize = 32;
/// The maximum total size of all column names in bytes. The name of a column includes the names of the structs around
/// it.
const MAX_NAMES: usize = 16 << 20;

/// A leaf of the schema. A leaf has a column chunk in each row group.
pub(super) struct SchemaLeaf {
    /// The names of the structs around the leaf, and its own name. The path ends at the first list or map.
    pub(super) path: Vec<String>,
    /// The definition level of a present value.
    pub(super) present: u32,
    pub(super) physical: u64,
    pub(super) content: Result<LeafContent, String>,
    /// Whether the leaf is in a struct that consists of `bytes`, or of `bytes` and a `path`.
    pub(super) in_bytes_and_path: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeafContent {
    Bool,
    /// Integers of this many bits, each stored in 32 bits.
    Int(u32),
    UnsignedInt(u32),
    Long,
    UnsignedLong,
    Half,
    Float,
    Double,
    Text,
    Json,
    Bytes,
    FixedBytes(u32),
}

/// A struct in the schema whose children are being visited.
struct OpenGroup {
    left: u64,
    present: u32,
    /// The name of the type of the first list or map on the path, if the path has one.
    repeated: Option<&'static str>,
    in_path: bool,
}

/// The leaves of a schema, in the order of column chunks.
///
/// # Errors
/// [`Malformed`] at `offset` if the elements do not form a tree.
pub(super) fn leaves(schema: &[SchemaElement], offset: u64) -> Result<Vec<SchemaLeaf>, Malformed> {
    let wrong = |message: &str| damaged(offset, message);
    let Some((root, elements)) = schema.split_first() else { return Err(wrong("its schema is empty")) };
    let root = OpenGroup { left: root.children, present: 0, repeated: None, in_path: false };
    let (mut open, mut path, mut leaves, mut names) = (vec![root], Vec::<String>::new(), Vec::new(), 0);
    for element in elements {
        while open.last().is_some_and(|group| group.left == 0) {
            if open.pop().is_some_and(|group| group.in_path) {
                path.pop();
            }
        }
        let Some(group) = open.last_mut() else {
            return Err(wrong("its schema has more than one root"));
        };
        group.left -= 1;
        let level = match element.repetition {
            Some(0) => 0,
            Some(1 | 2) => 1,
            _ => return Err(wrong("a column in its schema has no valid repetition type")),
        };
        let present = group.present + level;
        // A list is refused as a whole, so the path ends at the name of the list.
        let in_path = group.repeated.is_none();
        let repeated = group.repeated.or_else(|| repetition(element));
        if in_path {
            path.push(element.name.clone());
        }
        match element.physical {
            None => {
                if open.len() >= DEEPEST {
                    return Err(wrong("its schema nests structs too deeply (at most 32 levels)"));
                }
                open.push(OpenGroup { left: element.children, present, repeated, in_path });
            }
            Some(physical) => {
                let content = match repeated {
                    Some(what) => Err(format!("it holds {what}, which cannot be read")),
                    None => content(element, physical),
                };
                names += path.iter().map(String::len).sum::<usize>();
                if names > MAX_NAMES {
                    return Err(wrong("the names of its columns are too long"));
                }
                let path = path.clone();
                leaves.push(SchemaLeaf { path, present, physical, content, in_bytes_and_path: false });
            }
        }
        if in_path && element.physical.is_some() {
            path.pop();
        }
    }
    if open.iter().any(|group| group.left > 0) {
        return Err(wrong("its schema has fewer columns than it states"));
    }
    mark_bytes_and_path(&mut leaves);
    Ok(leaves)
}

fn repetition(element: &SchemaElement) -> Option<&'static str> {
    match (element.converted, element.logical.map(|logical| logical.variant)) {
        (Some(1 | 2), _) | (_, Some(2)) => Some("maps"),
        (Some(3), _) | (_, Some(3)) => Some("lists"),
        (_, Some(16)) => Some("variants"),
        _ if element.repetition == Some(2) => Some("lists"),
        _ => None,
    }
}

/// The type of a leaf's values, from its physical type and its annotations, with the ids of `parquet.thrift`.
fn content(element: &SchemaElement, physical: u64) -> Result<LeafContent, String> {
    let refused = |what: &str| Err(format!("it holds {what}, which cannot be read"));
    let (logical, converted) = (element.logical, element.converted);
    match (logical.map(|logical| logical.variant), converted) {
        (Some(5), _) | (None, Some(5)) => return refused("decimals"),
        (Some(6), _) | (None, Some(6)) => return refused("dates"),
        (Some(7), _) | (None, Some(7 | 8)) => return refused("times of day"),
        (Some(8), _) | (None, Some(9 | 10)) => return refused("timestamps"),
        (None, Some(21)) => return refused("intervals"),
        (Some(11), _) => return Err(NULL_TYPE.to_owned()),
        _ => {}
    }
    let unsigned = match (logical, converted) {
        (Some(LogicalType { variant: 10, signed }), _) => !signed,
        _ => matches!(converted, Some(11..=14)),
    };
    let bits = match converted {
        Some(11 | 15) => 8,
        Some(12 | 16) => 16,
        _ => 32,
    };
    let variant = logical.map(|logical| logical.variant);
    Ok(match (physical, variant, converted) {
        (0, ..) => LeafContent::Bool,
        (1, ..) if unsigned => LeafContent::UnsignedInt(bits),
        (1, ..) => LeafContent::Int(bits),
        (2, ..) if unsigned => LeafContent::UnsignedLong,
        (2, ..) => LeafContent::Long,
        (4, ..) => LeafContent::Float,
        (5, ..) => LeafContent::Double,
        (6, Some(1 | 4), _) | (6, None, Some(0 | 4)) => LeafContent::Text,
        (6, Some(12), _) | (6, None, Some(19)) => LeafContent::Json,
        (6, ..) => LeafContent::Bytes,
        (7, Some(15), _) if element.length == 2 => LeafContent::Half,
        (7, ..) => match u32::try_from(element.length) {
            Ok(length @ 1..) => LeafContent::FixedBytes(length),
            _ => return refused("values of 0 bytes"),
        },
        (3, ..) => return refused("timestamps of 96 bits"),
        (other, ..) => return refused(&format!("values of type {other}")),
    })
}

/// Sets `in_bytes_and_path` of leaves. Hugging Face's `datasets` stores images and sounds in such structs.
fn mark_bytes_and_path(leaves: &mut [SchemaLeaf]) {
    let is_part = |leaf: &SchemaLeaf| match (leaf.path.last().map(String::as_str), &leaf.content) {
        (Some("bytes"), Ok(LeafContent::Bytes)) | (Some("path"), Ok(LeafContent::Text)) => {
            leaf.path.len() > 1
        }
        _ => false,
    };
    let mut structs = HashMap::<Vec<String>, bool>::new();
    for leaf in leaves.iter() {
        for end in 1..leaf.path.len() {
            let all = structs.entry(leaf.path[..end].to_vec()).or_insert(true);
            *all &= is_part(leaf) && end + 1 == leaf.path.len();
        }
    }
    for leaf in leaves {
        let (_, parent) = leaf.path.split_last().unwrap_or((&leaf.path[0], &[]));
        leaf.in_bytes_and_path = structs.get(parent).copied().unwrap_or(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(name: &str, physical: Option<u64>, children: u64) -> SchemaElement {
        let name = name.to_owned();
        SchemaElement { name, physical, children, repetition: Some(1), ..SchemaElement::default() }
    }

    #[test]
    fn whole_numbers_have_the_width_of_their_type() {
        let of = |converted| content(&SchemaElement { converted, ..element("a", Some(1), 0) }, 1);
        let found =
            [None, Some(11), Some(12), Some(13), Some(15), Some(16)].map(|converted| of(converted).unwrap());
        let (signed, unsigned) = (LeafContent::Int, LeafContent::UnsignedInt);
        assert_eq!(found, [signed(32), unsigned(8), unsigned(16), unsigned(32), signed(8), signed(16)]);
    }

    #[test]
    fn a_column_without_a_type_is_refused_as_such() {
        let logical = Some(LogicalType { variant: 11, signed: true });
        let none = SchemaElement { logical, ..element("x", Some(1), 0) };
        assert_eq!(content(&none, 1), Err(NULL_TYPE.to_owned()));
    }

    #[test]
    fn a_schema_is_a_tree_or_an_error() {
        let schema = || {
            let mut list = element("boxes", None, 1);
            (list.converted, list.repetition) = (Some(3), Some(1));
            let mut items = element("list", None, 2);
            items.repetition = Some(2);
            let path = SchemaElement { converted: Some(0), ..element("path", Some(6), 0) };
            vec![
                element("schema", None, 4),
                element("image", None, 2),
                element("bytes", Some(6), 0),
                path,
                list,
                items,
                element("x", Some(1), 0),
                element("y", Some(1), 0),
                element("label", Some(2), 0),
                element("at", None, 1),
                element("deep", Some(5), 0),
            ]
        };
        let found = leaves(&schema(), 9).unwrap();
        let paths: Vec<_> = found.iter().map(|leaf| (leaf.path.join("."), leaf.present)).collect();
        let expected =
            [("image.bytes", 2), ("image.path", 2), ("boxes", 3), ("boxes", 3), ("label", 1), ("at.deep", 2)];
        assert_eq!(paths, expected.map(|(path, present)| (path.to_owned(), present)));
        assert_eq!(found[4].content, Ok(LeafContent::Long));
        assert!(found[2].content.as_ref().unwrap_err().contains("lists"));
        let marked: Vec<_> = found.iter().map(|leaf| leaf.in_bytes_and_path).collect();
        assert_eq!(marked, [true, true, false, false, false, false]);
        for cut in 0..schema().len() {
            assert!(leaves(&schema()[..cut], 9).is_err(), "{cut}");
        }
        let mut beside = schema();
        beside.push(element("more", Some(1), 0));
        assert_eq!(leaves(&beside, 9).err().map(|error| error.offset), Some(9));
        let deep: Vec<_> = std::iter::repeat_with(|| element("a", None, 1)).take(100).collect();
        assert!(leaves(&deep, 9).is_err());
    }
}
