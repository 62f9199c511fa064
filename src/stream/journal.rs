//! The journal of a stream: which samples each step took, so that a run can be replayed byte for byte.
//!
//! A journal is a text file with one JSON document per line: a header, then the steps in the order of their delivery.
//! Withdrawn samples are listed before the first step to which the withdrawal applies. The seed and these lines
//! determine the rehearsed samples, so the journal stores only their count and the checksum of their ids. A replay
//! compares this count, this checksum and the checksums of the new samples, and fails at the first difference. A last
//! line that a crash cut short is ignored.

use super::state::StreamIdentity;
use base::crc::checksum;
use base::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(super) enum JournalLine {
    Header {
        journal: u32,
        identity: StreamIdentity,
    },
    Step {
        step: u64,
        /// The new samples in the order in which they were taken: the index of the source, the key, and the checksum of
        /// the sample's bytes.
        new: Vec<(usize, String, u32)>,
        /// The number of rehearsed samples, and the checksum of their ids.
        rehearsed: (u64, u32),
    },
    /// Samples that were withdrawn before step `before` was planned, by their ids.
    Withdrawn {
        before: u64,
        withdrawn: Vec<u64>,
    },
}

/// The checksum of the ids of rehearsed samples, in the order in which they were drawn.
pub(super) fn digest(ids: &[u64]) -> u32 {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    checksum(&bytes)
}

pub(super) struct JournalWriter {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl JournalWriter {
    /// Creates a journal, or resumes a journal at the length that a state gives (`known`). Lines after that length are
    /// removed: they list steps after the state.
    ///
    /// # Errors
    /// [`Error::Config`] if the file to create exists already, or the file to resume is not the journal of the state.
    /// [`Error::Io`].
    pub(super) fn open(path: &Path, identity: &StreamIdentity, known: Option<u64>) -> Result<Self> {
        let failed = |what: &str, error| Error::io(what, path, error);
        let Some(known) = known else {
            let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| {
                match error.kind() {
                    std::io::ErrorKind::AlreadyExists => {
                        let message = format!(
                            "{} exists already: each run needs a new journal; choose another file, or load the state \
                             that continues this one",
                            path.display()
                        );
                        Error::config("journal", message)
                    }
                    _ => failed("create the journal", error),
                }
            })?;
            let mut writer = Self { file, path: path.to_owned(), bytes: 0 };
            writer.write(&JournalLine::Header { journal: VERSION, identity: identity.clone() })?;
            return Ok(writer);
        };
        let file = OpenOptions::new().read(true).write(true).open(path);
        let mut file = file.map_err(|error| failed("continue the journal", error))?;
        let found = file.metadata().map_err(|error| failed("look at the journal", error))?.len();
        if found < known {
            let message = format!(
                "{} has {found} bytes, but had {known} when the state was saved: pass the journal of that run",
                path.display()
            );
            return Err(Error::config("journal", message));
        }
        JournalReader::open(path, identity)?;
        file.set_len(known).map_err(|error| failed("truncate the journal", error))?;
        file.seek(SeekFrom::End(0)).map_err(|error| failed("continue the journal", error))?;
        Ok(Self { file, path: path.to_owned(), bytes: known })
    }

    /// Writes one line.
    ///
    /// # Errors
    /// [`Error::Io`]. Part of the line may then be in the file.
    pub(super) fn write(&mut self, line: &JournalLine) -> Result<()> {
        let mut text = serde_json::to_vec(line)
            .map_err(|error| Error::Internal(format!("a line of a journal cannot be JSON: {error}")))?;
        text.push(b'\n');
        self.file.write_all(&text).map_err(|error| Error::io("write the journal", &self.path, error))?;
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// Syncs the journal to the drive, and returns its length in bytes.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn sync(&mut self) -> Result<u64> {
        self.file.sync_data().map_err(|error| Error::io("write the journal", &self.path, error))?;
        Ok(self.bytes)
    }
}

pub(super) struct JournalReader {
    lines: std::io::Lines<BufReader<File>>,
    path: PathBuf,
    number: u64,
}

impl JournalReader {
    /// Opens the journal of a stream with this `identity`.
    ///
    /// # Errors
    /// [`Error::Config`] for the journal of another stream or of other settings. [`Error::Io`].
    pub(super) fn open(path: &Path, identity: &StreamIdentity) -> Result<Self> {
        let file = File::open(path).map_err(|error| Error::io("open the journal", path, error))?;
        let mut reader = Self { lines: BufReader::new(file).lines(), path: path.to_owned(), number: 0 };
        let wrong = |message: String| Error::config("replay", format!("{}: {message}", path.display()));
        match reader.take()? {
            Some(JournalLine::Header { journal: VERSION, identity: found }) if found == *identity => {
                Ok(reader)
            }
            Some(JournalLine::Header { journal, .. }) if journal != VERSION => {
                Err(wrong(format!("is a journal of version {journal}, must be of version {VERSION}")))
            }
            Some(JournalLine::Header { identity: found, .. }) => Err(wrong(format!(
                "is the journal of another stream or of different settings: {}; this is {}",
                words(&found),
                words(identity)
            ))),
            _ => Err(wrong("is not a journal of a stream".to_owned())),
        }
    }

    /// Reads the next line.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Config`] for a line that is damaged.
    pub(super) fn take(&mut self) -> Result<Option<JournalLine>> {
        let Some(line) = self.lines.next() else { return Ok(None) };
        self.number += 1;
        let line = line.map_err(|error| Error::io("read the journal", &self.path, error))?;
        match serde_json::from_str(&line) {
            Ok(line) => Ok(Some(line)),
            // A crash may have cut the last line short.
            Err(_) if self.lines.next().is_none() && self.number > 1 => Ok(None),
            Err(error) => {
                let message = format!("{}: line {} is damaged: {error}", self.path.display(), self.number);
                Err(Error::config("replay", message))
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn words(identity: &StreamIdentity) -> String {
    serde_json::to_string(identity).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(seed: u64) -> StreamIdentity {
        StreamIdentity {
            streams: vec!["s".into()],
            seed,
            batch_size: 2,
            rank: 0,
            world_size: 1,
            rehearsal: None,
        }
    }

    fn step(step: u64) -> JournalLine {
        JournalLine::Step {
            step,
            new: vec![(0, format!("key \"{step}\""), 7)],
            rehearsed: (2, digest(&[1, 2])),
        }
    }

    fn rest(mut reader: JournalReader) -> Vec<JournalLine> {
        std::iter::from_fn(|| reader.take().unwrap()).collect()
    }

    #[test]
    fn a_journal_gives_back_its_lines_and_is_cut_where_a_state_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut writer = JournalWriter::open(&path, &identity(1), None).unwrap();
        writer.write(&step(0)).unwrap();
        writer.write(&JournalLine::Withdrawn { before: 1, withdrawn: vec![u64::MAX >> 1] }).unwrap();
        let known = writer.sync().unwrap();
        writer.write(&step(1)).unwrap();
        drop(writer);
        assert_eq!(rest(JournalReader::open(&path, &identity(1)).unwrap()).len(), 3);
        let mut writer = JournalWriter::open(&path, &identity(1), Some(known)).unwrap();
        writer.write(&step(5)).unwrap();
        let lines = rest(JournalReader::open(&path, &identity(1)).unwrap());
        assert_eq!((&lines[0], &lines[2]), (&step(0), &step(5)));
        // A line that a crash cut short.
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"step\":6,\"ne").unwrap();
        assert_eq!(rest(JournalReader::open(&path, &identity(1)).unwrap()).len(), 3);
    }

    #[test]
    fn what_is_no_journal_of_the_stream_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        JournalWriter::open(&path, &identity(1), None).unwrap();
        let refused = |result: Result<()>| result.unwrap_err().to_string();
        assert!(refused(JournalWriter::open(&path, &identity(1), None).map(drop)).contains("exists already"));
        assert!(refused(JournalWriter::open(&path, &identity(1), Some(9999)).map(drop)).contains("9999"));
        assert!(refused(JournalReader::open(&path, &identity(2)).map(drop)).contains("another stream"));
        std::fs::write(&path, "hello\nworld\n").unwrap();
        assert!(refused(JournalReader::open(&path, &identity(1)).map(drop)).contains("damaged"));
    }
}
