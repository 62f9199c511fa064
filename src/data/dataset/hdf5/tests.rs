//! Files of h5py and netCDF4 have the values, places and attributes that h5py reads. Damaged files give an error, or
//! what the whole file has wherever the format has checksums.
//!
//! `tests/fixtures/writers/hdf5.py` writes the files and their values. With `FORELOAD_HDF5=DIR`, the tests also read
//! the larger files that `hdf5.py --large DIR` writes. With `FORELOAD_HDF5_DAMAGED=DIR`, the tests write many damaged
//! files into DIR, with the values that were found there; `hdf5.py --damaged DIR` compares them with h5py's.

mod attacks;

use super::super::arrays::filters::{ChunkFilter, ChunkScratch, ChunkSum, unpack_chunk};
use super::*;
use base::crc::crc32;
use base::rng::{RandomKey, RandomStream, Use};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/hdf5")
}

/// The files of a folder by name, with what h5py reads of them.
fn files(folder: &Path) -> Vec<(String, Vec<u8>, Value)> {
    let values = std::fs::read(folder.join("values.json")).expect("what the script wrote");
    let values: serde_json::Map<String, Value> = serde_json::from_slice(&values).expect("JSON");
    values.into_iter().map(|(name, value)| (name.clone(), content(folder, &name), value)).collect()
}

fn file(name: &str) -> Vec<u8> {
    content(&fixtures(), name)
}

/// The bytes of a file. Those of fixtures are compressed.
fn content(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).unwrap_or_else(|_| {
        let packed = std::fs::read(folder.join(format!("{name}.gz"))).expect("a file");
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).expect("a whole file");
        bytes
    })
}

/// The values of a dataset as stored; `None` if it has a filter that the tests do not decode.
fn values(bytes: &[u8], array: &Hdf5Array) -> Option<Vec<u8>> {
    let slice = |offset: u64, length: u64| &bytes[offset as usize..][..length as usize];
    let size = u64::from(array.element.size);
    let total = array.shape.iter().product::<u64>() * size;
    Some(match &array.storage {
        Hdf5Storage::Absent => array.fill.repeat((total / size) as usize),
        Hdf5Storage::Run(offset) => slice(*offset, total).to_vec(),
        Hdf5Storage::Rows(rows) => {
            rows.iter().flat_map(|&(offset, length)| slice(offset, length.into())).copied().collect()
        }
        Hdf5Storage::Chunks { edges, places } => {
            let mut all = array.fill.repeat((total / size) as usize);
            for place in places {
                let packed = slice(place.offset, place.length.into());
                let chunk = decoded(packed, &array.filters, place.mask)?;
                assert_eq!(chunk.len() as u64, edges.iter().product::<u64>() * size);
                let corner = corner(&array.shape, edges, place.number);
                for (number, value) in chunk.chunks(size as usize).enumerate() {
                    let mut rest = number as u64;
                    let inside: Vec<u64> =
                        edges.iter().rev().map(|edge| (rest % edge, rest /= edge).0).collect();
                    let at = corner.iter().zip(inside.iter().rev()).map(|(corner, inside)| corner + inside);
                    let place = at.zip(&array.shape).try_fold(0, |all, (at, &length)| {
                        if at < length { Some(all * length + at) } else { None }
                    });
                    if let Some(place) = place {
                        all[(place * size) as usize..][..size as usize].copy_from_slice(value);
                    }
                }
            }
            all
        }
    })
}

/// The first element of a chunk.
fn corner(shape: &[u64], edges: &[u64], number: u64) -> Vec<u64> {
    let mut rest = number;
    let mut corner: Vec<u64> = Vec::new();
    for (length, edge) in shape.iter().zip(edges).rev() {
        let count = length.div_ceil(*edge);
        corner.insert(0, rest % count * edge);
        rest /= count;
    }
    corner
}

fn decoded(packed: &[u8], filters: &[Hdf5Filter], mask: u32) -> Option<Vec<u8>> {
    let mut bytes = packed.to_vec();
    for (_, filter) in filters.iter().enumerate().rev().filter(|(number, _)| mask >> number & 1 == 0) {
        match filter.id {
            1 => {
                let mut unpacked = Vec::new();
                flate2::read::ZlibDecoder::new(&bytes[..]).read_to_end(&mut unpacked).ok()?;
                bytes = unpacked;
            }
            2 => {
                let (size, length) = (*filter.values.first()? as usize, bytes.len());
                bytes = (0..length).map(|at| bytes[at % size * (length / size) + at / size]).collect();
            }
            3 => {
                let sum = ChunkFilter::Checksum { sum: ChunkSum::Fletcher32 };
                let (length, mut scratch) = (bytes.len().checked_sub(4)?, ChunkScratch::default());
                bytes = unpack_chunk(&[sum], 0, &bytes, length, &mut scratch).ok()?.to_vec();
            }
            _ => return None,
        }
    }
    Some(bytes)
}

/// Checks that all places are in the file.
fn check_bounds(bytes: &[u8], array: &Hdf5Array) {
    let check = |offset: u64, length: u64| assert!(offset + length <= bytes.len() as u64, "{array:?}");
    match &array.storage {
        Hdf5Storage::Absent => {}
        Hdf5Storage::Run(offset) => {
            check(*offset, array.shape.iter().product::<u64>() * array.element.size as u64)
        }
        Hdf5Storage::Chunks { places, .. } => {
            assert!(places.is_sorted_by(|a, b| a.number < b.number));
            places.iter().for_each(|place| check(place.offset, place.length.into()));
        }
        Hdf5Storage::Rows(rows) => rows.iter().for_each(|&(offset, length)| check(offset, length.into())),
    }
    assert_eq!(array.fill.len(), array.element.size as usize);
}

fn compare(bytes: &[u8], array: &Hdf5Array, wanted: &Value) {
    assert_eq!(json!(array.shape), wanted["shape"]);
    check_bounds(bytes, array);
    if let Some(values) = values(bytes, array) {
        let found = (values.len() as u64, u64::from(crc32(&values)));
        assert_eq!(Some(found.0), wanted["length"].as_u64());
        assert_eq!(Some(found.1), wanted["crc"].as_u64(), "{values:?}");
    }
    if let (Hdf5Storage::Chunks { edges, places }, Some(rank)) = (&array.storage, wanted["rank"].as_u64()) {
        let chunk = |place: &Hdf5Chunk| {
            let mut numbers = corner(&array.shape, edges, place.number);
            numbers.truncate(rank as usize);
            numbers.extend([place.offset, place.length.into(), place.mask.into()]);
            numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
        };
        let text = places.iter().map(chunk).collect::<Vec<_>>().join(";");
        assert!(wanted["chunks"] == text || wanted["chunks"] == crc32(text.as_bytes()), "{text}");
    }
    if let (Hdf5Storage::Run(offset), Some(wanted)) = (&array.storage, wanted["offset"].as_u64()) {
        assert_eq!(*offset, wanted);
    }
}

#[test]
fn files_have_what_h5py_reads() {
    let mut count = 0;
    let given = std::env::var_os("FORELOAD_HDF5").map(PathBuf::from);
    let folders = std::iter::once(fixtures()).chain(given);
    for (name, bytes, wanted) in folders.flat_map(|folder| files(&folder)) {
        let source = bytes.as_slice();
        let file = Hdf5File::open(&source).unwrap_or_else(|fault| panic!("{name}: {fault:?}"));
        let datasets = wanted["datasets"].as_object().expect("datasets by path");
        let listed = file.list().unwrap_or_else(|fault| panic!("{name}: {fault:?}"));
        assert_eq!(listed.len(), datasets.len(), "{name}: {listed:?}");
        for (path, wanted) in datasets {
            println!("{name}: {path}");
            match file.array(path) {
                Ok(array) => compare(&bytes, &array, wanted),
                Err(Hdf5Fault::Refused(_)) if wanted.is_null() => {}
                Err(fault) => panic!("{fault:?}"),
            }
            count += 1;
        }
        for (path, wanted) in wanted["attributes"].as_object().expect("attributes by path") {
            compare_attributes(&file, path, wanted);
        }
    }
    assert!(count > 130, "{count} datasets");
}

fn compare_attributes(file: &Hdf5File<'_>, path: &str, wanted: &Value) {
    let names: Vec<&str> =
        wanted.as_object().expect("attributes by name").keys().map(String::as_str).collect();
    let found = file.attributes(path, &names).unwrap_or_else(|fault| panic!("{path}: {fault:?}"));
    for (name, attribute) in names.iter().zip(found) {
        let found = match attribute.unwrap_or_else(|| panic!("{path} lacks {name}")).values {
            Hdf5Values::Numbers(_, bytes) => {
                let mut hex = String::new();
                bytes.iter().for_each(|byte| write!(hex, "{byte:02x}").expect("text"));
                json!(hex)
            }
            Hdf5Values::Texts(texts) => json!(texts),
        };
        assert_eq!(found, wanted[name], "{path}: {name}");
    }
    let lacking = file.attributes(path, &["no such attribute"]).expect("attributes");
    assert_eq!(lacking, [None]);
}

#[test]
fn types_are_those_of_the_file() {
    for name in ["earliest.h5", "latest.h5"] {
        let bytes = file(name);
        let source = bytes.as_slice();
        let file = Hdf5File::open(&source).expect("a file");
        let element = |path: &str| file.array(path).expect("a dataset").element;
        let of = |kind, size, big_endian| Hdf5Element { kind, size, big_endian };
        assert_eq!(element("/types/big_i2"), of(Hdf5Kind::Signed, 2, true));
        assert_eq!(element("types/little_u8"), of(Hdf5Kind::Unsigned, 8, false));
        assert_eq!(element("types//little_f2"), of(Hdf5Kind::Float, 2, false));
        assert_eq!(element("/types/./big_f8"), of(Hdf5Kind::Float, 8, true));
        assert_eq!(element("/types/bool"), of(Hdf5Kind::Bool, 1, false));
        assert_eq!(element("/types/enum"), of(Hdf5Kind::Signed, 2, false));
        assert_eq!(element("/types/text"), of(Hdf5Kind::Text, 5, false));
        assert_eq!(element("/types/bfloat16"), of(Hdf5Kind::BFloat, 2, false));
        assert_eq!(element("/rows"), of(Hdf5Kind::Signed, 2, false));
        assert_eq!(element("/texts"), of(Hdf5Kind::Text, 1, false));
        let packed = file.array("/packed").expect("a dataset");
        let filters: Vec<_> = packed.filters.iter().map(|filter| (filter.id, filter.name.as_str())).collect();
        assert_eq!(filters, [(2, "shuffle"), (1, "gzip")]);
        assert_eq!(file.array("/lzf").expect("a dataset").filters[0].name, "lzf");
        assert_eq!(file.array("/absent").expect("a dataset").fill, (-4_i32).to_le_bytes());
    }
}

#[test]
fn what_is_not_read_is_named() {
    for name in ["earliest.h5", "latest.h5"] {
        let bytes = file(name);
        let source = bytes.as_slice();
        let file = Hdf5File::open(&source).expect("a file");
        let why = |path: &str| match file.array(path) {
            Err(Hdf5Fault::Refused(why) | Hdf5Fault::Missing(why)) => why,
            other => panic!("{path}: {other:?}"),
        };
        for (path, word) in [
            ("/refused/compound", "compound"),
            ("/refused/complex", "complex"),
            ("/refused/opaque", "opaque"),
            ("/refused/reference", "reference"),
            ("/refused/nested", "nested"),
            ("/refused/null", "null"),
            ("/refused/virtual", "virtual"),
            ("/refused/external", "external storage"),
            ("/refused/elsewhere", "another file"),
            ("/refused/itself", "soft links"),
            ("/refused/undefined", "never written"),
            ("/refused", "group"),
            ("/types/nothing", "it has no dataset"),
            ("/nothing/bool", "/types/bool"),
        ] {
            assert!(why(path).contains(word), "{path}: {}", why(path));
        }
    }
    let wrong = b"CDF\x01 is NetCDF's classic format, which is another one".repeat(20);
    assert!(matches!(Hdf5File::open(&wrong.as_slice()), Err(Hdf5Fault::Damaged(_))));
}

#[test]
fn links_lead_to_one_dataset() {
    for name in ["earliest-links.h5", "latest-links.h5", "v108.h5"] {
        let bytes = file(name);
        let source = bytes.as_slice();
        let file = Hdf5File::open(&source).expect("a file");
        let target = file.array("/links/target").expect("a dataset");
        let same = ["/links/soft", "/links/relative", "/links/inner/loop/inner/loop/target", "/many/name 33"];
        for path in same {
            assert_eq!(file.array(path).expect(path), target, "{name}: {path}");
        }
        assert!(matches!(file.array("/links/dangling"), Err(Hdf5Fault::Missing(_))));
        assert!(matches!(file.array("/links/target/deeper"), Err(Hdf5Fault::Missing(_))));
    }
}

type Descriptions = BTreeMap<String, Result<Hdf5Array, String>>;

/// All that can be found out about a file; `None` if it cannot be opened or listed.
fn described(bytes: &[u8]) -> Option<Descriptions> {
    let source = bytes;
    let file = Hdf5File::open(&source).ok()?;
    let describe = |path: String| {
        let array = file.array(&path).map_err(|fault| match fault {
            Hdf5Fault::Damaged(malformed) => {
                assert!(
                    malformed.offset <= bytes.len() as u64 || malformed.offset > 1 << 40,
                    "{malformed:?}"
                );
                malformed.message
            }
            Hdf5Fault::Refused(why) | Hdf5Fault::Missing(why) => why,
        });
        if let Ok(array) = &array {
            check_bounds(bytes, array);
        }
        let names = ["scale_factor", "add_offset", "_FillValue", "units", "names", "filler 3"];
        file.attributes(&path, &names).ok();
        (path, array)
    };
    Some(file.list().ok()?.into_iter().map(describe).collect())
}

/// Damages a few bytes, or cuts the file off.
fn damage(bytes: &mut Vec<u8>, random: &mut RandomStream) {
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(8) {
            0..4 => bytes[at] ^= 1 << random.below(8),
            4 => bytes[at] = random.below(256) as u8,
            5 => {
                let number = [u64::MAX, 0, 1 << 63, at as u64, bytes.len() as u64][random.below(5) as usize];
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            6 => {
                let from = random.below(bytes.len() as u64) as usize;
                let count = (random.below(60) as usize).min(bytes.len() - at.max(from));
                bytes.copy_within(from..from + count, at);
            }
            _ if random.below(4) == 0 => bytes.truncate(at.max(1)),
            _ => bytes[at] = bytes[at].wrapping_add(1),
        }
    }
}

/// Damages often hit zeros and values, where nothing can be found out. These bytes are metadata.
fn metadata(bytes: &[u8]) -> Vec<usize> {
    let signatures: [&[u8]; 8] = [b"TREE", b"SNOD", b"HEAP", b"OHDR", b"OCHK", b"GCOL", b"\x01\0", b"BTLF"];
    let starts =
        |at: &usize| at.is_multiple_of(8) && signatures.iter().any(|name| bytes[*at..].starts_with(name));
    (0..bytes.len()).filter(starts).collect()
}

#[test]
fn damaged_files_are_errors_or_what_they_were() {
    let seed = std::env::var("FORELOAD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("seed {seed}");
    let folder = std::env::var_os("FORELOAD_HDF5_DAMAGED").map(PathBuf::from);
    let rounds = if folder.is_some() { 700 } else { 250 };
    let (mut same, mut total, mut lines) = (0, 0, String::new());
    for (name, whole, _) in files(&fixtures()) {
        let key = RandomKey::new(name.as_bytes(), seed, 0, Use::Augment);
        let expected = described(&whole).expect("a file");
        let places = metadata(&whole);
        for round in 0..rounds {
            let mut random = key.stream(round);
            let mut bytes = whole.clone();
            if round % 2 == 0 {
                damage(&mut bytes, &mut random);
            } else {
                let at = places[random.below(places.len() as u64) as usize] + random.below(120) as usize;
                let at = at.min(bytes.len() - 1);
                bytes[at] ^= 1 << random.below(8);
            }
            total += 1;
            let found = described(&bytes);
            // Everything in these files has a checksum, except values and references to values of variable length.
            if name.starts_with("latest") || name.starts_with("v110") {
                let mut found = found.clone().unwrap_or_default();
                found.retain(|path, array| array.is_ok() && !["/rows", "/texts"].contains(&path.as_str()));
                for (path, array) in &found {
                    assert_eq!(Some(array), expected.get(path), "{name}, round {round}: {path}");
                }
            }
            same += usize::from(found.as_ref() == Some(&expected));
            if let (Some(folder), Some(found)) = (&folder, found) {
                let damaged = format!("{round}-{name}");
                let values = |(path, array): (String, Result<Hdf5Array, String>)| {
                    let values = values_within(&bytes, &array.ok()?)?;
                    Some((path, json!({"length": values.len(), "crc": crc32(&values)})))
                };
                let values: serde_json::Map<_, _> = found.into_iter().filter_map(values).collect();
                std::fs::write(folder.join(&damaged), &bytes).expect("a written file");
                writeln!(lines, "{}", json!([damaged, name, values])).expect("text");
            }
        }
    }
    println!("{total} damaged files, of which {same} have the same description");
    assert!(total >= 1000 && same < total / 2);
    if let Some(folder) = folder {
        std::fs::write(folder.join("found.json"), lines).expect("a written file");
    }
}

/// The values of a dataset of a damaged file, if they are few and can be decoded.
fn values_within(bytes: &[u8], array: &Hdf5Array) -> Option<Vec<u8>> {
    let count = array.shape.iter().try_fold(1_u64, |all, &edge| all.checked_mul(edge))?;
    if count > 1 << 20 {
        return None;
    }
    let plain = Hdf5Array { filters: array.filters.clone(), ..array.clone() };
    if let Hdf5Storage::Chunks { edges, places } = &array.storage {
        let size = edges.iter().product::<u64>() * u64::from(array.element.size);
        for place in places {
            let packed = &bytes[place.offset as usize..][..place.length as usize];
            if decoded(packed, &array.filters, place.mask)?.len() as u64 != size {
                return None;
            }
        }
    }
    values(bytes, &plain)
}

#[test]
fn trees_that_lead_to_themselves_end() {
    let whole = file("earliest.h5");
    let is_tree = |at: &usize| whole[*at..].starts_with(b"TREE\x01\x01");
    let tree = (0..whole.len()).find(is_tree).expect("a tree of two levels");
    let key = 8 + 2 * 8;
    let mut bytes = whole.clone();
    for entry in 0..2 {
        let child = tree + 24 + key + entry * (key + 8);
        bytes[child..child + 8].copy_from_slice(&(tree as u64).to_le_bytes());
    }
    let source = bytes.as_slice();
    let file = Hdf5File::open(&source).expect("a file");
    assert!(matches!(file.array("/deep"), Err(Hdf5Fault::Damaged(_))));
    // A level of 255, and children that are one and the same.
    let mut bytes = whole.clone();
    bytes[tree + 5] = 255;
    let source = bytes.as_slice();
    let file = Hdf5File::open(&source).expect("a file");
    assert!(matches!(file.array("/deep"), Err(Hdf5Fault::Damaged(_))));
}
