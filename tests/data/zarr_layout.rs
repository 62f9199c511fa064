//! Stores of zarr: which arrays and chunks are found, where the bytes of each sample are, and what hostile stores are
//! refused for. The arrays are those that zarr-python wrote (`tests/fixtures/writers/chunks.py`).

use crate::common::fuzz;
use crate::common::scene::{Scene, samples_are_found_by_extent, summary};
use crate::fuzz::mutate;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use foreload::testing::dataset::arrays::{ArrayRegion, ChunkScratch, RECORDS, unpack_chunk};
use foreload::testing::dataset::{
    Changed, DatasetIndex, Extent, FieldKind, IndexOptions, IndexOrigin, Layout, SampleAxis,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::time::{Duration, SystemTime};

const ARRAYS: &[u8] = include_bytes!("../fixtures/chunks/zarr.jsonl.gz");
/// The least offset that is the address of a chunk, and no place in a file.
const ADDRESSES: u64 = RECORDS / 2;

/// An array that zarr-python wrote: its documents, its files and its elements, row-major and little-endian.
#[derive(Deserialize)]
struct Golden {
    name: String,
    documents: BTreeMap<String, String>,
    files: BTreeMap<String, String>,
    values: String,
}

impl Golden {
    fn all() -> Vec<Self> {
        let lines = serde_json::Deserializer::from_reader(GzDecoder::new(ARRAYS));
        lines.into_iter().map(|line| line.expect("an array")).collect()
    }

    fn named(name: &str) -> Self {
        Self::all().into_iter().find(|golden| golden.name == name).expect("an array of this name")
    }

    /// The first array with shards.
    fn sharded() -> Self {
        let is_sharded = |golden: &Self| golden.document().contains("sharding_indexed");
        Self::all().into_iter().find(|golden| is_sharded(golden) && golden.files.len() > 1).expect("shards")
    }

    fn document(&self) -> &str {
        self.documents.get("zarr.json").or(self.documents.get(".zarray")).expect("a document")
    }

    fn shape(&self) -> Vec<u64> {
        let document: serde_json::Value = serde_json::from_str(self.document()).expect("a document");
        serde_json::from_value(document["shape"].clone()).expect("a shape")
    }

    fn values(&self) -> Vec<u8> {
        BASE64_STANDARD.decode(&self.values).expect("base64")
    }

    /// Writes the array to a directory below the root.
    fn write(&self, scene: &Scene, directory: &str) {
        for (name, text) in &self.documents {
            scene.write(format!("{directory}/{name}"), text.as_bytes());
        }
        for (name, text) in &self.files {
            scene.write(format!("{directory}/{name}"), &BASE64_STANDARD.decode(text).expect("base64"));
        }
    }
}

const GROUP_V2: &[u8] = b"{\"zarr_format\": 2}";
const GROUP_V3: &[u8] = b"{\"zarr_format\": 3, \"node_type\": \"group\", \"attributes\": {}}";

/// A store of version 2 with an array of seven columns and five rows in 3 x 3 chunks, some of them absent.
fn absent_chunks() -> Scene {
    let scene = Scene::new();
    scene.write(".zgroup", GROUP_V2);
    Golden::named("2: slash, absent, NaN").write(&scene, "a");
    scene
}

fn with(scene: &Scene, fields: &[&str]) -> foreload::Result<DatasetIndex> {
    let names: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
    let members = Some(names.clone());
    DatasetIndex::open(&scene.root, &IndexOptions { members, of_files: names, ..scene.options.clone() })
}

fn refusal(scene: &Scene, fields: &[&str]) -> String {
    match with(scene, fields) {
        Ok(index) => panic!("opened, with {} samples", index.len()),
        Err(error) => error.to_string(),
    }
}

fn read(index: &DatasetIndex, Extent { file, offset, length }: Extent) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    File::open(index.path(file))?.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// The bytes of a record; `None` if it has parts of chunks that no reader here decodes.
fn record_of(index: &DatasetIndex, sample: u64) -> Option<Vec<u8>> {
    let record = index.record(index.extent(sample)).expect("a record");
    let mut bytes = vec![0; record.length as usize];
    for piece in record.pieces {
        let own = if piece.extent.offset < ADDRESSES {
            if index.shard_stamp(piece.extent.file).is_none() {
                let size = fs::metadata(index.path(piece.extent.file)).expect("a file").len();
                assert_eq!((piece.extent.offset, u64::from(piece.extent.length)), (0, size));
            }
            read(index, piece.extent).expect("bytes")
        } else {
            let block = index.block(piece.extent)?;
            let path = || index.path(piece.extent.file);
            let io = |error| foreload::Error::io("read", path(), error);
            let all = block.bytes(path, |extent| read(index, extent).map_err(io)).expect("a chunk");
            all[block.range(piece.extent).expect("a part of the chunk")].to_vec()
        };
        bytes[piece.at as usize..][..own.len()].copy_from_slice(&own);
    }
    Some(bytes)
}

/// The elements of a sample's array, row-major and little-endian.
fn elements(index: &DatasetIndex, sample: u64) -> Option<Vec<u8>> {
    let (slab, record) = (index.array(sample, 0).expect("an array"), record_of(index, sample)?);
    let (facts, shape, strides) = (slab.facts(), slab.shape().to_vec(), slab.strides());
    let size = facts.stored.number.size();
    let mut all = vec![0; size * shape.iter().product::<u64>() as usize];
    let mut scratch = ChunkScratch::default();
    for part in slab.cells(&ArrayRegion::whole(&shape)) {
        let stored = part.record.map(|range| &record[range.start as usize..range.end as usize]);
        let cell = stored.map(|stored| match part.packed {
            Some(packed) => {
                let bytes = packed.bytes as usize;
                unpack_chunk(&facts.filters, packed.mask, stored, bytes, &mut scratch)
                    .expect("a chunk")
                    .to_vec()
            }
            None => stored.to_vec(),
        });
        for number in 0..part.overlap.length.iter().product::<u64>() {
            let (mut rest, mut to, mut from, mut step) = (number, 0, part.first, 1);
            for dimension in (0..shape.len()).rev() {
                let inside = rest % part.overlap.length[dimension];
                rest /= part.overlap.length[dimension];
                to += (part.overlap.start[dimension] + inside) * step;
                from += inside * strides[dimension];
                step *= shape[dimension];
            }
            let target = &mut all[to as usize * size..][..size];
            match &cell {
                Some(cell) => target.copy_from_slice(&cell[from as usize * size..][..size]),
                None if facts.fill.is_empty() => {}
                None => target.copy_from_slice(&facts.fill),
            }
            if facts.stored.swapped {
                target.reverse();
            }
        }
    }
    Some(all)
}

#[test]
fn rows_are_those_that_zarr_wrote() {
    let (mut compared, mut stores) = (0, 0);
    for golden in Golden::all() {
        let (shape, scene) = (golden.shape(), Scene::new());
        if shape.first().is_none_or(|rows| *rows == 0) {
            continue;
        }
        let is_v3 = golden.documents.contains_key("zarr.json");
        let (name, group) = if is_v3 { ("zarr.json", GROUP_V3) } else { (".zgroup", GROUP_V2) };
        scene.write(name, group);
        golden.write(&scene, "group/a");
        scene.write(format!("group/{name}"), group);
        let index = with(&scene, &["group/a"]).unwrap_or_else(|error| panic!("{}: {error}", golden.name));
        assert_eq!((index.len(), summary(&index).layout), (shape[0], Layout::Zarr), "{}", golden.name);
        stores += 1;
        let values = golden.values();
        let row = values.len() / shape[0] as usize;
        for sample in 0..index.len() {
            let Some(found) = elements(&index, sample) else { continue };
            assert!(found == values[sample as usize * row..][..row], "{}: row {sample}", golden.name);
            compared += 1;
        }
        samples_are_found_by_extent(&index);
        assert_eq!(
            summary(&with(&scene, &["group/a"]).unwrap()).origin,
            IndexOrigin::Loaded,
            "{}",
            golden.name
        );
    }
    assert!(stores > 50 && compared > 50, "{stores} stores, {compared} rows");
}

#[test]
fn lists_of_numbers_are_columns() {
    for name in ["int16, version 2", "uint8, version 3", "float32, version 3", "bool, version 2"] {
        let (golden, scene) = (Golden::named(name), Scene::new());
        scene.write("zarr.json", GROUP_V3);
        golden.write(&scene, "labels");
        let members = Some(vec!["labels".to_owned()]);
        let options = IndexOptions { members, ..scene.options.clone() };
        let index = DatasetIndex::open(&scene.root, &options).unwrap();
        assert!(index.has_column("labels") && index.len() == 5, "{name}");
        let values = golden.values();
        let size = values.len() / 5;
        for (sample, bytes) in (0..).zip(values.chunks(size)) {
            let found = index.column_value("labels", sample);
            match name {
                "int16, version 2" => {
                    let expected = i16::from_le_bytes([bytes[0], bytes[1]]);
                    assert_eq!(found.as_i64(), Some(expected.into()));
                }
                "uint8, version 3" => assert_eq!(found.as_i64(), Some(bytes[0].into())),
                "bool, version 2" => assert_eq!(found.as_bool(), Some(bytes[0] != 0)),
                _ => {
                    let expected = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                    assert_eq!(found.as_f64(), Some(expected.into()).filter(|value: &f64| value.is_finite()));
                }
            }
        }
    }
}

#[test]
fn names_may_begin_with_a_slash_and_the_root_may_be_an_array() {
    let mut scene = Scene::new();
    scene.write("zarr.json", GROUP_V3);
    Golden::named("2: zlib").write(&scene, "a");
    Golden::named("int16, version 3").write(&scene, "b");
    Golden::named("int16, version 3").write(&scene, "not/a/node");
    for name in ["a", "/a", "a"] {
        let index = with(&scene, &[name]).unwrap();
        assert_eq!((index.len(), index.array(0, 0).is_some(), index.total_reads() > 0), (5, true, true));
        let fields = summary(&index).fields;
        let refused = fields.iter().find(|field| field.name == "b").and_then(|field| field.refused.clone());
        assert!(refused.is_some_and(|why| why.contains("is not one of the fields")), "{name}");
        index.verify().unwrap();
    }
    let all = with(&scene, &[]).unwrap();
    let fields: Vec<_> = summary(&all).fields.into_iter().map(|field| (field.name, field.kind)).collect();
    assert_eq!(fields, [("a".to_owned(), FieldKind::Array), ("b".to_owned(), FieldKind::Integer)]);
    let told = refusal(&scene, &["c"]);
    assert!(told.contains("has \"c\", which is no array of") && told.contains("\"a\", \"b\""), "{told}");
    scene.root = scene.root.join("a");
    for name in ["a", "/", "."] {
        assert_eq!(with(&scene, &[name]).unwrap().len(), 5, "{name}");
    }
    scene.options.sample_axis = SampleAxis::File;
    assert!(refusal(&scene, &["a"]).contains("sample_axis: is \"file\""));
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    let golden = Golden::named("2: zlib");
    let refused = |from: &str, to: &str, said: &str| {
        let scene = Scene::new();
        scene.write(".zgroup", GROUP_V2);
        golden.write(&scene, "a");
        Golden::named("int16, version 2").write(&scene, "b");
        let document = golden.document();
        assert!(document.contains(from), "{from}: {document}");
        scene.write("a/.zarray", document.replacen(from, to, 1).as_bytes());
        let told = refusal(&scene, &["a"]);
        assert!(told.contains("array \"a\" cannot be read") && told.contains(said), "{told}");
        // The other arrays can be read.
        assert_eq!(with(&scene, &["b"]).unwrap().len(), 5);
    };
    refused("\"zlib\"", "\"bz2\"", "is encoded with bz2, which is not read: write it with zstd");
    refused("\"dtype\": \"<", "\"dtype\": \"|O", "has elements of the type");
    refused("\"order\": \"C\"", "\"order\": \"A\"", "has the order");
    refused("\"zarr_format\": 2", "\"zarr_format\": 1", "has the zarr_format 1");
    refused("\"chunks\": [", "\"chunks\": [9, ", "which do not match");
}

/// Sets the time of a file or directory, so that its stamp changes.
fn touch(scene: &Scene, name: &str) {
    File::open(scene.root.join(name))
        .unwrap()
        .set_modified(SystemTime::now() - Duration::from_secs(3600))
        .unwrap();
}

#[test]
fn chunks_that_vanish_appear_or_grow_are_noticed() {
    let mut scene = absent_chunks();
    let index = with(&scene, &["a"]).unwrap();
    let version = |index: &DatasetIndex| index.current_version(index.extent(0)).unwrap();
    let (first, file) = (version(&index), index.extent(0).file);
    assert!(index.known_version(file).is_none() && index.shard_version(file).is_some());
    let chunk = scene.root.join("a/0/1");
    let bytes = fs::read(&chunk).unwrap();
    let is_of_chunk = |extent: &Extent| index.path(extent.file).ends_with("a/0/1");
    let pieces = index.record(index.extent(0)).unwrap().pieces;
    let piece = pieces.iter().map(|piece| piece.extent).find(is_of_chunk).expect("a piece of the chunk");
    assert_eq!((index.shard_stamp(piece.file), index.samples_of(piece.file)), (None, 0..0));
    fs::remove_file(&chunk).unwrap();
    // During a run a chunk that vanished is an error, because its file is read.
    assert!(index.stat(piece.file).unwrap_err().to_string().contains("a/0/1"));
    scene.options.changed = Changed::Refuse;
    assert!(refusal(&scene, &["a"]).contains("of the chunk a/0/1"));
    scene.write("a/0/1", &bytes);
    assert_eq!(summary(&with(&scene, &["a"]).unwrap()).origin, IndexOrigin::Loaded);
    assert_ne!(version(&with(&scene, &["a"]).unwrap()), first);
    scene.write("a/0/0", &bytes);
    assert!(refusal(&scene, &["a"]).contains("of the chunk a/0/0"));
    fs::remove_file(scene.root.join("a/0/0")).unwrap();
    with(&scene, &["a"]).unwrap();
    // A chunk that grew was replaced, and no chunk is so large.
    scene.write("a/0/1", &[&bytes[..], b"more"].concat());
    touch(&scene, "a/0");
    assert!(refusal(&scene, &["a"]).contains("of the chunk a/0/1"));
    scene.write("a/0/1", &[0; 5000]);
    scene.options.changed = Changed::Rebuild;
    let told = refusal(&scene, &["a"]);
    assert!(told.contains("a/0/1: has 5000 bytes, which no chunk of 24 bytes can have"), "{told}");
}

#[test]
fn shards_have_stamps() {
    let mut scene = Scene::new();
    scene.write("zarr.json", GROUP_V3);
    let golden = Golden::sharded();
    golden.write(&scene, "a");
    let index = with(&scene, &["a"]).unwrap();
    let (key, text) = golden.files.first_key_value().unwrap();
    let file = index.files().find(|&file| index.path(file).ends_with(format!("a/{key}"))).unwrap();
    assert!(index.shard_stamp(file).is_some() && index.samples_of(file).is_empty());
    // A shard that was only touched is accepted, at a start and during a run.
    touch(&scene, &format!("a/{key}"));
    index.accept_shard(file).unwrap();
    assert!(index.has_moved(file));
    assert_eq!(summary(&with(&scene, &["a"]).unwrap()).origin, IndexOrigin::Loaded);
    scene.options.changed = Changed::Refuse;
    let bytes = BASE64_STANDARD.decode(text).unwrap();
    let path = scene.root.join("a").join(key);
    fs::remove_file(&path).unwrap();
    assert!(refusal(&scene, &["a"]).contains("another"));
    scene.write(&path, &bytes[..bytes.len() - 1]);
    assert!(refusal(&scene, &["a"]).contains(&path.display().to_string()));
    scene.write(&path, &bytes);
    with(&scene, &["a"]).unwrap().verify().unwrap();
}

#[test]
fn a_choice_of_arrays_changes_no_order() {
    let scene = Scene::new();
    scene.write("zarr.json", GROUP_V3);
    Golden::sharded().write(&scene, "a");
    Golden::sharded().write(&scene, "b");
    let fingerprint = |fields: &[&str]| with(&scene, fields).unwrap().fingerprint();
    assert_eq!(fingerprint(&["a"]), fingerprint(&["a", "b"]));
    assert_eq!(fingerprint(&["a"]), fingerprint(&["b"]));
}

#[test]
fn nothing_leads_out_of_the_root() {
    let outside = tempfile::tempdir().unwrap();
    let write = |name: &str| {
        fs::create_dir_all(outside.path().join(name).parent().unwrap()).unwrap();
        fs::write(outside.path().join(name), [7; 100]).unwrap();
    };
    write("0");
    write("array/.zarray");
    fs::write(outside.path().join("array/.zarray"), Golden::named("2: zlib").document()).unwrap();
    // A chunk, a directory of chunks and an array that are links.
    let scene = absent_chunks();
    symlink(outside.path().join("0"), scene.root.join("a/0/0")).unwrap();
    assert!(refusal(&scene, &["a"]).contains("a/0/0: is a link that leads out"));
    fs::remove_file(scene.root.join("a/0/0")).unwrap();
    fs::remove_dir_all(scene.root.join("a/1")).unwrap();
    symlink(outside.path(), scene.root.join("a/1")).unwrap();
    assert!(refusal(&scene, &["a"]).contains("a/1: is a link that leads out"));
    fs::remove_file(scene.root.join("a/1")).unwrap();
    symlink(outside.path().join("array"), scene.root.join("b")).unwrap();
    assert!(refusal(&scene, &["a"]).contains("b: is a link that leads out"));
    fs::remove_file(scene.root.join("b")).unwrap();
    // Links inside of the store are read.
    symlink(scene.root.join("a"), scene.root.join("b")).unwrap();
    assert_eq!(with(&scene, &["b"]).unwrap().len(), 5);
    // Consolidated metadata with a path that leads out.
    let document = Golden::named("2: zlib").document().to_owned();
    for key in ["../array/.zarray", "/array/.zarray", "a/../../array/.zarray", "a//.zarray"] {
        let text = format!("{{\"zarr_consolidated_format\": 1, \"metadata\": {{\"{key}\": {document}}}}}");
        scene.write(".zmetadata", text.as_bytes());
        let told = refusal(&scene, &["a"]);
        assert!(told.contains("consolidated metadata with the key"), "{told}");
    }
    // Arrays that are no group's are found by consolidated metadata alone.
    let text = format!("{{\"zarr_consolidated_format\": 1, \"metadata\": {{\"a/.zarray\": {document}}}}}");
    scene.write(".zmetadata", text.as_bytes());
    assert_eq!(with(&scene, &["a"]).unwrap().len(), 5);
    // A directory with the name of a chunk.
    fs::create_dir(scene.root.join("a/0/0")).unwrap();
    assert!(refusal(&scene, &["a"]).contains("a/0/0: has the name of a chunk, but is no regular file"));
}

#[test]
fn absent_chunks_need_no_memory() {
    let scene = Scene::new();
    scene.write(".zgroup", GROUP_V2);
    let with_rows = |rows: &str| {
        let document = Golden::named("2: zlib").document().replacen('5', rows, 1);
        scene.write("a/.zarray", document.as_bytes());
        with(&scene, &["a"])
    };
    let index = with_rows("1000000").unwrap();
    assert_eq!((index.len(), index.total_bytes(), index.extent(999_999).length), (1_000_000, 0, 0));
    let told = with_rows("1000000000").err().map(|error| error.to_string()).unwrap_or_default();
    assert!(told.contains("there are 1000000000 rows"), "{told}");
}

#[test]
fn mutated_stores_are_errors_or_arrays_within_bounds() {
    let goldens = [Golden::named("2: blosc"), Golden::named("2: slash, absent, NaN"), Golden::sharded()];
    let mut rounds = 0;
    fuzz("zarr", |random| {
        let (golden, scene) = (&goldens[random.below(3) as usize], Scene::new());
        let is_v3 = golden.documents.contains_key("zarr.json");
        golden.write(&scene, "a");
        scene.write(if is_v3 { "zarr.json" } else { ".zgroup" }, if is_v3 { GROUP_V3 } else { GROUP_V2 });
        let files: Vec<&String> = golden.documents.keys().chain(golden.files.keys()).collect();
        let document = usize::from(!is_v3 && random.below(2) == 0);
        let file = match random.below(2) {
            0 => files[document],
            _ => files[random.below(files.len() as u64) as usize],
        };
        let path = scene.root.join("a").join(file);
        let mut bytes = fs::read(&path).unwrap();
        mutate(&mut bytes, random);
        fs::write(&path, &bytes).unwrap();
        rounds += 1;
        let Ok(index) = with(&scene, &["a"]) else { return };
        for sample in (0..index.len()).step_by(1 + index.len() as usize / 20) {
            let record = index.record(index.extent(sample)).expect("a record");
            for piece in record.pieces.iter().filter(|piece| piece.extent.offset < ADDRESSES) {
                read(&index, piece.extent).expect("bytes inside of their file");
            }
        }
    });
    assert!(rounds >= 20);
}
