//! TFRecord shards of `tf.Example`s: their samples, fields, labels and warnings, whatever the order and encoding of
//! their messages, also for hostile input.

use crate::common::fuzz;
use crate::common::jpeg;
use crate::common::scene::{Scene, bytes_of, masked, samples_are_found_by_extent, summary, tfrecord};
use crate::common::tables::{Feature, entry, example, feature, field, varint};
use crate::fuzz::mutate;
use foreload::testing::dataset::layouts::tf_examples;
use foreload::testing::dataset::table::{CellExtent, ShardTable, TableCells, TableColumn};
use foreload::testing::dataset::{
    Changed, DatasetIndex, FieldKind, IndexOptions, IndexOrigin, Layout, MemberBytes,
};
use std::cell::Cell;

fn shard(examples: &[Vec<u8>]) -> Vec<u8> {
    tfrecord(&examples.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// A picture with a label, a caption and a height.
fn pictured(number: i64, label: i64) -> Vec<u8> {
    example(&[
        ("caption", Feature::bytes(format!("picture {number}"))),
        ("image/encoded", Feature::bytes(jpeg(number as u64))),
        ("image/class/label", Feature::Integers(vec![label])),
        ("height", Feature::Integers(vec![100 + number])),
        ("score", Feature::Floats(vec![number as f32 / 4.0])),
    ])
}

fn with(scene: &Scene, fields: &[&str]) -> foreload::Result<DatasetIndex> {
    let members = Some(fields.iter().map(ToString::to_string).collect());
    DatasetIndex::open(&scene.root, &IndexOptions { members, ..scene.options.clone() })
}

fn column<'a>(table: &'a ShardTable, name: &str) -> &'a TableColumn {
    table.columns.iter().find(|column| column.name == name).expect("a column")
}

#[test]
fn records_are_samples_and_features_fields() {
    let scene = Scene::new();
    scene.write("x.tfrecord-00000-of-00002", &shard(&[pictured(0, 4), pictured(1, 0)]));
    scene.write("x.tfrecord-00001-of-00002", &shard(&[pictured(2, 1)]));
    scene.write("dataset_info.json", b"{}");
    let index = scene.open().unwrap();
    assert_eq!((index.len(), index.is_labeled(), index.num_classes()), (3, true, 5));
    for (sample, label) in [(0, 4), (1, 0), (2, 1)] {
        assert_eq!((bytes_of(&index, sample), index.label(sample)), (jpeg(sample), label));
    }
    samples_are_found_by_extent(&index);
    let told = summary(&index);
    assert_eq!((told.layout, told.groups), (Layout::TfExample, 2));
    assert_eq!(told.notes.image.as_deref(), Some("image/encoded"));
    let kinds: Vec<_> = told.fields.iter().map(|field| (field.name.as_str(), field.kind)).collect();
    let expected = [
        ("caption", FieldKind::Text),
        ("height", FieldKind::Integer),
        ("image/class/label", FieldKind::Integer),
        ("image/encoded", FieldKind::Image),
        ("score", FieldKind::Float),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(summary(&scene.open().unwrap()).origin, IndexOrigin::Loaded);
    // Columns are not members: of a sample, the image and the caption are read.
    let fields = with(&scene, &["height", "image", "caption", "image/class/label"]).unwrap();
    let MemberBytes::InExtent(range) = fields.member(2, 1) else { panic!("{:?}", fields.member(2, 1)) };
    assert_eq!(bytes_of(&fields, 2)[range], *b"picture 2");
    samples_are_found_by_extent(&fields);
    assert_eq!(fields.fingerprint(), index.fingerprint());
    let alone = with(&scene, &["image", "height"]).unwrap();
    assert_eq!((alone.extent(1), alone.identity()), (index.extent(1), index.identity()));
    // One shard alone is a dataset, too.
    let one = DatasetIndex::open(&scene.root.join("x.tfrecord-00001-of-00002"), &scene.options).unwrap();
    assert_eq!((one.len(), bytes_of(&one, 0)), (1, jpeg(2)));
    fields.verify().unwrap();
}

#[test]
fn messages_mean_the_same_in_every_form() {
    let (first, last) = (Feature::Integers(vec![-3]), Feature::Integers(vec![7]));
    let (picture, share) = (Feature::bytes(jpeg(1)), Feature::Floats(vec![0.5]));
    let plain = example(&[("n", last.clone()), ("image", picture.clone()), ("f", share.clone())]);
    let table = |payload: &[u8]| tf_examples(&tfrecord(&[payload])[..]).unwrap();
    let values = |payload: &[u8]| {
        let mut table = table(payload);
        table.columns.sort_by(|a, b| a.name.cmp(&b.name));
        let cells = table.columns.into_iter().map(|TableColumn { name, kind, cells, .. }| match cells {
            // The extent of a value depends on the encoding; its content must not.
            TableCells::Extents(extents) => {
                let at = extents[0].unwrap();
                let record = &tfrecord(&[payload])[at.offset as usize..][..at.length as usize];
                (name, kind, format!("{record:?}"))
            }
            cells => (name, kind, format!("{cells:?}")),
        });
        cells.collect::<Vec<_>>()
    };
    let known = values(&plain);
    assert_eq!(known.len(), 3);
    // A later entry replaces an earlier one; unknown lists, fields and groups are skipped.
    let overwritten = [entry("n", &first, true), entry("n", &last, false)].concat();
    let other = [entry("f", &share, false), entry("image", &picture, false)].concat();
    let unknown =
        [field(9, b"unknown"), varint(10 << 3), varint(5), varint(11 << 3 | 1), vec![0; 8]].concat();
    let group = [varint(12 << 3 | 3), field(1, b"within"), varint(12 << 3 | 4)].concat();
    let forms = [
        field(1, &[overwritten.clone(), other.clone()].concat()),
        [field(1, &other), field(1, &overwritten)].concat(),
        [
            unknown.clone(),
            field(1, &[unknown.clone(), overwritten.clone(), group.clone(), other.clone()].concat()),
        ]
        .concat(),
    ];
    for (number, form) in forms.iter().enumerate() {
        assert_eq!(values(form), known, "form {number}");
    }
    // The value may come before the key, in several parts, and after a list of another type.
    let pieces =
        [field(2, &feature(&picture, true)), field(2, &feature(&last, true)), field(1, b"n")].concat();
    let turned = field(1, &[field(1, &pieces), other].concat());
    assert_eq!(values(&turned), known);
}

#[test]
fn lists_and_missing_values_are_told_apart() {
    let of = |label: Option<i64>, boxes: &[f32], name: &[u8]| {
        let mut features = vec![
            ("image", Feature::bytes(jpeg(1))),
            ("boxes", Feature::Floats(boxes.to_vec())),
            ("name", Feature::bytes(name)),
            ("mixed", if boxes.is_empty() { Feature::bytes(b"x") } else { Feature::Integers(vec![1]) }),
        ];
        features.extend(label.map(|label| ("label", Feature::Integers(vec![label]))));
        example(&features)
    };
    let records = [of(Some(2), &[], b"a"), of(None, &[1.0, 2.0], b"\xff\0"), of(Some(1), &[3.0], b"c")];
    let table = tf_examples(&shard(&records)[..]).unwrap();
    assert_eq!(column(&table, "label").cells, TableCells::Integers(vec![Some(2), None, Some(1)]));
    assert_eq!(column(&table, "name").kind, FieldKind::Bytes);
    let TableCells::Refused(why) = &column(&table, "boxes").cells else { panic!("a list") };
    assert!(why.contains("lists of different lengths (2 in some records, 1 in record 2)"), "{why}");
    let TableCells::Refused(why) = &column(&table, "mixed").cells else { panic!("two types") };
    assert!(why.contains("bytes in some records and integers in record 1"), "{why}");
    // Missing labels of some samples matter only to users who ask for labels.
    let scene = Scene::new();
    scene.write("x.tfrecord", &shard(&records));
    let error = scene.error();
    assert!(
        error.contains("no label for its sample 1") && error.contains("label all samples or none"),
        "{error}"
    );
    let options = IndexOptions { without_labels: true, ..scene.options.clone() };
    assert_eq!(DatasetIndex::open(&scene.root, &options).unwrap().len(), 3);
    // A field that cannot be read is refused if a user asks for it, with the reason; other fields are not affected.
    let told = summary(&DatasetIndex::open(&scene.root, &options).unwrap());
    let refused: Vec<&str> =
        told.fields.iter().filter(|of| of.refused.is_some()).map(|of| of.name.as_str()).collect();
    assert_eq!(refused, ["boxes", "mixed"]);
}

#[test]
fn lists_of_one_length_are_columns() {
    let of = |corners: &[f32], counts: &[i64], packed: bool| {
        let list = |name, value: &Feature| field(1, &entry(name, value, packed));
        let floats = Feature::Floats(corners.to_vec());
        [list("box", &floats), list("counts", &Feature::Integers(counts.to_vec()))].concat()
    };
    let most: Vec<i64> = (-32..32).collect();
    let records =
        [of(&[], &most, true), of(&[0.5, 1.5, 2.5, -1.0], &most, false), of(&[1.0; 4], &most, true)];
    let table = tf_examples(&shard(&records)[..]).unwrap();
    let boxes = [None, Some([0.5, 1.5, 2.5, -1.0]), Some([1.0; 4])].map(|cell| cell.map(Box::from));
    assert_eq!(column(&table, "box").cells, TableCells::FloatLists(4, boxes.to_vec()));
    assert_eq!(column(&table, "box").kind, FieldKind::Float);
    let counts = vec![Some(most.clone().into_boxed_slice()); 3];
    assert_eq!(column(&table, "counts").cells, TableCells::IntegerLists(64, counts));
    let refused = |records: &[Vec<u8>], name| {
        let table = tf_examples(&shard(records)[..]).unwrap();
        match &column(&table, name).cells {
            TableCells::Refused(why) => why.clone(),
            cells => panic!("{cells:?}"),
        }
    };
    let long: Vec<i64> = (0..65).collect();
    assert!(refused(&[of(&[], &long, true)], "counts").contains("more than 64 integers in record 0"));
    assert!(refused(&[of(&[], &long, false)], "counts").contains("more than 64 integers"));
    let single = [of(&[1.0], &[1], true), of(&[1.0; 3], &[2, 3], true)];
    assert!(refused(&single, "box").contains("(1 in some records, 3 in record 1)"));
    let texts = Feature::Bytes(vec![b"a".to_vec(), b"b".to_vec()]);
    let why = refused(&[example(&[("texts", texts)])], "texts");
    assert!(why.contains("several bytes in record 0"), "{why}");
}

#[test]
fn labels_that_begin_at_one_are_told() {
    let scene = Scene::new();
    scene.write("x.tfrecord", &shard(&[pictured(0, 2), pictured(1, 1)]));
    let index = scene.open().unwrap();
    assert_eq!((index.label(0), index.label(1), index.num_classes()), (2, 1, 3));
    assert!(summary(&index).notes.labels_from_one);
    scene.write("y.tfrecord", &shard(&[pictured(2, 0)]));
    let index = scene.open().unwrap();
    assert!(!summary(&index).notes.labels_from_one);
    scene.write("z.tfrecord", &shard(&[pictured(3, -1)]));
    let error = scene.error();
    assert!(error.contains("z.tfrecord") && error.contains("-1") && error.contains("not a class"), "{error}");
}

#[test]
fn another_value_of_a_column_is_a_change_and_no_other_order() {
    let scene = Scene::new();
    let write = |height: i64| {
        let of = |number: i64, height| {
            example(&[
                ("image", Feature::bytes(jpeg(number as u64))),
                ("label", Feature::Integers(vec![0])),
                ("height", Feature::Integers(vec![height])),
            ])
        };
        scene.write("x.tfrecord", &shard(&[of(0, 1), of(1, height)]));
    };
    write(7);
    let first = with(&scene, &["image", "height"]).unwrap();
    write(8);
    let refuse = IndexOptions {
        changed: Changed::Refuse,
        members: Some(vec!["image".into(), "height".into()]),
        ..scene.options.clone()
    };
    let error = DatasetIndex::open(&scene.root, &refuse).err().unwrap().to_string();
    assert!(error.contains("other values in its column \"height\""), "{error}");
    assert_eq!(with(&scene, &["image", "height"]).unwrap().fingerprint(), first.fingerprint());
}

#[test]
fn what_are_no_examples_is_refused_by_name() {
    let error = |bytes: &[u8]| {
        let scene = Scene::new();
        scene.write("x.tfrecord", bytes);
        let error = scene.error();
        assert!(error.contains("x.tfrecord"), "{error}");
        error
    };
    assert!(error(b"\x1f\x8b\x08 gzip").contains("compressed with gzip"));
    assert!(error(b"\x78\x9c zlib.............").contains("compressed with zlib"));
    assert!(error(&tfrecord(&[b"any text at all"])).contains("not a tf.Example"));
    assert!(error(&tfrecord(&[b"", b""])).contains("no features"));
    let group = [varint(12 << 3 | 3), varint(12 << 3 | 3)].concat();
    assert!(error(&tfrecord(&[&group])).contains("a group is not closed"));
    assert!(error(&tfrecord(&[&[0x80; 30]])).contains("a varint has no end"));
    let long = [varint(1 << 3 | 2), varint(u64::MAX)].concat();
    assert!(error(&tfrecord(&[&long])).contains("extends beyond its message"));
    let many: Vec<String> = (0..600).map(|number| format!("feature {number}")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), Feature::Integers(vec![1]))).collect();
    assert!(error(&shard(&[example(&many)])).contains("more than 512 features"));
    // Damaged bytes of a record do not match its checksum.
    let mut damaged = shard(&[pictured(0, 1), example(&[("label", Feature::Integers(vec![1]))])]);
    let last = damaged.len() - 5;
    damaged[last] ^= 1;
    assert!(error(&damaged).contains("checksum does not match"));
    let scene = Scene::new();
    scene.write("x.tfrecord", &shard(&[example(&[("a", Feature::Integers(vec![1]))])]));
    assert!(scene.error().contains("no column of images"), "{}", scene.error());
}

#[test]
fn large_records_are_verified_when_that_is_asked_for() {
    let scene = Scene::new();
    let large: Vec<u8> = jpeg(1).into_iter().chain(vec![7; 9000]).collect();
    let mut bytes = shard(&[example(&[("image", Feature::bytes(&large))])]);
    let middle = bytes.len() - 4000;
    bytes[middle] ^= 1;
    scene.write("x.tfrecord", &bytes);
    let error = scene.open().unwrap().verify().err().unwrap().to_string();
    assert!(error.contains("checksum does not match") && error.contains("x.tfrecord"), "{error}");
}

#[test]
fn mutated_examples_are_errors_or_what_they_were() {
    // Records as small as these are checked against their checksums at once.
    let record = |number: i64| {
        example(&[
            ("caption", Feature::bytes(format!("picture {number}"))),
            ("image/encoded", Feature::bytes([&b"\xff\xd8\xff"[..], &[number as u8; 700]].concat())),
            ("height", Feature::Integers(vec![100 + number])),
            ("score", Feature::Floats(vec![number as f32 / 4.0])),
        ])
    };
    let records: Vec<Vec<u8>> = (0..3).map(record).collect();
    let small: Vec<Vec<u8>> = (0..4)
        .map(|number| {
            example(&[
                ("image", Feature::bytes(b"\xff\xd8\xff short")),
                ("label", Feature::Integers(vec![number])),
                ("score", Feature::Floats(vec![1.5, 2.5][..1 + number as usize % 2].to_vec())),
            ])
        })
        .collect();
    let seeds = [shard(&records), shard(&small)];
    let whole = seeds.each_ref().map(|seed| tf_examples(&seed[..]).unwrap());
    let rounds = Cell::new(0);
    let run = || {
        fuzz("tf_examples", |random| {
            for _ in 0..50 {
                let which = random.below(2) as usize;
                let mut bytes = seeds[which].clone();
                mutate(&mut bytes, random);
                rounds.set(rounds.get() + 1);
                let Ok(table) = tf_examples(&bytes[..]) else { continue };
                // A parser cannot notice records that were cut off at a boundary, or copied whole.
                for column in &table.columns {
                    let known = &whole[which].columns.iter().find(|known| known.name == column.name).unwrap();
                    let length = |cell: &Option<CellExtent>| cell.map(|cell| cell.length);
                    let is_known = match (&column.cells, &known.cells) {
                        (TableCells::Extents(now), TableCells::Extents(then)) => {
                            now.iter().all(|cell| then.iter().any(|known| length(known) == length(cell)))
                        }
                        (TableCells::Integers(now), TableCells::Integers(then)) => {
                            now.iter().all(|cell| then.contains(cell))
                        }
                        (TableCells::Floats(now), TableCells::Floats(then)) => {
                            now.iter().all(|cell| then.contains(cell))
                        }
                        (_, TableCells::Refused(_)) => true,
                        _ => false,
                    };
                    assert!(is_known, "{column:?}");
                }
            }
        });
    };
    run();
    assert!(rounds.get() >= 1000, "{} mutations", rounds.get());
    // With valid checksums, the content may be anything: the result must be an error or a table, and never a panic.
    fuzz("mended tf_examples", |random| {
        for _ in 0..50 {
            let mut payload = records[random.below(3) as usize].clone();
            mutate(&mut payload, random);
            let length = (payload.len() as u64).to_le_bytes();
            let bytes = [&length[..], &masked(&length), &payload, &masked(&payload)].concat();
            if let Ok(table) = tf_examples(&bytes[..]) {
                assert_eq!(table.samples, 1);
                for column in &table.columns {
                    let TableCells::Extents(extents) = &column.cells else { continue };
                    let end = extents[0].unwrap();
                    assert!(end.offset + u64::from(end.length) <= bytes.len() as u64);
                }
            }
        }
    });
}
