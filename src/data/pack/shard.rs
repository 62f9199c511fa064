//! Writes one packed shard.

use super::source::{PackSource, SampleFiles, SampleReader};
use crate::dataset::packed::{
    FIRST_MEMBER, LARGEST_FOOTER, PACKED_FORMAT, PackedColumns, PackedFooter, PackedMember, PackedSample,
    ShardIdentity, SourceStamps, head, next_image, next_member,
};
use crate::dataset::{DatasetIndex, FileId, Layout};
use base::crc::checksum;
use base::error::{Error, Result};
use base::names::NamedValue;
use pixels::decode::packed::PackedHeaderSummary;
use pixels::decode::{ConvertedFormat, FormatConverter, KeepReason};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

const WRITE_BUFFER: usize = 4 << 20;

pub(super) struct ShardPacker<'a> {
    index: &'a DatasetIndex,
    layout: Layout,
    source: &'a PackSource<'a>,
    maker: FormatConverter,
    packed: Vec<u8>,
    files: SampleFiles,
}

struct ShardWriter<'a> {
    file: BufWriter<&'a File>,
    path: &'a Path,
    at: u64,
    footer: PackedFooter,
}

impl ShardWriter<'_> {
    /// Writes zeros up to `offset`, then `bytes`.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let gap = vec![0; (offset - self.at) as usize];
        let written = self.file.write_all(&gap).and_then(|()| self.file.write_all(bytes));
        written.map_err(|error| Error::io("write", self.path, error))?;
        self.at = offset + bytes.len() as u64;
        Ok(())
    }
}

/// Returns the names of all storage formats, in the order of their numbers: packed, then the reasons for which files
/// are kept unchanged.
fn forms() -> Vec<String> {
    let kept = KeepReason::NAMES.iter().map(|(name, _)| *name);
    std::iter::once("packed").chain(kept).map(str::to_owned).collect()
}

impl<'a> ShardPacker<'a> {
    pub(super) fn new(index: &'a DatasetIndex, layout: Layout, source: &'a PackSource<'a>) -> Self {
        let (maker, packed, files) = (FormatConverter::default(), Vec::new(), SampleFiles::default());
        Self { index, layout, source, maker, packed, files }
    }

    /// Writes the shard with index `number` and these samples to `file`, and calls `done` for each sample. `path` is
    /// for messages. Returns the footer, the shard's identity, and the [`SourceStamps`] digest of the source files.
    ///
    /// # Errors
    /// The errors of [`SampleReader::read`]; [`Error::Io`] if the shard cannot be written; [`Error::Config`] for a
    /// footer that would be too long.
    pub(super) fn pack(
        &mut self,
        number: usize,
        samples: Range<u64>,
        file: &File,
        path: &Path,
        done: &(dyn Fn() -> Result<()> + Sync),
    ) -> Result<(PackedFooter, ShardIdentity, String)> {
        let footer = PackedFooter {
            fingerprint: self.index.fingerprint().0,
            first: samples.start,
            left_out: 0,
            number: number as u32,
            layout: self.layout,
            forms: forms(),
            sources: Vec::new(),
            samples: Vec::new(),
            members: Vec::new(),
            names: Vec::new(),
            header_summaries: Vec::new(),
            table: match self.layout.is_of_files() {
                true => PackedColumns::default(),
                false => PackedColumns {
                    columns: self.index.packing_columns(samples.clone()),
                    ..self.source.facts.table.clone()
                },
            },
        };
        let mut shard =
            ShardWriter { file: BufWriter::with_capacity(WRITE_BUFFER, file), path, at: 0, footer };
        shard.write(0, &head())?;
        let mut reader = SampleReader::new(self.source);
        let mut free = FIRST_MEMBER;
        let mut known: Option<FileId> = None;
        let mut stamps = SourceStamps::new();
        for sample in samples {
            let of = self.index.extent(sample).file;
            if self.layout.is_sharded() && known != Some(of) {
                known = Some(of);
                self.begin_source(&mut reader, &mut shard.footer, sample, of)?;
            }
            reader.read(sample, &mut self.files)?;
            self.files.stamps(of).for_each(|(file, stamp)| stamps.add(file, stamp));
            free = match self.files.files.is_empty() {
                true => self.add_without_files(&mut shard, sample, free),
                false => self.add(&mut shard, sample, free)?,
            };
            done()?;
        }
        reader.finish()?;
        let (bytes, identity) = shard.footer.encode(shard.at);
        if bytes.len() as u64 > LARGEST_FOOTER {
            let message = "makes shards with footers of more than 256 MiB: lower it";
            return Err(Error::config("shard-size", message));
        }
        shard.write(shard.at, &bytes)?;
        shard.file.flush().map_err(|error| Error::io("write", path, error))?;
        Ok((shard.footer, identity, stamps.finish()))
    }

    /// Adds the next source shard to the footer. `sample` is the first sample of this source shard.
    fn begin_source(
        &self,
        reader: &mut SampleReader<'_>,
        footer: &mut PackedFooter,
        sample: u64,
        of: FileId,
    ) -> Result<()> {
        footer.sources.push(self.index.packing_name(of));
        let samples = self.index.samples_of(of);
        if self.layout == Layout::Tar && samples.start == sample {
            let offsets = samples.map(|sample| self.index.extent(sample).offset);
            footer.left_out += reader.listing(of)?.left_out(offsets);
        }
        Ok(())
    }

    fn add_without_files(&self, shard: &mut ShardWriter<'_>, sample: u64, free: u64) -> u64 {
        shard.footer.header_summaries.push(Default::default());
        self.add_row(shard, sample);
        free
    }

    fn add_row(&self, shard: &mut ShardWriter<'_>, sample: u64) {
        shard.footer.samples.push(PackedSample {
            label: self.index.packing_label(sample),
            source: shard.footer.sources.len().saturating_sub(1) as u32,
            members: self.files.files.len() as u32,
        });
    }

    /// Writes the files of a sample, the first at offset `image`. Returns the offset for the files of the next sample.
    fn add(&mut self, shard: &mut ShardWriter<'_>, sample: u64, image: u64) -> Result<u64> {
        let (mut offset, mut length) = (image, 0);
        for (number, file) in self.files.files.iter().enumerate() {
            let original = self.files.bytes(file);
            super::names::check(&file.name, self.layout, || self.index.path(self.index.extent(sample).file))?;
            let (form, bytes) = match self.maker.make(ConvertedFormat::Packed, original, &mut self.packed) {
                Ok(()) => (PACKED_FORMAT, &self.packed[..]),
                Err(kept) => (form_number(kept), original),
            };
            if number > 0 {
                offset = next_member(image, offset, length);
            } else {
                shard.footer.header_summaries.push(match form {
                    PACKED_FORMAT => {
                        PackedHeaderSummary::of(bytes).map_err(|error| Error::Internal(error.to_string()))?
                    }
                    _ => Default::default(),
                });
            }
            length = u32::try_from(bytes.len()).map_err(|_| {
                let name = String::from_utf8_lossy(&file.name);
                Error::Internal(format!("{name} takes 4 GiB or more when packed"))
            })?;
            shard.write(offset, bytes)?;
            shard.footer.members.push(PackedMember {
                offset,
                length,
                original: original.len() as u32,
                checksum: checksum(bytes),
                order: file.order,
                name: file.name.len() as u32,
                form,
            });
            shard.footer.names.extend(&file.name);
        }
        self.add_row(shard, sample);
        Ok(next_image(offset, length))
    }
}

/// Returns the index of the storage format that means "kept unchanged for this reason".
fn form_number(kept: KeepReason) -> u32 {
    let place = KeepReason::NAMES.iter().position(|(_, known)| *known == kept);
    1 + place.unwrap_or_default() as u32
}
