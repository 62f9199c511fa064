//! The other end: a process that serves random bytes, and reports its processor time.

use super::{Arguments, From, SAMPLES, processor_time};
use foreload::Result;
use foreload::testing::dataset::{FileVersion, Fingerprint};
use foreload::testing::peers::{
    Accepted, Bytes, CopyBytes, Found, ServedCache, Server, ServerOptions, SharedDataset, TlsIdentity, Token,
};
use foreload::testing::rng::{RandomKey, Use};
use foreload::testing::tier::store::checksum;
use std::fs::File;
use std::io::{BufRead, Write};
use std::sync::Arc;

/// The dataset that is served and read.
pub fn dataset() -> SharedDataset {
    SharedDataset { fingerprint: Fingerprint([7; 32]), generation: 1 }
}

/// The samples, one after another.
struct BenchShelf {
    bytes: Bytes,
    file: Option<Arc<File>>,
    length: u32,
    crcs: Vec<u32>,
}

impl ServedCache for BenchShelf {
    fn find(&self, sample: u64, _version: Option<FileVersion>) -> Found {
        let Some(&crc) = self.crcs.get(sample as usize) else { return Found::Absent };
        let offset = sample * u64::from(self.length);
        let bytes = match &self.file {
            None => {
                CopyBytes::Memory(self.bytes.slice(offset as usize..offset as usize + self.length as usize))
            }
            Some(file) => CopyBytes::File { file: file.clone(), offset, length: self.length, alignment: 1 },
        };
        Found::Copy { bytes, crc, version: FileVersion(1) }
    }

    fn length(&self, sample: u64) -> Option<u32> {
        (sample < SAMPLES).then_some(self.length)
    }

    fn damaged(&self, _sample: u64, _crc: u32) {}

    fn accept(&self, _: u64, _: FileVersion, _: u32, _: &[u8]) -> Accepted {
        Accepted::Off
    }
}

/// Serves until the standard input ends. Prints address, token and the certificate's pin, if there is one, and for each
/// input line the processor time so far.
pub fn serve(arguments: &Arguments, from: From) -> Result<()> {
    let length = arguments.bytes as usize;
    let key = RandomKey::new(b"peers", 0, 0, Use::Augment);
    let mut bytes = vec![0; SAMPLES as usize * length];
    for (number, piece) in (0..).zip(bytes.chunks_mut(4096)) {
        // For the network, a constant word would do; but then the checksum could not detect a swapped page.
        piece.fill(key.block(number, 0)[0] as u8);
        piece[0] = number as u8;
    }
    let crcs = bytes.chunks(length).map(checksum).collect();
    let file = match from {
        From::Memory => None,
        From::File => {
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(&bytes).expect("room for the samples");
            Some(Arc::new(file))
        }
    };
    let token = Token::random()?;
    let tls = arguments.tls.then(TlsIdentity::for_this_job).transpose()?;
    let pin = tls
        .as_ref()
        .map_or(String::new(), |tls| tls.pin().0.iter().map(|byte| format!("{byte:02x}")).collect());
    let server = Server::start(ServerOptions { tls, ..ServerOptions::new(arguments.listen, token.clone()) })?;
    server
        .share(dataset(), Arc::new(BenchShelf { bytes: bytes.into(), file, length: arguments.bytes, crcs }));
    println!("{}\n{}\n{pin}", server.address(), token.reveal());
    for _ in std::io::stdin().lock().lines() {
        println!("{}", processor_time());
    }
    Ok(())
}
