//! EXIF data as a phone writes it: the orientation and a preview.

/// The contents of the APP1 segment: TIFF with a directory for the image and a directory for its preview, which is a
/// JPEG (Exif 2.32, 4.5.4 and 4.5.6).
pub(crate) fn segment(orientation: u8, preview: &[u8]) -> Vec<u8> {
    const SHORT: u16 = 3;
    const LONG: u16 = 4;
    // Each entry: tag, type, count, value. A short value is in the first half of its four bytes.
    let entry = |tag: u16, kind: u16, value: u32| {
        let value = if kind == SHORT { value << 16 } else { value };
        [&tag.to_be_bytes()[..], &kind.to_be_bytes(), &1u32.to_be_bytes(), &value.to_be_bytes()].concat()
    };
    let directory = |entries: &[Vec<u8>], next: u32| {
        let count = (entries.len() as u16).to_be_bytes();
        [&count[..], &entries.concat(), &next.to_be_bytes()].concat()
    };
    // The header takes 8 bytes. A directory takes 6 bytes plus 12 bytes for each entry.
    let (second, data) = (8 + 6 + 12, 8 + 6 + 12 + 6 + 3 * 12);
    let image = directory(&[entry(0x0112, SHORT, u32::from(orientation))], second);
    let of_preview = directory(
        &[entry(0x0103, SHORT, 6), entry(0x0201, LONG, data), entry(0x0202, LONG, preview.len() as u32)],
        0,
    );
    [b"Exif\0\0MM\0\x2A\0\0\0\x08", &image[..], &of_preview, preview].concat()
}
