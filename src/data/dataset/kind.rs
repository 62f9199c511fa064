//! Kinds of fields by the suffix of their names, and the one list of image formats that can be decoded.

use base::names::named;

/// The kind of value that a field of a sample holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// An image that is decoded to R, G and B.
    Image,
    /// An image whose values are class numbers. Palette indices and 16-bit values are kept.
    Mask,
    /// Boxes in the image: an array of four numbers per box.
    Boxes,
    /// Text in UTF-8.
    Text,
    /// A JSON document.
    Json,
    /// An array in NumPy's `.npy` format.
    Array,
    /// An integer as text.
    Integer,
    /// A decimal number as text.
    Float,
    /// Bytes without interpretation.
    Bytes,
}

named!(FieldKind:
    "image" => Image,
    "mask" => Mask,
    "boxes" => Boxes,
    "text" => Text,
    "json" => Json,
    "array" => Array,
    "integer" => Integer,
    "float" => Float,
    "bytes" => Bytes,
);

/// Version of the listing rules. The rules define what a sample is, its image, its label, and the order of samples. An
/// index that was made by other rules is never used, whatever its format version. Raise this number with every change
/// of the rules, also of [`IMAGE_EXTENSIONS`].
pub(super) const RULES: u32 = 7;

/// Extensions of images that can be decoded. If a sample has several images, the image whose extension comes first in
/// this list is used.
pub const IMAGE_EXTENSIONS: &[&str] = &["jpg", "jpeg", "jpe", "jfif", "png", "webp"];

/// Key suffixes of masks. By their extension alone, masks would be images.
const MASKS: &[&str] = &["seg.png", "mask.png"];

pub(super) fn ending_among(endings: &[&'static str], name: &[u8]) -> Option<&'static str> {
    let has = |ending: &&&str| {
        let start = name.len().checked_sub(ending.len());
        start.is_some_and(|start| name[start..].eq_ignore_ascii_case(ending.as_bytes()))
    };
    endings.iter().find(has).copied()
}

impl FieldKind {
    /// The kind of a member with this key. A key is the part of a file name after the first dot, in lower case.
    pub fn of_key(key: &str) -> Self {
        let ends_in =
            |end: &&str| key.strip_suffix(*end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        if MASKS.iter().any(ends_in) {
            return Self::Mask;
        }
        match key.rsplit('.').next().unwrap_or(key) {
            extension if IMAGE_EXTENSIONS.contains(&extension) => Self::Image,
            "txt" => Self::Text,
            "json" => Self::Json,
            "npy" => Self::Array,
            "cls" => Self::Integer,
            _ => Self::Bytes,
        }
    }

    /// Whether a field of this kind needs the bytes of a file, so that a small value from a table cannot be used.
    pub fn is_of_files(self) -> bool {
        !matches!(self, Self::Text | Self::Integer | Self::Float)
    }

    /// The extension of a member that is packed from a table column of this kind. `bytes` is the start of the value.
    pub(crate) fn extension(self, bytes: &[u8]) -> &'static str {
        match self {
            Self::Image | Self::Mask => image_extension(bytes).unwrap_or("bin"),
            Self::Text | Self::Integer | Self::Float => "txt",
            Self::Json => "json",
            Self::Array | Self::Boxes => "npy",
            Self::Bytes => "bin",
        }
    }
}

/// The index of a key in [`IMAGE_EXTENSIONS`]. Only keys of a sample's own image are in this list; keys such as
/// `seg.png` or `left.jpg` are not.
pub fn image_rank(key: &[u8]) -> Option<usize> {
    IMAGE_EXTENSIONS.iter().position(|extension| extension.as_bytes() == key)
}

/// The extension of the image format that a file with these first bytes has; `None` if the format cannot be decoded.
pub fn image_extension(head: &[u8]) -> Option<&'static str> {
    match head {
        [0xff, 0xd8, 0xff, ..] => Some("jpg"),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("png"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("webp"),
        _ => None,
    }
}

pub(super) fn is_image_file(name: &[u8]) -> bool {
    let extension =
        name.iter().rposition(|&byte| byte == b'.').map(|dot| name[dot + 1..].to_ascii_lowercase());
    extension.is_some_and(|extension| image_rank(&extension).is_some())
}

/// All extensions as a phrase: ".jpg, .jpeg, .jpe, .jfif, .png or .webp".
pub fn image_extensions() -> String {
    let (last, others) = IMAGE_EXTENSIONS.split_last().expect("some image can be decoded");
    let others: Vec<String> = others.iter().map(|extension| format!(".{extension}")).collect();
    format!("{} or .{last}", others.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_say_what_they_hold() {
        let kinds = [
            ("jpg", FieldKind::Image),
            ("left.png", FieldKind::Image),
            ("seg.png", FieldKind::Mask),
            ("left.mask.png", FieldKind::Mask),
            ("noseg.png", FieldKind::Image),
            ("txt", FieldKind::Text),
            ("json", FieldKind::Json),
            ("meta.json", FieldKind::Json),
            ("cls", FieldKind::Integer),
            ("npy", FieldKind::Array),
            ("pickle", FieldKind::Bytes),
        ];
        for (key, kind) in kinds {
            assert_eq!(FieldKind::of_key(key), kind, "{key}");
        }
    }

    #[test]
    fn images_are_known_by_their_names() {
        assert_eq!(image_extensions(), ".jpg, .jpeg, .jpe, .jfif, .png or .webp");
        assert_eq!((image_rank(b"jpg"), image_rank(b"seg.png")), (Some(0), None));
        assert!(is_image_file(b"a.b.JPEG") && is_image_file(b".jpg"));
        assert!(!is_image_file(b"jpg") && !is_image_file(b"a.jpg.txt"));
    }
}
