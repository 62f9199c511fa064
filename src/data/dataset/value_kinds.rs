//! Detects the kind of a column's values if no schema states it: images, texts or other bytes. Examines the first bytes
//! of values.

use super::FieldKind;
use super::kind::image_extension;
use super::table::CellExtent;
use crate::source::{Malformed, ReadAt, Window};

pub(super) const HEAD: u64 = 64;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ValueKinds {
    /// The number of examined values that are not empty.
    looked_at: u64,
    images: u64,
    texts: u64,
}

impl ValueKinds {
    /// Examines the first bytes of a value.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes cannot be read.
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

    /// Examines `head`, which is the first [`HEAD`] bytes of a value, or all of its `length` bytes.
    pub(super) fn look_at(&mut self, head: &[u8], length: u64) {
        self.looked_at += 1;
        self.images += u64::from(image_extension(head).is_some());
        self.texts += u64::from(is_text(head, length > HEAD));
    }

    /// The kind of all values: image if most values are images, so that a damaged image is an error only for its
    /// sample; text if all values are texts.
    pub(super) fn kind(self) -> FieldKind {
        match self {
            Self { looked_at, images, .. } if images > looked_at / 2 => FieldKind::Image,
            Self { looked_at, texts, .. } if texts == looked_at => FieldKind::Text,
            _ => FieldKind::Bytes,
        }
    }
}

impl ValueKinds {
    pub(super) fn kind_of_bytes(self) -> FieldKind {
        if self.kind() == FieldKind::Image { FieldKind::Image } else { FieldKind::Bytes }
    }

    /// Whether all values were empty, so that the kind is unknown.
    pub(super) fn is_unknown(self) -> bool {
        self.looked_at == 0
    }
}

/// Whether bytes are UTF-8 text without control characters. With `cut`, the text can end within a character.
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
