//! Lists of shards on a server: texts with one name a line. Empty lines and lines that begin with `#` are skipped.

use super::without_mark;
use std::collections::BTreeMap;

/// Parses a list. `shard` returns the name and the place of the shard on a line.
///
/// # Errors
/// Why the list is not valid. What is wrong with a line follows its number.
pub(super) fn parse<T>(
    text: &[u8],
    shard: impl Fn(&str) -> Result<(Vec<u8>, T), String>,
) -> Result<BTreeMap<Vec<u8>, T>, String> {
    let text = std::str::from_utf8(without_mark(text)).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let mut shards = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, place) = shard(line).map_err(|why| format!("line {number} {why}"))?;
        if shards.insert(name, place).is_some() {
            return Err(format!("line {number} repeats the shard of an earlier line"));
        }
    }
    if shards.is_empty() {
        return Err("it lists no shards".to_owned());
    }
    Ok(shards)
}
