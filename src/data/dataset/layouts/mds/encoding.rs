//! The encodings of columns, by which the values of a column are known, and what each becomes.

use crate::dataset::FieldKind;

/// What the values of a column become.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MdsEncoding {
    /// Bytes of this kind, as they lie in the shard. Without a kind, it is found by how they begin.
    Bytes(Option<FieldKind>),
    /// Whole numbers of so many bytes.
    Signed(u64),
    /// Whole numbers of so many bytes that are not negative.
    Unsigned(u64),
    /// Other numbers of so many bytes.
    Float(u64),
    /// Whole numbers as text.
    WholeText,
    /// Other numbers as text.
    FloatText,
    /// Nothing that is read, for this reason.
    Refused(String),
}

impl MdsEncoding {
    /// What `index.json` calls `name`.
    pub(super) fn of(name: &str) -> Self {
        let refused = |why: String| Self::Refused(why);
        match name {
            "bytes" => Self::Bytes(None),
            "jpeg" | "png" => Self::Bytes(Some(FieldKind::Image)),
            // A decimal number is exact as text alone.
            "str" | "str_decimal" => Self::Bytes(Some(FieldKind::Text)),
            "json" => Self::Bytes(Some(FieldKind::Json)),
            "int" | "int64" => Self::Signed(8),
            "int8" => Self::Signed(1),
            "int16" => Self::Signed(2),
            "int32" => Self::Signed(4),
            "uint8" => Self::Unsigned(1),
            "uint16" => Self::Unsigned(2),
            "uint32" => Self::Unsigned(4),
            "uint64" => Self::Unsigned(8),
            "float16" => Self::Float(2),
            "float32" => Self::Float(4),
            "float64" => Self::Float(8),
            "str_int" => Self::WholeText,
            "str_float" => Self::FloatText,
            "pkl" => refused(
                "is encoded as \"pkl\", and unpickling may run any program, so it is never done: write it with another \
                 encoding"
                    .to_owned(),
            ),
            "pil" => refused(
                "is encoded as \"pil\", the bare pixels of an image: write it with the encoding \"jpeg\" or \"png\""
                    .to_owned(),
            ),
            _ if name.starts_with("ndarray") => refused(format!(
                "is encoded as {name:?}, and arrays of that encoding are not read: write .npy files with the encoding \
                 \"bytes\""
            )),
            _ => refused(format!("is encoded as {name:?}, which is not read")),
        }
    }

    /// The bytes that each value has; `None` where they differ, or do not matter.
    pub(super) fn size(&self) -> Option<u64> {
        match self {
            Self::Signed(size) | Self::Unsigned(size) | Self::Float(size) => Some(*size),
            Self::Bytes(_) | Self::WholeText | Self::FloatText | Self::Refused(_) => None,
        }
    }
}
