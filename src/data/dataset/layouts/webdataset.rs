//! Tar shards as a layout. `samples.rs` finds the samples in them.

use super::super::kind::image_extensions;
use super::super::samples::{ShardContents, Stems, contents_with};
use super::super::whole_file::{self, UnpackedShard};
use super::{ShardLayout, ShardParser, ShardReadOptions};
use crate::source::{DatasetSource, Malformed, ReadAt};
use base::error::Result;

/// File name suffixes of shards. Compressed shards are decompressed as a whole.
const ENDINGS: [&str; 4] = [".tar", ".tar.gz", ".tgz", ".tar.zst"];

pub(in crate::dataset) struct TarShards;

impl ShardLayout for TarShards {
    fn is_shard(&self, name: &[u8]) -> bool {
        ENDINGS.iter().any(|ending| name.ends_with(ending.as_bytes()))
    }

    fn is_compressed(&self, name: &[u8]) -> bool {
        let unsupported = [".tar.bz2", ".tar.xz", ".tar.lz4"];
        unsupported.iter().any(|ending| name.ends_with(ending.as_bytes()))
    }

    fn empty_message(&self) -> String {
        format!("the shards hold no {} image (fields= names other members to read)", image_extensions())
    }

    fn is_table(&self) -> bool {
        false
    }

    fn parser(&self, _: &dyn DatasetSource, reading: &ShardReadOptions) -> Result<Box<dyn ShardParser>> {
        let stems = if reading.every_stem { Stems::All } else { Stems::WithImage };
        Ok(Box::new(TarParser { stems, label: reading.label.clone() }))
    }
}

struct TarParser {
    stems: Stems,
    /// The member or JSON key that the user named as the label.
    label: Option<String>,
}

impl ShardParser for TarParser {
    fn contents(&self, _: &[u8], bytes: &dyn ReadAt) -> Result<ShardContents, Malformed> {
        let label = self.label.as_deref();
        match whole_file::codec_of(bytes)? {
            Some(codec) => {
                let shard = UnpackedShard::of(bytes, codec, None)?;
                shard.contents(|bytes| contents_with(bytes, self.stems, label))
            }
            None => contents_with(bytes, self.stems, label),
        }
    }
}
