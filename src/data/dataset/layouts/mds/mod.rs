//! Shards as MosaicML Streaming writes them (MDS): an `index.json` next to files of samples.
//!
//! A shard consists of the number of samples n (u32), n + 1 offsets (u32 each), a description that is also in
//! `index.json`, and the samples. A sample consists of the sizes (u32) of its values in columns of variable size, then
//! all values, column by column (MosaicML Streaming, `base/format/mds/`). Nothing in a shard is trusted, and nothing is
//! ever unpickled.

mod encoding;
mod list;
mod sample;

pub use sample::mds_table;

use super::super::rows_of_table;
use super::super::samples::ShardContents;
use super::super::whole_file::UnpackedShard;
use super::{LABELS, ShardLayout, ShardParser, ShardReadOptions, read_list};
use crate::source::{DatasetSource, EntryState, Malformed, ReadAt};
use base::error::{Error, Result};
use list::{MdsFile, MdsList, MdsShard};
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use std::collections::{BTreeSet, HashMap};

const INDEX: &str = "index.json";
/// The maximum size of `index.json` in bytes; enough for several hundred thousand shards.
const LARGEST: u64 = 256 << 20;
const PIECE: u64 = 1 << 20;

pub(super) struct MdsShards;

impl ShardLayout for MdsShards {
    fn marker_files(&self) -> &'static [&'static str] {
        &[INDEX]
    }

    fn is_unlisted_shard(&self, name: &[u8]) -> bool {
        name.ends_with(b".mds") || name.windows(5).any(|part| part == b".mds.")
    }

    fn listed_shards(&self, source: &dyn DatasetSource, directory: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        let Some(list) = find(source, directory)? else { return Ok(None) };
        check_directories(source, directory, &list)?;
        let mut names = Vec::with_capacity(list.shards.len());
        for shard in &list.shards {
            let raw = &shard.raw_data.basename;
            // Take the compressed file of a shard only if the decompressed file does not exist.
            let name = match &shard.zip_data {
                Some(zip) if source.stamp(&below(directory, raw))? == EntryState::Gone => {
                    let refused = |why| Error::dataset(source.path(&below(directory, &zip.basename)), why);
                    shard.codec().map_err(refused)?;
                    &zip.basename
                }
                _ => raw,
            };
            names.push(name.clone().into_bytes());
        }
        names.sort_unstable();
        Ok(Some(names))
    }

    fn empty_message(&self) -> String {
        "the shards hold no sample".to_owned()
    }

    fn parser(&self, source: &dyn DatasetSource, reading: &ShardReadOptions) -> Result<Box<dyn ShardParser>> {
        let list = find(source, &[])?;
        let list =
            list.ok_or_else(|| Error::dataset(source.path(&[]), format!("has no {INDEX} any more")))?;
        let mut shards = HashMap::new();
        for shard in list.shards {
            if let Some(zip) = &shard.zip_data {
                shards.insert(zip.basename.clone().into_bytes(), (shard.clone(), true));
            }
            shards.insert(shard.raw_data.basename.clone().into_bytes(), (shard, false));
        }
        Ok(Box::new(MdsParser { shards, reading: reading.clone() }))
    }
}

fn find(source: &dyn DatasetSource, directory: &[u8]) -> Result<Option<MdsList>> {
    let name = below(directory, INDEX);
    let Some(text) = read_list(source, &name, "shards", LARGEST)? else { return Ok(None) };
    MdsList::parse(&text).map_err(|message| Error::dataset(source.path(&name), message))
}

/// Checks that no link leads from a name in the list to a location outside the directory of the list.
fn check_directories(source: &dyn DatasetSource, directory: &[u8], list: &MdsList) -> Result<()> {
    let named: BTreeSet<&str> = list.shards.iter().flat_map(MdsShard::directories).collect();
    if named.is_empty() || source.is_remote() {
        return Ok(());
    }
    // A missing directory is reported later, when its shards are read.
    let real = |name: &[u8]| source.path(name).canonicalize().ok();
    let Some(root) = real(directory) else { return Ok(()) };
    let leads_out = |name: &&str| real(&below(directory, name)).is_some_and(|path| !path.starts_with(&root));
    match named.into_iter().find(leads_out) {
        Some(name) => {
            let message = format!("lists shards in {name}, which is a link that leads out of the directory");
            Err(Error::dataset(source.path(&below(directory, INDEX)), message))
        }
        None => Ok(()),
    }
}

fn below(directory: &[u8], name: &str) -> Vec<u8> {
    super::super::survey::below(directory, name.as_bytes())
}

struct MdsParser {
    /// The shards by file name. The flag says whether this is the name of the compressed file.
    shards: HashMap<Vec<u8>, (MdsShard, bool)>,
    reading: ShardReadOptions,
}

impl MdsParser {
    /// Finds the description of the shard `name`, and decompresses the shard if it is compressed.
    fn shard(
        &self,
        name: &[u8],
        bytes: &dyn ReadAt,
    ) -> Result<(&MdsShard, Option<UnpackedShard>), Malformed> {
        let wrong = |message| Malformed { offset: 0, message };
        let unknown = || wrong(format!("is not listed in {INDEX}"));
        let (shard, is_packed) = self.shards.get(name).ok_or_else(unknown)?;
        let Some(zip) = shard.zip_data.as_ref().filter(|_| *is_packed) else { return Ok((shard, None)) };
        if bytes.size() != zip.bytes {
            return Err(wrong(format!("has {} bytes, but {INDEX} says {}", bytes.size(), zip.bytes)));
        }
        let codec = shard.codec().map_err(wrong)?;
        Ok((shard, Some(UnpackedShard::of(bytes, codec, Some(shard.raw_data.bytes))?)))
    }
}

impl ShardParser for MdsParser {
    fn contents(&self, name: &[u8], bytes: &dyn ReadAt) -> Result<ShardContents, Malformed> {
        let (shard, unpacked) = self.shard(name, bytes)?;
        let contents = |bytes: &dyn ReadAt| {
            rows_of_table::contents(sample::table(bytes, shard)?, bytes, &LABELS, &self.reading)
        };
        match unpacked {
            None => contents(bytes),
            Some(unpacked) => unpacked.contents(|bytes| contents(&bytes)),
        }
    }

    fn verify(&self, name: &[u8], bytes: &dyn ReadAt) -> Result<Option<String>, Malformed> {
        let mut unknown = BTreeSet::new();
        match self.shard(name, bytes)? {
            (shard, None) => check_hashes(&shard.raw_data, bytes, &mut unknown)?,
            (shard, Some(unpacked)) => {
                if let Some(zip) = &shard.zip_data {
                    check_hashes(zip, bytes, &mut unknown)?;
                }
                check_hashes(&shard.raw_data, &unpacked.bytes(), &mut unknown)?;
            }
        }
        let named = || unknown.iter().copied().collect::<Vec<_>>().join(", ");
        let told =
            || format!("checksums of unsupported algorithms ({}) in {INDEX} were not compared", named());
        Ok((!unknown.is_empty()).then(told))
    }
}

fn check_hashes<'a>(
    file: &'a MdsFile,
    bytes: &dyn ReadAt,
    unknown: &mut BTreeSet<&'a str>,
) -> Result<(), Malformed> {
    for (algorithm, stated) in &file.hashes {
        let own = match algorithm.as_str() {
            "sha224" => digest::<Sha224>(bytes)?,
            "sha256" => digest::<Sha256>(bytes)?,
            "sha384" => digest::<Sha384>(bytes)?,
            "sha512" => digest::<Sha512>(bytes)?,
            other => {
                unknown.insert(other);
                continue;
            }
        };
        if !own.eq_ignore_ascii_case(stated) {
            let message = format!("has another {algorithm} checksum than {INDEX} says: it is damaged");
            return Err(Malformed { offset: 0, message });
        }
    }
    Ok(())
}

fn digest<D: Digest>(bytes: &dyn ReadAt) -> Result<String, Malformed> {
    let (mut hash, mut at) = (D::new(), 0);
    let mut piece = vec![0; PIECE as usize];
    while at < bytes.size() {
        let got = bytes.fill_at(&mut piece, at)?;
        if got == 0 {
            break;
        }
        hash.update(&piece[..got]);
        at += got as u64;
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
