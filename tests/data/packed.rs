//! Packed shards written by hand in the format of docs/packed.md: what is listed of them, also for hostile input.

use crate::common::fuzz;
use crate::common::scene::{Scene, summary};
use crate::fuzz::mutate;
use foreload::testing::dataset::packed::shard_contents;
use foreload::testing::dataset::{DatasetIndex, Fingerprint, Layout};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fs;

const SIGNATURE: &[u8; 8] = b"\x8AFLSHARD";
const TRAILER: usize = 64;
const VERSION: u32 = 2;

/// A sample to write: its class number, and its members' names and bytes.
type Written<'a> = (u32, &'a [(&'a str, &'a [u8])]);

/// A shard of samples of one tar shard, the only one of its dataset.
fn shard(samples: &[Written]) -> Vec<u8> {
    let mut bytes = [&SIGNATURE[..], &VERSION.to_le_bytes(), &[0; 4]].concat();
    let (mut rows, mut members, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let mut order = 0u32;
    for (label, own) in samples {
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let image = bytes.len();
        for (number, (name, data)) in own.iter().enumerate() {
            if number > 0 {
                bytes.resize(image + (bytes.len() - image).next_multiple_of(512), 0);
            }
            members.extend((bytes.len() as u64).to_le_bytes());
            let length = data.len() as u32;
            for value in [length, length, 0, order, name.len() as u32, 1] {
                members.extend(value.to_le_bytes());
            }
            names.extend(name.as_bytes());
            bytes.extend(*data);
            bytes.resize(bytes.len() + usize::from(data.is_empty()), 0);
            order += 1;
        }
        [*label, 0, own.len() as u32].iter().for_each(|value| rows.extend(value.to_le_bytes()));
    }
    let lists: Vec<u8> = ["packed", "kept", "s.tar"]
        .iter()
        .flat_map(|name| [&(name.len() as u32).to_le_bytes()[..], name.as_bytes()].concat())
        .collect();
    let mut footer = vec![7; 32];
    let counts = [0, 0, samples.len(), order as usize, names.len()];
    counts.iter().for_each(|&value| footer.extend((value as u64).to_le_bytes()));
    [0u32, 1, 2, 1].iter().for_each(|value| footer.extend(value.to_le_bytes()));
    footer.extend((lists.len() as u64).to_le_bytes());
    let header_summaries = vec![0; 32 * samples.len()];
    [lists, rows, members, names, header_summaries].iter().for_each(|part| footer.extend(part));
    let trailer = [&(bytes.len() as u64).to_le_bytes()[..], &(footer.len() as u64).to_le_bytes()].concat();
    let digest = Sha256::digest(&footer);
    bytes.extend(footer);
    [&trailer[..], &digest, &VERSION.to_le_bytes(), &[0; 4], SIGNATURE]
        .iter()
        .for_each(|part| bytes.extend(*part));
    bytes
}

fn sound() -> Vec<u8> {
    let samples: [Written; 3] = [
        (2, &[("a/1.jpg", b"first image"), ("a/1.txt", b""), ("a/1.cls", b"2")]),
        (0, &[("a/2.JPG", b"")]),
        (5, &[("3.png", &[1; 700]), ("3.jpeg.x", b"x"), ("3.txt", b"one"), ("3.TXT", b"another")]),
    ];
    shard(&samples)
}

/// The byte range of the footer, which the trailer gives.
fn footer(bytes: &[u8]) -> Option<std::ops::Range<usize>> {
    let trailer = bytes.len().checked_sub(TRAILER)?;
    let number = |at: usize| u64::from_le_bytes(bytes[trailer + at..][..8].try_into().expect("eight bytes"));
    let start = usize::try_from(number(0)).ok()?;
    let end = start.checked_add(usize::try_from(number(8)).ok()?)?;
    (end <= trailer).then_some(start..end)
}

/// Recomputes the digest of the footer, so that damage gets past the check.
fn mend(bytes: &mut [u8]) {
    let Some(footer) = footer(bytes) else { return };
    let digest = Sha256::digest(&bytes[footer]);
    let at = bytes.len() - TRAILER + 16;
    bytes[at..at + 32].copy_from_slice(&digest);
}

#[test]
fn a_dataset_is_listed_as_the_page_says() {
    let scene = Scene::new();
    let bytes = sound();
    let digest: String =
        Sha256::digest(&bytes[footer(&bytes).unwrap()]).iter().map(|byte| format!("{byte:02x}")).collect();
    scene.write("000000.packed", &bytes);
    let manifest = json!({
        "version": 1, "fingerprint": "07".repeat(32), "files": false, "layout": "tar", "shard_size": 1 << 20,
        "classes": [], "notes": {"skipped": {}, "empty_classes": [], "unlabeled": false}, "left_out": {},
        "samples": 3, "source_bytes": 720, "packed": 0, "kept": {"kept": 8}, "members_left_out": 0,
        "shards": [{"bytes": bytes.len(), "samples": 3, "digest": digest}],
    });
    scene.write("foreload-packed.json", manifest.to_string().as_bytes());
    let index = scene.open().unwrap();
    assert_eq!((index.len(), index.num_classes(), index.is_labeled()), (3, 6, true));
    assert_eq!(index.fingerprint(), Fingerprint([7; 32]));
    let found: Vec<_> = (0..3).map(|sample| (index.extent(sample).offset, index.label(sample))).collect();
    assert_eq!(found, [(16, 2), (16 + 1024 + 8, 0), (16 + 1024 + 16, 5)]);
    let summary = summary(&index);
    assert_eq!(
        (summary.layout, summary.keys.join(" ")),
        (Layout::Packed, "cls jpeg.x jpg png txt".to_owned())
    );
    index.verify().unwrap();
    // A shard of another dataset, or one that was written again, is refused.
    for change in [0, 40, 72] {
        let mut other = bytes.clone();
        other[footer(&bytes).unwrap().start + change] ^= 1;
        mend(&mut other);
        scene.write("000000.packed", &other);
        assert!(scene.error().contains("does not match its entry in foreload-packed.json"));
    }
    scene.write("000000.packed", &bytes[..bytes.len() - 1]);
    assert!(scene.error().contains("truncated or damaged"));
    fs::remove_file(scene.root.join("000000.packed")).unwrap();
    assert!(DatasetIndex::open(&scene.root, &scene.options).is_err());
}

#[test]
fn manifests_are_refused_for_what_is_wrong_with_them() {
    for (text, why) in [
        ("", "EOF while parsing"),
        ("[]", "is not the manifest"),
        (r#"{"version": 2}"#, "has version 2, this program reads 1"),
        (r#"{"version": 1}"#, "missing field"),
    ] {
        let scene = Scene::new();
        scene.write("foreload-packed.json", text.as_bytes());
        let error = scene.error();
        assert!(error.contains(why) && error.contains("foreload-packed.json"), "{error}");
    }
}

#[test]
fn shards_of_other_versions_are_refused() {
    for version in [0, 1, VERSION + 1] {
        let mut bytes = sound();
        let trailer = bytes.len() - TRAILER;
        for at in [8, trailer + 48] {
            bytes[at..at + 4].copy_from_slice(&version.to_le_bytes());
        }
        let error = shard_contents(&bytes[..]).expect_err("a shard of another version").message;
        assert_eq!(
            error,
            format!("a packed shard of version {version}, this program reads version {VERSION}")
        );
    }
}

#[test]
fn outlines_are_of_packed_images_alone() {
    let mut bytes = sound();
    let end = footer(&bytes).expect("a footer").end;
    bytes[end - 1] = 1;
    mend(&mut bytes);
    let error = shard_contents(&bytes[..]).expect_err("a shard with an outline of a file").message;
    assert!(error.contains("sample 2 of the packed shard has a header summary"), "{error}");
}

#[test]
fn any_bytes_are_a_packed_shard_or_an_error() {
    let seed = sound();
    let contents = shard_contents(&seed[..]).expect("the seed is sound");
    assert_eq!((contents.rows.samples.len(), contents.rows.counts), (3, vec![3, 1, 3]));
    let mut found = 0;
    fuzz("packed", |random| {
        let mut bytes = seed.clone();
        if random.below(4) == 0 {
            mutate(&mut bytes, random);
        } else {
            // Damage the footer most of the time, because its digest covers the other tables.
            let place = footer(&seed).expect("a footer");
            let mut own = bytes[place.clone()].to_vec();
            mutate(&mut own, random);
            own.resize(place.len(), 0);
            bytes[place].copy_from_slice(&own);
        }
        if random.below(8) > 0 {
            mend(&mut bytes);
        }
        let Ok(contents) = shard_contents(&bytes[..]) else { return };
        found += 1;
        let mut end = 0;
        for sample in contents.rows.samples {
            assert!(sample.offset >= end + u64::from(end == 0), "samples lie one behind another");
            end = sample.offset + u64::from(sample.length);
            assert!(end <= bytes.len() as u64);
        }
    });
    assert!(found > 0, "some mutations are harmless or mended");
}
