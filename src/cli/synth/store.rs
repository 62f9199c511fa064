//! Writes the images to class directories or tar shards, and publishes the complete dataset under its name.

use base::error::{Error, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// How a synthetic dataset is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SynthLayout {
    /// `n00000003/n00000003_00000042.jpg`
    Folder,
    /// `shard-000000.tar` with `00000042.jpg` and `00000042.cls`
    Tar,
}

/// Writes a dataset. The dataset gets its name only when it is complete. Until then its files are in a hidden directory
/// in the same parent directory. If a hidden directory is left over, the next attempt removes it.
pub(crate) struct DatasetWriter {
    directory: PathBuf,
    partial: PathBuf,
    // Locked, because two writers of one dataset would mix their files.
    _lock: File,
    layout: SynthLayout,
    shard_size: u64,
    shard: Option<tar::Builder<BufWriter<File>>>,
}

impl DatasetWriter {
    /// Begins a dataset at `directory`, which must be missing or empty.
    pub(crate) fn create(
        directory: &Path,
        layout: SynthLayout,
        classes: u32,
        shard_size: u64,
    ) -> Result<Self> {
        let occupied = match fs::read_dir(directory) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            Err(error) => return Err(Error::io("list", directory, error)),
        };
        if occupied {
            return Err(Error::config(
                "DIR",
                format!("{} is not empty; remove it or choose another directory", directory.display()),
            ));
        }
        let name = directory
            .file_name()
            .ok_or_else(|| Error::config("DIR", format!("{} does not end in a name", directory.display())))?;
        let parent = directory.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(".partial");
        let partial = parent.join(hidden);
        fs::create_dir_all(&partial).map_err(|error| Error::io("create", &partial, error))?;
        let lock = File::open(&partial).map_err(|error| Error::io("open", &partial, error))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => Error::dataset(
                directory,
                "another `foreload synth` is writing it; wait for it or choose another directory",
            ),
            other => Error::io("lock", &partial, other.into()),
        })?;
        for entry in fs::read_dir(&partial).map_err(|error| Error::io("list", &partial, error))? {
            let path = entry.map_err(|error| Error::io("list", &partial, error))?.path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(|error| Error::io("remove", &path, error))?;
        }
        if layout == SynthLayout::Folder {
            for class in 0..classes {
                let path = partial.join(class_name(class));
                fs::create_dir(&path).map_err(|error| Error::io("create", &path, error))?;
            }
        }
        Ok(Self { directory: directory.to_owned(), partial, _lock: lock, layout, shard_size, shard: None })
    }

    /// Adds image `index`. Indices must come in order.
    pub(crate) fn add(&mut self, index: u64, class: u32, jpeg: &[u8]) -> Result<()> {
        match self.layout {
            SynthLayout::Folder => {
                let class = class_name(class);
                let path = self.partial.join(&class).join(format!("{class}_{index:08}.jpg"));
                fs::write(&path, jpeg).map_err(|error| Error::io("write", &path, error))
            }
            SynthLayout::Tar => {
                if index.is_multiple_of(self.shard_size) {
                    self.finish_shard()?;
                    let path = self.partial.join(format!("shard-{:06}.tar", index / self.shard_size));
                    let file = File::create_new(&path).map_err(|error| Error::io("create", &path, error))?;
                    self.shard = Some(tar::Builder::new(BufWriter::with_capacity(1 << 20, file)));
                }
                let shard = self.shard.as_mut().expect("indices begin at 0 and come in order");
                append(shard, &format!("{index:08}.jpg"), jpeg)
                    .and_then(|()| append(shard, &format!("{index:08}.cls"), class.to_string().as_bytes()))
                    .map_err(|error| Error::io("write a shard in", &self.partial, error))
            }
        }
    }

    fn finish_shard(&mut self) -> Result<()> {
        let Some(shard) = self.shard.take() else { return Ok(()) };
        // This writes the two zero blocks at the end, then the buffered data. Dropping the shard would ignore the
        // errors of these writes.
        shard
            .into_inner()
            .and_then(|mut file| file.flush())
            .map_err(|error| Error::io("write a shard in", &self.partial, error))
    }

    pub(crate) fn publish(mut self) -> Result<()> {
        self.finish_shard()?;
        // The rename replaces an empty directory with this name. It fails if files have been added to that directory.
        fs::rename(&self.partial, &self.directory).map_err(|error| {
            Error::io(format!("rename {} to", self.partial.display()), &self.directory, error)
        })
    }
}

impl Drop for DatasetWriter {
    fn drop(&mut self) {
        // After publishing, the partial directory no longer exists. After a failure its files are of no use.
        let _ = fs::remove_dir_all(&self.partial);
    }
}

fn class_name(class: u32) -> String {
    format!("n{:08}", class + 1)
}

fn append(shard: &mut tar::Builder<BufWriter<File>>, name: &str, data: &[u8]) -> std::io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_size(data.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(0);
    shard.append_data(&mut header, name, data)
}
