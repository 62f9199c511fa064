//! MDS shards: their samples, fields and labels, also for hostile input.

use crate::common::fuzz;
use crate::common::jpeg;
use crate::common::scene::{Scene, bytes_of, samples_are_found_by_extent, summary};
use crate::common::tables::{MdsColumn, mds_index, mds_shard};
use crate::fuzz::mutate;
use foreload::testing::dataset::layouts::mds_table;
use foreload::testing::dataset::table::{TableCells, TableColumn};
use foreload::testing::dataset::{
    Changed, DatasetIndex, FieldKind, IndexOptions, IndexOrigin, Layout, MemberBytes,
};
use sha2::{Digest, Sha256};
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::symlink;

const COLUMNS: &[MdsColumn] = &[
    ("about", "json", None),
    ("caption", "str", None),
    ("image", "jpeg", None),
    ("label", "int", Some(8)),
    ("ratio", "float32", Some(4)),
    ("trap", "pkl", None),
];

fn sample(number: u64) -> Vec<Vec<u8>> {
    vec![
        format!("{{\"n\": {number}}}").into_bytes(),
        format!("picture {number}").into_bytes(),
        jpeg(number),
        (number % 3).to_le_bytes().to_vec(),
        (number as f32 / 8.0).to_le_bytes().to_vec(),
        b"\x80\x04cposix\nsystem\n".to_vec(),
    ]
}

/// Writes shards with these numbers of samples into a directory, and the list of the shards.
fn write(scene: &Scene, directory: &str, shards: &[usize]) {
    let mut first = 0;
    let mut listed = Vec::new();
    for (number, &count) in shards.iter().enumerate() {
        let samples: Vec<_> = (first..first + count as u64).map(sample).collect();
        let (name, bytes) = (format!("shard.{number:05}.mds"), mds_shard(COLUMNS, &samples));
        scene.write(format!("{directory}{name}"), &bytes);
        listed.push((name, count, bytes.len()));
        first += count as u64;
    }
    let listed: Vec<_> =
        listed.iter().map(|(name, samples, bytes)| (name.as_str(), *samples, *bytes)).collect();
    scene.write(format!("{directory}index.json"), mds_index(COLUMNS, &listed).to_string().as_bytes());
}

#[test]
fn shards_without_their_list_are_told_by_name() {
    let scene = Scene::new();
    write(&scene, "", &[3, 2]);
    scene.write("0.jpg", b"an image next to them");
    for (list, why) in
        [(Some("{\"version\": 2"), "index.json lists no shards"), (None, "there is no index.json")]
    {
        match list {
            Some(text) => drop(scene.write("index.json", text.as_bytes())),
            None => fs::remove_file(scene.root.join("index.json")).unwrap(),
        }
        let told = scene.error();
        assert!(told.contains("MDS shards such as shard.00000.mds") && told.contains(why), "{told}");
    }
}

fn with(scene: &Scene, fields: &[&str]) -> foreload::Result<DatasetIndex> {
    let members = Some(fields.iter().map(ToString::to_string).collect());
    DatasetIndex::open(&scene.root, &IndexOptions { members, ..scene.options.clone() })
}

#[test]
fn samples_are_those_of_all_shards_in_order() {
    let scene = Scene::new();
    write(&scene, "", &[3, 2]);
    let index = scene.open().unwrap();
    assert_eq!((index.len(), index.num_classes(), index.is_labeled()), (5, 3, true));
    for sample in 0..5 {
        assert_eq!((bytes_of(&index, sample), index.label(sample)), (jpeg(sample), (sample % 3) as u32));
    }
    samples_are_found_by_extent(&index);
    let told = summary(&index);
    assert_eq!((told.layout, told.groups), (Layout::Mds, 2));
    let kinds: Vec<_> =
        told.fields.iter().map(|of| (of.name.as_str(), of.kind, of.refused.is_some())).collect();
    let expected = [
        ("about", FieldKind::Json, false),
        ("caption", FieldKind::Text, false),
        ("image", FieldKind::Image, false),
        ("label", FieldKind::Integer, false),
        ("ratio", FieldKind::Float, false),
        ("trap", FieldKind::Bytes, true),
    ];
    assert_eq!(kinds, expected);
    let fields = with(&scene, &["image", "ratio", "caption", "about"]).unwrap();
    let of = |sample, member| match fields.member(sample, member) {
        MemberBytes::InExtent(range) => bytes_of(&fields, sample)[range].to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!((of(4, 1), of(3, 2)), (b"picture 4".to_vec(), b"{\"n\": 3}".to_vec()));
    samples_are_found_by_extent(&fields);
    assert_eq!(fields.fingerprint(), index.fingerprint());
    assert_eq!(summary(&scene.open().unwrap()).origin, IndexOrigin::Loaded);
    index.verify().unwrap();
}

#[test]
fn every_encoding_is_a_column_or_refused() {
    let number = |text: &str| text.as_bytes().to_vec();
    let columns: Vec<(MdsColumn, Vec<u8>, TableCells)> = vec![
        (("a", "int8", Some(1)), vec![0x80], TableCells::Integers(vec![Some(-128)])),
        (("b", "int16", Some(2)), vec![0xfe, 0xff], TableCells::Integers(vec![Some(-2)])),
        (
            ("c", "int32", Some(4)),
            vec![1, 0, 0, 0x80],
            TableCells::Integers(vec![Some(i64::from(i32::MIN) + 1)]),
        ),
        (
            ("d", "int64", Some(8)),
            i64::MIN.to_le_bytes().to_vec(),
            TableCells::Integers(vec![Some(i64::MIN)]),
        ),
        (("e", "uint8", Some(1)), vec![0x80], TableCells::Integers(vec![Some(128)])),
        (("f", "uint16", Some(2)), vec![0xff, 0xff], TableCells::Integers(vec![Some(65535)])),
        (("g", "uint32", Some(4)), vec![0xff; 4], TableCells::Integers(vec![Some(i64::from(u32::MAX))])),
        (("h", "float16", Some(2)), vec![0x00, 0x3e], TableCells::Floats(vec![Some(1.5)])),
        (("i", "float64", Some(8)), 0.1f64.to_le_bytes().to_vec(), TableCells::Floats(vec![Some(0.1)])),
        (("j", "str_int", None), number("-42"), TableCells::Integers(vec![Some(-42)])),
        (("k", "str_float", None), number("2.5e3"), TableCells::Floats(vec![Some(2500.0)])),
    ];
    let schema: Vec<MdsColumn> = columns.iter().map(|of| of.0).collect();
    let values: Vec<Vec<u8>> = columns.iter().map(|of| of.1.clone()).collect();
    let table = mds_table(&mds_shard(&schema, &[values])[..], &schema, 1).unwrap();
    for (found, ((name, ..), _, cells)) in table.columns.iter().zip(&columns) {
        assert_eq!((found.name.as_str(), &found.cells), (*name, cells));
    }
    let refused = |encoding: &'static str, value: &[u8], size| {
        let schema = [("x", encoding, size)];
        let table = mds_table(&mds_shard(&schema, &[vec![value.to_vec()]])[..], &schema, 1).unwrap();
        match &table.columns[0].cells {
            TableCells::Refused(why) => why.clone(),
            cells => panic!("{cells:?}"),
        }
    };
    assert!(refused("pkl", b"\x80\x04.", None).contains("unpickling may run arbitrary code"));
    assert!(refused("pil", b"raw", None).contains("\"jpeg\" or \"png\""));
    assert!(refused("ndarray:float32:4", &[0; 16], Some(16)).contains("ndarray"));
    assert!(refused("list[jpeg]", b"x", None).contains("not supported"));
    assert!(refused("uint64", &[0xff; 8], Some(8)).contains("int64"));
    assert!(refused("str_int", b"99999999999999999999", None).contains("int64"));
    assert!(refused("str_float", b"many", None).contains("a number"));
    // A column of bytes holds images if most values begin like images; a damaged one is an error of its sample.
    let schema = [("x", "bytes", None)];
    let kind = |values: &[&[u8]]| {
        let samples: Vec<_> = values.iter().map(|value| vec![value.to_vec()]).collect();
        let table = mds_table(&mds_shard(&schema, &samples)[..], &schema, values.len() as u64).unwrap();
        let [TableColumn { kind, .. }] = table.columns[..] else { panic!("one column") };
        kind
    };
    assert_eq!(kind(&[&jpeg(1), &jpeg(2)]), FieldKind::Image);
    assert_eq!(kind(&[&jpeg(1), b"damaged", &jpeg(2)]), FieldKind::Image);
    assert_eq!(kind(&[&jpeg(1), b"text"]), FieldKind::Bytes);
}

/// Merges the lists in these directories, as `streaming.base.util.merge_index` does.
fn merge(scene: &Scene, directories: &[&str]) {
    let of = |directory: &&str| {
        let list = fs::read_to_string(scene.root.join(directory).join("index.json")).unwrap();
        let mut list: serde_json::Value = serde_json::from_str(&list).unwrap();
        for shard in list["shards"].as_array_mut().unwrap() {
            let name = shard["raw_data"]["basename"].as_str().unwrap();
            shard["raw_data"]["basename"] = format!("{directory}/{name}").into();
        }
        list["shards"].as_array().unwrap().clone()
    };
    let shards: Vec<_> = directories.iter().flat_map(of).collect();
    scene.write("index.json", serde_json::json!({"version": 2, "shards": shards}).to_string().as_bytes());
}

#[test]
fn merged_lists_name_shards_in_directories() {
    let scene = Scene::new();
    write(&scene, "b/", &[2, 1]);
    write(&scene, "a/", &[2]);
    merge(&scene, &["b", "a"]);
    let index = scene.open().unwrap();
    let bytes: Vec<_> = (0..index.len()).map(|sample| bytes_of(&index, sample)).collect();
    assert_eq!(bytes, [0, 1, 0, 1, 2].map(jpeg));
    let path = |sample| index.path(index.extent(sample).file);
    assert_eq!(path(4), scene.root.join("b/shard.00001.mds"));
    index.verify().unwrap();
    assert_eq!(summary(&scene.open().unwrap()).origin, IndexOrigin::Loaded);
    // A link within the directory is followed. A link that leads out of it is not.
    fs::rename(scene.root.join("a"), scene.root.join("c")).unwrap();
    symlink("c", scene.root.join("a")).unwrap();
    assert_eq!(scene.open().unwrap().len(), 5);
    let elsewhere = tempfile::tempdir().unwrap();
    fs::create_dir(elsewhere.path().join("a")).unwrap();
    fs::copy(scene.root.join("c/shard.00000.mds"), elsewhere.path().join("a/shard.00000.mds")).unwrap();
    fs::remove_file(scene.root.join("a")).unwrap();
    symlink(elsewhere.path().join("a"), scene.root.join("a")).unwrap();
    let told = scene.error();
    assert!(told.contains("lists shards in a, which is a link that leads out"), "{told}");
}

#[test]
fn lists_that_lead_astray_are_refused() {
    let scene = Scene::new();
    write(&scene, "", &[2]);
    let path = scene.root.join("index.json");
    let list: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let error = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut changed = list.clone();
        change(&mut changed["shards"][0]);
        fs::write(&path, changed.to_string()).unwrap();
        scene.error()
    };
    for name in
        ["../shard.00000.mds", "/etc/passwd", "..", ".", "", "a\0b", "a/../b.mds", "a//b", "a/", "a\\b"]
    {
        let error = error(&|shard| shard["raw_data"]["basename"] = name.into());
        assert!(error.contains("index.json") && error.contains("not the path of a file"), "{error}");
    }
    let told = error(&|shard| shard["raw_data"]["bytes"] = 7.into());
    assert!(told.contains("shard.00000.mds") && told.contains("index.json says 7"), "{told}");
    let told = error(&|shard| shard["samples"] = 3.into());
    assert!(told.contains("has 2 samples, but index.json says 3"), "{told}");
    let told = error(&|shard| shard["samples"] = u64::MAX.into());
    assert!(told.contains("index.json says 18446744073709551615"), "{told}");
    assert!(error(&|shard| shard["version"] = 3.into()).contains("another version"));
    assert!(error(&|shard| shard["format"] = "csv".into()).contains("\"csv\""));
    assert!(error(&|shard| shard["column_names"][1] = "about".into()).contains("two columns \"about\""));
    assert!(error(&|shard| shard["column_sizes"][3] = 4.into()).contains("of another size"));
    assert!(error(&|shard| drop(shard["column_sizes"].as_array_mut().unwrap().pop())).contains("one size"));
    let told = error(&|shard| {
        shard["compression"] = "br:3".into();
        shard["zip_data"] = serde_json::json!({"basename": "shard.00000.mds.br", "bytes": 9, "hashes": {}});
        shard["raw_data"]["basename"] = "shard.00001.mds".into();
    });
    assert!(told.contains("shard.00000.mds.br: is compressed with br:3"), "{told}");
    fs::write(&path, &list.to_string()[..260]).unwrap();
    assert!(scene.error().contains("not a valid list of MDS shards"), "{}", scene.error());
    // A file of this name with other content says nothing about the directory.
    fs::write(&path, "{\"chunks\": []}").unwrap();
    assert!(scene.error().contains("index.json lists no shards"), "{}", scene.error());
}

#[test]
fn of_several_splits_one_must_be_named() {
    let scene = Scene::new();
    write(&scene, "train/", &[2]);
    write(&scene, "val/", &[1]);
    let error = scene.error();
    assert!(error.contains("MDS shards in train, val") && error.contains("config: split"), "{error}");
    assert_eq!(DatasetIndex::open(&scene.root.join("val"), &scene.options).unwrap().len(), 1);
    let both = [scene.root.join("train"), scene.root.join("val")];
    let both = DatasetIndex::open_all(&both, &scene.options, &std::sync::Arc::default()).unwrap();
    assert_eq!((both.len(), bytes_of(&both, 2)), (3, jpeg(0)));
}

#[test]
fn checksums_of_unknown_kinds_are_named_once() {
    let scene = Scene::new();
    write(&scene, "", &[2]);
    let path = scene.root.join("index.json");
    let mut list: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let bytes = fs::read(scene.root.join("shard.00000.mds")).unwrap();
    let packed = crate::common::zstd(&bytes);
    scene.write("shard.00000.mds.zstd", &packed);
    fs::remove_file(scene.root.join("shard.00000.mds")).unwrap();
    let hashes = serde_json::json!({"sha1": "00", "xxh64": "00"});
    list["shards"][0]["compression"] = "zstd".into();
    list["shards"][0]["raw_data"]["hashes"] = hashes.clone();
    list["shards"][0]["zip_data"] =
        serde_json::json!({"basename": "shard.00000.mds.zstd", "bytes": packed.len(), "hashes": hashes});
    fs::write(&path, list.to_string()).unwrap();
    let index = scene.open().unwrap();
    index.verify().unwrap();
    let told = index.notices().take();
    let named = |message: &String| message.contains("(sha1, xxh64) in index.json were not");
    assert!(told.iter().any(named), "{told:?}");
}

#[test]
fn checksums_are_compared_when_that_is_asked_for() {
    let scene = Scene::new();
    write(&scene, "", &[2]);
    let (path, shard) = (scene.root.join("index.json"), scene.root.join("shard.00000.mds"));
    let mut list: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let digest: String =
        Sha256::digest(fs::read(&shard).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect();
    list["shards"][0]["raw_data"]["hashes"] = serde_json::json!({"sha256": digest, "xxh64": "00"});
    fs::write(&path, list.to_string()).unwrap();
    let index = scene.open().unwrap();
    index.verify().unwrap();
    let told = index.notices().take();
    assert!(told.iter().any(|message| message.contains("(xxh64) in index.json were not")), "{told:?}");
    let mut bytes = fs::read(&shard).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let error = scene.open().unwrap().verify().err().unwrap().to_string();
    assert!(error.contains("another sha256"), "{error}");
}

#[test]
fn a_shard_that_changes_is_noticed() {
    let scene = Scene::new();
    write(&scene, "", &[2, 2]);
    let first = with(&scene, &["image", "ratio"]).unwrap();
    let shard = scene.root.join("shard.00001.mds");
    let mut bytes = fs::read(&shard).unwrap();
    let ratio = 3f32 / 8.0;
    let at = bytes.windows(4).rposition(|four| four == ratio.to_le_bytes()).unwrap();
    bytes[at..at + 4].copy_from_slice(&9f32.to_le_bytes());
    fs::write(&shard, bytes).unwrap();
    let refuse = IndexOptions { changed: Changed::Refuse, ..scene.options.clone() };
    let error = DatasetIndex::open(&scene.root, &refuse).err().unwrap().to_string();
    assert!(error.contains("other values in its column \"ratio\""), "{error}");
    assert_eq!(with(&scene, &["image", "ratio"]).unwrap().fingerprint(), first.fingerprint());
    // With one more shard it is another dataset.
    write(&scene, "", &[2, 2, 1]);
    let error = DatasetIndex::open(&scene.root, &refuse).err().unwrap().to_string();
    assert!(error.contains("shard"), "{error}");
    assert_eq!(scene.open().unwrap().len(), 5);
}

#[test]
fn an_index_that_says_something_else_of_the_same_shards_is_noticed() {
    let scene = Scene::new();
    write(&scene, "", &[2, 2]);
    with(&scene, &["image", "ratio"]).unwrap();
    let index = scene.root.join("index.json");
    let text = fs::read_to_string(&index).unwrap();
    fs::write(&index, text.replace("\"float32\"", "\"int32\"")).unwrap();
    let refuse = IndexOptions { changed: Changed::Refuse, ..scene.options.clone() };
    let error = DatasetIndex::open(&scene.root, &refuse).err().unwrap().to_string();
    assert!(error.starts_with("dataset changed: ") && error.contains("shard.0000"), "{error}");
}

#[test]
fn mutated_shards_are_errors_or_tables_within_bounds() {
    let samples: Vec<_> = (0..4).map(sample).collect();
    let good = mds_shard(COLUMNS, &samples);
    let rounds = Cell::new(0);
    fuzz("mds_table", |random| {
        for _ in 0..50 {
            let mut bytes = good.clone();
            mutate(&mut bytes, random);
            rounds.set(rounds.get() + 1);
            let Ok(table) = mds_table(&bytes[..], COLUMNS, 4) else { continue };
            assert_eq!((table.samples, table.columns.len()), (4, COLUMNS.len()));
            for column in &table.columns {
                let TableCells::Extents(extents) = &column.cells else { continue };
                let ends = extents.iter().flatten().map(|at| at.offset + u64::from(at.length));
                assert!(ends.max() <= Some(bytes.len() as u64));
            }
        }
    });
    assert!(rounds.get() >= 1000, "{} mutations", rounds.get());
}
