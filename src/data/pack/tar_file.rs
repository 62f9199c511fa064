//! Writes a tar archive: POSIX.1-1988 ustar headers, and GNU's `L` members for names of more than 100 bytes, as
//! described in GNU tar's manual, "Basic Tar Format". Owners and times are zero.

use std::io::{self, Write};

const BLOCK: usize = 512;
/// The length of an archive is a multiple of this size, as in GNU tar and Python's tarfile.
const RECORD: u64 = 20 * BLOCK as u64;
const LONGEST_NAME: usize = 100;

pub(super) struct TarFile<W: Write> {
    file: W,
    written: u64,
}

impl<W: Write> TarFile<W> {
    pub(super) fn new(file: W) -> Self {
        Self { file, written: 0 }
    }

    pub(super) fn append(&mut self, name: &[u8], bytes: &[u8]) -> io::Result<()> {
        if name.len() > LONGEST_NAME {
            let long = [name, b"\0"].concat();
            self.put(&header(b"././@LongLink", b'L', long.len()))?;
            self.put_padded(&long)?;
        }
        self.put(&header(&name[..name.len().min(LONGEST_NAME)], b'0', bytes.len()))?;
        self.put_padded(bytes)
    }

    /// Writes the end of the archive, and returns the underlying writer.
    pub(super) fn finish(mut self) -> io::Result<W> {
        let end = (self.written + 2 * BLOCK as u64).next_multiple_of(RECORD);
        self.put(&vec![0; (end - self.written) as usize])?;
        self.file.flush()?;
        Ok(self.file)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    fn put_padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.put(bytes)?;
        self.put(&[0; BLOCK][..bytes.len().next_multiple_of(BLOCK) - bytes.len()])
    }
}

/// Makes the header of a member of `size` bytes, which must be less than 4 GiB.
fn header(name: &[u8], kind: u8, size: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name);
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    // In the sum, the bytes of the checksum field count as spaces.
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}
