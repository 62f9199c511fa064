//! The footer of a packed shard: the properties of its samples, the locations of their members, and the names of the
//! members before packing.
//!
//! A shard consists of a head, the members one after another, the footer, and a trailer of [`TRAILER`] bytes, which has
//! the location and the digest of the footer. Nothing in a shard is trusted: every number is checked before it is used.

use super::super::Layout;
use super::super::format::{u32_at, u64_at};
use super::super::member::MemberPlace;
use super::table::PackedColumns;
use crate::source::{Malformed, ReadAt};
use base::parts::RawHeaderSummary;
use sha2::{Digest, Sha256};

const SIGNATURE: [u8; 8] = *b"\x8AFLSHARD";
/// Version of the format. Shards of another version are refused.
const VERSION: u32 = 2;
/// Offset of the first member, after signature, version and four zeros.
pub const FIRST_MEMBER: u64 = 16;
const TRAILER: usize = 64;
/// The maximum size of a footer in bytes. A file that states a larger footer is not read into memory.
pub const LARGEST_FOOTER: u64 = 256 << 20;
const FIXED: usize = 96;
const SAMPLE_ROW: usize = 12;
/// Members begin at a multiple of this many bytes from their image.
const BLOCK: u64 = 512;
/// The size of a [`PackedMember`] in the footer, without its name, in bytes.
const MEMBER_ROW: usize = 32;
/// Images begin at multiples of this many bytes.
const IMAGE_ALIGNMENT: u64 = 8;
/// The index of the storage format "packed" in [`PackedFooter::forms`]. A member in any other format has the bytes of
/// the original file.
pub const PACKED_FORMAT: u32 = 0;

/// The size and the digest by which a manifest identifies a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardIdentity {
    /// The size of the shard in bytes.
    pub bytes: u64,
    /// The SHA-256 of the shard's footer. The footer has the checksums of all members.
    pub digest: [u8; 32],
}

/// A sample in a packed shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedSample {
    /// The class number; 0 if the sample has no label.
    pub label: u32,
    /// The index of the sample's source shard in [`PackedFooter::sources`]; 0 if the source had loose files.
    pub source: u32,
    /// The number of the sample's members. The first member is the image, or the member that replaces a missing image.
    pub members: u32,
}

/// A member of a sample in a packed shard: a file, or a value of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedMember {
    /// The offset of the member's first byte in the packed shard.
    pub offset: u64,
    /// The size of the member in the packed shard, in bytes.
    pub length: u32,
    /// The size of the member's original file, in bytes.
    pub original: u32,
    /// The CRC-32C of the member's bytes in the packed shard.
    pub checksum: u32,
    /// The index of the member among the members or records of its source shard; 0 for a loose file.
    pub order: u32,
    /// The size of the member's name in bytes.
    pub name: u32,
    /// The index of the member's storage format in [`PackedFooter::forms`].
    pub form: u32,
}

/// The footer of a packed shard.
#[derive(Debug, Clone, PartialEq)]
pub struct PackedFooter {
    /// The fingerprint of the dataset that was packed.
    pub fingerprint: [u8; 32],
    /// The sample id of the shard's first sample.
    pub first: u64,
    /// The number of members of source shards that belong to no sample. The unused members of a source shard are
    /// counted in the packed shard that has the first sample of that source shard.
    pub left_out: u64,
    /// The index of the shard in the dataset.
    pub number: u32,
    /// The layout of the dataset that was packed.
    pub layout: Layout,
    /// The names of storage formats: "packed", and the reasons why members are stored unchanged.
    pub forms: Vec<String>,
    /// The paths of the source shards, relative to the root of the source.
    pub sources: Vec<Vec<u8>>,
    /// The samples in order.
    pub samples: Vec<PackedSample>,
    /// The members of all samples, in the order of the samples and of their offsets.
    pub members: Vec<PackedMember>,
    /// The names of the members, one after another: paths below the source's root, names in the source's tar shards or
    /// manifest, or names of columns.
    pub names: Vec<u8>,
    /// The header summary of each sample's first member.
    pub header_summaries: Vec<RawHeaderSummary>,
    /// The columns of the samples, if members are named by columns and not by files ([`Layout::is_of_files`]).
    pub table: PackedColumns,
}

const CONTRADICTS: &str = "the packed shard's footer contradicts itself";

struct FooterBytes<'a>(&'a [u8]);

impl<'a> FooterBytes<'a> {
    fn take(&mut self, count: u64, row: usize) -> Result<&'a [u8], String> {
        let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(row));
        let parts = length.and_then(|length| self.0.split_at_checked(length));
        let (taken, rest) = parts.ok_or(CONTRADICTS)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes the next `count` names. The length of each name is stored before the name.
    fn names(&mut self, count: u32) -> Result<Vec<Vec<u8>>, String> {
        let mut names = Vec::new();
        for _ in 0..count {
            let length = u32_at(self.take(4, 1)?, 0);
            names.push(self.take(length.into(), 1)?.to_vec());
        }
        Ok(names)
    }
}

/// The bytes before the first member of a shard: the signature, the version and four zeros.
pub fn head() -> [u8; FIRST_MEMBER as usize] {
    let mut bytes = [0; FIRST_MEMBER as usize];
    bytes[..8].copy_from_slice(&SIGNATURE);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// The offset of the next sample's image, after a member of `length` bytes at `offset`. Two samples never have the same
/// offset, even if the first has no bytes.
pub fn next_image(offset: u64, length: u32) -> u64 {
    (offset + u64::from(length.max(1))).next_multiple_of(IMAGE_ALIGNMENT)
}

/// The offset of the next member of a sample whose image is at `image`, after a member of `length` bytes at `offset`.
/// The distance from the image is a multiple of 512 bytes.
pub fn next_member(image: u64, offset: u64, length: u32) -> u64 {
    let apart = offset + u64::from(length.max(1)) - image;
    image + apart.next_multiple_of(BLOCK)
}

impl PackedFooter {
    /// The footer and the trailer of a shard, and the shard's identity. The shard begins with [`head`], and its members
    /// end at `offset`.
    pub fn encode(&self, offset: u64) -> (Vec<u8>, ShardIdentity) {
        let forms = self.forms.iter().map(String::as_bytes);
        let mut lists = Vec::new();
        for name in forms.chain(self.sources.iter().map(Vec::as_slice)) {
            lists.extend((name.len() as u32).to_le_bytes());
            lists.extend(name);
        }
        let mut bytes = Vec::from(self.fingerprint);
        let counts = [self.samples.len(), self.members.len(), self.names.len()].map(|count| count as u64);
        for value in [self.first, self.left_out].into_iter().chain(counts) {
            bytes.extend(value.to_le_bytes());
        }
        let layout = self.layout as u32;
        for value in [self.number, layout, self.forms.len() as u32, self.sources.len() as u32] {
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend((lists.len() as u64).to_le_bytes());
        bytes.extend(lists);
        for PackedSample { label, source, members } in &self.samples {
            [label, source, members].iter().for_each(|value| bytes.extend(value.to_le_bytes()));
        }
        for member in &self.members {
            bytes.extend(member.offset.to_le_bytes());
            let PackedMember { length, original, checksum, order, name, form, .. } = member;
            let values = [length, original, checksum, order, name, form];
            values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
        }
        bytes.extend(&self.names);
        bytes.extend(self.header_summaries.as_flattened());
        if !self.layout.is_of_files() {
            bytes.extend(self.table.encode());
        }
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        let length = bytes.len() as u64;
        bytes.extend(offset.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.extend(digest);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(SIGNATURE);
        let identity = ShardIdentity { bytes: offset + bytes.len() as u64, digest };
        (bytes, identity)
    }

    /// Reads the footer of a shard, and determines the shard's identity.
    ///
    /// # Errors
    /// [`Malformed`] for a file that is no packed shard, and for a shard that is damaged, truncated or of another
    /// version.
    pub fn read<S: ReadAt + ?Sized>(source: &S) -> Result<(Self, ShardIdentity), Malformed> {
        let size = source.size();
        let fill = |buffer: &mut [u8], offset: u64| -> Result<(), Malformed> {
            if source.fill_at(buffer, offset)? == buffer.len() {
                return Ok(());
            }
            Err(Malformed { offset, message: "the shard was truncated while it was read".to_owned() })
        };
        let fail = |offset: u64, message: &str| Malformed { offset, message: message.to_owned() };
        let mut start = [0; FIRST_MEMBER as usize];
        if size < FIRST_MEMBER + (FIXED + TRAILER) as u64 {
            return Err(fail(0, "not a packed shard: it is too short"));
        }
        fill(&mut start, 0)?;
        if start[..8] != SIGNATURE {
            return Err(fail(0, "not a packed shard: it does not begin with the signature of one"));
        }
        let at = size - TRAILER as u64;
        let mut trailer = [0; TRAILER];
        fill(&mut trailer, at)?;
        let version = u32_at(&start, 8);
        if version != VERSION {
            let message =
                format!("a packed shard of version {version}, this program reads version {VERSION}");
            return Err(fail(8, &message));
        }
        let is_alike = start == head() && u32_at(&trailer, 48) == VERSION;
        if !is_alike || trailer[56..] != SIGNATURE || trailer[52..56] != [0; 4] {
            return Err(fail(at, "the packed shard does not end with a trailer: it is truncated or damaged"));
        }
        let (offset, length) = (u64_at(&trailer, 0), u64_at(&trailer, 8));
        if offset < FIRST_MEMBER || offset.checked_add(length) != Some(at) || length > LARGEST_FOOTER {
            return Err(fail(at, "the packed shard states an invalid place of its footer: it is damaged"));
        }
        let mut bytes = vec![0; length as usize];
        fill(&mut bytes, offset)?;
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        if trailer[16..48] != digest {
            return Err(fail(offset, "the packed shard's footer is damaged"));
        }
        let footer = Self::decode(&bytes).and_then(|footer| footer.check(offset).map(|()| footer));
        let footer = footer.map_err(|message| fail(offset, &message))?;
        Ok((footer, ShardIdentity { bytes: size, digest }))
    }

    /// Parses a footer. Never allocates more than `bytes` can describe, even if the counts in the footer are corrupt.
    fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut rest = FooterBytes(bytes);
        let fixed = rest.take(FIXED as u64, 1)?;
        let [samples, members, names, lists] = [48, 56, 64, 88].map(|at| u64_at(fixed, at));
        let [number, layout, forms, sources] = [72, 76, 80, 84].map(|at| u32_at(fixed, at));
        let mut lists = FooterBytes(rest.take(lists, 1)?);
        let (forms, sources) = (lists.names(forms)?, lists.names(sources)?);
        let (rows, members) = (rest.take(samples, SAMPLE_ROW)?, rest.take(members, MEMBER_ROW)?);
        let names = rest.take(names, 1)?.to_vec();
        let header_summaries = rest.take(samples, size_of::<RawHeaderSummary>())?.as_chunks().0.to_vec();
        let layout =
            Layout::ALL.iter().copied().find(|known| *known as u32 == layout && *known != Layout::Packed);
        let table = match layout {
            Some(layout) if !layout.is_of_files() => {
                PackedColumns::decode(std::mem::take(&mut rest.0), samples)?
            }
            _ => PackedColumns::default(),
        };
        if !rest.0.is_empty() || !lists.0.is_empty() {
            return Err(CONTRADICTS.to_owned());
        }
        Ok(Self {
            fingerprint: *fixed.first_chunk().ok_or(CONTRADICTS)?,
            first: u64_at(fixed, 32),
            left_out: u64_at(fixed, 40),
            number,
            layout: layout.ok_or("the packed shard has a layout that this program does not support")?,
            forms: forms.iter().map(|form| String::from_utf8_lossy(form).into_owned()).collect(),
            sources,
            samples: rows
                .chunks_exact(SAMPLE_ROW)
                .map(|row| PackedSample {
                    label: u32_at(row, 0),
                    source: u32_at(row, 4),
                    members: u32_at(row, 8),
                })
                .collect(),
            members: members
                .chunks_exact(MEMBER_ROW)
                .map(|row| PackedMember {
                    offset: u64_at(row, 0),
                    length: u32_at(row, 8),
                    original: u32_at(row, 12),
                    checksum: u32_at(row, 16),
                    order: u32_at(row, 20),
                    name: u32_at(row, 24),
                    form: u32_at(row, 28),
                })
                .collect(),
            names,
            header_summaries,
            table,
        })
    }

    /// Checks the invariants on which readers rely: members are stored in ascending order and end before `end`; the
    /// distance of each member from its image fits into the index; every number refers to an existing entry.
    fn check(&self, end: u64) -> Result<(), String> {
        let members: u64 = self.samples.iter().map(|sample| u64::from(sample.members)).sum();
        let names: u64 = self.members.iter().map(|member| u64::from(member.name)).sum();
        if members != self.members.len() as u64 || names != self.names.len() as u64 {
            return Err(CONTRADICTS.to_owned());
        }
        let sources = if self.layout.is_sharded() { self.sources.len() } else { 1 };
        let mut free = FIRST_MEMBER;
        for (number, ((sample, members), header_summary)) in
            self.by_sample().zip(&self.header_summaries).enumerate()
        {
            let fail = |message: &str| {
                Err(format!("sample {number} of the packed shard {message}: its footer is damaged"))
            };
            let Some((image, _)) = members.first() else {
                // A sample of a table can have numbers only, and so no members.
                let may_have_none = self.layout.is_table() && !self.layout.is_of_single_files();
                if may_have_none && *header_summary == RawHeaderSummary::default() {
                    continue;
                }
                return fail("has no members");
            };
            if sample.source as usize >= sources {
                return fail("refers to a source shard that is not listed");
            }
            if (image.form == PACKED_FORMAT) != (*header_summary != RawHeaderSummary::default()) {
                return fail("has a header summary that does not match its storage format");
            }
            for (member, _) in &members {
                let Some(stop) = member.offset.checked_add(u64::from(member.length)) else {
                    return fail("has a member that is too long");
                };
                let apart = member.offset.wrapping_sub(image.offset);
                if member.offset < free || stop > end || member.length >= MemberPlace::DUPLICATE {
                    return fail("has a member at an invalid place");
                }
                if apart % BLOCK != 0
                    || MemberPlace::new(image.offset, member.offset, member.length).is_none()
                {
                    return fail("has a member at an invalid distance from its image");
                }
                if member.form as usize >= self.forms.len()
                    || member.form != PACKED_FORMAT && member.original != member.length
                {
                    return fail("has a member with an invalid storage format");
                }
                free = member.offset + u64::from(member.length.max(1));
            }
        }
        Ok(())
    }

    /// Iterates over the samples, each with its members and their names.
    pub fn by_sample(&self) -> impl Iterator<Item = (PackedSample, Vec<(PackedMember, &[u8])>)> {
        let mut members = &self.members[..];
        let mut names = &self.names[..];
        self.samples.iter().map(move |sample| {
            let (own, behind) = members.split_at(members.len().min(sample.members as usize));
            members = behind;
            let named = own.iter().map(|member| {
                let (name, behind) = names.split_at(names.len().min(member.name as usize));
                names = behind;
                (*member, name)
            });
            (*sample, named.collect())
        })
    }
}
