//! Datasets that are tables, used through the commands.

use super::{code, foreload, json, stderr};
use crate::common::jpeg;
use crate::common::scene::{Scene, tfrecord};
use crate::common::tables::{Feature, example};

#[test]
fn fields_and_first_samples_are_shown() {
    let scene = Scene::new();
    let record = |number: i64| {
        let mut features = vec![
            ("image", Feature::bytes(jpeg(number as u64))),
            ("label", Feature::Integers(vec![number])),
            ("caption", Feature::bytes(format!("picture {number} {}", "long ".repeat(40)))),
            ("boxes", Feature::Floats(vec![0.5; 1 + number as usize % 2])),
            ("size", Feature::Integers(vec![number, 7])),
        ];
        if number > 0 {
            features.push(("score", Feature::Floats(vec![number as f32 / 4.0])));
        }
        example(&features)
    };
    let records: Vec<Vec<u8>> = (0..12).map(record).collect();
    scene.write("x.tfrecord", &tfrecord(&records.iter().map(Vec::as_slice).collect::<Vec<_>>()));
    let (root, kept) = (scene.root.to_str().unwrap(), scene.options.directory.clone().unwrap());
    let run =
        |more: &[&str]| foreload(&[&["index", root, "--index-dir", kept.to_str().unwrap()], more].concat());
    let shown = run(&[]);
    let text = String::from_utf8(shown.stdout.clone()).unwrap();
    assert_eq!(code(&shown), 0, "{}", stderr(&shown));
    let fields = "fields       boxes (refused: has lists of different lengths (1 in some records, 2 in record 1): only \
                  columns with lists of one length are read), caption (text), image (image), label (integer), \
                  score (float), size (integer)";
    assert!(text.contains("TFRecord shards of tf.Example") && text.contains(fields), "{text}");
    let first = format!("image {} bytes, label 0, score –, size [0,7]", jpeg(0).len());
    assert!(text.contains("caption \"picture 0 long long") && text.contains(&first), "{text}");
    assert_eq!(text.matches("\n  sample ").count(), 10, "{text}");
    let report = json(&run(&["--json", "--samples", "3", "--verify"]));
    assert_eq!((report["verified"].as_bool(), report["samples"].as_u64()), (Some(true), Some(12)));
    let samples = report["first_samples"].as_array().unwrap();
    assert_eq!((samples.len(), samples[2]["label"].as_i64()), (3, Some(2)));
    assert!(samples[0]["score"].is_null() && samples[1]["score"] == 0.25, "{samples:?}");
    assert!(json(&run(&["--json", "--samples", "0"])).get("first_samples").is_none());
    // The packed dataset shows the same fields, and names its source.
    let target = kept.parent().unwrap().join("packed");
    let target = target.to_str().unwrap();
    let packed = foreload(&["pack", root, target, "--index-dir", kept.to_str().unwrap()]);
    assert_eq!(code(&packed), 0, "{}", stderr(&packed));
    let shown = foreload(&["index", target, "--index-dir", kept.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(text.contains("packed from TFRecord shards of tf.Example") && text.contains(fields), "{text}");
    // Data that cannot be read is reported on stderr and by the exit code, and is not shown as a value.
    std::fs::write(scene.root.join("x.tfrecord"), tfrecord(&[&records[0]])).unwrap();
    let cut = run(&["--changed", "warn", "--samples", "2", "--json"]);
    assert_eq!(code(&cut), 1, "{}", stderr(&cut));
    assert!(stderr(&cut).contains("cannot be read: caption of sample 0: "), "{}", stderr(&cut));
    let report: serde_json::Value = serde_json::from_slice(&cut.stdout).unwrap();
    let captions = [0, 1].map(|sample| report["first_samples"][sample]["caption"].clone());
    assert!(captions.iter().all(|caption| caption["unreadable"].is_string()), "{captions:?}");
}
