//! Shards as MosaicML Streaming writes them (MDS): an `index.json` beside files of samples.
//!
//! A shard is the number of its samples n (u32), n + 1 offsets (u32), a description that `index.json` has too, and the
//! samples. A sample is the sizes (u32) of those of its columns whose values differ in size, and then all values,
//! column by column (MosaicML Streaming, `base/format/mds/`). Nothing of it is trusted, and nothing is ever unpickled.

mod encoding;
mod list;
mod sample;

pub use sample::mds_table;

use super::super::samples::ShardContents;
use super::super::{Contents, rows_of_table};
use super::{LABELS, ShardLayout, ShardParser, read_list};
use crate::error::{Error, Result};
use crate::source::{DatasetSource, Malformed, ReadAt, Seen};
use list::{MdsList, MdsShard};
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use std::collections::HashMap;

/// The file that lists the shards.
const INDEX: &str = "index.json";
/// The most bytes of that file: some hundred thousand shards.
const LARGEST: u64 = 256 << 20;
/// The most bytes that are read at a time to compare a checksum.
const PIECE: u64 = 1 << 20;

/// MDS shards.
pub(super) struct MdsShards;

impl ShardLayout for MdsShards {
    fn samples(&self) -> Contents {
        Contents::Images
    }

    fn is_shard(&self, _: &[u8]) -> bool {
        false
    }

    fn marker(&self) -> Option<&'static str> {
        Some(INDEX)
    }

    fn is_unlisted_shard(&self, name: &[u8]) -> bool {
        name.ends_with(b".mds") || name.windows(5).any(|part| part == b".mds.")
    }

    fn listed(&self, source: &dyn DatasetSource, directory: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        let Some(list) = find(source, directory)? else { return Ok(None) };
        for shard in &list.shards {
            // A compressed shard may have been unpacked beside.
            if let Some(compression) = shard.compression.as_ref().filter(|_| shard.zip_data.is_some())
                && source.stamp(&below(directory, &shard.raw_data.basename))? == Seen::Gone
            {
                let name = shard.zip_data.as_ref().map_or("", |file| &file.basename);
                let message = format!(
                    "is compressed with {compression}: samples can only be read from shards as they are; unpack it to \
                     {}",
                    shard.raw_data.basename
                );
                return Err(Error::dataset(source.path(&below(directory, name)), message));
            }
        }
        let mut names: Vec<Vec<u8>> =
            list.shards.iter().map(|shard| shard.raw_data.basename.clone().into_bytes()).collect();
        names.sort_unstable();
        Ok(Some(names))
    }

    fn nothing(&self) -> String {
        "the shards hold no sample".to_owned()
    }

    fn parser(&self, source: &dyn DatasetSource, _: bool) -> Result<Box<dyn ShardParser>> {
        let list = find(source, &[])?;
        let list =
            list.ok_or_else(|| Error::dataset(source.path(&[]), format!("has no {INDEX} any more")))?;
        let by_name =
            list.shards.into_iter().map(|shard| (shard.raw_data.basename.clone().into_bytes(), shard));
        Ok(Box::new(MdsParser { shards: by_name.collect() }))
    }
}

/// The list of the shards in a directory; `None` where there is none.
fn find(source: &dyn DatasetSource, directory: &[u8]) -> Result<Option<MdsList>> {
    let name = below(directory, INDEX);
    let Some(text) = read_list(source, &name, "shards", LARGEST)? else { return Ok(None) };
    MdsList::parse(&text).map_err(|message| Error::dataset(source.path(&name), message))
}

fn below(directory: &[u8], name: &str) -> Vec<u8> {
    super::super::survey::below(directory, name.as_bytes())
}

/// What parses the shards of a list.
struct MdsParser {
    shards: HashMap<Vec<u8>, MdsShard>,
}

impl MdsParser {
    fn shard(&self, name: &[u8]) -> Result<&MdsShard, Malformed> {
        let unknown = || Malformed { offset: 0, message: format!("is not listed in {INDEX}") };
        self.shards.get(name).ok_or_else(unknown)
    }
}

impl ShardParser for MdsParser {
    fn contents(&self, name: &[u8], bytes: &dyn ReadAt) -> Result<ShardContents, Malformed> {
        rows_of_table::contents(sample::table(bytes, self.shard(name)?)?, LABELS)
    }

    fn verify(&self, name: &[u8], bytes: &dyn ReadAt) -> Result<Option<String>, Malformed> {
        let mut unknown = Vec::new();
        for (algorithm, stated) in &self.shard(name)?.raw_data.hashes {
            let own = match algorithm.as_str() {
                "sha224" => digest::<Sha224>(bytes)?,
                "sha256" => digest::<Sha256>(bytes)?,
                "sha384" => digest::<Sha384>(bytes)?,
                "sha512" => digest::<Sha512>(bytes)?,
                other => {
                    unknown.push(other);
                    continue;
                }
            };
            if !own.eq_ignore_ascii_case(stated) {
                let message = format!("has another {algorithm} than {INDEX} says: it is damaged");
                return Err(Malformed { offset: 0, message });
            }
        }
        let told = || format!("checksums by {} in {INDEX} were not compared", unknown.join(", "));
        Ok((!unknown.is_empty()).then(told))
    }
}

/// The digest of all bytes of a shard, in hexadecimal.
fn digest<D: Digest>(bytes: &dyn ReadAt) -> Result<String, Malformed> {
    let (mut hash, mut at) = (D::new(), 0);
    let mut piece = vec![0; PIECE as usize];
    while at < bytes.size() {
        let failed = |error| Malformed { offset: at, message: format!("reading failed: {error}") };
        let got = bytes.read_at(&mut piece, at).map_err(failed)?;
        if got == 0 {
            break;
        }
        hash.update(&piece[..got]);
        at += got as u64;
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
