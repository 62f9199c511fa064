//! Parquet files as a layout of shards. Each shard is a table, which `dataset/parquet/` parses.

use super::super::parquet;
use super::{ShardLayout, ShardParser, ShardReadOptions, TableParser, is_internal_name};
use crate::source::DatasetSource;
use base::error::Result;

pub(super) struct ParquetShards;

impl ShardLayout for ParquetShards {
    fn is_shard(&self, name: &[u8]) -> bool {
        name.ends_with(b".parquet") && !is_internal_name(name)
    }

    fn has_splits(&self) -> bool {
        true
    }

    fn empty_message(&self) -> String {
        "the Parquet files hold no row".to_owned()
    }

    fn parser(&self, _: &dyn DatasetSource, reading: &ShardReadOptions) -> Result<Box<dyn ShardParser>> {
        Ok(Box::new(TableParser { table: parquet::table, reading: reading.clone() }))
    }
}
