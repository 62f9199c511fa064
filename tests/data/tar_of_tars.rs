//! Tars of tars, the format of ImageNet's training images. Images are located by the inner archives, and labels are the
//! ranks of the tars' names in sorted order. Damaged or hostile input gives an error, or results within bounds.

use crate::common::scene::{Scene, bytes_of, python, samples_are_found_by_extent, summary};
use crate::common::{fuzz, succeeds};
use crate::fuzz::{mend_checksums, mutate};
use foreload::testing::dataset::layouts::tar_of_tars;
use foreload::testing::dataset::{DatasetIndex, IndexOrigin, Layout, Stamp};
use std::fs;
use std::process::Command;

type Members<'a> = &'a [(&'a str, &'a [u8])];

fn tar(members: Members<'_>) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, data) in members {
        let mut header = tar::Header::new_ustar();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        // The crate refuses names with `..`, which other programs write.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        tar.append(&header, *data).unwrap();
    }
    tar.into_inner().unwrap()
}

fn train() -> Vec<u8> {
    let dogs = tar(&[("n02_1.JPEG", b"dog one"), ("n02_2.JPEG", b""), ("n02_3.png", b"dog three")]);
    let cats = tar(&[("n01_7.JPEG", b"cat seven")]);
    tar(&[("n02.tar", &dogs), ("./n01.tar", &cats)])
}

fn open(bytes: &[u8]) -> (Scene, foreload::Result<DatasetIndex>) {
    let scene = Scene::new();
    let path = scene.write("ILSVRC2012_img_train.tar", bytes);
    let index = DatasetIndex::open(&path, &scene.options);
    (scene, index)
}

fn samples(index: &DatasetIndex) -> Vec<(Vec<u8>, u32)> {
    (0..index.len()).map(|sample| (bytes_of(index, sample), index.label(sample))).collect()
}

fn error_of(bytes: &[u8]) -> String {
    let (_scene, index) = open(bytes);
    let error = index.err().expect("an error").to_string();
    assert!(error.contains("ILSVRC2012_img_train.tar: "), "the shard is named: {error}");
    error
}

#[test]
fn labels_are_the_places_of_the_tars_names() {
    let (scene, index) = open(&train());
    let index = index.unwrap();
    assert_eq!(summary(&index).layout, Layout::TarOfTars);
    let expected: [(&[u8], u32); 4] = [(b"dog one", 1), (b"", 1), (b"dog three", 1), (b"cat seven", 0)];
    assert_eq!(samples(&index), expected.map(|(image, label)| (image.to_vec(), label)));
    assert_eq!(index.classes(), ["n01", "n02"]);
    samples_are_found_by_extent(&index);
    // The same by the directory that holds the tar, and by braces.
    assert_eq!(samples(&scene.open().unwrap()), samples(&index));
    let listed = scene.root.join("ILSVRC{2012,2012..2012}_img_train.tar");
    assert!(DatasetIndex::open(&listed, &scene.options).is_err(), "no such shard");
}

#[test]
fn written_by_gnu_tar_it_has_the_files_of_the_class_directories() {
    let scene = Scene::new();
    let write = |arguments: &[&str]| {
        let output = Command::new("tar").current_dir(&scene.root).args(arguments).output();
        let output = output.expect("GNU tar, which these tests need: install the package tar");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    for class in ["n03", "n01", "n02"] {
        for number in 0..40 {
            let text = format!("{class} {number}").repeat(1 + 31 * number);
            scene.write(format!("{class}/{class}_{number:04}.JPEG"), text.as_bytes());
        }
    }
    let directories = scene.open().unwrap();
    let by_class = |index: &DatasetIndex| {
        let mut all = samples(index);
        all.sort();
        all
    };
    for format in ["gnu", "pax", "ustar", "v7"] {
        let form = format!("--format={format}");
        for class in ["n03", "n01", "n02"] {
            write(&[&form, "-cf", &format!("{class}.tar"), "-C", class, "--sort=name", "."]);
        }
        write(&[&form, "-cf", "../train.tar", "n03.tar", "n01.tar", "n02.tar"]);
        let path = scene.root.parent().unwrap().join("train.tar");
        let index = DatasetIndex::open(&path, &scene.options).unwrap();
        assert_eq!(by_class(&index), by_class(&directories), "{format}");
        assert_eq!(index.classes(), directories.classes());
    }
}

#[test]
fn images_are_where_python_says() {
    const SCRIPT: &str = "
import io, sys, tarfile
outer = tarfile.open(sys.argv[1])
for tar in outer:
    inner = tarfile.open(fileobj=io.BytesIO(outer.extractfile(tar).read()))
    for image in inner:
        sys.stdout.write('%d %d %s\\n' % (tar.offset_data + image.offset_data, image.size, tar.name[-7:-4]))
";
    let Some(mut python) = python() else { return };
    let (scene, index) = open(&train());
    let index = index.unwrap();
    let path = scene.root.join("ILSVRC2012_img_train.tar");
    let output = succeeds(python.args(["-c", SCRIPT]).arg(path));
    let classes = index.classes();
    let line = |sample| {
        let extent = index.extent(sample);
        format!("{} {} {}\n", extent.offset, extent.length, classes[index.label(sample) as usize])
    };
    assert_eq!((0..index.len()).map(line).collect::<String>(), String::from_utf8(output.stdout).unwrap());
}

#[test]
fn what_is_no_tar_of_tars_is_refused() {
    let images = tar(&[("a.jpg", b"a")]);
    let mut long = images.clone();
    // The only member of the inner tar claims to be longer than the tar.
    long[124..136].copy_from_slice(b"00000007777\0");
    mend_checksums(&mut long);
    let thrice = tar(&[("b.tar", &images)]);
    for (members, said) in [
        (&[("a.tar", &images[..]), ("README", b"?")][..], "\"README\" is next to tars"),
        (&[("a.tar", &images), ("1.jpg", b"?")], "\"1.jpg\" is next to tars"),
        (
            &[("a.tar", &long), ("b.tar", &images)],
            "in \"a.tar\", which begins at byte 512: the shard is truncated: 4095 more",
        ),
        (&[("a.tar", &thrice)], "\"b.tar\" is not a .jpg, .jpeg, .jpe, .jfif, .png or .webp image"),
        (&[("a.tar", &images[..600])], "in \"a.tar\""),
        (&[("a.tar", &images[..1024])], "without an end-of-archive mark"),
        (&[("a.tar", b"no tar at all")], "in \"a.tar\""),
        (&[("a.tar", &images), ("x/a.tar", &images)], "\"x/a.tar\" is a second tar of the class \"a\""),
        (&[("a.tar", b"\x1f\x8b and so on")], "is compressed with gzip"),
        (&[("a.tar", &tar(&[("c.cls", b"1")]))], "\"c.cls\" is not a"),
        (&[("a.tar", &tar(&[]))], "hold no"),
        (&[("b.tar", &images), ("tar", &images)], "\"tar\" is next to tars"),
    ] {
        let error = error_of(&tar(members));
        assert!(error.contains(said), "{said}: {error}");
    }
}

#[test]
fn a_sample_of_a_tar_and_an_image_is_no_tar_of_tars() {
    let (_scene, index) = open(&tar(&[("0.tar", b"anything"), ("0.jpg", b"image"), ("0.cls", b"3")]));
    let index = index.unwrap();
    assert_eq!((summary(&index).layout, samples(&index)), (Layout::Tar, vec![(b"image".to_vec(), 3)]));
}

#[test]
fn names_are_no_paths() {
    let images = tar(&[("/etc/a.JPEG", b"a"), ("../../b.JPEG", b"b")]);
    let (_scene, index) = open(&tar(&[("../n01.tar", &images)]));
    let index = index.unwrap();
    assert_eq!(index.classes(), ["n01"]);
    assert_eq!(samples(&index), [(b"a".to_vec(), 0), (b"b".to_vec(), 0)]);
}

#[test]
fn another_class_name_in_the_same_place_is_a_change() {
    let (scene, index) = open(&train());
    let before = index.unwrap().fingerprint();
    let path = scene.root.join("ILSVRC2012_img_train.tar");
    let mut bytes = fs::read(&path).unwrap();
    bytes[..3].copy_from_slice(b"n09");
    mend_checksums(&mut bytes);
    fs::write(&path, &bytes).unwrap();
    let index = DatasetIndex::open(&path, &scene.options).unwrap();
    assert_eq!(index.classes(), ["n01", "n09"]);
    assert!(matches!(summary(&index).origin, IndexOrigin::Built(_)));
    assert_ne!(index.fingerprint(), before);
    assert_ne!(Stamp::at(&path).unwrap(), Stamp::default());
}

#[test]
fn any_bytes_are_a_tar_of_tars_or_an_error() {
    let seed = train();
    let mut rounds = 0;
    let (mut read, mut refused) = (0, 0);
    fuzz("tar of tars", |random| {
        // Each round has 60 cases, so that there are at least a thousand in all.
        for _ in 0..60 {
            let mut bytes = seed.clone();
            mutate(&mut bytes, random);
            if random.below(4) != 0 {
                mend_checksums(&mut bytes);
            }
            rounds += 1;
            let Ok(found) = tar_of_tars(&bytes[..]) else {
                refused += 1;
                continue;
            };
            read += 1;
            let (rows, findings) = (&found.rows, &found.findings);
            for row in &rows.samples {
                assert!(row.offset + u64::from(row.length) <= bytes.len() as u64, "{row:?}");
                assert!((row.label as usize) < findings.classes.len());
            }
            assert!(rows.samples.is_sorted_by_key(|row| row.offset));
            assert!(findings.classes.is_sorted());
            assert_eq!((rows.counts.len(), rows.members.len()), (rows.samples.len(), rows.samples.len()));
            assert!(rows.members.iter().all(|row| (row.key as usize) < rows.keys.len()));
        }
    });
    assert!(rounds >= 1000 && read > 0 && refused > 0, "{rounds} rounds, {read} read, {refused} refused");
}
