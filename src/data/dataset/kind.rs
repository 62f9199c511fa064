//! What a field holds, by the end of its name, and the one list of the image formats that can be decoded.

use base::names::named;

/// The kind of value that a field of a sample holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// A picture that is decoded to R, G and B.
    Image,
    /// A picture whose values are class numbers; palette indices and 16-bit values stay what they are.
    Mask,
    /// Boxes in the image: an array of four numbers each.
    Boxes,
    /// Text in UTF-8.
    Text,
    /// A JSON document.
    Json,
    /// An array in NumPy's `.npy`.
    Array,
    /// A whole number as text.
    Integer,
    /// A decimal number as text.
    Float,
    /// Bytes as they are.
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

/// The version of the rules by which a dataset is listed: what is a sample, its image, its label, and the order of
/// samples. A listing by other rules is never trusted, whatever its format. Raise it with every change of the rules,
/// and so of the list below.
pub(super) const RULES: u32 = 6;

/// The extensions of images that can be decoded. Where a sample has several, its image is the one whose extension comes
/// first here.
pub const IMAGE_EXTENSIONS: &[&str] = &["jpg", "jpeg", "jpe", "jfif", "png", "webp"];

/// The endings of keys of masks, which are images by their extension.
const MASKS: &[&str] = &["seg.png", "mask.png"];

/// The first of these endings that a name has, in upper or lower case.
pub(super) fn ending_among(endings: &[&'static str], name: &[u8]) -> Option<&'static str> {
    let has = |ending: &&&str| {
        let start = name.len().checked_sub(ending.len());
        start.is_some_and(|start| name[start..].eq_ignore_ascii_case(ending.as_bytes()))
    };
    endings.iter().find(has).copied()
}

impl FieldKind {
    /// What a member with this key holds; a key is what follows the first dot of a name, in lower case.
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

    /// Whether a member must be bytes of a file to be asked for as this, and cannot be a small value of a table.
    pub fn is_of_files(self) -> bool {
        !matches!(self, Self::Text | Self::Integer | Self::Float)
    }

    /// The extension of a member that is packed from a column of this kind, whose value begins with these bytes.
    pub(crate) fn extension(self, bytes: &[u8]) -> &'static str {
        match self {
            Self::Image | Self::Mask => image_extension(bytes).unwrap_or("bin"),
            Self::Text | Self::Integer | Self::Float => "txt",
            Self::Json => "json",
            Self::Array => "npy",
            Self::Boxes | Self::Bytes => "bin",
        }
    }
}

/// The place of a key in [`IMAGE_EXTENSIONS`], for the key of a sample's own image and not for `seg.png` or `left.jpg`
/// beside it.
pub fn image_rank(key: &[u8]) -> Option<usize> {
    IMAGE_EXTENSIONS.iter().position(|extension| extension.as_bytes() == key)
}

/// The extension of the format that can be decoded in which a file is that begins like this.
pub fn image_extension(head: &[u8]) -> Option<&'static str> {
    match head {
        [0xff, 0xd8, 0xff, ..] => Some("jpg"),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("png"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("webp"),
        _ => None,
    }
}

/// Whether a file's name says that it is an image that can be decoded.
pub(super) fn is_image_file(name: &[u8]) -> bool {
    let extension =
        name.iter().rposition(|&byte| byte == b'.').map(|dot| name[dot + 1..].to_ascii_lowercase());
    extension.is_some_and(|extension| image_rank(&extension).is_some())
}

/// The extensions in words: ".jpg, .jpeg, .jpe, .jfif, .png or .webp".
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
