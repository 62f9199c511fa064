//! Batches of samples that are rows of tables: images, strings and columns of numbers of the same sample, in every
//! order.

use crate::common::scene::{Scene, tfrecord};
use crate::common::tables::{Feature, MdsColumn, example, mds_index, mds_shard};
use crate::common::{batches, ids, jpeg, longs, small_images};
use foreload::Shuffling;
use foreload::testing::batch::Batch;
use foreload::testing::config::{FieldOptions, FieldValue, LoaderOptions, OnError};
use foreload::testing::dataset::{Contents, DatasetIndex, FieldKind};
use foreload::testing::pipeline::Pipeline;
use std::sync::Arc;

/// A TFRecord shard, in which every third sample has no height, every fifth no caption.
fn examples(scene: &Scene, count: i64) {
    let record = |number: i64| {
        let mut features = vec![
            ("photo", Feature::bytes(jpeg(number as u64))),
            ("label", Feature::Integers(vec![number % 4])),
            ("Weight", Feature::Floats(vec![number as f32 / 8.0])),
            ("boxes", Feature::Floats(vec![number as f32, 0.5, -1.0, 2.0])),
            ("points", Feature::Integers(vec![number; 1 + number as usize % 3])),
        ];
        if number % 3 != 0 {
            features.push(("height", Feature::Integers(vec![1000 + number])));
        }
        if number % 4 != 1 {
            features.push(("corners", Feature::Integers(vec![number, -number])));
        }
        if number % 5 != 0 {
            features.push(("caption", Feature::bytes(format!("picture {number}"))));
        }
        example(&features)
    };
    let records: Vec<Vec<u8>> = (0..count).map(record).collect();
    for (number, part) in records.chunks(7).enumerate() {
        let part: Vec<&[u8]> = part.iter().map(Vec::as_slice).collect();
        scene.write(format!("x-{number:03}.tfrecord"), &tfrecord(&part));
    }
}

fn options(scene: &Scene, fields: Vec<FieldOptions>) -> LoaderOptions {
    LoaderOptions {
        fields: Some(fields),
        index_dir: scene.options.directory.clone(),
        batch_size: 4,
        ..small_images()
    }
}

fn pipeline(scene: &Scene, options: &LoaderOptions) -> foreload::Result<Pipeline> {
    let checked = options.validate()?;
    let index = Arc::new(DatasetIndex::open(&scene.root, &checked.index_options(Contents::Images))?);
    let config = checked.check(&index)?;
    Ok(Pipeline::new(index, config))
}

fn refused(scene: &Scene, fields: Vec<FieldOptions>) -> String {
    pipeline(scene, &options(scene, fields)).err().expect("an error").to_string()
}

fn optional(name: &str) -> FieldOptions {
    FieldOptions { optional: true, ..FieldOptions::named(name) }
}

fn tensor(pipeline: &Pipeline, batch: &Batch, name: &str) -> Vec<u8> {
    match pipeline.config().field(batch, name) {
        Some(FieldValue::Tensor(tensor)) => tensor.bytes().to_vec(),
        _ => panic!("{name} is no tensor"),
    }
}

fn integers(pipeline: &Pipeline, batch: &Batch, name: &str) -> Vec<i64> {
    longs(&tensor(pipeline, batch, name))
}

#[test]
fn columns_and_members_are_of_their_sample() {
    let scene = Scene::new();
    examples(&scene, 30);
    let named = FieldOptions::named;
    let fields =
        vec![optional("height"), named("image"), optional("caption"), named("Weight"), named("label")];
    let pipeline = pipeline(&scene, &options(&scene, fields)).unwrap();
    for number in 0..2 {
        let mut seen = Vec::new();
        for batch in batches(&pipeline, number) {
            let ids = ids(&batch);
            let here = pipeline.config().present(&batch, "height").unwrap().bytes().to_vec();
            let heights = integers(&pipeline, &batch, "height");
            let weights = tensor(&pipeline, &batch, "Weight");
            let labels = integers(&pipeline, &batch, "label");
            let Some(FieldValue::Texts(captions)) = pipeline.config().field(&batch, "caption") else {
                panic!()
            };
            for (at, &id) in ids.iter().enumerate() {
                assert_eq!((here[at], heights[at]), if id % 3 == 0 { (0, 0) } else { (1, 1000 + id) });
                assert_eq!(weights[4 * at..][..4], (id as f32 / 8.0).to_ne_bytes());
                assert_eq!(labels[at], id % 4);
                assert_eq!(captions[at], (id % 5 != 0).then(|| format!("picture {id}")));
            }
            seen.extend(ids);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..30).collect::<Vec<_>>());
    }
}

#[test]
fn fields_have_names_of_their_own() {
    let scene = Scene::new();
    examples(&scene, 12);
    let called =
        |source: &str, name: &str| FieldOptions { name: name.to_owned(), ..FieldOptions::named(source) };
    let bytes = FieldOptions { kind: Some(FieldKind::Bytes), ..called("image", "raw") };
    let height = FieldOptions { optional: true, ..called("height", "h") };
    let fields = vec![
        called("Weight", "w"),
        height,
        called("image", "picture"),
        called("Weight", "also"),
        bytes,
        called("label", "y"),
    ];
    let pipeline = pipeline(&scene, &options(&scene, fields)).unwrap();
    for batch in batches(&pipeline, 0) {
        let ids = ids(&batch);
        let weights: Vec<u8> = ids.iter().flat_map(|&id| (id as f32 / 8.0).to_ne_bytes()).collect();
        assert_eq!(tensor(&pipeline, &batch, "w"), weights);
        assert_eq!(tensor(&pipeline, &batch, "also"), weights);
        let height = |id: &i64| if id % 3 == 0 { 0 } else { 1000 + id };
        assert_eq!(integers(&pipeline, &batch, "h"), ids.iter().map(height).collect::<Vec<_>>());
        assert_eq!(integers(&pipeline, &batch, "y"), ids.iter().map(|id| id % 4).collect::<Vec<_>>());
        let Some(FieldValue::Bytes(files)) = pipeline.config().field(&batch, "raw") else { panic!() };
        assert_eq!(files, ids.iter().map(|&id| Some(jpeg(id as u64))).collect::<Vec<_>>());
        assert!(matches!(pipeline.config().field(&batch, "picture"), Some(FieldValue::Tensor(_))));
        assert!(pipeline.config().field(&batch, "Weight").is_none());
    }
    let whole = FieldOptions { kind: Some(FieldKind::Integer), ..called("Weight", "b") };
    let error = refused(&scene, vec![called("Weight", "a"), whole]);
    assert!(error.contains("has the column \"Weight\" as two kinds"), "{error}");
}

#[test]
fn lists_of_one_length_are_a_tensor() {
    let scene = Scene::new();
    examples(&scene, 30);
    let rounded = FieldOptions { kind: Some(FieldKind::Float), ..optional("corners") };
    for (corners, is_float) in [(optional("corners"), false), (rounded, true)] {
        let fields = vec![FieldOptions::named("image"), FieldOptions::named("boxes"), corners];
        let pipeline = pipeline(&scene, &options(&scene, fields)).unwrap();
        let mut seen = 0;
        for batch in batches(&pipeline, 0) {
            let ids = ids(&batch);
            let shape = |name: &str| match pipeline.config().field(&batch, name) {
                Some(FieldValue::Tensor(tensor)) => tensor.shape().to_vec(),
                _ => panic!("{name} is no tensor"),
            };
            assert_eq!(
                (shape("boxes"), shape("corners")),
                (vec![ids.len() as i64, 4], vec![ids.len() as i64, 2])
            );
            let here = pipeline.config().present(&batch, "corners").unwrap().bytes().to_vec();
            let (boxes, corners) = (tensor(&pipeline, &batch, "boxes"), tensor(&pipeline, &batch, "corners"));
            for (at, &id) in ids.iter().enumerate() {
                let expected = [id as f32, 0.5, -1.0, 2.0].map(f32::to_ne_bytes).concat();
                assert_eq!(boxes[16 * at..][..16], expected);
                let corner = if id % 4 == 1 { [0, 0] } else { [id, -id] };
                assert_eq!(here[at], u8::from(id % 4 != 1));
                if is_float {
                    let expected = corner.map(|number| (number as f32).to_ne_bytes()).concat();
                    assert_eq!(corners[8 * at..][..8], expected);
                } else {
                    assert_eq!(corners[16 * at..][..16], corner.map(i64::to_ne_bytes).concat());
                }
            }
            seen += ids.len();
        }
        assert_eq!(seen, 30);
    }
}

#[test]
fn what_a_sample_lacks_is_named_with_the_sample() {
    let scene = Scene::new();
    examples(&scene, 8);
    let fields = vec![FieldOptions::named("image"), FieldOptions::named("height")];
    let raising = LoaderOptions { shuffle: Some(Shuffling::Off), ..options(&scene, fields) };
    let raises = pipeline(&scene, &raising).unwrap();
    let mut epoch = raises.epoch(0, 0, 1, 0).unwrap();
    let error = epoch.next_batch().err().expect("the first sample has no height").to_string();
    assert!(error.contains("height") && error.contains("no value in this column"), "{error}");
    let skipping = pipeline(&scene, &LoaderOptions { on_error: OnError::Skip, ..raising }).unwrap();
    for batch in batches(&skipping, 0) {
        for (id, height) in ids(&batch).iter().zip(integers(&skipping, &batch, "height")) {
            assert_eq!(height, 1000 + id);
        }
    }
}

#[test]
fn fields_that_cannot_be_are_refused_by_name() {
    let scene = Scene::new();
    examples(&scene, 8);
    let image = || FieldOptions::named("image");
    let error = refused(&scene, vec![image(), FieldOptions::named("points")]);
    assert!(error.contains("\"points\"") && error.contains("lists of different lengths"), "{error}");
    let error = refused(&scene, vec![image(), FieldOptions::named("width")]);
    assert!(error.contains("\"width\"") && error.contains("\"height\""), "{error}");
    let text = FieldOptions { kind: Some(FieldKind::Text), ..FieldOptions::named("height") };
    assert!(refused(&scene, vec![image(), text]).contains("a column of numbers"));
    let whole = FieldOptions { kind: Some(FieldKind::Integer), ..FieldOptions::named("Weight") };
    let error = refused(&scene, vec![image(), whole]);
    assert!(error.contains("sample 1 has a value which is not an integer"), "{error}");
}

#[test]
fn images_have_the_kind_that_the_schema_says() {
    let scene = Scene::new();
    let columns: &[MdsColumn] =
        &[("left", "jpeg", None), ("right", "jpeg", None), ("label", "float64", Some(8))];
    let sample = |number: u64| vec![jpeg(number), jpeg(number), (number as f64 / 4.0).to_le_bytes().to_vec()];
    let bytes = mds_shard(columns, &(0..6).map(sample).collect::<Vec<_>>());
    scene.write("s.mds", &bytes);
    scene.write("index.json", mds_index(columns, &[("s.mds", 6, bytes.len())]).to_string().as_bytes());
    let error = refused(&scene, vec![FieldOptions::named("middle")]);
    assert!(error.contains("\"left\"") && error.contains("\"right\""), "{error}");
    let usual = LoaderOptions { fields: None, ..options(&scene, Vec::new()) };
    let error = pipeline(&scene, &usual).err().unwrap().to_string();
    assert!(error.contains("several") && error.contains("\"left\", \"right\""), "{error}");
    // Both images get the same crop, and a label that is not a class number is delivered unchanged.
    let fields = ["left", "right", "label"].map(FieldOptions::named).to_vec();
    let pipeline = pipeline(&scene, &options(&scene, fields)).unwrap();
    let mut seen = 0;
    for batch in batches(&pipeline, 0) {
        assert_eq!(tensor(&pipeline, &batch, "left"), tensor(&pipeline, &batch, "right"));
        for (id, label) in ids(&batch).iter().zip(tensor(&pipeline, &batch, "label").as_chunks().0) {
            assert_eq!(f32::from_ne_bytes(*label), *id as f32 / 4.0);
            seen += 1;
        }
    }
    assert_eq!(seen, 6);
}

#[test]
fn an_image_that_a_sample_lacks_is_absent() {
    let scene = Scene::new();
    let record = |number: i64| {
        let label = ("label", Feature::Integers(vec![number]));
        let image = ("image", Feature::bytes(jpeg(number as u64)));
        if number % 2 == 0 { example(&[label, image]) } else { example(&[label]) }
    };
    let records: Vec<Vec<u8>> = (0..6).map(record).collect();
    scene.write("x.tfrecord", &tfrecord(&records.iter().map(Vec::as_slice).collect::<Vec<_>>()));
    let mut fields = vec![optional("image"), FieldOptions::named("label")];
    let reads = pipeline(&scene, &options(&scene, fields.clone())).unwrap();
    let mut epoch = reads.epoch(0, 0, 1, 0).unwrap();
    let mut seen = 0;
    while let Some(batch) = epoch.next_batch().unwrap() {
        let here = reads.config().present(&batch, "image").unwrap().bytes().to_vec();
        for (id, here) in ids(&batch).iter().zip(here) {
            assert_eq!(here == 1, id % 2 == 0);
            seen += 1;
        }
    }
    assert_eq!(seen, 6);
    fields[0].optional = false;
    let raises = pipeline(&scene, &options(&scene, fields)).unwrap();
    let mut epoch = raises.epoch(0, 0, 1, 0).unwrap();
    let error =
        std::iter::from_fn(|| epoch.next_batch().transpose()).find_map(Result::err).unwrap().to_string();
    assert!(error.contains("no such"), "{error}");
}
