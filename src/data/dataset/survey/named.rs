//! Roots that are the path of one shard, or a path with braces that stands for several shards.

use super::super::below::{DatasetSearch, shard_layout};
use super::super::layouts::ShardLayout;
use super::super::{Contents, Layout, Notes, packed, shards};
use super::{Survey, text};
use base::error::{Error, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

pub(super) fn named(search: DatasetSearch<'_>, names: &[Vec<u8>]) -> Result<Survey> {
    let contents = search.contents;
    let refused = |name: &[u8], why: String| Err(Error::dataset(search.source.path(name), why));
    let mut found: Option<(Layout, &Vec<u8>)> = None;
    for name in names {
        if packed::is_shard_name(name) {
            return refused(name, packed_shard());
        }
        if Layout::of_samples(contents).any(|(_, shards)| shards.is_compressed(name)) {
            return refused(name, compressed(""));
        }
        let Some(layout) = shard_layout(name, contents) else {
            let what = match contents {
                Contents::Images => "a shard such as .tar or .parquet",
                Contents::Files => "a .tfrecord shard",
            };
            return refused(
                name,
                format!("is not {what}; braces can only list shards: give several datasets as a list"),
            );
        };
        match found {
            None => found = Some((layout, name)),
            Some((known, first)) if known != layout => {
                let (one, other) = (layout.title(), known.title());
                let message =
                    format!("is one of {one}, but {} is one of {other}: give them as a list", text(first));
                return refused(name, message);
            }
            Some(_) => {}
        }
    }
    let Some((layout, _)) = found else { return refused(&[], "names no shard".to_owned()) };
    let layout = nested(search, layout, names)?;
    Ok(Survey::of_shards(layout, names.to_vec(), Notes::default()))
}

/// Returns the layout of the shards `names`. The first readable shard decides whether they are tars of tars.
pub(super) fn nested(search: DatasetSearch<'_>, layout: Layout, names: &[Vec<u8>]) -> Result<Layout> {
    let names = names.iter().filter(|_| layout == Layout::Tar);
    for name in names {
        match shards::is_tar_of_tars(search.source, name, search.cancel)?.found {
            Ok(true) => return Ok(Layout::TarOfTars),
            Ok(false) => break,
            Err(_) => {}
        }
    }
    Ok(layout)
}

fn packed_shard() -> String {
    format!("is a shard of a packed dataset: open its directory, which has {}", packed::MANIFEST_FILE)
}

pub(super) fn compressed(beside: &str) -> String {
    format!(
        "is a compressed tar{beside} in an unsupported format: only .tar.gz, .tgz and .tar.zst are read; decompress \
         it"
    )
}

pub(super) fn single(search: DatasetSearch<'_>, name: &OsStr) -> Result<Survey> {
    let contents = search.contents;
    let refused = |message: &str| Err(Error::dataset(search.source.path(&[]), message));
    if packed::is_shard_name(name.as_bytes()) {
        return refused(&packed_shard());
    }
    let is_of = |(_, shards): &(Layout, &dyn ShardLayout)| {
        shards.is_shard(name.as_bytes()) || shards.is_compressed(name.as_bytes())
    };
    let layout = match (Layout::of_samples(contents).find(is_of), contents) {
        (Some((layout, shards)), _) if shards.is_shard(name.as_bytes()) => {
            nested(search, layout, &[Vec::new()])?
        }
        // The file can be uncompressed in spite of its name. The first bytes show whether it is compressed.
        (Some((layout, _)), _) => layout,
        (None, Contents::Images)
            if [".dat", ".bin", ".raw"].iter().any(|end| name.as_bytes().ends_with(end.as_bytes())) =>
        {
            return refused(
                "does not say which type and shape its numbers have: write a .npy file, with numpy.save(\"x.npy\", \
                 numpy.memmap(path, dtype, \"r\", shape=shape))",
            );
        }
        (None, Contents::Images) => {
            return refused(
                "is neither a directory nor a shard; give a directory of class directories, a directory of shards such \
                 as .tar or .parquet, or one shard",
            );
        }
        (None, Contents::Files) => {
            return refused(
                "is neither a directory nor a .tfrecord shard; give a directory of files or of shards, or one shard",
            );
        }
    };
    Ok(Survey::of_shards(layout, vec![Vec::new()], Notes::default()))
}
