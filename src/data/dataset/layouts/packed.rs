//! Packed shards as a layout. A manifest lists the shards. The search for this manifest comes before all other layouts.

use super::super::Contents;
use super::super::packed::shard_contents;
use super::super::samples::ShardContents;
use super::{ShardLayout, ShardParser};
use crate::source::{DatasetSource, Malformed, ReadAt};
use base::error::Result;

pub(in crate::dataset) struct PackedShards;

impl ShardLayout for PackedShards {
    fn samples(&self) -> Contents {
        Contents::Images
    }

    fn is_shard(&self, _: &[u8]) -> bool {
        false
    }

    fn empty_message(&self) -> String {
        "the packed shards hold no sample".to_owned()
    }

    fn is_table(&self) -> bool {
        false
    }

    fn parser(&self, _: &dyn DatasetSource, _: bool) -> Result<Box<dyn ShardParser>> {
        Ok(Box::new(Self))
    }
}

impl ShardParser for PackedShards {
    fn contents(&self, _: &[u8], bytes: &dyn ReadAt) -> Result<ShardContents, Malformed> {
        shard_contents(bytes)
    }
}
