//! Tables that are packed: the same samples, columns, labels and batches, whatever their shards were.

use super::Scene;
use crate::common::scene::tfrecord;
use crate::common::tables::{Feature, MdsColumn, example, mds_index, mds_shard};
use crate::common::{self, jpeg, png, small_images, succeeds};
use foreload::Result;
use foreload::testing::batch::Batch;
use foreload::testing::config::{FieldOptions, FieldValue, LoaderOptions, OnError};
use foreload::testing::dataset::{Contents, DatasetIndex, FieldKind, IndexOptions, IndexSummary, Layout};
use foreload::testing::pipeline::Pipeline;
use foreload::testing::rng::{RandomKey, Use};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A TFRecord dataset in which every seventh sample has no image, and one sample has only a number.
pub(super) fn examples(scene: &Scene, root: &str, count: i64) {
    let record = |number: i64| {
        let mut features = vec![
            ("label", Feature::Integers(vec![number % 4])),
            ("Weight", Feature::Floats(vec![number as f32 / 8.0])),
            ("box", Feature::Floats(vec![1.0, number as f32])),
            ("boxes", Feature::Floats(vec![1.0; 2 + number as usize % 2])),
            ("counts", Feature::Integers(vec![number, -number, 3])),
        ];
        if number % 7 != 5 {
            features.push(("photo", Feature::bytes(jpeg(number as u64))));
        }
        if number % 3 != 0 {
            features.push(("height", Feature::Integers(vec![1000 + number])));
        }
        if number % 5 != 0 {
            features.push(("caption/En", Feature::bytes(format!("picture {number}"))));
        }
        if number % 4 != 1 {
            features.push(("depth", Feature::bytes(b"\x00\x01\xfe no image")));
        }
        example(&features)
    };
    let mut records: Vec<Vec<u8>> = (0..count).map(record).collect();
    records[12] = example(&[("label", Feature::Integers(vec![2])), ("height", Feature::Integers(vec![-7]))]);
    for (number, part) in records.chunks(7).enumerate() {
        let part: Vec<&[u8]> = part.iter().map(Vec::as_slice).collect();
        scene.write(format!("{root}/x-{number:03}.tfrecord"), &tfrecord(&part));
    }
}

/// An MDS dataset of images, strings, numbers and JSON.
pub(super) fn mds(scene: &Scene, root: &str) {
    let columns: [MdsColumn; 5] = [
        ("caption", "str", None),
        ("image", "jpeg", None),
        ("label", "int", Some(8)),
        ("mask", "png", None),
        ("meta", "json", None),
    ];
    let sample = |number: u64| {
        vec![
            format!("picture {number}").into_bytes(),
            jpeg(number),
            (number as i64 % 3).to_le_bytes().to_vec(),
            png(number as u8),
            format!("{{\"id\": {number}}}").into_bytes(),
        ]
    };
    let mut listed = Vec::new();
    for (name, samples) in [("shard.00000.mds", 0..6), ("shard.00001.mds", 6..10)] {
        let samples: Vec<Vec<Vec<u8>>> = samples.map(sample).collect();
        let shard = mds_shard(&columns, &samples);
        scene.write(format!("{root}/{name}"), &shard);
        listed.push((name, samples.len(), shard.len()));
    }
    scene.write(format!("{root}/index.json"), mds_index(&columns, &listed).to_string().as_bytes());
}

/// The path of files that another library wrote, which are fixtures of the tests.
pub(super) fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/{name}/files", env!("CARGO_MANIFEST_DIR"))
}

pub(super) fn open(scene: &Scene, root: &Path, options: LoaderOptions) -> Result<Pipeline> {
    common::open(root, scene.path("index"), Contents::Images, &options)
}

fn summary(scene: &Scene, root: &Path) -> IndexSummary {
    let options = LoaderOptions { index_dir: Some(scene.path("index")), ..small_images() };
    // Members that no sample has select nothing, and allow datasets without images.
    let asked = IndexOptions {
        members: Some(Vec::new()),
        without_labels: true,
        ..options.validate().unwrap().index_options(Contents::Images)
    };
    DatasetIndex::open(root, &asked).unwrap().summaries().next().unwrap()
}

fn digest(pipeline: &Pipeline, batch: &Batch, fields: &[String]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(batch.sample_ids().bytes());
    for name in fields {
        hash.update(name);
        if let Some(present) = pipeline.config().present(batch, name) {
            hash.update(present.bytes());
        }
        match pipeline.config().field(batch, name).expect("the field").first_view() {
            FieldValue::Tensor(tensor) => hash.update(tensor.bytes()),
            FieldValue::Texts(texts) => hash.update(format!("{texts:?}")),
            FieldValue::Bytes(bytes) => hash.update(format!("{bytes:?}")),
            FieldValue::Json(documents) => hash.update(format!("{documents:?}")),
            _ => panic!("a field of another kind"),
        }
    }
    hash.finalize().into()
}

/// Packs a table in small shards, and compares the result with its source.
pub(super) fn same_dataset(scene: &Scene, root: &Path, packed: &str) {
    let into = scene.path(packed);
    succeeds(&mut scene.command("pack", root, &into, &["--shard-size", "6000"]));
    let (one, other) = (summary(scene, root), summary(scene, &into));
    assert_eq!((other.layout, other.notes.packed_of), (Layout::Packed, Some(one.layout)));
    assert_eq!(
        (one.samples, one.classes, &one.fingerprint),
        (other.samples, other.classes, &other.fingerprint)
    );
    assert_eq!((&one.fields, &one.keys), (&other.fields, &other.keys));
    let readable = one.fields.iter().filter(|field| field.refused.is_none());
    let fields: Vec<String> = readable.map(|field| field.name.clone()).collect();
    let asked = |kind: Option<_>| {
        let field = |name: &String| {
            let kind = kind.filter(|_| one.keys.contains(name));
            // Labels are required if all samples have one.
            let optional = name != "label" || one.notes.unlabeled;
            FieldOptions { optional, kind, ..FieldOptions::named(name) }
        };
        fields.iter().map(field).collect::<Vec<_>>()
    };
    // With the kinds of the fields, and as bytes, which are the packed files.
    for kind in [None, Some(FieldKind::Bytes)] {
        let options = || LoaderOptions {
            fields: Some(asked(kind)),
            on_error: OnError::Zero,
            max_errors: Some(1000),
            batch_size: 4,
            ..small_images()
        };
        let pipelines = [root, &into].map(|root| open(scene, root, options()).unwrap());
        for epoch in 0..2 {
            let [mut one, mut other] = pipelines.each_ref().map(|of| of.epoch(epoch, 0, 1, 0).unwrap());
            while let Some(batch) = one.next_batch().unwrap() {
                let same = other.next_batch().unwrap().unwrap();
                let digests = [digest(&pipelines[0], &batch, &fields), digest(&pipelines[1], &same, &fields)];
                assert_eq!(digests[0], digests[1], "{} of {}", into.display(), root.display());
            }
            assert!(other.next_batch().unwrap().is_none());
        }
    }
}

#[test]
fn tables_are_the_same_dataset_when_they_are_packed() {
    let scene = Scene::new();
    examples(&scene, "examples", 30);
    mds(&scene, "mds");
    for name in ["examples", "mds"] {
        same_dataset(&scene, &scene.path(name), &format!("{name}.packed"));
    }
    let of_others = [
        "tfrecord/imagenet",
        "tfrecord/absent",
        "parquet/datasets",
        "parquet/nulls",
        "parquet/two-images",
        "arrow/saved",
        "arrow/file",
        "mds/all",
        "tfrecord/gzip",
        "tfrecord/zlib",
        "parquet/gzip",
        "parquet/lz4",
        "parquet/page-v2-zstd",
        "parquet/snappy",
        "parquet/zstd",
        "arrow/file-lz4",
        "arrow/stream-zstd",
        "mds/gz",
        "mds/zstd",
    ];
    for name in of_others {
        same_dataset(&scene, Path::new(&fixture(name)), &name.replace('/', "-"));
    }
    for name in ["csv", "jsonl"] {
        let root = format!("{}/metadata.{name}", fixture(&format!("manifest/{name}")));
        same_dataset(&scene, Path::new(&root), &format!("manifest-{name}"));
    }
}

#[test]
fn labels_images_and_names_of_classes_are_the_sources() {
    let scene = Scene::new();
    mds(&scene, "mds");
    let imagenet = fixture("imagenet/train");
    let tars = fs::read_dir(&imagenet).unwrap().map(|entry| entry.unwrap().path()).next().unwrap();
    for (name, root) in [("a", scene.path("mds")), ("b", fixture("parquet/datasets").into()), ("c", tars)] {
        let into = scene.path(name);
        assert!(
            scene.command("pack", &root, &into, &["--shard-size", "1500"]).output().unwrap().status.success()
        );
        let options = || LoaderOptions { on_error: OnError::Zero, max_errors: Some(100), ..small_images() };
        let [one, other] = [&root, &into].map(|root| open(&scene, root, options()).unwrap());
        let (source, index) = (one.index(), other.index());
        assert_eq!((index.classes(), index.num_classes()), (source.classes(), source.num_classes()));
        assert_eq!(index.fingerprint(), source.fingerprint());
        (0..index.len()).for_each(|sample| assert_eq!(index.label(sample), source.label(sample)));
        index.verify().unwrap();
        assert!(crate::common::epoch_bytes(&one, 1) == crate::common::epoch_bytes(&other, 1), "{name}");
        let said = scene.error("unpack", name, &format!("{name}.back"), &[]);
        assert!(said.contains("which unpacking cannot write") && said.contains("--to tar"), "{said}");
    }
}

#[test]
fn damaged_columns_are_errors_of_the_shard() {
    let scene = Scene::new();
    examples(&scene, "examples", 14);
    scene.json("pack", "examples", "packed", &[]);
    let bytes = fs::read(scene.path("packed/000000.packed")).unwrap();
    let trailer = bytes.len() - 64;
    let number = |at: usize| u64::from_le_bytes(bytes[trailer + at..][..8].try_into().unwrap()) as usize;
    let (footer, end) = (number(0), number(0) + number(8));
    let contents = foreload::testing::dataset::packed::shard_contents;
    let whole = contents(&bytes[..]).unwrap().rows;
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("FORELOAD_FUZZ_SEED").map_or(clock, |text| text.parse().unwrap());
    println!("FORELOAD_FUZZ_SEED={seed}");
    let mut random = RandomKey::new(b"damaged columns", seed, 0, Use::Size).stream(0);
    let mut refused = 0;
    for _ in 0..2000 {
        let mut damaged = bytes.clone();
        // The footer is truncated, or a few of its bytes are changed, but its digest is correct.
        let mut stop = end;
        if random.below(4) == 0 {
            stop = footer + random.below((end - footer) as u64) as usize;
            damaged.drain(stop..end);
        }
        for _ in 0..=random.below(3) {
            let at = footer + random.below((stop - footer) as u64 + 1) as usize;
            damaged[at.min(stop.saturating_sub(1))] = random.below(256) as u8;
        }
        let digest = Sha256::digest(&damaged[footer..stop]);
        damaged[stop + 8..stop + 16].copy_from_slice(&((stop - footer) as u64).to_le_bytes());
        damaged[stop + 16..stop + 48].copy_from_slice(&digest);
        match contents(&damaged[..]) {
            Err(error) => {
                assert!(!error.message.is_empty());
                refused += 1;
            }
            // If it can be read, it has as many cells as samples.
            Ok(found) => assert_eq!(found.rows.samples.len(), whole.samples.len()),
        }
    }
    assert!(refused > 500, "{refused} of 2000 are refused");
}
