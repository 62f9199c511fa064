//! What the bytes of a column are, where no schema says it: images, texts, or anything else, by how they begin.

use super::FieldKind;
use super::kind::image_extension;
use super::table::CellExtent;
use crate::source::{Malformed, ReadAt, Window};

/// The number of bytes of a value that are looked at.
pub(super) const HEAD: u64 = 64;

/// What is common to the values of a column that were seen so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ValueKinds {
    /// The values that had bytes.
    looked_at: u64,
    /// Those of them that begin as images.
    images: u64,
    /// Those of them that begin as texts.
    texts: u64,
}

impl ValueKinds {
    /// Looks at the first bytes of a value.
    ///
    /// # Errors
    /// [`Malformed`] where they cannot be read.
    pub(super) fn look<S: ReadAt + ?Sized>(
        &mut self,
        bytes: &mut Window<'_, S>,
        value: CellExtent,
    ) -> Result<(), Malformed> {
        if value.length == 0 {
            return Ok(());
        }
        let head = bytes.read(value.offset, HEAD.min(u64::from(value.length)))?;
        self.look_at(&head, u64::from(value.length));
        Ok(())
    }

    /// Looks at the first bytes of a value, of which there are [`HEAD`] or all of its `length`.
    pub(super) fn look_at(&mut self, head: &[u8], length: u64) {
        self.looked_at += 1;
        self.images += u64::from(image_extension(head).is_some());
        self.texts += u64::from(is_text(head, length > HEAD));
    }

    /// The kind of all values: images where most are, so that a damaged one is an error of its sample alone, and texts
    /// where all are.
    pub(super) fn kind(self) -> FieldKind {
        match self {
            Self { looked_at, images, .. } if images > looked_at / 2 => FieldKind::Image,
            Self { looked_at, texts, .. } if texts == looked_at => FieldKind::Text,
            _ => FieldKind::Bytes,
        }
    }
}

impl ValueKinds {
    /// The kind of values that a schema calls bytes: images, or bytes.
    pub(super) fn kind_of_bytes(self) -> FieldKind {
        if self.kind() == FieldKind::Image { FieldKind::Image } else { FieldKind::Bytes }
    }

    /// Whether no value had bytes, so that nothing is known of their kind.
    pub(super) fn is_unknown(self) -> bool {
        self.looked_at == 0
    }
}

/// Whether bytes are text in UTF-8 without control characters. A text may be `cut` within a character.
fn is_text(head: &[u8], cut: bool) -> bool {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if cut && error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.contains(|c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r'))
}
