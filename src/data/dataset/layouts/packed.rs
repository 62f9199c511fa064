//! Packed shards as a layout. A manifest lists the shards. The search for this manifest comes before all other layouts.

use super::super::packed::shard_contents;
use super::super::samples::ShardContents;
use super::{ShardLayout, ShardParser, ShardReadOptions};
use crate::source::{DatasetSource, Malformed, ReadAt};
use base::error::Result;

pub(in crate::dataset) struct PackedShards;

impl ShardLayout for PackedShards {
    fn empty_message(&self) -> String {
        "the packed shards hold no sample".to_owned()
    }

    fn is_table(&self) -> bool {
        false
    }

    fn parser(&self, _: &dyn DatasetSource, _: &ShardReadOptions) -> Result<Box<dyn ShardParser>> {
        Ok(Box::new(Self))
    }
}

impl ShardParser for PackedShards {
    fn contents(&self, _: &[u8], bytes: &dyn ReadAt) -> Result<ShardContents, Malformed> {
        shard_contents(bytes)
    }
}
