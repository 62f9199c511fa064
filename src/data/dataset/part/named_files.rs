//! Files that manifest columns name in addition to the samples' own files, such as masks. These files are numbered
//! after the samples' own files, column by column. Their sizes are looked up at every start that selects the column.

use super::DatasetPart;
use crate::dataset::cancel::Cancel;
use crate::dataset::cells::{CellType, CellValue, ColumnCells, ColumnFacts};
use crate::dataset::format::Section;
use crate::dataset::manifest::{NO_FILE, NamedBy, OF_TABLES, SIZE_REQUEST_THREADS, sizes};
use crate::dataset::open::{IndexProgress, threads};
use crate::dataset::{Extent, FileId, IndexOptions, MemberBytes};
use base::error::{Error, Result};

pub(in crate::dataset) struct NamedFiles {
    /// The index, among the selected members, of the member to which these files belong.
    member: usize,
    column: ColumnCells<'static>,
    /// The size of each file in bytes; [`NO_FILE`] for a cell that names no file.
    lengths: Vec<u32>,
}

impl NamedFiles {
    fn name(&self, sample: u64) -> Option<&str> {
        if let Some(CellValue::Text(text)) = self.column.get(sample) { Some(text) } else { None }
    }

    fn has(&self, sample: u64) -> bool {
        self.lengths[sample as usize] != NO_FILE
    }
}

impl DatasetPart {
    pub(in crate::dataset) fn may_name_files(&self, column: &ColumnFacts) -> bool {
        self.layout().names_files() && column.cells == CellType::Texts
    }

    /// Looks up the files of all `members` that are columns of file names in a manifest.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a cell that names no file, and for too many files.
    pub(in crate::dataset) fn name_files(
        &mut self,
        members: &[String],
        options: &IndexOptions,
        cancel: &Cancel,
    ) -> Result<()> {
        let columns = self.columns();
        for (member, name) in members.iter().enumerate() {
            let found = columns.iter().position(|of| of.name == *name && self.may_name_files(of));
            let Some(number) = found else { continue };
            let section = self.file.section(Section::Cells);
            let column = ColumnCells::of(&columns, number, section, self.len()).owned();
            let mut files = NamedFiles { member, column, lengths: vec![NO_FILE; self.len() as usize] };
            let (mut samples, mut names) = (Vec::new(), Vec::new());
            for sample in 0..self.len() {
                let Some(text) = files.name(sample) else { continue };
                let taken = self.name_of(text).map_err(|why| {
                    Error::dataset(&self.root, format!("sample {sample}: its column {name:?} {why}"))
                })?;
                samples.push(sample);
                names.push(taken);
            }
            let source = &*self.source;
            let is_on_server = match source.manifest() {
                Some(manifest) => names.iter().any(|name| manifest.is_on_server(name)),
                None => source.is_remote(),
            };
            let progress = IndexProgress::new(options.progress);
            progress.expect(names.len() as u64, "files");
            let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
            let place = &|at: usize| format!("sample {}", samples[at]);
            let named = NamedBy { column: name, place, remedy: OF_TABLES };
            let threads =
                if is_on_server { SIZE_REQUEST_THREADS } else { threads(options, source, self.layout()) };
            let found = sizes(source, &names, named, threads, &progress, cancel)?;
            samples.iter().zip(found).for_each(|(&sample, length)| files.lengths[sample as usize] = length);
            self.has_remote |= is_on_server;
            self.named_files.push(files);
        }
        let files = self.len().saturating_mul(1 + self.named_files.len() as u64);
        if files > u64::from(u32::MAX) {
            let message = "names more than 4 294 967 295 files: pack them into shards";
            return Err(Error::dataset(&self.root, message));
        }
        Ok(())
    }

    fn name_of(&self, text: &str) -> std::result::Result<Vec<u8>, String> {
        let Some(manifest) = self.source.manifest() else { return Ok(text.as_bytes().to_vec()) };
        let mut names = manifest.names();
        let name = names.take(text)?;
        match names.has_secrets() {
            true => Err("names a URL with a secret, which only the samples' own files may have".to_owned()),
            false => Ok(name),
        }
    }

    /// The name of a file, if the file is one that a column names; `None` for a sample's own file.
    pub(super) fn named_file(&self, file: FileId) -> Option<Vec<u8>> {
        let after = u64::from(file.0).checked_sub(self.len()).filter(|_| !self.named_files.is_empty())?;
        let files = &self.named_files[(after / self.len()) as usize];
        Some(self.name_of(files.name(after % self.len())?).unwrap_or_default())
    }

    /// Locates a sample's file for the selected member at index `member`; `None` if no column names the files of this
    /// member.
    pub(in crate::dataset) fn named_member(&self, sample: u64, member: usize) -> Option<MemberBytes> {
        let (column, files) = (1..).zip(&self.named_files).find(|(_, files)| files.member == member)?;
        if !files.has(sample) {
            return Some(MemberBytes::Absent);
        }
        let file = FileId((column * self.len() + sample) as u32);
        Some(MemberBytes::Separate(Extent { file, offset: 0, length: files.lengths[sample as usize] }))
    }

    pub(in crate::dataset) fn named_of(&self, sample: u64) -> u64 {
        self.named_files.iter().filter(|files| files.has(sample)).count() as u64
    }
}
