//! Arrow files and streams as shards: a table each, by the parser of `dataset/arrow/`.

use super::super::samples::ShardContents;
use super::super::{Contents, arrow, rows_of_table};
use super::{LABELS, ShardLayout, ShardParser, is_left_to_others};
use crate::error::Result;
use crate::source::{DatasetSource, Malformed, ReadAt};

/// Arrow files and streams.
pub(super) struct ArrowShards;

impl ShardLayout for ArrowShards {
    fn samples(&self) -> Contents {
        Contents::Images
    }

    /// What `datasets` keeps of its computations lies beside the shards of its cache.
    fn is_shard(&self, name: &[u8]) -> bool {
        name.ends_with(b".arrow") && !name.starts_with(b"cache-") && !is_left_to_others(name)
    }

    fn nothing(&self) -> String {
        "the Arrow files hold no row".to_owned()
    }

    fn parser(&self, _: &dyn DatasetSource, _: bool) -> Result<Box<dyn ShardParser>> {
        Ok(Box::new(Self))
    }
}

impl ShardParser for ArrowShards {
    fn contents(&self, _: &[u8], bytes: &dyn ReadAt) -> Result<ShardContents, Malformed> {
        rows_of_table::contents(arrow::table(bytes)?, LABELS)
    }
}
