//! Random access to the bytes of a file for parsers, with a small read window.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Default size of a window in bytes. It is large enough for the headers, labels and small records between two samples,
/// so one read covers them.
pub const WINDOW: usize = 4096;

/// A source of bytes that can be read at any offset.
pub trait ReadAt {
    /// Returns the number of bytes.
    fn size(&self) -> u64;
    /// Fills `buffer` with the bytes at `offset`, and returns how many bytes were read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Like `read_at`, but with the error of a parser.
    fn fill_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Malformed> {
        let failed = |error| Malformed { offset, message: format!("reading failed: {error}") };
        self.read_at(buffer, offset).map_err(failed)
    }
    /// Returns the minimum number of bytes to read at a time. Reading fewer bytes would take about as long.
    fn worth_reading(&self) -> usize {
        WINDOW
    }
}

impl ReadAt for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

impl<S: ReadAt + ?Sized> ReadAt for &S {
    fn size(&self) -> u64 {
        (**self).size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        (**self).read_at(buffer, offset)
    }
    fn worth_reading(&self) -> usize {
        (**self).worth_reading()
    }
}

/// A file with its size at the time of opening.
pub struct SizedFile {
    /// The file.
    pub file: File,
    /// Size of the file in bytes.
    pub size: u64,
}

impl SizedFile {
    /// Opens a file for reading.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Self { size: file.metadata()?.len(), file })
    }
}

impl ReadAt for SizedFile {
    fn size(&self) -> u64 {
        self.size
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        // A read at the end of the file would be another request to a file system.
        let most = self.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < most {
            match self.file.read_at(&mut buffer[done..most], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

/// Why an archive cannot be parsed, and where.
#[derive(Debug)]
pub struct Malformed {
    /// Offset in the archive at which the error was found.
    pub offset: u64,
    /// What is wrong.
    pub message: String,
}

impl Malformed {
    /// The offset of a refusal, which is of no place in the archive.
    const NOWHERE: u64 = u64::MAX;

    /// An archive that is intact, but cannot be read as the user asks. The message says what to change.
    pub(crate) fn refusal(message: impl Into<String>) -> Self {
        Self { offset: Self::NOWHERE, message: message.into() }
    }

    /// Whether the archive is intact, so that no other copy of it helps.
    pub(crate) fn is_refusal(&self) -> bool {
        self.offset == Self::NOWHERE
    }
}

/// Reads parts of a source. Parts that are close together need only one read.
pub struct Window<'a, S: ReadAt + ?Sized> {
    source: &'a S,
    window: Vec<u8>,
    window_at: u64,
}

impl<'a, S: ReadAt + ?Sized> Window<'a, S> {
    /// Starts with an empty window.
    pub fn new(source: &'a S) -> Self {
        Self { source, window: Vec::new(), window_at: 0 }
    }

    /// Returns the number of bytes of the source.
    pub fn size(&self) -> u64 {
        self.source.size()
    }

    /// Reads exactly `size` bytes at `offset`.
    ///
    /// # Errors
    /// [`Malformed`] if the archive has fewer bytes or cannot be read. Check `size` before the call, because a buffer
    /// of this size is allocated.
    pub fn read(&mut self, offset: u64, size: u64) -> Result<Vec<u8>, Malformed> {
        let end = offset.checked_add(size).filter(|&end| end <= self.source.size());
        let Some(end) = end else { return Err(self.truncated(offset, size)) };
        if offset < self.window_at || end > self.window_at + self.window.len() as u64 {
            let worth_reading = self.source.worth_reading();
            if size > worth_reading as u64 {
                let mut buffer = vec![0; size as usize];
                let got = self.fill(&mut buffer, offset)?;
                return if got as u64 == size { Ok(buffer) } else { Err(self.truncated(offset, size)) };
            }
            let mut window = std::mem::take(&mut self.window);
            window.resize(worth_reading, 0);
            let got = self.fill(&mut window, offset)?;
            window.truncate(got);
            (self.window, self.window_at) = (window, offset);
        }
        let from = (offset - self.window_at) as usize;
        // The window is too short only if the file shrank while it was read.
        let bytes = self.window.get(from..from + size as usize).map(<[u8]>::to_vec);
        bytes.ok_or_else(|| self.truncated(offset, size))
    }

    /// Fills a buffer with the bytes at `offset`, up to the end of the source, and returns how many bytes were read.
    pub fn fill(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Malformed> {
        self.source.fill_at(buffer, offset)
    }

    /// Returns the error for a shard with fewer than `size` bytes at `offset`.
    pub fn truncated(&self, offset: u64, size: u64) -> Malformed {
        let message = format!(
            "the shard is truncated: {size} more bytes are expected, but it ends at byte {}",
            self.source.size()
        );
        Malformed { offset, message }
    }
}
