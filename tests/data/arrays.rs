//! Datasets of `.npy` files: which arrays are fields, how many samples they have, and where the bytes of each sample
//! are, also for hostile input.

use crate::common::fuzz;
use crate::common::jpeg;
use crate::common::scene::{Scene, samples_are_found_by_extent, summary};
use crate::fuzz::mutate;
use foreload::testing::dataset::arrays::{ArrayField, RECORDS};
use foreload::testing::dataset::{
    Changed, DatasetIndex, FieldKind, IndexOptions, IndexOrigin, Layout, MemberBytes, NeighbourBlocks,
    SampleAxis,
};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

/// An `.npy` file as `numpy.save` writes it.
pub(crate) fn npy(descr: &str, shape: &str, is_column_major: bool, data: &[u8]) -> Vec<u8> {
    let order = if is_column_major { "True" } else { "False" };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    header += &" ".repeat(63 - (10 + header.len()) % 64);
    header += "\n";
    let length = (header.len() as u16).to_le_bytes();
    [&b"\x93NUMPY\x01\x00"[..], &length, header.as_bytes(), data].concat()
}

fn singles(values: impl Iterator<Item = u32>) -> Vec<u8> {
    values.flat_map(|value| (value as f32).to_le_bytes()).collect()
}

/// Arrays of seven rows, one of five rows, and one of Python objects.
fn write(scene: &Scene) {
    scene.write("x.npy", &npy("<f4", "(7, 2, 3)", false, &singles(0..42)));
    scene.write("y.npy", &npy(">i2", "(7,)", false, &[0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1]));
    scene.write("z.npy", &npy("<f4", "(5, 2)", false, &singles(0..10)));
    scene.write("objects.npy", &npy("|O", "(7,)", false, b"\x80\x04]\x94."));
    scene.write("columns.npy", &npy("<f4", "(7, 2)", true, &singles(0..14)));
    scene.write("notes.txt", b"about the arrays");
}

/// Opens the dataset with these fields. Fields whose names begin with `@` are requested as arrays.
fn with(scene: &Scene, fields: &[&str]) -> foreload::Result<DatasetIndex> {
    let name = |field: &&str| field.trim_start_matches('@').to_owned();
    let of_files = fields.iter().filter(|field| field.starts_with('@')).map(name).collect();
    let members = Some(fields.iter().map(name).collect());
    DatasetIndex::open(&scene.root, &IndexOptions { members, of_files, ..scene.options.clone() })
}

fn refusal(scene: &Scene, fields: &[&str]) -> String {
    match with(scene, fields) {
        Ok(index) => panic!("opened, with {} samples", index.len()),
        Err(error) => error.to_string(),
    }
}

/// The bytes of a sample's record, read piece by piece.
fn record_of(index: &DatasetIndex, sample: u64) -> Vec<u8> {
    let extent = index.extent(sample);
    let record = index.record(extent).expect("a record");
    let mut bytes = vec![0; extent.length as usize];
    assert_eq!((record.length, extent.offset >= RECORDS), (extent.length, true));
    for piece in record.pieces {
        let into = &mut bytes[piece.at as usize..][..piece.extent.length as usize];
        let file = File::open(index.path(piece.extent.file)).unwrap();
        file.read_exact_at(into, piece.extent.offset).unwrap();
    }
    bytes
}

/// The bytes of a sample's array, which are a part of its record.
fn bytes_of(index: &DatasetIndex, sample: u64, field: usize) -> Vec<u8> {
    match index.member(sample, field) {
        MemberBytes::InExtent(range) => record_of(index, sample)[range].to_vec(),
        other => panic!("{other:?}"),
    }
}

fn field(index: &DatasetIndex, field: usize) -> ArrayField {
    index.array_fields(field).next().expect("an array")
}

#[test]
fn rows_of_equally_long_arrays_are_samples() {
    let scene = Scene::new();
    write(&scene);
    let index = with(&scene, &["@y.npy", "@x.npy"]).unwrap();
    assert_eq!(
        (index.len(), index.is_labeled(), index.total_bytes(), index.largest()),
        (7, false, 7 * 26, 26)
    );
    assert_eq!((index.total_reads(), index.reads_by_block(), index.has_arrays()), (14, 14, true));
    for sample in 0..7 {
        let first = 6 * sample as u32;
        assert_eq!(bytes_of(&index, sample, 1), singles(first..first + 6));
        assert_eq!(bytes_of(&index, sample, 0), [0, [1, 2, 0, 1, 2, 0, 1][sample as usize]]);
        let slab = index.array(sample, 1).unwrap();
        assert_eq!((slab.shape(), slab.strides()), (&[2, 3][..], vec![3, 1]));
        assert!(index.is_record(sample) && !index.is_apart(sample));
        assert!(index.place_in_file(index.extent(sample)).offset < 1000);
    }
    samples_are_found_by_extent(&index);
    let (y, x) = (field(&index, 0), field(&index, 1));
    assert_eq!((x.shape, y.shape.len(), y.stored.swapped), (vec![Some(2), Some(3)], 0, true));
    let told = summary(&index);
    assert_eq!((told.layout, told.groups, told.samples), (Layout::Npy, 5, 7));
    let fields: Vec<_> = told
        .fields
        .iter()
        .map(|of| (of.name.as_str(), of.kind, of.refused.as_deref().unwrap_or_default()))
        .collect();
    let named = |name| fields.iter().find(|(known, ..)| *known == name).copied().unwrap();
    assert_eq!((named("x.npy").1, named("y.npy").1), (FieldKind::Array, FieldKind::Integer));
    assert!(named("z.npy").2.contains("has 5 rows, but there are 7 samples"), "{fields:?}");
    assert!(named("columns.npy").2.contains("in column-major order"), "{fields:?}");
    assert!(named("objects.npy").2.contains("of type '|O', must be"), "{fields:?}");
    assert!(!named("objects.npy").2.contains("fields.Bytes"), "{fields:?}");
    index.verify().unwrap();
    let again = with(&scene, &["@x.npy"]).unwrap();
    assert_eq!(summary(&again).origin, IndexOrigin::Loaded);
    assert_eq!((again.fingerprint(), again.total_bytes()), (index.fingerprint(), 7 * 24));
    // Copies of samples hold only the selected arrays.
    assert_ne!(again.identity(), index.identity());
    assert_eq!(record_of(&again, 3), singles(18..24));
}

#[test]
fn numbers_are_columns_labels_and_arrays() {
    let mut scene = Scene::new();
    write(&scene);
    let index = with(&scene, &["@x.npy", "y.npy"]).unwrap();
    assert!(index.has_column("y.npy") && index.extent(0).length == 24);
    let values: Vec<_> = (0..7).map(|sample| index.column_value("y.npy", sample).as_i64().unwrap()).collect();
    assert_eq!(values, [1, 2, 0, 1, 2, 0, 1]);
    scene.options.label = Some("y.npy".to_owned());
    let labeled = with(&scene, &["@x.npy"]).unwrap();
    assert_eq!((labeled.is_labeled(), labeled.num_classes()), (true, 3));
    assert_eq!((0..7).map(|sample| labeled.label(sample)).collect::<Vec<_>>(), [1, 2, 0, 1, 2, 0, 1]);
    assert_eq!(record_of(&labeled, 6), singles(36..42));
    scene.options.label = Some("x.npy".to_owned());
    assert!(refusal(&scene, &["@x.npy"]).contains("label: is \"x.npy\", which is not a column"));
}

#[test]
fn another_choice_of_arrays_can_have_other_samples() {
    let scene = Scene::new();
    write(&scene);
    // Without a choice, the largest array decides.
    let all = with(&scene, &[]).unwrap();
    assert_eq!((all.len(), all.total_bytes() > 0, all.extent(3).length), (7, true, 0));
    let short = with(&scene, &["@z.npy"]).unwrap();
    assert_eq!((short.len(), field(&short, 0).shape), (5, vec![Some(2)]));
    let long = with(&scene, &["@x.npy"]).unwrap();
    for (fields, samples) in [("@z.npy", 5), ("@x.npy", 7)] {
        let again = with(&scene, &[fields]).unwrap();
        assert_eq!((again.len(), summary(&again).origin), (samples, IndexOrigin::Loaded));
    }
    assert_ne!(short.fingerprint(), long.fingerprint());
    let told = refusal(&scene, &["@x.npy", "@z.npy"]);
    assert!(
        told.contains("\"x.npy\" has 7, \"z.npy\" has 5") && told.contains("sample_axis=\"file\""),
        "{told}"
    );
    let told = refusal(&scene, &["@x.npy", "@objects.npy"]);
    assert!(told.contains("\"objects.npy\" cannot be read: is an array of type '|O'"), "{told}");
    assert!(refusal(&scene, &["@columns.npy"]).contains("ascontiguousarray"));
    let told = refusal(&scene, &["@a.npy"]);
    assert!(told.contains("has \"a.npy\", which no sample"), "{told}");
    assert!(scene.error().contains("has no column of images"));
}

#[test]
fn one_file_or_files_in_braces_are_a_dataset() {
    let mut scene = Scene::new();
    write(&scene);
    let root = scene.root.clone();
    scene.root = root.join("x.npy");
    assert_eq!(bytes_of(&with(&scene, &["@x.npy"]).unwrap(), 6, 0), singles(36..42));
    scene.root = root.join("{x,y}.npy");
    let index = with(&scene, &["@x.npy", "y.npy"]).unwrap();
    assert_eq!((index.len(), bytes_of(&index, 1, 0)), (7, singles(6..12)));
}

#[test]
fn each_file_can_be_a_sample() {
    let mut scene = Scene::new();
    scene.options.sample_axis = SampleAxis::File;
    scene.write("a.npy", &npy("<f4", "(2, 3)", false, &singles(0..6)));
    scene.write("b.npy", &npy("<f4", "(4, 3)", true, &singles(0..12)));
    scene.write("c.npy", &npy("<f4", "(0, 3)", false, &[]));
    let index = with(&scene, &["@npy"]).unwrap();
    assert_eq!((index.len(), index.largest(), index.total_bytes()), (3, 48, 72));
    assert_eq!(field(&index, 0).shape, [None, Some(3)]);
    assert_eq!((bytes_of(&index, 0, 0), bytes_of(&index, 1, 0)), (singles(0..6), singles(0..12)));
    let slab = index.array(1, 0).unwrap();
    assert_eq!((slab.shape(), slab.strides()), (&[4, 3][..], vec![1, 4]));
    assert_eq!(index.array(2, 0).unwrap().shape(), [0, 3]);
    samples_are_found_by_extent(&index);
    index.verify().unwrap();
    scene.write("d.npy", &npy("<f8", "(1, 3)", false, &[0; 24]));
    let told = refusal(&scene, &["@npy"]);
    assert!(
        told.contains("d.npy") && told.contains("\"npy\" in another type") && told.contains("a.npy"),
        "{told}"
    );
    scene.write("d.npy", &npy("|O", "(1, 3)", false, &[0; 24]));
    assert!(refusal(&scene, &["@npy"]).contains("d.npy: at byte 0: is an array of type '|O'"));
}

#[test]
fn a_sample_of_4_gib_is_refused() {
    let scene = Scene::new();
    let header = npy("<f4", "(2, 1073741824)", false, &[]);
    scene.write("x.npy", &header);
    // The file is sparse.
    let file = File::options().write(true).open(scene.root.join("x.npy")).unwrap();
    file.set_len(header.len() as u64 + (8 << 30)).unwrap();
    let told = refusal(&scene, &["@x.npy"]);
    assert!(told.contains("sample 0 of") && told.contains("has 4294967296 bytes"), "{told}");
}

#[test]
fn arrays_next_to_other_samples_are_no_dataset() {
    let scene = Scene::new();
    scene.write("cat/0.jpg", &jpeg(0));
    scene.write("cat/0.npy", &npy("<f4", "(1,)", false, &singles(0..1)));
    scene.write("dog/1.jpg", &jpeg(1));
    scene.write("features.npy", &npy("<f4", "(2,)", false, &singles(0..2)));
    assert_eq!(summary(&scene.open().unwrap()).layout, Layout::Folder);
    let flat = Scene::new();
    flat.write("0.jpg", &jpeg(0));
    flat.write("features.npy", &npy("<f4", "(1,)", false, &singles(0..1)));
    assert_eq!(summary(&flat.open().unwrap()).layout, Layout::Folder);
    let only = Scene::new();
    only.write("logs/run.txt", b"nothing to read");
    only.write("x.npy", &npy("<f4", "(2,)", false, &singles(0..2)));
    assert_eq!(with(&only, &["x.npy"]).unwrap().len(), 2);
}

/// Sets the time of a file, so that its stamp changes.
fn touch(scene: &Scene, name: &str) {
    let file = File::options().write(true).open(scene.root.join(name)).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
}

#[test]
fn changes_of_arrays_are_noticed_at_the_start() {
    let mut scene = Scene::new();
    write(&scene);
    let before = with(&scene, &["@x.npy", "y.npy"]).unwrap();
    let version = before.shard_version(before.extent(0).file);
    touch(&scene, "x.npy");
    let touched = with(&scene, &["@x.npy", "y.npy"]).unwrap();
    assert_eq!(summary(&touched).origin, IndexOrigin::Loaded);
    // Samples are in several files, and copies are stale if any of these changed.
    assert_ne!(touched.shard_version(touched.extent(0).file), version);
    scene.options.changed = Changed::Refuse;
    let write = |name, bytes: &[u8]| {
        fs::remove_file(scene.root.join(name)).unwrap();
        scene.write(name, bytes);
        touch(&scene, name);
    };
    write("y.npy", &npy(">i2", "(7,)", false, &[0; 14]));
    assert!(refusal(&scene, &["@x.npy", "y.npy"]).contains("other values in its column \"y.npy\""));
    write("y.npy", &npy(">i2", "(7,)", false, &[0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1]));
    write("x.npy", &npy("<f4", "(7, 3, 2)", false, &singles(0..42)));
    assert!(refusal(&scene, &["@x.npy", "y.npy"]).contains("has the array \"x.npy\" of shape"));
    write("x.npy", b"no array");
    assert!(refusal(&scene, &["@x.npy", "y.npy"]).contains("no readable array \"x.npy\" any more"));
    // A file that no field needs may change.
    write("x.npy", &npy("<f4", "(7, 2, 3)", false, &singles(0..42)));
    write("z.npy", &npy("<f4", "(6, 2)", false, &singles(0..12)));
    with(&scene, &["@x.npy", "y.npy"]).unwrap();
}

#[test]
fn a_shard_that_is_rewritten_during_a_run_is_compared() {
    let scene = Scene::new();
    write(&scene);
    let index = with(&scene, &["@x.npy", "y.npy"]).unwrap();
    let file = index.files().find(|&file| index.path(file).ends_with("x.npy")).unwrap();
    touch(&scene, "x.npy");
    index.accept_shard(file).unwrap();
    assert!(index.has_moved(file));
    scene.write("x.npy", &npy("<f4", "(7, 6)", false, &singles(0..42)));
    touch(&scene, "x.npy");
    assert!(index.accept_shard(file).unwrap_err().to_string().contains("of shape"));
}

#[test]
fn all_files_of_arrays_are_compared_before_an_epoch() {
    let scene = Scene::new();
    let write = |name: &str, shape| drop(scene.write(name, &npy("<f4", shape, false, &singles(0..24))));
    (0..200).for_each(|number| write(&format!("{number:03}.npy"), "(4, 6)"));
    let index = with(&scene, &["@000.npy", "@177.npy"]).unwrap();
    index.check_arrays().unwrap();
    let file = index.files().find(|&file| index.path(file).ends_with("177.npy")).unwrap();
    touch(&scene, "177.npy");
    assert!(!index.has_moved(file));
    index.check_arrays().unwrap();
    assert!(index.has_moved(file));
    write("177.npy", "(4, 3, 2)");
    touch(&scene, "177.npy");
    assert!(index.check_arrays().unwrap_err().to_string().contains("of shape"));
}

#[test]
fn small_rows_of_one_array_are_neighbours() {
    let scene = Scene::new();
    scene.write("x.npy", &npy("<f4", "(100, 3)", false, &singles(0..300)));
    scene.write("y.npy", &npy("<f4", "(100, 3)", false, &singles(0..300)));
    let one = with(&scene, &["@x.npy"]).unwrap();
    let blocks = NeighbourBlocks::new(&one, 100, |member| member, 120);
    assert_eq!((blocks.len(), blocks.bytes_of(0)), (10, 120));
    let piece = one.record(one.extent(15)).unwrap().pieces[0].extent;
    let block = one.neighbours(&blocks, piece).unwrap();
    assert_eq!(block.range(piece), Some(60..72));
    let two = with(&scene, &["@x.npy", "@y.npy"]).unwrap();
    assert_eq!(NeighbourBlocks::new(&two, 100, |member| member, 1200).len(), 100);
}

#[test]
fn mutated_files_are_errors_or_arrays_within_bounds() {
    let whole = npy("<f4", "(7, 2, 3)", false, &singles(0..42));
    let scene = Scene::new();
    fuzz("npy", |random| {
        let mut bytes = whole.clone();
        // Damage the header more often than the data.
        let mut header: Vec<u8> =
            bytes.drain(..if random.below(4) == 0 { bytes.len() } else { 128 }).collect();
        mutate(&mut header, random);
        let bytes = [header, bytes].concat();
        scene.write("x.npy", &bytes);
        let options = IndexOptions { rebuild: true, ..scene.options.clone() };
        let members = Some(vec!["x.npy".to_owned()]);
        let options = IndexOptions { members, of_files: vec!["x.npy".to_owned()], ..options };
        let Ok(index) = DatasetIndex::open(&scene.root, &options) else { return };
        for sample in (0..index.len()).step_by(1 + index.len() as usize / 50) {
            assert_eq!(record_of(&index, sample).len(), index.extent(sample).length as usize);
        }
    });
}

/// An archive of members that are stored as they are, or named as compressed (method 8). Each local header has an extra
/// field that the directory does not have, as `numpy.savez` writes it.
fn npz(members: &[(&str, &[u8], u16)]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes, method) in members {
        let mut sum = flate2::Crc::new();
        sum.update(bytes);
        let (start, size) = (archive.len() as u32, (bytes.len() as u32).to_le_bytes());
        let common = [&[20, 0, 0, 0][..], &method.to_le_bytes(), &[0; 4], &sum.sum().to_le_bytes()].concat();
        let length = (name.len() as u16).to_le_bytes();
        let large = (bytes.len() as u64).to_le_bytes();
        let extra = [&[1, 0, 16, 0][..], &large, &large].concat();
        archive.extend([&b"PK\x03\x04"[..], &common, &[0xff; 8], &length, &[20, 0]].concat());
        archive.extend([name.as_bytes(), &extra, bytes].concat());
        directory.extend([&b"PK\x01\x02\x14\x00"[..], &common, &size, &size, &length, &[0; 12]].concat());
        directory.extend([&start.to_le_bytes()[..], name.as_bytes()].concat());
    }
    let (count, start) = ((members.len() as u16).to_le_bytes(), (archive.len() as u32).to_le_bytes());
    let length = (directory.len() as u32).to_le_bytes();
    archive.extend(directory);
    archive.extend([&b"PK\x05\x06\0\0\0\0"[..], &count, &count, &length, &start, &[0; 2]].concat());
    archive
}

#[test]
fn archives_of_stored_arrays_are_shards() {
    let mut scene = Scene::new();
    let (x, y) = (npy("<f4", "(2, 3)", false, &singles(0..6)), npy("|u1", "(2,)", false, &[1, 0]));
    let long = npy("<f4", "(1, 3)", false, &singles(6..9));
    scene.write("a.npz", &npz(&[("y.npy", &y, 0), ("x.npy", &x, 0), ("readme", b"no array", 0)]));
    scene.write("b.npz", &npz(&[("x.npy", &long, 0), ("y.npy", &npy("|u1", "(1,)", false, &[1]), 0)]));
    let index = with(&scene, &["@x", "y"]).unwrap();
    assert_eq!((index.len(), summary(&index).layout, index.total_reads()), (3, Layout::Npz, 3));
    let rows: Vec<_> = (0..3).map(|sample| record_of(&index, sample)).collect();
    assert_eq!(rows, [singles(0..3), singles(3..6), singles(6..9)]);
    assert_eq!((0..3).map(|sample| index.column_value("y", sample)).collect::<Vec<_>>(), [1, 0, 1]);
    samples_are_found_by_extent(&index);
    index.verify().unwrap();
    scene.options.sample_axis = SampleAxis::File;
    let files = with(&scene, &["@y", "@x"]).unwrap();
    assert_eq!((files.len(), field(&files, 1).shape), (2, vec![None, Some(3)]));
    assert_eq!((bytes_of(&files, 0, 0), bytes_of(&files, 0, 1)), (vec![1, 0], singles(0..6)));
    assert_eq!((bytes_of(&files, 1, 0), bytes_of(&files, 1, 1)), (vec![1], singles(6..9)));
}

#[test]
fn archives_that_cannot_be_read_in_place_are_refused() {
    let mut scene = Scene::new();
    scene.options.rebuild = true;
    let x = npy("<f4", "(2, 3)", false, &singles(0..6));
    let told = |archive: &[u8]| {
        scene.write("a.npz", archive);
        refusal(&scene, &["@x"])
    };
    assert!(told(&npz(&[("x.npy", &x, 8)])).contains("is compressed as a whole: save it with numpy.savez"));
    let told_twice = told(&npz(&[("x.npy", &x, 0), ("x.npy", &x, 0)]));
    assert!(told_twice.contains("two members \"x.npy\""), "{told_twice}");
    let mut damaged = npz(&[("x.npy", &x, 0)]);
    let at = damaged.windows(6).position(|part| part == b"\x93NUMPY").unwrap() + 130;
    damaged[at] ^= 1;
    assert!(told(&damaged).contains("its checksum does not match"));
    assert!(told(&npz(&[("x.npy", &x, 0)])[..200]).contains("does not end like one"));
    assert!(told(b"").contains("not a zip archive"));
    let whole = npz(&[("x.npy", &x, 0), ("y.npy", &npy("|u1", "(2,)", false, &[1, 0]), 0)]);
    fuzz("npz", |random| {
        let mut bytes = whole.clone();
        mutate(&mut bytes, random);
        scene.write("a.npz", &bytes);
        let index = with(&scene, &["@x"]);
        // Every byte of an array is in its checksum, so no array that is read is another one.
        if let Ok(index) = index {
            assert_eq!((index.len(), record_of(&index, 1)), (2, singles(3..6)));
        }
    });
}
