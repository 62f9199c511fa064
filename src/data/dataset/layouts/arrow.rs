//! Arrow files and streams as a layout of shards. Each shard is a table, which `dataset/arrow/` parses.

use super::super::arrow;
use super::super::survey::below;
use super::{
    ShardLayout, ShardParser, ShardReadOptions, TableParser, is_file_name, is_internal_name, read_list,
};
use crate::source::DatasetSource;
use base::error::{Error, Result};
use serde_json::Value;

/// The file in which the Hugging Face library `datasets` lists the shards of a saved dataset.
const STATE: &str = "state.json";
/// The maximum size of `state.json` in bytes, enough for about 100 000 shards.
const LARGEST: u64 = 16 << 20;
/// The keys in `state.json` that name files with a selection of rows, for all versions of `datasets`.
const INDICES: [&str; 2] = ["_indices_files", "_indices_data_files"];

pub(super) struct ArrowShards;

impl ShardLayout for ArrowShards {
    /// Excludes `cache-*.arrow`, in which `datasets` stores results of computations next to the shards.
    fn is_shard(&self, name: &[u8]) -> bool {
        name.ends_with(b".arrow") && !name.starts_with(b"cache-") && !is_internal_name(name)
    }

    fn has_splits(&self) -> bool {
        true
    }

    fn marker_files(&self) -> &'static [&'static str] {
        &[STATE]
    }

    fn listed_shards(&self, source: &dyn DatasetSource, directory: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        let name = below(directory, STATE.as_bytes());
        let Some(text) = read_list(source, &name, "_data_files", LARGEST)? else { return Ok(None) };
        let fail = |message: String| Error::dataset(source.path(&name), message);
        // Other programs also write files with the name `state.json`.
        let state = serde_json::from_slice::<Value>(&text).ok();
        let Some(state) = state.filter(|state| state.get("_data_files").is_some()) else { return Ok(None) };
        if let Some(key) = INDICES.iter().find(|key| state.get(**key).is_some_and(|files| !is_empty(files))) {
            return Err(fail(format!(
                "stores a selection or order of rows under {key}, which is not supported: save the dataset again after \
                 ds = ds.flatten_indices()"
            )));
        }
        let file = |file: &Value| {
            let name = file.get("filename")?.as_str().filter(|name| is_file_name(name))?;
            Some(name.as_bytes().to_vec())
        };
        let names = state.get("_data_files").and_then(Value::as_array);
        let names = names.and_then(|files| files.iter().map(file).collect::<Option<Vec<_>>>());
        let mut names = names.ok_or_else(|| {
            fail("is damaged: _data_files must list names of files in the same directory".to_owned())
        })?;
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(fail(format!("lists {} twice", String::from_utf8_lossy(&pair[0]))));
        }
        Ok(Some(names))
    }

    fn empty_message(&self) -> String {
        "the Arrow files hold no row".to_owned()
    }

    fn parser(&self, _: &dyn DatasetSource, reading: &ShardReadOptions) -> Result<Box<dyn ShardParser>> {
        Ok(Box::new(TableParser { table: arrow::table, reading: reading.clone() }))
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}
