//! Parquet files as a layout of shards. Each shard is a table, which `dataset/parquet/` parses.

use super::super::samples::ShardContents;
use super::super::{Contents, parquet, rows_of_table};
use super::{LABELS, ShardLayout, ShardParser, ShardReadOptions, is_internal_name};
use crate::source::{DatasetSource, Malformed, ReadAt};
use base::error::Result;

pub(super) struct ParquetShards;

impl ShardLayout for ParquetShards {
    fn samples(&self) -> Contents {
        Contents::Images
    }

    fn is_shard(&self, name: &[u8]) -> bool {
        name.ends_with(b".parquet") && !is_internal_name(name)
    }

    fn has_splits(&self) -> bool {
        true
    }

    fn empty_message(&self) -> String {
        "the Parquet files hold no row".to_owned()
    }

    fn parser(&self, _: &dyn DatasetSource, _: bool) -> Result<Box<dyn ShardParser>> {
        Ok(Box::new(ParquetParser::default()))
    }
}

#[derive(Default)]
struct ParquetParser {
    reading: ShardReadOptions,
}

impl ShardParser for ParquetParser {
    fn set_read_options(&mut self, reading: ShardReadOptions) {
        self.reading = reading;
    }

    fn contents(&self, _: &[u8], bytes: &dyn ReadAt) -> Result<ShardContents, Malformed> {
        let table = parquet::table(bytes, &self.reading.kept_texts)?;
        rows_of_table::contents(table, bytes, &LABELS, &self.reading)
    }
}
