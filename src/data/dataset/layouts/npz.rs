//! Archives of arrays as `numpy.savez` writes them, as shards: zip files whose members are `.npy` files.
//!
//! Only members that are stored without compression are read, because a sample's bytes must be at a known place. Sizes
//! and checksums are those of the central directory (PKWARE, APPNOTE.TXT, 4.3), as for Python's `zipfile`. The checksum
//! of a member is of all its bytes, so it is compared when the archive is indexed. Later the archive's stamp shows
//! whether it has changed.

use super::super::FieldKind;
use super::super::arrays::{self, ArrayFacts, ArrayStorage, ShardArray};
use super::super::gather::little_endian;
use super::super::samples::ShardContents;
use super::super::table::{TableCells, TableColumn};
use super::npy::npy_header;
use super::{ShardLayout, ShardParser, ShardReadOptions, is_internal_name};
use crate::source::{DatasetSource, Malformed, ReadAt, Window};
use pixels::decode::NpyHeader;
use std::collections::BTreeSet;
use std::io;

/// The size of the record at the end of an archive, of the longest comment after it, and of the locator before it.
const END: u64 = 22;
const LONGEST_COMMENT: u64 = u16::MAX as u64;
const LOCATOR: u64 = 20;
/// The size of a header of a member, without its name.
const LOCAL: u64 = 30;
const CENTRAL: u64 = 46;
/// The largest central directory in bytes, enough for 100 000 members.
const LARGEST_DIRECTORY: u64 = 16 << 20;
/// The number of bytes of which the checksum is computed at a time.
const PIECE: usize = 1 << 20;

pub(super) struct NpzFiles;

impl ShardLayout for NpzFiles {
    fn is_shard(&self, name: &[u8]) -> bool {
        name.ends_with(b".npz") && !is_internal_name(name)
    }

    fn is_array(&self) -> bool {
        true
    }

    fn empty_message(&self) -> String {
        "the archives hold no rows".to_owned()
    }

    fn parser(
        &self,
        _: &dyn DatasetSource,
        reading: &ShardReadOptions,
    ) -> base::error::Result<Box<dyn ShardParser>> {
        Ok(Box::new(NpzParser(reading.clone())))
    }
}

struct NpzParser(ShardReadOptions);

impl ShardParser for NpzParser {
    fn contents(&self, _: &[u8], bytes: &dyn ReadAt) -> Result<ShardContents, Malformed> {
        let (mut found, mut columns, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut members = members(bytes)?;
        members.retain(|member| member.name.ends_with(".npy"));
        members.sort_by_key(|member| member.start);
        let mut end = 0;
        for member in members {
            let name = member.name.strip_suffix(".npy").unwrap_or(&member.name).to_owned();
            let damaged = |message| Malformed { offset: member.start, message };
            if member.start < end {
                return Err(damaged(format!("the member {:?} overlaps with another", member.name)));
            }
            end = member.start + member.packed;
            if !names.insert(name.clone()) {
                return Err(damaged(format!("there are two members {:?}", member.name)));
            }
            let header = match member.refusal() {
                Some(why) => Err(why),
                None => {
                    member.check_sum(bytes)?;
                    npy_header(&member.of(bytes))?
                }
            };
            match header {
                Ok(NpyHeader { stored, shape, order, data_at }) => {
                    let (filters, fill) = (Vec::new(), Vec::new());
                    let facts = ArrayFacts { name, stored, order, filters, fill, cf: None };
                    let start = member.start + data_at;
                    let array = ShardArray { facts, shape, storage: ArrayStorage::Run { file: 0, start } };
                    arrays::check(&array, |_| end)?;
                    columns.extend(arrays::column(&array, bytes, self.0.sample_axis)?);
                    found.push(array);
                }
                Err(why) => {
                    let cells = TableCells::Refused(why);
                    columns.push(TableColumn { name, kind: FieldKind::Array, classes: Vec::new(), cells });
                }
            }
        }
        arrays::contents(found, columns, &self.0)
    }
}

/// A member of an archive.
struct ZipMember {
    name: String,
    flags: u64,
    method: u64,
    sum: u32,
    packed: u64,
    size: u64,
    /// The offset of the member's first byte in the archive.
    start: u64,
}

/// The bytes of a member as a file.
struct ZipMemberFile<'a> {
    bytes: &'a dyn ReadAt,
    start: u64,
    size: u64,
}

impl ReadAt for ZipMemberFile<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let most = buffer.len().min(left);
        self.bytes.read_at(&mut buffer[..most], self.start + offset)
    }
}

impl ZipMember {
    fn of<'a>(&self, bytes: &'a dyn ReadAt) -> ZipMemberFile<'a> {
        ZipMemberFile { bytes, start: self.start, size: self.size }
    }

    /// Why the member cannot be read; `None` if it can.
    fn refusal(&self) -> Option<String> {
        match self.method {
            _ if self.flags & 1 != 0 => Some("it is encrypted".to_owned()),
            0 if self.packed == self.size => None,
            0 => Some(format!("it is stored in {} bytes, but has {}", self.packed, self.size)),
            _ => Some("it is compressed as a whole: save it with numpy.savez or numpy.save".to_owned()),
        }
    }

    fn check_sum(&self, bytes: &dyn ReadAt) -> Result<(), Malformed> {
        let (file, mut sum, mut at) = (self.of(bytes), flate2::Crc::new(), 0);
        let mut piece = vec![0; PIECE.min(self.size as usize)];
        while at < self.size {
            let got = file.fill_at(&mut piece, at)?;
            if got == 0 {
                break;
            }
            sum.update(&piece[..got]);
            at += got as u64;
        }
        if at == self.size && sum.sum() == self.sum {
            return Ok(());
        }
        let message = format!("the member {:?} is damaged: its checksum does not match", self.name);
        Err(Malformed { offset: self.start, message })
    }
}

fn damaged(offset: u64, what: &str) -> Malformed {
    Malformed { offset, message: format!("not a zip archive, or a damaged one: {what}") }
}

/// A number of `size` bytes. The caller has read enough bytes.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    bytes.get(at..at + size).map_or(0, little_endian)
}

/// The members of an archive in the order of its central directory.
fn members(bytes: &dyn ReadAt) -> Result<Vec<ZipMember>, Malformed> {
    let mut file = Window::new(bytes);
    let size = bytes.size();
    let tail = size.min(END + LONGEST_COMMENT);
    let end = file.read(size - tail, tail)?;
    let is_end = |at: &usize| {
        end[*at..].starts_with(b"PK\x05\x06")
            && number(&end, at + 20, 2) as usize == end.len() - at - END as usize
    };
    let last = (end.len() + 1).saturating_sub(END as usize);
    let at = (0..last).rev().find(is_end).ok_or_else(|| damaged(0, "it does not end like one"))?;
    let end_at = size - tail + at as u64;
    let mut directory = (number(&end, at + 10, 2), number(&end, at + 12, 4), number(&end, at + 16, 4));
    let mut directory_end = end_at;
    let locator = end_at.checked_sub(LOCATOR).map(|at| file.read(at, LOCATOR)).transpose()?;
    if let Some(locator) = locator.filter(|locator| locator.starts_with(b"PK\x06\x07")) {
        // An archive of more than 4 GiB or 65 535 members has a second record with larger numbers.
        directory_end = number(&locator, 8, 8);
        let large = file.read(directory_end, 56)?;
        if !large.starts_with(b"PK\x06\x06") {
            return Err(damaged(directory_end, "its end is not where it says"));
        }
        directory = (number(&large, 32, 8), number(&large, 40, 8), number(&large, 48, 8));
    }
    let (count, length, directory_start) = directory;
    if directory_start.checked_add(length) != Some(directory_end) || length > LARGEST_DIRECTORY {
        return Err(damaged(end_at, "its directory is not where it says"));
    }
    let directory = file.read(directory_start, length)?;
    let (mut members, mut rest) = (Vec::new(), &directory[..]);
    while !rest.is_empty() {
        let offset = directory_start + (directory.len() - rest.len()) as u64;
        let broken = || damaged(offset, "its directory is damaged");
        let (row, after) = rest.split_at_checked(CENTRAL as usize).ok_or_else(broken)?;
        let lengths = [28, 30, 32].map(|at| number(row, at, 2) as usize);
        if !row.starts_with(b"PK\x01\x02") || after.len() < lengths.iter().sum() {
            return Err(broken());
        }
        let (name, after) = after.split_at(lengths[0]);
        let (extra, after) = after.split_at(lengths[1]);
        rest = &after[lengths[2]..];
        let mut large = large_numbers(extra);
        let mut long = |at: usize| match number(row, at, 4) {
            0xffff_ffff => large.next().ok_or_else(broken),
            short => Ok(short),
        };
        let (size, packed, local) = (long(24)?, long(20)?, long(42)?);
        let header = file.read(local, LOCAL)?;
        let lengths = [26, 28].map(|at| number(&header, at, 2));
        let start = local + LOCAL + lengths[0] + lengths[1];
        let own = file.read(local + LOCAL, lengths[0])?;
        if !header.starts_with(b"PK\x03\x04") || own != name {
            return Err(damaged(local, "a member is not where the directory says"));
        }
        if start.checked_add(packed).is_none_or(|end| end > directory_start) {
            return Err(damaged(local, "a member has bytes after the end of the archive"));
        }
        let (flags, method) = (number(row, 8, 2), number(row, 10, 2));
        let (name, sum) = (String::from_utf8_lossy(name).into_owned(), number(row, 16, 4) as u32);
        members.push(ZipMember { name, flags, method, sum, packed, size, start });
    }
    if members.len() as u64 != count {
        return Err(damaged(directory_start, "its directory has another number of members than it says"));
    }
    Ok(members)
}

/// The numbers of eight bytes in a member's extra field 1, which replace numbers that do not fit into four bytes.
fn large_numbers(mut extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut found: &[u8] = &[];
    while let Some((head, rest)) = extra.split_at_checked(4) {
        let length = (number(head, 2, 2) as usize).min(rest.len());
        if number(head, 0, 2) == 1 {
            found = &rest[..length];
            break;
        }
        extra = &rest[length..];
    }
    found.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes))
}
