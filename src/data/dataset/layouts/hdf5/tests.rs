//! Datasets of HDF5 and NetCDF-4 files have the samples, values and columns that h5py reads.
//! `tests/fixtures/writers/hdf5.py` writes the files, and `values.json` with what h5py reads of them.

use super::*;
use crate::dataset::arrays::filters::{ChunkScratch, unpack_chunk};
use crate::dataset::arrays::{ArrayRegion, CHUNKS, CellPart, CfFacts, PackedCell};
use crate::dataset::{BadShards, Changed, DatasetIndex, IndexOptions, IndexOrigin};
use base::crc::crc32;
use base::rng::{RandomKey, RandomStream, Use};
use base::simd::Level;
use pixels::arrays::{Arithmetic, BoxCorner, GatheredBox, NumberConversion, WorkType, fill, gather};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/hdf5");
    fs::read(folder.join(name)).unwrap_or_else(|_| {
        let packed = fs::read(folder.join(format!("{name}.gz"))).expect("a fixture");
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).expect("a whole file");
        bytes
    })
}

/// What h5py reads of the datasets of each file; null for a dataset that is not read.
fn wanted() -> BTreeMap<String, BTreeMap<String, Value>> {
    let files: BTreeMap<String, Value> = serde_json::from_slice(&fixture("values.json")).expect("JSON");
    let datasets = |file: Value| serde_json::from_value(file["datasets"].clone()).expect("datasets");
    files.into_iter().map(|(name, file)| (name, datasets(file))).collect()
}

/// A dataset of these files.
struct Scene {
    directory: TempDir,
    options: IndexOptions,
}

impl Scene {
    fn of(files: &[(&str, &[u8])]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("data")).expect("a directory");
        let options =
            IndexOptions { directory: Some(directory.path().join("index")), ..IndexOptions::default() };
        let scene = Self { directory, options };
        files.iter().for_each(|(name, bytes)| scene.write(name, bytes));
        scene
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.root().join(name), bytes).expect("a file");
    }

    /// Opens the dataset with these fields. Fields whose names begin with `@` are requested as arrays.
    fn with(&self, fields: &[&str]) -> base::error::Result<DatasetIndex> {
        let name = |field: &&str| field.trim_start_matches('@').to_owned();
        let of_files = fields.iter().filter(|field| field.starts_with('@')).map(name).collect();
        let members = Some(fields.iter().map(name).collect());
        let options = IndexOptions { members, of_files, ..self.options.clone() };
        DatasetIndex::open(&self.root(), &options)
    }

    fn refusal(&self, fields: &[&str]) -> String {
        match self.with(fields) {
            Ok(index) => panic!("opened, with {} samples", index.len()),
            Err(error) => error.to_string(),
        }
    }
}

/// The bytes of a sample's record; `None` if some are in chunks that samples share, which must be decompressed first.
fn record_of(index: &DatasetIndex, sample: u64) -> Option<Vec<u8>> {
    let extent = index.extent(sample);
    let mut bytes = vec![0; extent.length as usize];
    for piece in index.record(extent).expect("a record").pieces {
        let into = &mut bytes[piece.at as usize..][..piece.extent.length as usize];
        if piece.extent.offset >= CHUNKS {
            return None;
        }
        let file = fs::File::open(index.path(piece.extent.file)).expect("a file");
        file.read_exact_at(into, piece.extent.offset).expect("the bytes of a piece");
    }
    Some(bytes)
}

/// The elements of an array of a sample, as they are stored.
fn values_of(index: &DatasetIndex, sample: u64, field: usize) -> Result<Vec<u8>, String> {
    let record = record_of(index, sample).ok_or("shared chunks")?;
    let slab = index.array(sample, field).expect("an array");
    let (facts, shape) = (slab.facts(), slab.shape().to_vec());
    let number = facts.stored.number;
    let from = StoredType { number, swapped: false };
    let as_stored = NumberConversion::new(Level::detect(), from, &shape, number, &Arithmetic::default())?;
    let rows = MemoryOrder::RowMajor.strides(&shape);
    let mut all = vec![0xee; shape.iter().product::<u64>() as usize * number.size()];
    let mut scratch = ChunkScratch::default();
    for CellPart { record: range, packed, first, overlap } in slab.cells(&ArrayRegion::whole(&shape)) {
        let (zeros, strides) = (vec![0; shape.len()], slab.strides());
        let of = GatheredBox {
            lengths: &overlap.length,
            chunk: BoxCorner { at: &zeros, strides: &strides },
            row: BoxCorner { at: &overlap.start, strides: &rows },
            channel: 0,
        };
        let stored = range.map(|range| &record[range.start as usize..range.end as usize]);
        let decoded = match (stored, packed) {
            (Some(stored), Some(PackedCell { bytes, mask })) => {
                Some(unpack_chunk(&facts.filters, mask, stored, bytes as usize, &mut scratch)?)
            }
            (stored, _) => stored,
        };
        let zero = vec![0; number.size()];
        let absent = if facts.fill.is_empty() { &zero } else { &facts.fill };
        let gathered = match decoded {
            Some(chunk) => gather(chunk.get(first as usize..).unwrap_or_default(), &mut all, &of, &as_stored),
            None => fill(absent, &mut all, &of, &as_stored),
        };
        gathered.map_err(|error| error.to_string())?;
    }
    Ok(all)
}

fn facts_of(index: &DatasetIndex, field: usize) -> ArrayFacts {
    index.array(0, field).expect("an array").facts().clone()
}

#[test]
fn whole_datasets_have_the_values_that_h5py_reads() {
    let mut count = 0;
    for (name, datasets) in wanted() {
        let mut scene = Scene::of(&[(&name, &fixture(&name))]);
        scene.options.sample_axis = SampleAxis::File;
        // Texts are columns, and rows of different lengths are samples of their own.
        let not_arrays = ["/rows", "/texts", "/types/text"];
        let paths: Vec<(&String, &Value)> = datasets
            .iter()
            .filter(|(path, value)| !value.is_null() && !not_arrays.contains(&path.as_str()))
            .collect();
        let fields: Vec<String> = paths.iter().map(|(path, _)| format!("@{path}")).collect();
        let index = scene.with(&fields.iter().map(String::as_str).collect::<Vec<_>>());
        let index = index.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(index.len(), 1, "{name}");
        for (field, (path, wanted)) in paths.into_iter().enumerate() {
            let values = values_of(&index, 0, field).unwrap_or_else(|why| panic!("{name}: {path}: {why}"));
            let shape: Vec<u64> = serde_json::from_value(wanted["shape"].clone()).expect("a shape");
            assert_eq!(index.array(0, field).expect("an array").shape(), shape, "{name}: {path}");
            assert_eq!(Some(u64::from(crc32(&values))), wanted["crc"].as_u64(), "{name}: {path}: {values:?}");
            count += 1;
        }
    }
    assert!(count > 110, "{count} datasets");
}

#[test]
fn rows_of_datasets_are_samples() {
    let mut count = 0;
    for (name, datasets) in wanted() {
        let scene = Scene::of(&[(&name, &fixture(&name))]);
        for (path, wanted) in datasets.iter().filter(|(_, value)| !value.is_null()) {
            let rows = wanted["shape"][0].as_u64().filter(|&rows| rows > 0 && !path.contains("text"));
            let Some(rows) = rows else { continue };
            let index = scene.with(&[&format!("@{path}")]).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(index.len(), rows, "{name}: {path}");
            let values: Result<Vec<_>, _> = (0..rows).map(|row| values_of(&index, row, 0)).collect();
            // The part of a compressed chunk that belongs to a row needs a reader.
            if values == Err("shared chunks".to_owned()) {
                continue;
            }
            let values = values.unwrap_or_else(|why| panic!("{name}: {path}: {why}")).concat();
            assert_eq!(Some(u64::from(crc32(&values))), wanted["crc"].as_u64(), "{name}: {path}: {values:?}");
            count += 1;
        }
    }
    assert!(count > 85, "{count} datasets");
}

#[test]
fn one_name_or_another_selects_a_dataset() {
    let scene = Scene::of(&[("a.h5", &fixture("earliest.h5")), ("b.hdf5", &fixture("earliest.h5"))]);
    let index = scene.with(&["@/rows"]).expect("rows of two files");
    let lengths: Vec<u64> = (0..6).map(|sample| index.array(sample, 0).expect("a row").shape()[0]).collect();
    assert_eq!((index.len(), lengths), (6, vec![2, 0, 5, 2, 0, 5]));
    assert_eq!(values_of(&index, 5, 0).expect("a row"), [20, 0, 21, 0, 22, 0, 23, 0, 24, 0]);
    assert_eq!(index.array_fields(0).next().expect("an array").shape, [None]);
    // Without a choice, the largest dataset decides. Its index serves loaders of all datasets with as many rows.
    let all = scene.with(&[]).expect("all datasets");
    assert_eq!((all.len(), all.extent(0).length), (14, 0));
    for (fields, rows) in
        [(["@/chunks"], 14), (["@chunks"], 14), (["@/run"], 6), (["@run"], 6), (["@types//bool"], 6)]
    {
        let index = scene.with(&fields).expect("an index");
        assert_eq!((index.len(), index.has_arrays()), (rows, true), "{fields:?}");
        let again = scene.with(&fields).expect("an index");
        let origin = again.summaries().next().expect("a dataset").origin;
        assert!(matches!(origin, IndexOrigin::Loaded), "{fields:?}");
    }
    let lengths = scene.refusal(&["@/run", "@/chunks"]);
    assert!(lengths.contains("\"/chunks\" has 7, \"/run\" has 3"), "{lengths}");
    let fields = all.summaries().next().expect("a dataset").fields;
    let refused = |name: &str| {
        let field = fields.iter().find(|field| field.name == name).unwrap_or_else(|| panic!("{name}"));
        field.refused.clone().unwrap_or_default()
    };
    assert_eq!((refused("/chunks"), refused("/run")), (String::new(), other(3, 7)));
    assert_eq!(refused("/texts"), other(3, 7));
    assert!(refused("/refused/compound").contains("compound"), "{}", refused("/refused/compound"));
    assert!(refused("/types/scalar").contains("a single number"));
}

fn other(rows: u64, samples: u64) -> String {
    format!("it has {rows} rows, but there are {samples} samples")
}

#[test]
fn numbers_and_texts_are_columns_however_they_are_stored() {
    let mut scene = Scene::of(&[("x.h5", &fixture("latest.h5"))]);
    let column = |scene: &Scene, name: &str| -> Vec<Value> {
        let index = scene.with(&[name]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(index.has_column(name) && index.extent(0).length == 0, "{name}");
        (0..index.len()).map(|sample| index.column_value(name, sample)).collect()
    };
    let integers = |name: &str| -> Vec<i64> {
        column(&scene, name).iter().map(|item| item.as_i64().expect("an integer")).collect()
    };
    // In chunks, with a checksum, with gaps, and in one place.
    assert_eq!(integers("/deep"), (0..150).collect::<Vec<i64>>());
    assert_eq!(integers("/checked"), [1, 2, 3, 4, 5]);
    let packed: Vec<i64> = (1..21).chain([0; 50]).chain(1..21).collect();
    assert_eq!(integers("/growing_packed"), packed);
    let gap = integers("/fixed_gap");
    assert_eq!(
        (gap.len(), &gap[..6], &gap[2090..2096]),
        (2100, &[1, 2, 3, 4, 5, 3][..], &[50, 51, 52, 53, 54, 3][..])
    );
    assert_eq!(integers("/types/enum"), [1, 5]);
    let texts = |name: &str| -> Vec<String> {
        column(&scene, name).iter().map(|item| item.as_str().expect("a text").to_owned()).collect()
    };
    assert_eq!(texts("/texts"), ["one", "", "größer"]);
    assert_eq!(texts("types/text"), ["one", "three"]);
    scene.options.label = Some("/deep".to_owned());
    let labeled = scene.with(&["@deep"]).expect("labels");
    assert_eq!((labeled.num_classes(), labeled.label(7), labeled.label(149)), (150, 7, 149));
    let values: Vec<Vec<u8>> =
        (0..150).map(|sample| values_of(&labeled, sample, 0).expect("a number")).collect();
    assert_eq!(values.concat(), (0..150).collect::<Vec<u8>>());
    scene.options = IndexOptions { sample_axis: SampleAxis::File, label: None, ..scene.options };
    let scalar = scene.with(&["/types/scalar"]).expect("a number");
    assert_eq!(scalar.column_value("/types/scalar", 0).as_f64(), Some(2.5));
}

#[test]
fn what_is_not_read_is_named() {
    let scene = Scene::of(&[("x.h5", &fixture("earliest.h5"))]);
    for (path, word) in [
        ("/refused/compound", "it has values of a compound"),
        ("/refused/virtual", "it is virtual"),
        ("/refused/external", "external storage"),
        ("/refused/elsewhere", "it is a link to another file"),
        ("/refused/itself", "soft links"),
        ("/refused/reference", "reference type"),
        ("/refused", "is a group"),
    ] {
        let told = scene.refusal(&[&format!("@{path}")]);
        assert!(told.contains(word) && told.contains(path), "{path}: {told}");
    }
    let told = scene.refusal(&["@/other/bool"]);
    let said = "x.h5: is not read: it has no dataset \"/other/bool\"; there are \"/types/bool\", ";
    assert!(told.contains(said) && told.contains(", and 24 others: change the name in fields="), "{told}");
    assert!(scene.refusal(&["@pakced"]).contains("there are \"/packed\", "));
    assert!(scene.refusal(&["@/types/scalar"]).contains("sample_axis=\"file\""));
    // The same dataset with another filter.
    let mut bytes = fixture("earliest.h5");
    // The filter's number, the length of its name, flags, the count of values, and its name.
    let id = 32000_u16.to_le_bytes();
    let is_filter = |part: &[u8]| part.starts_with(&id) && part.ends_with(b"lzf");
    let place = bytes.windows(11).position(is_filter).expect("the filter");
    bytes[place..place + 2].copy_from_slice(&32013_u16.to_le_bytes());
    let scene = Scene::of(&[("x.h5", &bytes)]);
    assert!(scene.refusal(&["@/lzf"]).contains("compressed with lzf (HDF5 filter 32013), which is not read"));
    assert_eq!(scene.with(&["@/run"]).expect("other datasets").len(), 3);
}

#[test]
fn other_formats_are_named() {
    for (name, bytes, word) in [
        ("x.nc", &b"CDF\x01\0\0\0\0\0\0\0\0 and the rest of a header"[..], "nccopy -k nc4"),
        ("x.nc4", b"CDF\x05\0\0\0\0\0\0\0\0 and the rest of a header", "nccopy -k nc4"),
        ("x.h5", b"\x0e\x03\x13\x01 is HDF4", "HDF4"),
        ("x.he5", b"nothing of the kind", "not an HDF5 file"),
    ] {
        let told = Scene::of(&[(name, bytes)]).refusal(&["@/x"]);
        assert!(told.contains(word) && told.contains(name), "{told}");
        // Another copy of the file helps only if the file is damaged.
        let told = Scene::of(&[(name, bytes), ("z.h5", &fixture("user.h5"))]).refusal(&["@/run"]);
        assert_eq!(told.contains("or download"), name == "x.he5", "{told}");
        assert!(told.contains("bad_shards"), "{told}");
    }
}

#[test]
fn files_may_lack_only_optional_datasets() {
    let mut scene = Scene::of(&[("a.h5", &fixture("user.h5")), ("b.h5", &fixture("v108.h5"))]);
    scene.options.sample_axis = SampleAxis::File;
    let fields = ["@/run", "@/links/target"];
    let told = scene.refusal(&fields);
    assert!(told.contains("a.h5: is not read: it has no dataset \"/links/target\"; there are \"/"), "{told}");
    assert!(told.contains("optional=True; or leave out unreadable shards"), "{told}");
    scene.options.optional = vec!["/links/target".to_owned()];
    for _start in 0..2 {
        let index = scene.with(&fields).expect("an optional dataset");
        let has = |sample, field| index.array(sample, field).is_some();
        assert_eq!([has(0, 0), has(0, 1), has(1, 0), has(1, 1)], [true, false, true, true]);
        index.verify().expect("files that are read again lack it, too");
    }
    scene.options.optional.clear();
    assert_eq!(scene.refusal(&fields), told, "the index of an optional field is not that of another field");
}

#[test]
fn a_choice_of_arrays_has_all_files_that_it_can_read() {
    let mut scene = Scene::of(&[("a.h5", &fixture("user.h5")), ("b.h5", &fixture("v108.h5"))]);
    (scene.options.sample_axis, scene.options.bad_shards) = (SampleAxis::File, BadShards::Skip);
    let samples = |scene: &Scene, fields: &[&str]| scene.with(fields).expect("a dataset").len();
    assert_eq!(samples(&scene, &["@/run", "@/links/target"]), 1);
    assert_eq!(samples(&scene, &["@/run"]), 2, "the other choice refused a file");
    scene.options.optional = vec!["/links/target".to_owned()];
    assert_eq!(samples(&scene, &["@/run", "@/links/target"]), 2);
    assert_eq!(samples(&scene, &["@/links/target"]), 1, "a file has none of the chosen arrays");
}

#[test]
fn rows_of_one_array_are_the_samples_of_all_files() {
    let mut scene = Scene::of(&[("a.h5", &fixture("user.h5")), ("b.h5", &fixture("v108.h5"))]);
    let index = scene.with(&[]).expect("two files");
    assert_eq!(index.len(), 14);
    index.verify().expect("each file is read again for the same array");
    scene = Scene::of(&[("a.h5", &fixture("user.h5")), ("b.h5", &fixture("latest-links.h5"))]);
    let told = scene.refusal(&[]);
    assert!(told.contains("b.h5: is not read: it has no readable array \"/chunks\""), "{told}");
}

#[test]
fn variables_of_net_cdf_have_the_decoding_of_their_attributes() {
    let scene = Scene::of(&[("x.nc", &fixture("classic.nc"))]);
    let index = scene.with(&["@/packed", "@/time"]).expect("variables");
    let cf = CfFacts {
        scale: Some(0.25),
        offset: Some(10.0),
        missing: vec![0xfffe, 0xffff],
        unsigned: false,
        work: WorkType::F64,
    };
    assert_eq!((index.len(), facts_of(&index, 0).cf, facts_of(&index, 1).cf), (2, Some(cf), None));
    // Each row is a chunk of its own, which workers decompress.
    assert_eq!(values_of(&index, 1, 0).expect("a row"), [4, 0, 5, 0, 6, 0]);
    assert_eq!(values_of(&index, 1, 1).expect("a number"), 1.5_f64.to_le_bytes());
    let fields = scene.with(&[]).expect("all variables").summaries().next().expect("a dataset").fields;
    assert!(fields.iter().any(|field| field.name == "/inner/deep"));
}

#[test]
fn a_file_that_is_rewritten_is_noticed() {
    let mut scene = Scene::of(&[("x.h5", &fixture("user.h5"))]);
    let rewrite = |scene: &Scene, name: &str| {
        fs::remove_file(scene.root().join("x.h5")).expect("a file");
        scene.write("x.h5", &fixture(name));
        let file = fs::File::options().write(true).open(scene.root().join("x.h5")).expect("a file");
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("another time");
    };
    let before = scene.with(&["@/run"]).expect("an index");
    scene.options.changed = Changed::Refuse;
    rewrite(&scene, "user.h5");
    assert_eq!(scene.with(&["@/run"]).expect("the same").fingerprint(), before.fingerprint());
    rewrite(&scene, "v108.h5");
    assert!(scene.refusal(&["@/run"]).contains("has the array \"/run\" in another form"));
    rewrite(&scene, "latest-links.h5");
    assert!(scene.refusal(&["@/run"]).contains("has no dataset \"/run\""));
}

/// Damages some bytes, or cuts the file.
fn damage(bytes: &mut Vec<u8>, random: &mut RandomStream) {
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(12) {
            0 => bytes.truncate(at.max(1)),
            1..5 => {
                let number = [u64::MAX, 0, 1 << 40, at as u64, 1 << 20][random.below(5) as usize];
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            5..8 => bytes[at] = random.below(256) as u8,
            _ => bytes[at] ^= 1 << random.below(8),
        }
    }
}

#[test]
fn damaged_files_are_errors_or_arrays_within_bounds() {
    let seed = std::env::var("FORELOAD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("seed {seed}");
    let (mut read, mut total) = (0, 0);
    for name in ["user.h5", "v108.h5", "classic.nc", "earliest.h5", "latest.h5"] {
        let whole = fixture(name);
        let key = RandomKey::new(name.as_bytes(), seed, 0, Use::Augment);
        for round in 0..250 {
            let mut random = key.stream(round);
            let mut bytes = whole.clone();
            damage(&mut bytes, &mut random);
            let axis = [SampleAxis::Axis0, SampleAxis::File][random.below(2) as usize];
            let chosen = ["/packed", "/chunks", "/run", "/deep", "/partial", "/texts"].map(str::to_owned);
            let arrays = (random.below(2) == 0).then(|| vec![chosen[random.below(6) as usize].clone()]);
            let parser =
                Hdf5Parser(ShardReadOptions { sample_axis: axis, arrays, ..ShardReadOptions::default() });
            total += 1;
            let source = bytes.as_slice();
            let Ok(found) = parser.contents(b"x.h5", &source) else { continue };
            read += 1;
            for array in &found.rows.arrays {
                arrays::check(array, |_| bytes.len() as u64).expect("bounds");
            }
            for column in &found.rows.columns {
                assert!(column.count().is_none_or(|count| count == found.rows.array_samples), "{column:?}");
            }
        }
    }
    println!("{total} damaged files, of which {read} were read");
    assert!(total >= 1000 && read > 100 && read < total);
}
