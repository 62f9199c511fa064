//! Hostile bytes for the parsers of tar and TFRecord and for the index loader give an error or an answer within bounds,
//! never a panic.
//!
//! Each test runs for a moment; `FORELOAD_FUZZ_SECONDS` makes it longer, `FORELOAD_FUZZ_SEED` repeats a run.

use crate::arrays::npy;
use crate::common::fuzz;
use crate::common::scene::{Scene, masked, summary, tfrecord};
use crate::common::tables::{Feature, example};
use foreload::testing::dataset::archive::TarMembers;
use foreload::testing::dataset::shards::{self, Stems};
use foreload::testing::dataset::tfrecord::records;
use foreload::testing::dataset::{ClassRef, DatasetIndex, Select};
use foreload::testing::rng::RandomStream;
use sha2::{Digest, Sha256};
use std::fs;

/// Flips bits, overwrites bytes with special values, copies, cuts or extends.
pub(crate) fn mutate(bytes: &mut Vec<u8>, random: &mut RandomStream) {
    for _ in 0..=random.below(4) {
        let Some(last) = (bytes.len() as u64).checked_sub(1) else { return };
        let at = random.below(last + 1) as usize;
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'7', b' ', b'\n'][random.below(8) as usize],
            2 => {
                let end = (at + 8).min(bytes.len());
                let value: [u64; 4] = [u64::MAX, 1 << 63, 0, bytes.len() as u64];
                let value = value[random.below(4) as usize].to_le_bytes();
                bytes[at..end].copy_from_slice(&value[..end - at]);
            }
            3 => bytes.truncate(at),
            4 => {
                let from = random.below(last + 1) as usize;
                let n = (random.below(600) as usize).min(bytes.len() - at.max(from));
                bytes.copy_within(from..from + n, at);
            }
            _ => bytes.extend((0..random.below(700)).map(|_| 0)),
        }
    }
}

/// Recomputes every block's checksum, so that damage gets past the check.
pub(crate) fn mend_checksums(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(512).filter(|block| &block[257..262] == b"ustar") {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}

fn tar_seeds() -> Vec<Vec<u8>> {
    let long = format!("{}/{}", "d".repeat(90), "f".repeat(180));
    let build = |pax: bool| {
        let mut tar = tar::Builder::new(Vec::new());
        for (i, name) in ["1", "a/2", &long].iter().enumerate() {
            let json = format!("{{\"label\": {i}}}");
            for (suffix, data) in [("jpg", &b"0123456789"[..]), ("json", json.as_bytes())] {
                let path = format!("{name}.{suffix}");
                if pax {
                    let extensions: [(&str, &[u8]); 2] = [("path", path.as_bytes()), ("comment", b"a\nb")];
                    tar.append_pax_extensions(extensions).expect("extensions");
                }
                let mut header = tar::Header::new_gnu();
                header.set_size(data.len() as u64);
                header.set_mode(0o644);
                header.set_cksum();
                tar.append_data(&mut header, if pax { "x" } else { &path }, data).expect("a member");
            }
        }
        tar.into_inner().expect("an archive")
    };
    vec![build(false), build(true)]
}

#[test]
fn any_bytes_are_a_shard_or_an_error() {
    let seeds = tar_seeds();
    for seed in &seeds {
        assert_eq!(
            shards::contents(&seed[..], Stems::WithImage).expect("the seeds are sound").rows.samples.len(),
            3
        );
    }
    fuzz("tar", |random| {
        let mut bytes = seeds[random.below(2) as usize].clone();
        mutate(&mut bytes, random);
        if random.below(2) == 0 {
            mend_checksums(&mut bytes);
        }
        let size = bytes.len() as u64;
        let mut members = TarMembers::new(&bytes[..]);
        let mut count = 0;
        while let Ok(Some(member)) = members.next_member() {
            assert!(member.offset + member.size <= size, "{member:?} of {size} bytes");
            count += 1;
            assert!(count <= size / 512, "members take room");
        }
        let stems = if random.below(2) == 0 { Stems::WithImage } else { Stems::All };
        if let Ok(contents) = shards::contents(&bytes[..], stems) {
            for sample in contents.rows.samples {
                assert!(sample.offset + u64::from(sample.length) <= size);
            }
        }
    });
}

/// A member in a trial of grouping: its stem, its kind and its data.
type Trial = (String, &'static str, Vec<u8>);

/// The expected result of grouping members with these stems and kinds: (offset, length, label) by offset, or a word of
/// the error.
fn expected(members: &[(Trial, u64)]) -> Result<Vec<(u64, u32, u32)>, String> {
    let of = |stem: &str, kind: &str| -> Vec<&(Trial, u64)> {
        members.iter().filter(|((s, k, _), _)| s == stem && *k == kind).collect()
    };
    for (at, ((stem, kind, _), second)) in members.iter().enumerate() {
        let first = members[..at].iter().find(|((s, k, _), _)| s == stem && k == kind);
        if let Some((_, first)) = first.filter(|_| *kind != "txt") {
            return Err(format!("at byte {first} and \"{stem}.{kind}\" at byte {second}"));
        }
    }
    let images = members.iter().filter(|((_, kind, _), _)| *kind == "jpg");
    let sample = |((stem, _, data), offset): &(Trial, u64)| {
        let label = of(stem, "cls").into_iter().chain(of(stem, "json")).next();
        let number = |((_, kind, data), _): &(Trial, u64)| {
            let text = std::str::from_utf8(data).expect("text");
            match *kind {
                "cls" => text.parse().map_err(|_| format!("\"{stem}.cls\" should hold")),
                _ if text.starts_with("{\"label\": ") => {
                    text[10..text.len() - 1].parse().map_err(|_| format!("\"{stem}.json\" has label"))
                }
                _ => Ok(0),
            }
        };
        Ok((*offset, data.len() as u32, label.map_or(Ok(0), number)?))
    };
    images.map(sample).collect()
}

/// Members in any order are grouped by their stems, or the error names two members where only one may be.
#[test]
fn samples_are_grouped_in_any_order() {
    let (mut sound, mut twice, mut wrong) = (0, 0, 0);
    fuzz("grouping", |random| {
        let mut members: Vec<Trial> = Vec::new();
        for i in 0..1 + random.below(20) {
            let stem = format!("{}{i}", ["", "a/", "a/b.c/"][random.below(3) as usize]);
            let mut add = |kind, odds: u64, data: String| {
                if random.below(16) < odds {
                    members.push((stem.clone(), kind, data.into_bytes()));
                }
            };
            add("jpg", 15, "x".repeat(i as usize * 97));
            add("cls", 12, i.to_string());
            add("json", 5, format!("{{\"label\": {i}}}"));
            add("json", u64::from(i == 7), "{\"label\": -1}".into());
            add("cls", u64::from(i == 9), "cat".into());
            add("txt", 3, "caption".into());
        }
        if members.is_empty() {
            return;
        }
        for at in (1..members.len()).rev() {
            members.swap(at, random.below(at as u64 + 1) as usize);
        }
        let mut tar = tar::Builder::new(Vec::new());
        let mut placed = Vec::new();
        for (stem, kind, data) in members {
            let mut header = tar::Header::new_gnu();
            header.set_size(data.len() as u64);
            let offset = tar.get_ref().len() as u64 + 512;
            tar.append_data(&mut header, format!("{stem}.{kind}"), &data[..]).expect("a member");
            placed.push(((stem, kind, data), offset));
        }
        let bytes = tar.into_inner().expect("an archive");
        match (shards::contents(&bytes[..], Stems::WithImage), expected(&placed)) {
            (Ok(contents), Err(word)) if contents.findings.unusable.is_some() => {
                let unusable = contents.findings.unusable.expect("seen");
                assert!(unusable.contains(&word), "{word} is not in {unusable}");
                wrong += 1;
            }
            (Ok(contents), Ok(expected)) => {
                assert_eq!(contents.findings.unusable, None);
                let found: Vec<_> =
                    contents.rows.samples.iter().map(|s| (s.offset, s.length, s.label)).collect();
                assert_eq!(found, expected);
                sound += 1;
            }
            (Err(error), Err(word)) => {
                assert!(error.message.contains(&word), "{word} is not in {}", error.message);
                twice += 1;
            }
            (found, expected) => panic!("{found:?}, and not {expected:?}"),
        }
    });
    println!("{sound} sound, {twice} with a member twice, {wrong} with a wrong label");
    assert!(sound > 0);
}

/// Recomputes the checksums of the lengths, while one record follows another.
fn mend_lengths(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<12>()) {
        let length = u64::from_le_bytes(*header.first_chunk().expect("eight bytes"));
        let crc = masked(&header[..8]);
        header[8..].copy_from_slice(&crc);
        let Some(next) =
            usize::try_from(length).ok().and_then(|length| at.checked_add(length)?.checked_add(16))
        else {
            return;
        };
        at = next;
    }
}

#[test]
fn any_bytes_are_records_or_an_error() {
    let seed = tfrecord(&[b"one", b"", &[7; 300], &[0; 5000], b"five"]);
    assert_eq!(records(&seed[..]).expect("the seed is sound").len(), 5);
    let mut found = 0;
    fuzz("records", |random| {
        let mut bytes = seed.clone();
        mutate(&mut bytes, random);
        if random.below(2) == 0 {
            mend_lengths(&mut bytes);
        }
        let mut end = 0;
        for record in records(&bytes[..]).unwrap_or_default() {
            assert_eq!(record.offset, end + 12, "records lie side by side");
            end = record.offset + u64::from(record.length) + 4;
            found += 1;
        }
        assert!(end <= bytes.len() as u64);
    });
    assert!(found > 0, "some mutations are harmless or mended");
}

/// Calls every function for every sample and file that the index claims to have.
fn ask_all(index: &DatasetIndex) {
    for sample in (0..index.len()).take(1000) {
        let extent = index.extent(sample);
        assert!(extent.length <= index.largest());
        assert!(extent.offset.checked_add(u64::from(extent.length)).is_some());
        assert!(index.sample_of(extent).is_none_or(|found| index.extent(found) == extent));
        assert!(index.label(sample) < index.num_classes().max(1));
        let _ = (index.path(extent.file), index.shard_stamp(extent.file));
    }
    let _ = summary(index);
    let of_class = |class| Select { classes: Some(vec![ClassRef::Number(class)]), ..Select::default() };
    for class in 0..index.num_classes().min(10) {
        if let Ok(Some(samples)) = of_class(class).resolve(index) {
            assert!(samples.iter().all(|&sample| u64::from(sample) < index.len()));
        }
    }
}

#[test]
fn any_bytes_are_an_index_or_an_error() {
    let folder = Scene::new();
    for i in 0..40 {
        folder.write(format!("c{}/{}/{i}.jpg", i % 5, i % 2), &vec![0; i]);
    }
    let tar = Scene::new();
    tar.write("1.tar", &tar_seeds()[0]);
    tar.write("2.tar", &tar_seeds()[1]);
    let table = Scene::new();
    let record = |number: i64| {
        let image = ("image", Feature::bytes(vec![number as u8; number as usize]));
        let height = ("height", Feature::Integers(vec![number]));
        if number % 3 > 0 { example(&[image, height]) } else { example(&[image]) }
    };
    let records: Vec<Vec<u8>> = (0..30).map(record).collect();
    table.write("x.tfrecord", &tfrecord(&records.iter().map(Vec::as_slice).collect::<Vec<_>>()));
    let mut arrays = Scene::new();
    arrays.options.members = Some(Vec::new());
    arrays.write("x.npy", &npy("<f4", "(30, 2)", false, &[0; 240]));
    arrays.write("y.npy", &npy("|u1", "(30,)", false, &[1; 30]));
    let seeds = [folder, tar, table, arrays].map(|scene| {
        let path = summary(&scene.open().expect("a sound dataset")).index_path;
        (fs::read(path).expect("its index"), scene)
    });
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("mutated.index");
    let mut loaded = 0;
    fuzz("index", |random| {
        let (seed, scene) = &seeds[random.below(4) as usize];
        let mut bytes = seed.clone();
        mutate(&mut bytes, random);
        if random.below(4) > 0 {
            mend_index(&mut bytes);
        }
        fs::write(&file, &bytes).expect("the mutated index");
        if let Ok(index) = DatasetIndex::load(&scene.root, &file) {
            loaded += 1;
            ask_all(&index);
        }
    });
    assert!(loaded > 0, "some mutations are harmless or mended");
}

/// Recomputes the digests if the header's table still points into the file. The header is at 0, 22 rows of
/// (offset, length, digest) begin at byte 112, and the header's digest is at its end.
fn mend_index(bytes: &mut [u8]) {
    const TABLE: usize = 112;
    const ROW: usize = 48;
    const END: usize = TABLE + 22 * ROW;
    if bytes.len() < END + 32 {
        return;
    }
    for at in (TABLE..END).step_by(ROW) {
        let number =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) as usize;
        let (offset, length) = (number(at), number(at + 8));
        if let Some(section) = offset.checked_add(length).and_then(|end| bytes.get(offset..end)) {
            let digest = Sha256::digest(section);
            bytes[at + 16..at + ROW].copy_from_slice(&digest);
        }
    }
    let digest = Sha256::digest(&bytes[..END]);
    bytes[END..END + 32].copy_from_slice(&digest);
}

#[test]
fn a_sound_index_stays_as_it_is_when_mended() {
    let scene = Scene::new();
    scene.write("a/1.jpg", b"1");
    let path = summary(&scene.open().expect("a sound dataset")).index_path;
    let good = fs::read(&path).expect("its index");
    let mut mended = good.clone();
    mend_index(&mut mended);
    assert!(good == mended, "the fuzzer knows the format it mends");
}
