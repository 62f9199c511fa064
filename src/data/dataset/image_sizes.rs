//! The sizes of a dataset's images, read once from their headers and stored next to the index.
//!
//! The file of a dataset has a header and chunks of 65 536 samples: 8 bytes a sample, little-endian, then the chunk's
//! checksum. A size that was not measured yet is 0. A chunk with a wrong checksum counts as not measured. The name of
//! the file has the dataset's fingerprint, so a dataset with other samples has another file. (→ tests/load/sizes.rs)

use super::cancel::Cancel;
use super::open::IndexProgress;
use super::parallel::for_each;
use super::part::DatasetPart;
use super::select::SampleSet;
use super::{DatasetIndex, directory, publish};
use base::crc::checksum;
use base::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const MAGIC: [u8; 8] = *b"FLSIZES1";
const CHUNK: u64 = 65_536;
/// The bytes of a full chunk in a file: 8 bytes a sample, and the checksum.
const STRIDE: u64 = 8 * CHUNK + 8;
/// The number of samples that a thread measures at a time.
const RUN: usize = 32;

/// The size of an image as its header states it, and whether its orientation (EXIF) exchanges width and height.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MeasuredSize(u64);

impl MeasuredSize {
    /// The size of an image that was not read.
    pub const UNKNOWN: Self = Self(0);
    /// The size of an image without a readable header.
    pub const UNREADABLE: Self = Self(3 << 62);

    /// Makes the size of an image. `is_transposed` is `None` if the orientation was not read.
    pub fn new((width, height): (u32, u32), is_transposed: Option<bool>) -> Self {
        if width == 0 || height == 0 || (width | height) >> 31 != 0 {
            return Self::UNREADABLE;
        }
        let turn = is_transposed.map_or(0, |is_transposed| 1 + u64::from(is_transposed));
        Self(turn << 62 | u64::from(height) << 31 | u64::from(width))
    }

    /// Returns width and height as the image is shown: with its orientation applied if `is_applied`, else as it is
    /// stored. `None` if they are not known.
    pub fn shown(self, is_applied: bool) -> Option<(u32, u32)> {
        let [width, height] = [self.0, self.0 >> 31].map(|bits| (bits & (u64::from(u32::MAX) >> 1)) as u32);
        let is_transposed = is_applied && self.0 >> 62 == 2;
        (width > 0).then_some(if is_transposed { (height, width) } else { (width, height) })
    }

    /// Whether the header was read, and also the orientation if `is_applied`.
    pub fn is_known(self, is_applied: bool) -> bool {
        self != Self::UNKNOWN && !(is_applied && self.0 >> 62 == 0)
    }
}

/// How sizes are measured that are not stored yet.
pub struct Measuring<'a> {
    /// The samples that need a size; `None` for all.
    pub wanted: Option<&'a SampleSet>,
    /// Whether the orientation is needed, too.
    pub is_applied: bool,
    /// Reads the header of a sample. [`MeasuredSize::UNKNOWN`] if its bytes cannot be read now.
    pub measure: &'a (dyn Fn(u64) -> MeasuredSize + Sync),
    /// The number of threads, which mostly wait for storage.
    pub threads: usize,
    /// Whether stored sizes are measured again.
    pub rebuild: bool,
    /// Whether a progress bar is shown on stderr, if stderr is a terminal.
    pub progress: bool,
    /// Ends the measuring early. What was measured until then is stored.
    pub cancel: &'a Arc<AtomicBool>,
}

/// The sizes of all images that were measured.
pub struct ImageSizes {
    /// The first sample of each dataset, and the file of its sizes.
    files: Vec<(u64, SizesFile)>,
}

impl ImageSizes {
    /// Calls `visit` with the first sample and the sizes of each chunk, on several threads, in no particular order.
    ///
    /// # Errors
    /// [`Error::Io`] if a file of sizes cannot be read, and the errors of `visit`.
    pub fn for_each_chunk(
        &self,
        threads: usize,
        visit: impl Fn(u64, &[MeasuredSize]) -> Result<()> + Sync,
    ) -> Result<()> {
        self.files.iter().try_for_each(|(first, file)| {
            for_each(threads, file.chunks() as usize, |chunk| {
                visit(first + chunk as u64 * CHUNK, &file.read(chunk as u64)?)
            })
        })
    }

    /// Returns the paths of the files that keep the sizes.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(_, file)| file.path.as_path())
    }
}

impl DatasetIndex {
    /// Returns the sizes of the images in `member` (see [`DatasetIndex::member`]; `None` for the image of a dataset
    /// that was opened without members). Reads the headers of the images whose sizes are not stored yet, and stores
    /// them next to the index.
    ///
    /// # Errors
    /// [`Error::Dataset`] after cancellation, [`Error::Io`] if a stored file cannot be read. If no file can be written
    /// next to the index, a warning says so and the sizes are kept in memory.
    pub fn image_sizes(&self, member: Option<usize>, how: &Measuring<'_>) -> Result<ImageSizes> {
        let name = member.and_then(|member| self.members().get(member)).map_or(super::IMAGE, String::as_str);
        let mut first = 0;
        let mut files = Vec::new();
        for part in self.dataset_parts() {
            files.push((first, self.sizes_of_part(part, first, name, how)?));
            first += part.len();
        }
        Ok(ImageSizes { files })
    }

    fn sizes_of_part(
        &self,
        part: &DatasetPart,
        first: u64,
        member: &str,
        how: &Measuring<'_>,
    ) -> Result<SizesFile> {
        let (path, samples) = (sizes_path(part, member), part.len());
        let missing = |old: Option<&SizesFile>| {
            let chunks = samples.div_ceil(CHUNK);
            let Some(old) = old else { return Ok((0..chunks).collect()) };
            let found = Mutex::new(Vec::new());
            for_each(how.threads, chunks as usize, |chunk| {
                let begin = first + chunk as u64 * CHUNK;
                if old.read(chunk as u64)?.iter().zip(begin..).any(|(size, sample)| how.needs(*size, sample))
                {
                    found.lock().unwrap_or_else(PoisonError::into_inner).push(chunk as u64);
                }
                Ok(())
            })?;
            let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
            found.sort_unstable();
            Ok::<Vec<u64>, Error>(found)
        };
        let stored = || if how.rebuild { None } else { SizesFile::open(&path, samples) };
        if let Some(old) = stored()
            && missing(Some(&old))?.is_empty()
        {
            return Ok(old);
        }
        let cancel = Cancel::by(how.cancel);
        let lock = directory::lock(&path, &part.root, &cancel);
        cancel.check_sizes(&part.root)?;
        // Another process might have measured the images while this process waited.
        let old = stored();
        let missing = missing(old.as_ref())?;
        let old = match old {
            Some(old) if missing.is_empty() => return Ok(old),
            old => old,
        };
        let fill = |file: &File| {
            let new = SizesFile { file: file.try_clone()?, path: path.clone(), samples };
            new.fill(old.as_ref(), first, &missing, how)
        };
        let written = lock.and_then(|_lock| publish::publish(&path, fill));
        let sizes = written.and_then(|()| {
            SizesFile::open(&path, samples)
                .ok_or_else(|| Error::io("read", &path, io::ErrorKind::NotFound.into()))
        });
        let sizes = sizes.or_else(|error| {
            self.notices().warn_once("image sizes", || {
                format!(
                    "the sizes of images cannot be stored next to the index, so each start reads the headers of all \
                     images again ({error}): set index_dir to a writable directory"
                )
            });
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            let in_memory = rustix::fs::memfd_create("foreload-sizes", flags)
                .map_err(io::Error::from)
                .map(File::from)
                .and_then(|file| fill(&file).map(|()| file));
            let file = in_memory.map_err(|error| Error::io("keep in memory the sizes in", &path, error))?;
            Ok::<_, Error>(SizesFile { file, path: path.clone(), samples })
        })?;
        cancel.check_sizes(&part.root)?;
        Ok(sizes)
    }
}

impl Measuring<'_> {
    fn needs(&self, size: MeasuredSize, sample: u64) -> bool {
        !size.is_known(self.is_applied) && self.wanted.is_none_or(|wanted| wanted.has(sample as u32))
    }

    /// Measures the sizes that are missing in a chunk.
    fn measure_missing(
        &self,
        begin: u64,
        sizes: &mut [MeasuredSize],
        progress: &IndexProgress,
    ) -> Result<()> {
        let runs: Vec<_> = sizes.chunks_mut(RUN).map(Mutex::new).collect();
        for_each(self.threads, runs.len(), |number| {
            let mut run = runs[number].lock().unwrap_or_else(PoisonError::into_inner);
            for (sample, size) in (begin + (number * RUN) as u64..).zip(run.iter_mut()) {
                if self.needs(*size, sample) && !self.cancel.load(Ordering::Relaxed) {
                    *size = (self.measure)(sample);
                }
            }
            progress.step(run.len() as u64);
            Ok(())
        })
    }
}

/// The path of the file of sizes of a dataset: next to its index, with a name from the fingerprint and the member.
fn sizes_path(part: &DatasetPart, member: &str) -> PathBuf {
    let digest = Sha256::new().chain_update(part.fingerprint().0).chain_update(member).finalize();
    let digest: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    part.file.path.with_extension(format!("{digest}.sizes"))
}

/// A file of sizes, or a file in memory with the same contents.
struct SizesFile {
    file: File,
    path: PathBuf,
    samples: u64,
}

impl SizesFile {
    /// Opens a stored file; `None` if there is none, or if it is not one of this many samples.
    fn open(path: &Path, samples: u64) -> Option<Self> {
        let file = File::open(path).ok()?;
        let mut header = [0; 16];
        file.read_exact_at(&mut header, 0).ok()?;
        (header == Self::header(samples)).then(|| Self { file, path: path.to_owned(), samples })
    }

    fn header(samples: u64) -> [u8; 16] {
        let mut header = [0; 16];
        header[..8].copy_from_slice(&MAGIC);
        header[8..].copy_from_slice(&samples.to_le_bytes());
        header
    }

    fn chunks(&self) -> u64 {
        self.samples.div_ceil(CHUNK)
    }

    /// Returns the sizes of a chunk; all unknown if its bytes are damaged or missing.
    fn read(&self, chunk: u64) -> Result<Vec<MeasuredSize>> {
        let samples = CHUNK.min(self.samples - chunk * CHUNK) as usize;
        let mut bytes = vec![0; 8 * samples + 8];
        match self.file.read_exact_at(&mut bytes, 16 + chunk * STRIDE) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(vec![MeasuredSize::UNKNOWN; samples]);
            }
            read => read.map_err(|error| Error::io("read", &self.path, error))?,
        }
        let (sizes, sum) = bytes.split_at(8 * samples);
        if sum[..4] != checksum(sizes).to_le_bytes() {
            return Ok(vec![MeasuredSize::UNKNOWN; samples]);
        }
        let sizes = sizes.as_chunks().0.iter();
        Ok(sizes.map(|size| MeasuredSize(u64::from_le_bytes(*size))).collect())
    }

    fn write(&self, chunk: u64, sizes: &[MeasuredSize]) -> io::Result<()> {
        let mut bytes: Vec<u8> = sizes.iter().flat_map(|size| size.0.to_le_bytes()).collect();
        let sum = checksum(&bytes);
        bytes.extend(u64::from(sum).to_le_bytes());
        self.file.write_all_at(&bytes, 16 + chunk * STRIDE)
    }

    /// Writes all chunks: those of `old`, and in the chunks in `missing` also the sizes that are measured now.
    fn fill(&self, old: Option<&Self>, first: u64, missing: &[u64], how: &Measuring<'_>) -> io::Result<()> {
        let progress = IndexProgress::new(how.progress);
        progress.expect(self.samples.min(missing.len() as u64 * CHUNK), "image headers");
        self.file.write_all_at(&Self::header(self.samples), 0)?;
        for chunk in 0..self.chunks() {
            let samples = CHUNK.min(self.samples - chunk * CHUNK) as usize;
            let mut sizes = match old {
                Some(old) => old.read(chunk).map_err(io::Error::other)?,
                None => vec![MeasuredSize::UNKNOWN; samples],
            };
            if missing.binary_search(&chunk).is_ok() {
                how.measure_missing(first + chunk * CHUNK, &mut sizes, &progress)
                    .map_err(io::Error::other)?;
            }
            // A hole in the file has a wrong checksum, so its sizes count as unknown.
            if sizes.iter().any(|size| *size != MeasuredSize::UNKNOWN) {
                self.write(chunk, &sizes)?;
            }
        }
        Ok(())
    }
}
