//! The encodings of columns, by their names in `index.json`.

use crate::dataset::FieldKind;

/// The type of the values of a column. The integers are sizes in bytes per value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MdsEncoding {
    /// Values that are stored verbatim, such as images. Without a `FieldKind`, the first bytes of a value determine its
    /// kind.
    Bytes(Option<FieldKind>),
    Signed(u64),
    Unsigned(u64),
    Float(u64),
    /// Integers as text.
    WholeText,
    /// Floating-point numbers as text.
    FloatText,
    Refused(String),
}

impl MdsEncoding {
    pub(super) fn of(name: &str) -> Self {
        let refused = |why: String| Self::Refused(why);
        match name {
            "bytes" => Self::Bytes(None),
            "jpeg" | "png" => Self::Bytes(Some(FieldKind::Image)),
            // Only text can represent a decimal number exactly.
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
                "is encoded as \"pkl\", which is not read, because unpickling may run arbitrary code: write it with \
                 another encoding"
                    .to_owned(),
            ),
            "pil" => refused(
                "is encoded as \"pil\", the raw pixels of an image: write it with the encoding \"jpeg\" or \"png\""
                    .to_owned(),
            ),
            _ if name.starts_with("ndarray") => refused(format!(
                "is encoded as {name:?}, and arrays of this encoding are not supported: write .npy files with the \
                 encoding \"bytes\""
            )),
            _ => refused(format!("is encoded as {name:?}, which is not supported")),
        }
    }

    pub(super) fn size(&self) -> Option<u64> {
        match self {
            Self::Signed(size) | Self::Unsigned(size) | Self::Float(size) => Some(*size),
            Self::Bytes(_) | Self::WholeText | Self::FloatText | Self::Refused(_) => None,
        }
    }
}
