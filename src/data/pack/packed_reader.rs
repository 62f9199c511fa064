//! Restores files from packed shards.

use super::open_shard::OpenPackedShard;
use super::source::SampleFiles;
use crate::dataset::packed::{PACKED_FORMAT, PackedMember};
use crate::dataset::{DatasetIndex, FileId, ReadAt, Stamp};
use base::crc::checksum;
use base::error::{Error, Result};
use pixels::decode::{FileRestorer, StorageFormat};

#[derive(Default)]
pub(super) struct FileReader {
    restorer: FileRestorer,
    packed: Vec<u8>,
}

impl FileReader {
    /// Returns the bytes of the file from which a member was made.
    ///
    /// # Errors
    /// [`Error::Io`] if the shard cannot be read, [`Error::Dataset`] for a wrong checksum or size.
    pub(super) fn read(
        &mut self,
        shard: &OpenPackedShard,
        member: PackedMember,
        name: &[u8],
    ) -> Result<&[u8]> {
        let damaged = |why: String| {
            let name = String::from_utf8_lossy(name);
            Error::dataset(&shard.path, format!("{name:?} at byte {}: {why}", member.offset))
        };
        self.packed.resize(member.length as usize, 0);
        let got = shard.file.read_at(&mut self.packed, member.offset);
        let got = got.map_err(|error| Error::io("read", &shard.path, error))?;
        if got != self.packed.len() || checksum(&self.packed) != member.checksum {
            return Err(damaged("is damaged: its checksum is wrong".to_owned()));
        }
        if member.form != PACKED_FORMAT {
            return Ok(&self.packed);
        }
        let file = self
            .restorer
            .restore(StorageFormat::Packed, &self.packed)
            .map_err(|error| damaged(error.to_string()))?;
        if file.len() != member.original as usize {
            let (found, stated) = (file.len(), member.original);
            return Err(damaged(format!("has {found} bytes when restored, but must have {stated}")));
        }
        Ok(file)
    }
}

#[derive(Default)]
pub(super) struct PackedReader {
    files: FileReader,
    open: Option<(FileId, OpenPackedShard)>,
    /// For each sample of the open shard: (number of members before it, total length of their names).
    before: Vec<(usize, usize)>,
}

impl PackedReader {
    /// Adds the files of a sample to `found`.
    ///
    /// # Errors
    /// The errors of [`OpenPackedShard::read`] and [`FileReader::read`]; [`Error::DatasetChanged`] if the shard has
    /// changed.
    pub(super) fn read(&mut self, index: &DatasetIndex, sample: u64, found: &mut SampleFiles) -> Result<()> {
        let file = index.extent(sample).file;
        if self.open.as_ref().is_none_or(|(known, _)| *known != file) {
            let path = index.path(file);
            let metadata = path.metadata().map_err(|error| Error::io("look at", &path, error))?;
            let found = index.known(file, Stamp::of(&metadata));
            if let Some(message) = index.shard_stamp(file).and_then(|then| then.difference(found)) {
                return Err(Error::DatasetChanged { path, message });
            }
            let (shard, _) = OpenPackedShard::read(path)?;
            let mut at = (0, 0);
            self.before.clear();
            for (_, members) in shard.footer.by_sample() {
                self.before.push(at);
                at.0 += members.len();
                at.1 += members.iter().map(|(_, name)| name.len()).sum::<usize>();
            }
            self.open = Some((file, shard));
        }
        let Some((_, shard)) = &self.open else { return Ok(()) };
        let number = (sample - index.samples_of(file).start) as usize;
        let changed = || Error::dataset(&shard.path, "has other samples than when it was indexed");
        let &(first, mut name_at) = self.before.get(number).ok_or_else(changed)?;
        let count = shard.footer.samples[number].members as usize;
        for &member in &shard.footer.members[first..first + count] {
            let name = &shard.footer.names[name_at..name_at + member.name as usize];
            name_at += name.len();
            found.push(name, member.order, self.files.read(shard, member, name)?);
        }
        Ok(())
    }
}
