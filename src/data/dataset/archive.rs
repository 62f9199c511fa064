//! The members of a tar archive, read header by header. Data is skipped, never read.
//!
//! Foreload has its own tar reader for three reasons. An index must distinguish a truncated shard from a complete one,
//! but seeking past the end succeeds silently. No header must be able to cause a large allocation. Errors must name the
//! byte where an archive is wrong. The reader supports POSIX.1-1988 ustar, POSIX.1-2001 pax, and GNU's format (`L` long
//! names, base-256 numbers, `S` sparse files), as described in GNU tar's manual, "Basic Tar Format".

use crate::source::{Malformed, ReadAt, WINDOW, Window};

const BLOCK: usize = 512;
/// The maximum size of a member's name, in bytes. Real names are shorter: Linux refuses paths longer than 4096.
const MAX_NAME: u64 = 1 << 16;
/// The maximum size of a pax header, in bytes. Extended attributes can be large, but not this large.
const MAX_PAX: u64 = 1 << 20;

/// One member of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TarMember {
    /// The full name of the member.
    pub name: Vec<u8>,
    /// The offset of the member's data in the archive.
    pub offset: u64,
    /// The number of bytes of data.
    pub size: u64,
    /// Whether the member is a plain file with contiguous data: no directory, link, device or sparse file.
    pub plain: bool,
}

/// Walks the members of an archive in order.
pub struct TarMembers<'a, S: ReadAt + ?Sized> {
    source: Window<'a, S>,
    at: u64,
}

/// The member name in the tar header before the data at `offset`. `None` if there is no header, or if the header might
/// hold only part of the name: the name is long or not ASCII.
pub(super) fn name_before<S: ReadAt + ?Sized>(source: &S, offset: u64) -> Option<Vec<u8>> {
    let name = TarMembers::new(source).header(offset.checked_sub(BLOCK as u64)?).ok()??.name;
    (name.len() < 100 && !name.contains(&b'?')).then_some(name)
}

impl<'a, S: ReadAt + ?Sized> TarMembers<'a, S> {
    /// Starts at the archive's first byte.
    pub fn new(source: &'a S) -> Self {
        Self { source: Window::new(source), at: 0 }
    }

    /// The next member; `None` after the end-of-archive mark. Other data than zeros after the mark is an error.
    ///
    /// # Errors
    /// [`Malformed`] if the file is no tar archive, ends too early, or cannot be read.
    pub fn next_member(&mut self) -> Result<Option<TarMember>, Malformed> {
        let mut long_name = None;
        let mut pax = PaxRecords::default();
        loop {
            let start = self.at;
            let fail = |message: &str| Malformed { offset: start, message: message.to_owned() };
            if start >= self.source.size() {
                let message = "the shard ends without an end-of-archive mark: it is truncated".to_owned();
                return Err(Malformed { offset: self.source.size(), message });
            }
            let header = self.header(start)?;
            let Some(header) = header else { return self.check_end(start) };
            let data = start + BLOCK as u64;
            match header.kind {
                b'L' | b'K' => {
                    if header.size > MAX_NAME {
                        return Err(fail("a long-name member of more than 64 KiB"));
                    }
                    let mut name = self.read(data, header.size)?;
                    name.truncate(name.iter().position(|&b| b == 0).unwrap_or(name.len()));
                    if header.kind == b'L' {
                        long_name = Some(name);
                    }
                    self.at = self.after(start, data, header.size)?;
                }
                b'x' | b'X' => {
                    if header.size > MAX_PAX {
                        return Err(fail("a pax header of more than 1 MiB"));
                    }
                    let records = self.read(data, header.size)?;
                    pax.parse(&records).ok_or_else(|| fail("a malformed pax header"))?;
                    self.at = self.after(start, data, header.size)?;
                }
                // A global pax header has defaults for all later members. In practice these are comments, never names
                // or sizes.
                b'g' => self.at = self.after(start, data, header.size)?,
                kind => {
                    let size = pax.size.unwrap_or(header.size);
                    let name = pax.path.or(long_name).unwrap_or(header.name);
                    let directory = kind == 0 && name.ends_with(b"/");
                    // Links, devices, directories and pipes have no data, whatever their size field says.
                    let size = if directory || (b'1'..=b'6').contains(&kind) { 0 } else { size };
                    let data = if kind == b'S' { self.after_sparse_map(start)? } else { data };
                    self.at = self.after(start, data, size)?;
                    let plain = matches!(kind, 0 | b'0' | b'7') && !directory && !pax.sparse;
                    return Ok(Some(TarMember { name, offset: data, size, plain }));
                }
            }
        }
    }

    /// Checks that only zeros follow the end-of-archive mark at `start`. Other data after the mark, as in archives
    /// joined by `cat`, would be lost silently.
    fn check_end(&self, start: u64) -> Result<Option<TarMember>, Malformed> {
        let mut chunk = vec![0; WINDOW];
        let mut at = start;
        while at < self.source.size() {
            let got = self.source.fill(&mut chunk, at)?;
            if let Some(place) = chunk[..got].iter().position(|&byte| byte != 0) {
                let message = format!(
                    "data follows the end-of-archive mark at byte {start}, as in archives joined with `cat`: join them \
                     with `tar --concatenate`, or keep them as separate shards"
                );
                return Err(Malformed { offset: at + place as u64, message });
            }
            if got == 0 {
                break;
            }
            at += got as u64;
        }
        Ok(None)
    }

    /// Reads exactly `size` bytes at `offset`.
    ///
    /// # Errors
    /// [`Malformed`] if the archive has fewer bytes or cannot be read. Check `size` before the call, because `size`
    /// bytes are allocated.
    pub fn read(&mut self, offset: u64, size: u64) -> Result<Vec<u8>, Malformed> {
        self.source.read(offset, size)
    }

    fn after(&self, start: u64, data: u64, size: u64) -> Result<u64, Malformed> {
        match data.checked_add(size) {
            Some(end) if end <= self.source.size() => Ok(end.next_multiple_of(BLOCK as u64)),
            _ => Err(Malformed { offset: start, ..self.source.truncated(data, size) }),
        }
    }

    /// The offset of the data of a sparse file in the old GNU format. The map of the sparse file can continue in blocks
    /// after the header, so the data begins after these blocks.
    fn after_sparse_map(&mut self, start: u64) -> Result<u64, Malformed> {
        let mut at = start + BLOCK as u64;
        let mut more = self.read(start, BLOCK as u64)?[482] != 0;
        while more {
            more = self.read(at, BLOCK as u64)?[504] != 0;
            at += BLOCK as u64;
        }
        Ok(at)
    }

    fn header(&mut self, start: u64) -> Result<Option<TarHeader>, Malformed> {
        let block = self.read(start, BLOCK as u64)?;
        if block.iter().all(|&b| b == 0) {
            return Ok(None);
        }
        let fail = |message: String| Malformed { offset: start, message };
        let stated = number(&block[148..156]).ok_or_else(|| fail(no_header(start)))?;
        let others = || block[..148].iter().chain(&block[156..]);
        let unsigned = 8 * u64::from(b' ') + others().map(|&b| u64::from(b)).sum::<u64>();
        // Some old programs computed the checksum from signed bytes.
        let signed = 8 * i64::from(b' ') + others().map(|&b| i64::from(b as i8)).sum::<i64>();
        if stated != unsigned && i64::try_from(stated) != Ok(signed) {
            return Err(fail(no_header(start)));
        }
        // Archives that are older than the magic string have zeros in its place. Check this too, because the checksum
        // alone does not detect bytes that have moved.
        if !block[257..].starts_with(b"ustar") && block[257..265].iter().any(|&byte| byte != 0) {
            return Err(fail(no_header(start)));
        }
        let size = number(&block[124..136]).ok_or_else(|| fail("a malformed size field".to_owned()))?;
        let mut name = text(&block[..100]).to_vec();
        // GNU's magic is "ustar  ". GNU stores other data where POSIX has the prefix.
        if &block[257..263] == b"ustar\0" && block[345] != 0 {
            name = [text(&block[345..500]), b"/", &name].concat();
        }
        Ok(Some(TarHeader { name, size, kind: block[156] }))
    }
}

struct TarHeader {
    name: Vec<u8>,
    size: u64,
    kind: u8,
}

fn no_header(start: u64) -> String {
    match start {
        0 => "not a tar archive: it does not begin with a tar header".to_owned(),
        _ => "no tar header where the next member should begin: the shard is damaged".to_owned(),
    }
}

#[derive(Default)]
struct PaxRecords {
    path: Option<Vec<u8>>,
    size: Option<u64>,
    sparse: bool,
}

impl PaxRecords {
    /// Parses records of `"LENGTH KEY=VALUE\n"`. LENGTH is the size of the whole record in bytes, because a value can
    /// contain any byte, also `\n`.
    fn parse(&mut self, mut records: &[u8]) -> Option<()> {
        while !records.is_empty() {
            let space = records.iter().position(|&b| b == b' ')?;
            let length: usize = std::str::from_utf8(&records[..space]).ok()?.parse().ok()?;
            let record = records.get(space + 1..length)?.strip_suffix(b"\n")?;
            let equals = record.iter().position(|&b| b == b'=')?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => self.path = Some(value.to_vec()),
                b"size" => self.size = Some(std::str::from_utf8(value).ok()?.parse().ok()?),
                _ => self.sparse |= key.starts_with(b"GNU.sparse."),
            }
            records = &records[length..];
        }
        Some(())
    }
}

fn text(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|&b| b == 0).unwrap_or(field.len())]
}

/// A numeric field: octal digits, or GNU's base 256, whose first bit is set. `None` for another encoding, or a negative
/// number.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let first = u64::from(field[0] & 0x7f);
        return field[1..].iter().try_fold(first, |value, &byte| {
            if value >> 56 == 0 { Some(value << 8 | u64::from(byte)) } else { None }
        });
    }
    let digits = text(field).trim_ascii();
    digits.iter().try_fold(0u64, |value, &digit| match digit {
        b'0'..=b'7' => Some(value.checked_mul(8)? + u64::from(digit - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_base_256() {
        assert_eq!(number(b"00000000017\0"), Some(15));
        assert_eq!(number(b"   17 \0"), Some(15));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(number(b"\x80\0\0\0\0\0\0\x02\0\0\0\0"), Some(2 << 32));
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), None, "negative");
        assert_eq!(number(b"\x80\0\0\x01\0\0\0\0\0\0\0\0"), None, "more than 64 bits");
        assert_eq!(number(b"19"), None);
    }

    #[test]
    fn a_header_that_has_moved_is_none_though_its_sum_is_right() {
        let mut header = [0; BLOCK];
        header[..5].copy_from_slice(b"a.jpg");
        header[124..135].copy_from_slice(b"00000000000");
        let archive = |magic_at: Option<usize>| {
            let mut header = header;
            if let Some(at) = magic_at {
                header[at..at + 8].copy_from_slice(b"ustar\x0000");
            }
            header[148..156].fill(b' ');
            let sum: u64 = header.iter().map(|&byte| u64::from(byte)).sum();
            header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            [&header[..], &[0; 2 * BLOCK]].concat()
        };
        for whole in [archive(Some(257)), archive(None)] {
            let found = TarMembers::new(&whole[..]).next_member().unwrap().unwrap();
            assert_eq!((&found.name[..], found.size, found.plain), (&b"a.jpg"[..], 0, true));
        }
        let moved = archive(Some(259));
        assert!(TarMembers::new(&moved[..]).next_member().unwrap_err().message.contains("tar header"));
    }

    #[test]
    fn pax_values_may_hold_newlines() {
        let mut pax = PaxRecords::default();
        assert_eq!(pax.parse(b"13 path=a\nb=\n18 size=99999999\n"), None, "a wrong length");
        let mut pax = PaxRecords::default();
        assert_eq!(pax.parse(b"13 path=a\nb=\n11 size=17\n"), Some(()));
        assert_eq!((pax.path.as_deref(), pax.size), (Some(&b"a\nb="[..]), Some(17)));
    }
}
