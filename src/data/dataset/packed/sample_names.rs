//! The names that samples of a packed dataset have in its source. The names are read from the footers on demand.

use super::super::Layout;
use super::super::archive::name_before;
use super::super::part::DatasetPart;
use super::super::samples::split;
use super::super::{Extent, FileId};
use super::footer::PackedFooter;
use base::error::{Error, Result};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

impl DatasetPart {
    pub(in crate::dataset) fn packed_footer(&self, file: FileId) -> Result<PackedFooter> {
        let shard = self.source.open(&self.name_in_source(file))?;
        let read = PackedFooter::read(&*shard.bytes);
        read.map(|(footer, _)| footer).map_err(|error| Error::dataset(self.path(file), error.message))
    }

    /// Calls `visit` for every file of the dataset that was packed, in order, with the file's samples and name. A file
    /// is a loose file or a shard.
    pub(in crate::dataset) fn each_packed_name(
        &self,
        mut visit: impl FnMut(Range<u64>, &[u8]),
    ) -> Result<()> {
        // The samples of one source shard can be in several packed shards.
        let mut open: Option<(Vec<u8>, Range<u64>)> = None;
        for file in (0..self.files()).map(FileId) {
            let samples = self.samples_of(file);
            if samples.is_empty() {
                continue;
            }
            let footer = self.packed_footer(file)?;
            if footer.samples.len() as u64 != samples.end - samples.start {
                let message =
                    "holds other samples than when it was indexed: run `foreload index --rebuild-index`";
                return Err(Error::dataset(self.path(file), message));
            }
            for (sample, (row, members)) in samples.zip(footer.by_sample()) {
                if footer.layout.is_of_single_files() {
                    members.first().into_iter().for_each(|(_, name)| visit(sample..sample + 1, name));
                    continue;
                }
                let name = footer.sources.get(row.source as usize).map_or(&[][..], Vec::as_slice);
                match &mut open {
                    Some((known, range)) if known == name => range.end = sample + 1,
                    _ => {
                        if let Some((name, range)) = open.replace((name.to_vec(), sample..sample + 1)) {
                            visit(range, &name);
                        }
                    }
                }
            }
        }
        if let Some((name, range)) = open {
            visit(range, &name);
        }
        Ok(())
    }

    /// The path by which messages name a sample. If the dataset is packed, this is the path of the shard, followed by
    /// the name that the sample's image had before packing. Otherwise it is the path of the sample's file, or of the
    /// file with the first bytes of its arrays.
    pub(in crate::dataset) fn shown_path(&self, sample: u64) -> PathBuf {
        let of_arrays =
            self.sample_record(sample).and_then(|record| Some(record.pieces.first()?.extent.file));
        let file = of_arrays.unwrap_or_else(|| self.image(sample).file);
        let path = self.path(file);
        if self.layout() != Layout::Packed {
            return path;
        }
        let number = (sample - self.samples_of(file).start) as usize;
        let named = self.packed_footer(file).ok().and_then(|footer| {
            // The members of a table are named like its columns, which does not identify a sample.
            let has_names = footer.layout.is_of_files() || footer.layout.is_of_single_files();
            let (_, members) = footer.by_sample().nth(number).filter(|_| has_names)?;
            let (_, name) = members.first().filter(|(_, name)| !name.is_empty())?;
            Some(path.join(OsStr::from_bytes(name.strip_prefix(b"/").unwrap_or(name))))
        });
        // If the shard cannot be read, a message about its sample still names the shard.
        named.unwrap_or(path)
    }

    /// The key of a sample in a tar shard on a file system, read from the tar header before its image.
    pub(in crate::dataset) fn key_in_tar(&self, sample: u64) -> Option<Box<str>> {
        if self.layout() != Layout::Tar || self.source.is_remote() {
            return None;
        }
        let Extent { file, offset, .. } = self.image(sample);
        let shard = self.source.open(&self.name_in_source(file)).ok()?;
        let name = name_before(&*shard.bytes, offset)?;
        split(&name).map(|(stem, _)| String::from_utf8_lossy(stem).into())
    }
}
