//! Unpacking restores the packed files byte for byte.

use super::{Scene, odd_folder, tree};
use crate::common::scene::{python, tfrecord};
use crate::common::{jpeg, succeeds};
use foreload::testing::dataset::archive::TarMembers;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn files_of_any_name_come_back() {
    let scene = Scene::new();
    odd_folder(&scene);
    for (number, size) in ["1", "3000", "100000000"].into_iter().enumerate() {
        let (into, back) = (format!("packed-{number}"), format!("back-{number}"));
        let packed = scene.json("pack", "data", &into, &["--shard-size", size]);
        assert_eq!(packed["samples"], 13);
        let unpacked = scene.json("unpack", &into, &back, &[]);
        assert_eq!(unpacked["files"], 13);
        assert_eq!(tree(&scene.path("data")), tree(&scene.path(&back)), "shards of {size} bytes");
    }
}

#[test]
fn any_file_and_every_record_come_back_and_the_rest_is_counted() {
    let scene = Scene::new();
    odd_folder(&scene);
    scene.write("data/cat/words.txt", b"some words");
    scene.write("data/dog/.hidden", b"left out");
    let images = scene.json("pack", "data", "images", &[]);
    assert_eq!(
        (&images["samples"], &images["left_out"]["files that are no images"]["count"]),
        (&13.into(), &1.into())
    );
    let files = scene.json("pack", "data", "files", &["--files"]);
    assert_eq!((&files["samples"], &files["left_out"]["hidden files"]["count"]), (&14.into(), &1.into()));
    scene.json("unpack", "files", "back", &[]);
    let mut expected = tree(&scene.path("data"));
    expected.remove(&b"dog/.hidden"[..]);
    assert_eq!(tree(&scene.path("back")), expected);

    let payloads = [&b"one"[..], b"", &jpeg(1), &[7; 5000]];
    scene.write("records/a.tfrecord", &tfrecord(&payloads));
    scene.write("records/b.tfrecord", &tfrecord(&payloads[1..3]));
    assert_eq!(scene.json("pack", "records", "packed", &["--files", "--shard-size", "600"])["samples"], 6);
    assert_eq!(scene.json("unpack", "packed", "again", &[])["archives"], 2);
    assert_eq!(tree(&scene.path("again")), tree(&scene.path("records")));
}

/// Names and bytes of the members of an archive, in order.
fn members(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let bytes = fs::read(path).unwrap();
    let mut members = TarMembers::new(&bytes[..]);
    let mut found = Vec::new();
    while let Some(member) = members.next_member().unwrap() {
        if member.plain {
            let data = &bytes[member.offset as usize..][..member.size as usize];
            found.push((member.name, data.to_vec()));
        }
    }
    found
}

#[test]
fn members_of_real_tar_shards_come_back_in_their_order() {
    let Some(mut python) = python() else { return };
    let scene = Scene::new();
    for number in 0..12 {
        scene.write(format!("files/{number:02}.jpg"), &jpeg(number));
    }
    const SCRIPT: &str = "
import io, pathlib, sys, tarfile
base = pathlib.Path(sys.argv[1])
(base / 'data').mkdir()
for shard, form in enumerate([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT]):
    with tarfile.open(base / f'data/s-{shard}.tar', 'w', format=form) as tar:
        def add(name, data):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.uid = len(data), 1700000000, 1000
            tar.addfile(info, io.BytesIO(data))
        directory = tarfile.TarInfo('some')
        directory.type = tarfile.DIRTYPE
        tar.addfile(directory)
        add('README', b'no stem')
        for number in range(4 * shard, 4 * shard + 4):
            add(f'./some/{number:02}.cls', str(number % 3).encode())
            add(f'./some/{number:02}.jpg', (base / f'files/{number:02}.jpg').read_bytes())
            add(f'./some/{number:02}.txt', b'')
        # Two members of one name, members apart from their image, and names that need more than a header.
        add(f'./some/{4 * shard:02}.txt', b'a second')
        for number in range(4 * shard, 4 * shard + 4):
            add(f'./some/{number:02}.seg.png', b'mask' * number)
        add('d' * 90 + '/' + 'f' * 90 + '.jpg', (base / 'files/00.jpg').read_bytes())
        add('imageless.txt', b'left out')
";
    succeeds(python.args(["-c", SCRIPT]).arg(scene.path("")));
    let packed = scene.json("pack", "data", "packed", &["--shard-size", "9000"]);
    assert_eq!((&packed["samples"], &packed["members_left_out"]), (&15.into(), &6.into()));
    assert!(packed["shards"].as_u64().unwrap() > 3, "a tar shard is divided among several packed ones");
    let unpacked = scene.json("unpack", "packed", "back", &[]);
    assert_eq!((&unpacked["archives"], &unpacked["members_left_out"]), (&3.into(), &6.into()));
    for shard in 0..3 {
        let name = format!("s-{shard}.tar");
        let mut expected = members(&scene.path("data").join(&name));
        expected.retain(|(name, _)| name != b"README" && name != b"imageless.txt");
        assert_eq!(members(&scene.path("back").join(&name)), expected);
        // GNU tar can read it, too.
        let listed = succeeds(Command::new("tar").arg("-tf").arg(scene.path("back").join(&name)));
        assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), expected.len());
    }
    // A single shard is a dataset, too.
    scene.json("pack", "data/s-1.tar", "single", &[]);
    scene.json("unpack", "single", "single-back", &[]);
    let single = members(&scene.path("single-back/s-1.tar"));
    assert_eq!(single, members(&scene.path("back/s-1.tar")));
}

#[test]
fn nothing_is_packed_over_something_else() {
    let scene = Scene::new();
    odd_folder(&scene);
    scene.write("other/file", b"");
    for (from, into, why) in [
        ("data", "other", "contains something else (file)"),
        ("data", "data/packed", "the same directory or nested"),
        ("data", ".", "the same directory or nested"),
        ("none", "packed", "does not exist"),
    ] {
        let said = scene.error("pack", from, into, &[]);
        assert!(said.contains(why), "{said}");
    }
    let first = scene.json("pack", "data", "packed", &["--shard-size", "5000"]);
    let before = tree(&scene.path("packed"));
    assert!(scene.error("pack", "packed", "twice", &[]).contains("is already a packed dataset"));
    assert!(scene.error("unpack", "packed", "other", &[]).contains("is not empty"));
    assert!(scene.error("unpack", "packed", "packed/back", &[]).contains("the same directory or nested"));
    assert!(scene.error("unpack", "data", "back", &[]).contains("is not a packed dataset"));
    // A finished dataset is not changed, and a dataset that has changed is not mixed with its earlier version.
    let again = scene.json("pack", "data", "packed", &["--shard-size", "5000"]);
    assert_eq!((&again["samples_before"], &again["bytes"]), (&first["samples"], &first["bytes"]));
    scene.write("data/cat/another.jpg", &jpeg(50));
    assert!(scene.error("pack", "data", "packed", &["--shard-size", "5000"]).contains("has changed"));
    assert_eq!(tree(&scene.path("packed")), before);
}
