//! Tables whose images are in any order, in which several samples share an image, and whose columns differ from shard
//! to shard, as the index file stores them.

use foreload::testing::dataset::build::{
    GroupRows, IndexBuilder, IndexFacts, IndexGroup, SampleRow, ShardRows,
};
use foreload::testing::dataset::table::{TableCells, TableColumn};
use foreload::testing::dataset::{Contents, DatasetIndex, Extent, FieldKind, FileId, Layout, Stamp};
use foreload::testing::rng::{RandomKey, Use};
use std::path::{Path, PathBuf};

/// The index of these shards.
fn index(shards: Vec<ShardRows>) -> DatasetIndex {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("x.index");
    let mut builder = IndexBuilder::new(&target, Layout::Mds, Contents::Images).unwrap();
    for (number, rows) in shards.into_iter().enumerate() {
        let (path, rows) = (format!("{number}").into_bytes(), GroupRows::Shard(rows));
        builder.add(&IndexGroup { path, stamp: Stamp::default(), rows }).unwrap();
    }
    builder.finish(&IndexFacts { root: PathBuf::from("/data"), ..IndexFacts::default() }).unwrap();
    DatasetIndex::load(Path::new("/data"), &target).unwrap()
}

fn rows(extents: &[(u64, u32)]) -> ShardRows {
    let row = |&(offset, length): &(u64, u32)| SampleRow { offset, length, label: 0 };
    ShardRows { samples: extents.iter().map(row).collect(), ..ShardRows::default() }
}

#[test]
fn samples_are_found_by_their_extents_in_any_order() {
    let mut stream = RandomKey::new(b"table order", 3, 0, Use::Augment).stream(0);
    let extents: Vec<(u64, u32)> =
        (0..500).map(|_| (10 * stream.below(60), [0, 7, 9][stream.below(3) as usize])).collect();
    let mut sorted = extents.clone();
    sorted.sort_unstable();
    let index = index(vec![rows(&extents), rows(&sorted)]);
    for sample in 0..index.len() {
        let extent = index.extent(sample);
        // For samples that share an image, one of them is found, which has the same bytes.
        let found = index.sample_of(extent).expect("a sample");
        assert_eq!(index.extent(found), extent);
    }
    for odd in [(1, 7), (10, 8), (600, 7)] {
        let extent = Extent { file: FileId(0), offset: odd.0, length: odd.1 };
        assert_eq!(index.sample_of(extent), None, "{odd:?}");
    }
}

#[test]
fn columns_of_several_shards_are_one_or_refused() {
    let column = |name: &str, cells| TableColumn {
        name: name.to_owned(),
        kind: FieldKind::Integer,
        classes: Vec::new(),
        cells,
    };
    let whole = |value| column("size", TableCells::Integers(vec![Some(value), None]));
    let shard = |columns| ShardRows { columns, ..rows(&[(0, 1), (1, 1)]) };
    let text = column("mixed", TableCells::Texts(vec![Some("a".into()), Some("b".into())]));
    let index = index(vec![
        shard(vec![column("mixed", TableCells::Bools(vec![None, Some(true)])), whole(5)]),
        shard(vec![text]),
        shard(vec![whole(6)]),
    ]);
    let fields = index.summaries().next().unwrap().fields;
    let told: Vec<_> = fields.iter().map(|field| (field.name.as_str(), field.refused.as_deref())).collect();
    assert_eq!(told, [("mixed", Some("holds booleans in some shards and texts in others")), ("size", None)]);
}
