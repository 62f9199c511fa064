//! Datasets whose samples have several members, used through the commands.

use super::{code, foreload, json, stderr};
use crate::common::{Dataset, jpeg, tar_of_samples};
use foreload::testing::augment::ImageTransforms;
use foreload::testing::config::LoaderOptions;
use serde_json::Value;
use std::fs;
use std::process::Output;
use tempfile::TempDir;

/// A directory with a dataset of one shard.
struct Shard(TempDir);

impl Shard {
    /// Writes a shard of `samples` samples, with the members that `of` makes from each sample's number.
    fn new(samples: u64, of: impl Fn(u64) -> Vec<(&'static str, Vec<u8>)>) -> Self {
        let shard = Self(tempfile::tempdir().unwrap());
        fs::create_dir(shard.path("data")).unwrap();
        let tar = tar_of_samples((0..samples).map(|sample| (format!("{sample:03}"), of(sample))));
        fs::write(shard.path("data/0.tar"), tar).unwrap();
        shard
    }

    /// Four pairs of pictures with a mask, a caption, a document and an array.
    fn pairs() -> Self {
        Self::new(4, |sample| {
            vec![
                ("left.jpg", jpeg(sample)),
                ("right.jpg", jpeg(sample)),
                ("seg.png", mask(sample as u8)),
                ("txt", format!("caption {sample}").into_bytes()),
                ("json", format!("[{sample}]").into_bytes()),
                ("npy", npy(sample as u8)),
            ]
        })
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs a command on the dataset.
    fn run(&self, command: &str, more: &[&str]) -> Output {
        foreload(&[&[command, &self.path("data"), "--index-dir", &self.path("index")], more].concat())
    }

    /// The hash of an epoch.
    fn checksum(&self, more: &[&str]) -> String {
        let fixed = ["--batch-size", "2", "--epochs", "1", "--eval", "--checksum", "--json"];
        // A list of transforms sets the size itself.
        let size: &[&str] = if more.contains(&"--transforms") { &[] } else { &["--image-size", "16"] };
        let report = json(&self.run("bench", &[&fixed, size, more].concat()));
        report["epochs"][0]["sha256"].as_str().unwrap().to_owned()
    }
}

/// A PNG of one channel, as large as the picture with the same number.
fn mask(number: u8) -> Vec<u8> {
    let (width, height) = foreload::testing::decode::parse_header(&jpeg(number.into()))
        .map(|header| (header.width, header.height))
        .unwrap();
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Grayscale);
    let values = vec![number; (width * height) as usize];
    encoder.write_header().unwrap().write_image_data(&values).unwrap();
    bytes
}

/// Three bytes as `numpy.save` writes them.
fn npy(value: u8) -> Vec<u8> {
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }";
    let header = format!("{header:<117}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &[value; 3]].concat()
}

#[test]
fn the_checksum_covers_every_field() {
    let shard = Shard::pairs();
    let sum = |fields: &str| shard.checksum(&["--fields", fields]);
    let alone = sum("left.jpg");
    assert_eq!(alone, sum("left.jpg"));
    let mut seen = vec![alone];
    for field in ["right.jpg", "seg.png", "txt", "json", "npy"] {
        let both = sum(&format!("left.jpg,{field}"));
        assert!(!seen.contains(&both), "{field} changes nothing");
        seen.push(both);
    }
    // The consumer sees which values are present, too.
    let optional = sum(r#"["left.jpg", {"Text": {"name": "txt", "optional": true}}]"#);
    assert!(!seen.contains(&optional));
    let own =
        |transforms: &str| shard.checksum(&["--fields", "left.jpg,seg.png", "--transforms", transforms]);
    let whole = own("[]");
    assert_eq!(whole, own("[]"));
    assert_ne!(whole, own(r#"[{"Resize": {"size": 20}}]"#), "images of their own sizes");
    let masks = |dtype: &str| {
        let fields = format!(r#"["left.jpg", {{"Mask": {{"name": "seg.png", "dtype": "{dtype}"}}}}]"#);
        shard.checksum(&["--fields", &fields, "--transforms", "[]"])
    };
    assert_eq!(masks("uint8"), whole);
    assert_ne!(masks("int64"), whole, "their masks");
}

#[test]
fn every_image_and_mask_is_decoded() {
    let decoded = |shard: &Shard| {
        let found = shard.run("index", &["--verify", "--decode", "--json"]);
        let report: Value = serde_json::from_slice(&found.stdout).unwrap();
        (code(&found), report, stderr(&found))
    };
    let (rc, sound, said) = decoded(&Shard::pairs());
    assert_eq!((rc, &sound["decoded"], &sound["damaged"]), (0, &12.into(), &Value::Array(vec![])), "{said}");

    let cut = |bytes: Vec<u8>| bytes[..bytes.len() / 2].to_vec();
    let damaged = Shard::new(3, |sample| {
        let (right, seg) = (jpeg(sample + 9), mask(sample as u8));
        vec![
            ("jpg", jpeg(sample)),
            ("right.jpg", if sample == 1 { cut(right) } else { right }),
            ("seg.png", if sample == 2 { cut(seg) } else { seg }),
        ]
    });
    let (rc, report, said) = decoded(&damaged);
    assert_eq!((rc, &report["decoded"]), (1, &9.into()));
    let list = report["damaged"].as_array().unwrap();
    let named: Vec<_> = list.iter().map(|one| (&one["sample_id"], &one["member"])).collect();
    assert_eq!(named, [(&1.into(), &"right.jpg".into()), (&2.into(), &"seg.png".into())]);
    assert!(said.contains("2 of 9 images and masks cannot be decoded"), "{said}");
    let shown = damaged.run("index", &["--verify", "--decode"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("0.tar, \"right.jpg\" of sample 1, bytes "), "{shown}");
    assert!(shown.contains("9 images and masks decoded, 2 damaged"), "{shown}");

    // If samples have one image each, the output does not name the image field.
    let plain = Shard::new(3, |sample| {
        let image = jpeg(sample);
        vec![("jpg", if sample == 1 { cut(image) } else { image }), ("cls", b"1".to_vec())]
    });
    let (rc, report, said) = decoded(&plain);
    assert_eq!((rc, &report["decoded"]), (1, &3.into()));
    assert_eq!(
        (&report["damaged"][0]["sample_id"], &report["damaged"][0]["member"]),
        (&1.into(), &Value::Null)
    );
    assert!(said.contains("1 of 3 images cannot be decoded"), "{said}");
}

#[test]
fn bytes_are_those_of_the_fields() {
    let large = || jpeg(7).repeat(40);
    let shard = Shard::new(4, |sample| vec![("left.jpg", jpeg(sample)), ("right.jpg", large())]);
    let members: usize = (0..4).map(|sample| jpeg(sample).len() + large().len()).sum();
    let index = json(&shard.run("index", &["--json"]));
    assert_eq!(index["members"]["total_bytes"], members);
    let largest = (0..4).map(|sample| jpeg(sample).len() + large().len()).max().unwrap();
    assert_eq!(index["members"]["largest"], largest);

    let rates = shard.path("rates.json");
    let tier = r#"{"open_seconds": 0.001, "read_seconds": 0.001, "concurrency": 8.0, "read_bandwidth": 1e8,
        "write_bandwidth": 1e8}"#;
    fs::write(&rates, format!(r#"{{"source": {tier}, "nvme": {tier}, "decode_bandwidth": 1e8}}"#)).unwrap();
    let plan = |more: &[&str]| {
        shard.run("plan", &[&["--cache-size", "1MB", "--rates", &rates, "--json"], more].concat())
    };
    let one = json(&plan(&["--fields", "left.jpg"]));
    let both = json(&plan(&["--fields", "left.jpg,right.jpg"]));
    let bytes = |report: &Value| report["dataset_bytes"].as_u64().unwrap() as usize;
    assert_eq!(bytes(&one), (0..4).map(|sample| jpeg(sample).len()).sum::<usize>());
    assert!((members..members + 4 * 1024).contains(&bytes(&both)), "{both}");
    let neither = plan(&[]);
    assert!(code(&neither) == 1 && stderr(&neither).contains("members with fields="), "{}", stderr(&neither));
    let calibrated = json(&shard.run("calibrate", &["--fields", "left.jpg", "--seconds", "0.1", "--json"]));
    assert!(calibrated["decode"]["images"].as_u64().unwrap() > 0, "{calibrated}");
}

#[test]
fn fields_are_names_or_objects_of_json() {
    let shard = Shard::pairs();
    let sum = |fields: &str| shard.checksum(&["--fields", fields]);
    let both = sum("left.jpg, right.jpg");
    assert_eq!(both, sum(r#" ["left.jpg", {"Image": {"name": "right.jpg"}}]"#));
    assert_eq!(both, sum(r#"["left.jpg", {"Image": {"source": "right.jpg", "name": "after"}}]"#));
    let bench = |flag: &str, text: &str| shard.run("bench", &["--fields", "left.jpg,right.jpg", flag, text]);
    for (text, said) in [
        (r#"["left.jpg""#, "is not JSON: EOF while parsing"),
        (r#"[{"Masks": {"name": "seg.png"}}]"#, r#""Masks" is not one of Image, Mask, Boxes, Text"#),
        (r#"[{"Mask": "seg.png"}]"#, r#"Mask needs parameters, {"source": ...}"#),
        (r#"[{"Mask": {"dtype": "int64"}}]"#, "missing field `source`"),
        (
            r#"[{"Image": {"name": "left.jpg", "dtype": "int64"}}]"#,
            r#"Image has no parameter "dtype", only source, name, optional, follows"#,
        ),
        (r#"[{"Mask": {"name": "seg.png", "dtype": "int8"}}]"#, r#"is "int8", must be one of uint8"#),
        (r#"[{"Mask": {"name": "seg.png", "name": "txt"}}]"#, r#"the key "name" is given twice"#),
    ] {
        let refused = shard.run("bench", &["--fields", text]);
        assert!(code(&refused) == 2 && stderr(&refused).contains(said), "{text}: {}", stderr(&refused));
    }
    let twice = bench("--transforms", r#"{"left.jpg": [], "right.jpg": [], "left.jpg": []}"#);
    let said = stderr(&twice);
    assert!(code(&twice) == 2 && said.contains(r#"the key "left.jpg" is given twice"#), "{said}");
    let help = String::from_utf8(foreload(&["bench", "--help"]).stdout).unwrap();
    assert!(help.contains(r#"["jpg", {"Mask": {"source": "seg.png", "dtype": "int64"}}]"#), "{help}");
}

#[test]
fn a_cap_of_memory_says_what_it_does_not_bind() {
    let shard = Shard::pairs();
    let warned = |more: &[&str]| {
        let fixed = ["--fields", "left.jpg", "--batch-size", "2", "--epochs", "1", "--json"];
        let report = json(&shard.run("bench", &[&fixed, more].concat()));
        report["notices"].to_string().contains("does not limit images of varying size")
    };
    assert!(warned(&["--transforms", "[]", "--memory", "100MB"]));
    assert!(!warned(&["--transforms", "[]"]), "nobody asked for a cap");
    assert!(!warned(&["--image-size", "16", "--memory", "100MB"]), "the size is known");

    let index = Dataset::folder(12).index();
    let ahead = |transforms: Option<&str>, memory| {
        let transforms = transforms.map(|json| ImageTransforms::from_json(json).unwrap());
        let options = LoaderOptions {
            batch_size: 2,
            device: "cpu".into(),
            transforms,
            memory,
            ..LoaderOptions::default()
        };
        options.check(&index).unwrap().pools.prefetch
    };
    assert_eq!(ahead(Some("[]"), Some(100_000_000)), 2, "what cannot be counted is made as late as possible");
    assert!(ahead(Some("[]"), None) > 2 && ahead(None, Some(100_000_000)) > 2);
}
