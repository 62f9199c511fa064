//! Tar shards made by GNU tar, by Python's tarfile and by hand: every sample is found, every damage is named.

use crate::common::scene::{Scene, bytes_of, python, samples_are_found_by_extent, summary};
use crate::common::{succeeds, tick};
use foreload::testing::dataset::archive::{TarMember, TarMembers};
use foreload::testing::dataset::{DatasetIndex, FileId, IndexOptions, Layout, Stamp};
use rustix::fs::{CWD, FileType, Mode};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// A member in the ustar format, with padded data; `kind` is the type flag.
fn member(name: &str, kind: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = header(name.as_bytes(), kind, &format!("{:011o}\0", data.len()).into_bytes());
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn header(name: &[u8], kind: u8, size: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name);
    block[100..108].copy_from_slice(b"0000644\0");
    block[124..136].copy_from_slice(size);
    block[136..148].copy_from_slice(b"00000000000\0");
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn shard(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes: Vec<u8> = members.iter().flat_map(|(name, data)| member(name, b'0', data)).collect();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

fn all_members(bytes: &[u8]) -> Vec<TarMember> {
    let mut members = TarMembers::new(bytes);
    std::iter::from_fn(|| members.next_member().expect("a sound archive")).collect()
}

fn error_of(members: &[(&str, &[u8])]) -> String {
    let scene = Scene::new();
    scene.write("x-01.tar", &shard(members));
    let error = scene.error();
    assert!(error.contains("x-01.tar"), "the shard is named: {error}");
    error
}

/// Checks that a shard made by a real program has the members in the order in which the program got them.
fn check_made_by_tar(format: &str, names: &[String]) {
    let scene = Scene::new();
    let source = scene.root.parent().unwrap().join("source");
    let mut expected = Vec::new();
    let mut members = Vec::new();
    for (i, stem) in names.iter().enumerate() {
        let image: Vec<u8> = format!("{stem} {format}").repeat(1 + 97 * i).into_bytes();
        for (suffix, data) in [("cls", format!("{i}\n").into_bytes()), ("jpg", image.clone())] {
            let path = source.join(format!("{stem}.{suffix}"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, data).unwrap();
            members.push(format!("{stem}.{suffix}"));
        }
        expected.push(image);
    }
    let output = Command::new("tar")
        .args([&format!("--format={format}"), "-cf"])
        .arg(scene.root.join("s-000.tar"))
        .arg("-C")
        .arg(&source)
        .args(&members)
        .output();
    let output = output.expect("GNU tar, which these tests need: install the package tar");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let index = scene.open().unwrap();
    assert_eq!((summary(&index).layout, index.len()), (Layout::Tar, names.len() as u64));
    for (sample, image) in expected.iter().enumerate() {
        assert_eq!(bytes_of(&index, sample as u64), *image, "sample {sample} of {format}");
        assert_eq!(index.label(sample as u64), sample as u32);
    }
    assert_eq!(index.num_classes(), names.len() as u32);
}

#[test]
fn shards_of_gnu_tar() {
    let short = &["0001", "a/b/0002"].map(String::from);
    let long = [(20, 1), (60, 8), (99, 50)]
        .map(|(d, e)| format!("{}/{}/{}", "d".repeat(d), "e".repeat(e), "f".repeat(85)));
    let longest = [256, 300, 900].map(|n| format!("{}/{}ü", "d".repeat(200), "e/".repeat((n - 200) / 2)));
    for format in ["gnu", "pax", "ustar", "oldgnu", "v7"] {
        check_made_by_tar(format, short);
        if format != "v7" {
            check_made_by_tar(format, &[&short[..], &long].concat());
        }
        if matches!(format, "gnu" | "pax" | "oldgnu") {
            check_made_by_tar(format, &[&short[..], &long, &longest].concat());
        }
    }
}

#[test]
fn members_are_where_python_says() {
    const SCRIPT: &str = "
import io, sys, tarfile
path, form = sys.argv[1], getattr(tarfile, sys.argv[2])
with tarfile.open(path, 'w', format=form) as tar:
    def add(name, data=b'', **fields):
        info = tarfile.TarInfo(name)
        info.size = len(data)
        for key, value in fields.items():
            setattr(info, key, value)
        tar.addfile(info, io.BytesIO(data))
    for i in range(40):
        add('x' * (i * 7) + '/%d.jpg' % i if form != tarfile.USTAR_FORMAT else '%d.jpg' % i, b'j' * (i * 100))
        add('directory%d' % i, type=tarfile.DIRTYPE)
        add('link%d' % i, type=tarfile.SYMTYPE, linkname='y' * (i * 2))
        add('hard%d' % i, type=tarfile.LNKTYPE, linkname='0.jpg')
    if form == tarfile.PAX_FORMAT:
        add('\\u00fc.jpg', b'pax', pax_headers={'comment': 'line\\nline', 'size': '3'})
    add('fifo', type=tarfile.FIFOTYPE)
with tarfile.open(path) as tar:
    for m in tar:
        sys.stdout.write('%s %d %d %d\\n' % (m.name, m.offset_data, m.size if m.isreg() else 0, m.isreg()))
";
    for format in ["GNU_FORMAT", "PAX_FORMAT", "USTAR_FORMAT"] {
        let Some(mut python) = python() else { return };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.tar");
        let output = succeeds(python.args(["-c", SCRIPT]).arg(&path).arg(format).env("PYTHONUTF8", "1"));
        let ours: String = all_members(&fs::read(&path).unwrap())
            .iter()
            .map(|m| {
                let name = String::from_utf8_lossy(&m.name);
                format!("{} {} {} {}\n", name.trim_end_matches('/'), m.offset, m.size, u8::from(m.plain))
            })
            .collect();
        assert_eq!(ours, String::from_utf8(output.stdout).unwrap(), "{format}");
    }
}

#[test]
fn huge_members_are_stepped_over() {
    let scene = Scene::new();
    let file = File::create(scene.root.join("huge.tar")).unwrap();
    // The size is 20 GiB, in base 256 as GNU tar writes sizes of 8 GiB and more; the file is sparse.
    let huge = 20u64 << 30;
    let mut size = [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    size[4..].copy_from_slice(&huge.to_be_bytes());
    file.write_all_at(&header(b"huge.bin", b'0', &size), 0).unwrap();
    file.write_all_at(&shard(&[("1.jpg", b"image"), ("1.cls", b"7")]), 512 + huge).unwrap();
    let index = scene.open().unwrap();
    assert_eq!(index.extent(0).offset, huge + 1024);
    assert_eq!((bytes_of(&index, 0), index.label(0)), (b"image".to_vec(), 7));
    drop(index);
    file.write_all_at(&header(b"huge.jpg", b'0', &size), 0).unwrap();
    assert!(
        DatasetIndex::open(&scene.root, &IndexOptions { rebuild: true, ..scene.options.clone() })
            .err()
            .is_some_and(|error| error.to_string().contains("4 GiB or more"))
    );
}

#[test]
fn samples_are_what_shares_a_stem() {
    let scene = Scene::new();
    let bytes = shard(&[
        ("a/1.cls", b" 3\n"),
        ("a/1.jpg", b"one"),
        ("b/1.JPEG", b"two"),
        ("b/1.json", br#"{"caption": "x", "label": 4}"#),
        ("b/1.seg.png", b"mask"),
        ("b/2.json", br#"{"cls": 5}"#),
        ("b/2.png", b"three"),
        ("b/3.txt", b"no image"),
        ("b/4.jpg", b""),
        ("b/4.json", br#"{"label": "no number, but .cls comes first"}"#),
        ("b/4.cls", b"6"),
        ("README", b"?"),
        ("b/.hidden.jpg", b"?"),
        ("b/5.jpg", b"its label lies further on"),
        ("b/6.cls", b"9"),
        ("b/5.cls", b"8"),
        ("b/7.txt", b"no image either"),
        ("b/6.jpg", b"its label came before"),
    ]);
    scene.write("s.tar", &bytes);
    let index = scene.open().unwrap();
    let samples: Vec<(Vec<u8>, u32)> =
        (0..index.len()).map(|s| (bytes_of(&index, s), index.label(s))).collect();
    let expected: [(&[u8], u32); 6] = [
        (b"one", 3),
        (b"two", 4),
        (b"three", 5),
        (b"", 6),
        (b"its label lies further on", 8),
        (b"its label came before", 9),
    ];
    assert_eq!(samples, expected.map(|(bytes, label)| (bytes.to_vec(), label)));
    assert!(index.classes().is_empty());
    let skipped = summary(&index).notes.skipped;
    assert_eq!(
        (skipped["samples without an image"].example.as_str(), skipped["samples without an image"].count),
        ("b/3", 2)
    );
    assert_eq!(skipped["members without stem or suffix"].count, 1);
    assert_eq!(skipped["hidden files"].example, "b/.hidden.jpg");
    assert!(summary(&index).keys.contains(&"seg.png".to_owned()));
}

#[test]
fn links_and_sparse_files_are_no_samples() {
    let mut bytes = Vec::new();
    bytes.extend(member("0.cls", b'0', b"1"));
    bytes.extend(member("0.jpg", b'2', b""));
    // This is an old GNU sparse file with two more blocks of map.
    let mut sparse = member("1.jpg", b'S', b"");
    sparse[482] = 1;
    sparse[148..156].fill(b' ');
    let size = sparse.iter().map(|&b| u32::from(b)).sum::<u32>();
    sparse[148..156].copy_from_slice(format!("{size:06o}\0 ").as_bytes());
    let mut map = vec![0; 1024];
    map[504] = 1;
    bytes.extend(sparse);
    bytes.extend(map);
    bytes.extend(member("x", b'x', b"22 GNU.sparse.major=1\n"));
    bytes.extend(member("2.jpg", b'0', b"1\n0\n512\n"));
    bytes.extend(member("directory/", 0, b""));
    bytes.extend(shard(&[("3.jpg", b"image"), ("3.cls", b"1")]));
    let members = all_members(&bytes);
    let plain: Vec<&[u8]> = members.iter().filter(|m| m.plain).map(|m| m.name.as_slice()).collect();
    assert_eq!(plain, [&b"0.cls"[..], b"3.jpg", b"3.cls"]);
    assert_eq!(members.len(), 7);
    let scene = Scene::new();
    scene.write("s.tar", &bytes);
    assert_eq!(scene.open().unwrap().len(), 1);
}

#[test]
fn shards_are_taken_by_name_and_may_stand_alone() {
    let scene = Scene::new();
    for name in ["s-10.tar", "s-9.tar", "s-1.tar"] {
        scene.write(name, &shard(&[("1.jpg", name.as_bytes()), ("1.cls", b"0")]));
    }
    scene.write("s.json", b"{}");
    let index = scene.open().unwrap();
    let order: Vec<Vec<u8>> = (0..3).map(|s| bytes_of(&index, s)).collect();
    assert_eq!(order, [b"s-1.tar".to_vec(), b"s-10.tar".to_vec(), b"s-9.tar".to_vec()]);
    assert_eq!(index.path(FileId(1)), scene.root.join("s-10.tar"));
    let one = DatasetIndex::open(&scene.root.join("s-9.tar"), &scene.options).unwrap();
    assert_eq!((one.len(), bytes_of(&one, 0)), (1, b"s-9.tar".to_vec()));
    assert_eq!(one.path(FileId(0)), scene.root.join("s-9.tar"));
}

/// Opening must not wait for a writer of the pipe.
#[test]
fn a_pipe_is_no_shard() {
    let scene = Scene::new();
    scene.write("1.tar", &shard(&[("1.jpg", b"an image")]));
    let pipe = scene.root.join("2.tar");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let message = scene.open().err().expect("a pipe").to_string();
    assert!(message.contains("2.tar: is not a regular file; repair it"), "{message}");
    fs::remove_file(&pipe).unwrap();
    assert_eq!(scene.open().unwrap().len(), 1);
}

#[test]
fn a_sample_is_found_by_its_extent() {
    let scene = Scene::new();
    let image = |i: usize| vec![i as u8; i * 37 % 1300];
    for (s, samples) in [1, 40, 2, 17].into_iter().enumerate() {
        let images: Vec<_> = (0..samples).map(|i| (format!("{i:03}.jpg"), image(i + s))).collect();
        let members: Vec<_> = images.iter().map(|(name, data)| (name.as_str(), data.as_slice())).collect();
        scene.write(format!("{s}.tar"), &shard(&members));
    }
    // A shard without samples comes between others.
    scene.write("2b.tar", &shard(&[("1.txt", b"no image")]));
    let index = scene.open().unwrap();
    assert_eq!(index.len(), 60);
    samples_are_found_by_extent(&index);
}

#[test]
fn a_replaced_shard_has_another_stamp() {
    let scene = Scene::new();
    let path = scene.write("s.tar", &shard(&[("1.jpg", b"image"), ("1.cls", b"0")]));
    let index = scene.open().unwrap();
    let stamp = index.shard_stamp(FileId(0)).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    let modified = metadata.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!((stamp.size, stamp.mtime as u128), (metadata.len(), modified.as_nanos()));
    assert_eq!(stamp, Stamp::of(&metadata));
    tick();
    fs::remove_file(&path).unwrap();
    scene.write("s.tar", &shard(&[("1.jpg", b"other"), ("1.cls", b"0")]));
    let replaced = scene.open().unwrap();
    assert_eq!(replaced.fingerprint(), index.fingerprint(), "images of the same length");
    assert_eq!(replaced.shard_stamp(FileId(0)).unwrap(), Stamp::of(&fs::metadata(&path).unwrap()));
    assert_ne!(replaced.shard_version(FileId(0)).unwrap(), index.shard_version(FileId(0)).unwrap());
}

#[test]
fn labels_are_for_all_or_none() {
    let scene = Scene::new();
    scene.write("s.tar", &shard(&[("1.jpg", b"1"), ("2.jpg", b"2"), ("2.json", b"{}")]));
    let index = scene.open().unwrap();
    assert!(summary(&index).notes.unlabeled);
    assert!(!index.is_labeled());
    assert_eq!((index.label(0), index.label(1), index.num_classes()), (0, 0, 0));

    let error = error_of(&[("a/1.jpg", b"1"), ("a/1.cls", b"0"), ("a/2.jpg", b"2")]);
    assert!(error.contains("\"a/2\"") && error.contains(".cls"), "{error}");
    for text in [&b"cat"[..], b"-1", b"1 2", b"", b"4294967295", b"\xff", &[b'1'; 100]] {
        let error = error_of(&[("1.cls", text), ("1.jpg", b"1")]);
        assert!(error.contains("\"1.cls\" should hold a class number"), "{error}");
    }
    for text in
        [&br#"{"label": ["cat"]}"#[..], br#"{"cls": 1.5}"#, br#"{"label": -1}"#, b"{", &[b'['; 100_000]]
    {
        let error = error_of(&[("1.json", text), ("1.jpg", b"1")]);
        assert!(error.contains("\"1.json\""), "{error}");
    }
}

#[test]
fn two_members_of_one_kind_are_refused() {
    let pairs: [(&str, &[u8], &str, &[u8]); 3] = [
        ("a/1.jpg", b"1", "a/1.jpg", b"1"),
        ("a/1.cls", b"1", "a/1.CLS", b"1"),
        ("a/1.json", b"{}", "a/1.json", b"not JSON"),
    ];
    for (one, first, other, second) in pairs {
        // The two members are adjacent, or have others between them.
        for between in [&[][..], &[("2.jpg", &b"2"[..]), ("2.cls", b"0")]] {
            let members = [&[("a/1.txt", &b"x"[..]), (one, first)], between, &[(other, second)]].concat();
            let [start, end] = [1536, 2560 + 1024 * between.len()];
            let error = error_of(&members);
            for part in [
                format!("{:?}", "a/1"),
                format!("{one:?} at byte {start}"),
                format!("{other:?} at byte {end}"),
            ] {
                assert!(error.contains(&part), "{part} in {error}");
            }
        }
    }
}

/// If a sample has two images, it is ambiguous which is meant, and an index that needs one of them reports that.
#[test]
fn two_images_of_a_sample_are_known() {
    let scene = Scene::new();
    scene.write("0.tar", &shard(&[("a.jpg", b"1"), ("b.png", b"2"), ("b.seg.png", b"3")]));
    assert_eq!(scene.open().unwrap().ambiguous(), None);
    scene.write("1.tar", &shard(&[("a.jpg", b"1"), ("c.png", b"2"), ("c.jpg", b"3")]));
    let index = scene.open().unwrap();
    assert_eq!((index.ambiguous(), bytes_of(&index, 3)), (Some("c"), b"3".to_vec()));
}

#[test]
fn a_shard_cut_anywhere_is_refused() {
    let data = vec![1; 700];
    let whole = [
        member("././@LongLink", b'L', b"a/rather/long/name.jpg\0"),
        shard(&[("short", &data), ("1.cls", b"1"), ("1.jpg", &data)]),
    ]
    .concat();
    let end = whole.len() - 1024;
    for length in (1..end + 512).step_by(37).chain([512, 1024, end - 1, end, end + 1, end + 511]) {
        let mut members = TarMembers::new(&whole[..length]);
        let error = loop {
            match members.next_member() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{length} of {} bytes pass as whole", whole.len()),
                Err(error) => break error,
            }
        };
        assert!(error.message.contains("truncated"), "{length}: {}", error.message);
        assert!(error.offset <= length as u64);
    }
    let scene = Scene::new();
    scene.write("s.tar", &whole[..end - 512]);
    let error = scene.error();
    assert!(error.contains("s.tar") && error.contains("at byte") && error.contains("truncated"), "{error}");
}

#[test]
fn archives_put_together_by_cat_are_refused_and_zeros_are_not() {
    let first = shard(&[("1.jpg", b"1"), ("1.cls", b"1")]);
    let second = shard(&[("2.jpg", b"2"), ("2.cls", b"2")]);
    let scene = Scene::new();
    scene.write("s-7.tar", &[&first[..], &second].concat());
    let error = scene.error();
    let (mark, place) = (first.len() - 1024, first.len());
    assert!(error.contains("s-7.tar") && error.contains(&format!("at byte {place}")), "{error}");
    assert!(error.contains(&format!("end-of-archive mark at byte {mark}")), "{error}");
    // One byte that is not zero, anywhere after the first block of zeros, is an error.
    for place in [mark + 512, mark + 1023, mark + 5000, mark + 9999] {
        let mut bytes = first.clone();
        bytes.resize(mark + 10_000, 0);
        assert_eq!(all_members(&bytes).len(), 2, "tar pads to whole records");
        bytes[place] = 1;
        let mut members = TarMembers::new(&bytes[..]);
        let error = std::iter::from_fn(|| members.next_member().transpose()).find_map(Result::err);
        assert_eq!(error.expect("the byte is noticed").offset, place as u64);
    }
}

#[test]
fn what_is_no_plain_tar_is_refused_with_a_reason() {
    for (magic, name) in [(&b"\x1f\x8b\x08"[..], "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh9", "bzip2")] {
        let scene = Scene::new();
        scene.write("s.tar", &[magic, &[0; 600]].concat());
        assert!(scene.error().contains(name), "{}", scene.error());
    }
    for others in [&[][..], &["s-2.tar"]] {
        let scene = Scene::new();
        scene.write("s-1.tar.gz", b"\x1f\x8b");
        others.iter().for_each(|other| drop(scene.write(other, &shard(&[("1.jpg", b"1")]))));
        let error = scene.error();
        assert!(error.contains("s-1.tar.gz") && error.contains("compressed"), "{error}");
        let error = DatasetIndex::open(&scene.root.join("s-1.tar.gz"), &scene.options).err().unwrap();
        assert!(error.to_string().contains("gzip"), "{error}");
    }
    let scene = Scene::new();
    scene.write("s.tar", &[b'x'; 2000]);
    assert!(scene.error().contains("not a tar archive"), "{}", scene.error());
    let mut damaged = shard(&[("1.jpg", b"1"), ("2.jpg", b"2")]);
    damaged[1024] ^= 1;
    scene.write("s.tar", &damaged);
    assert!(scene.error().contains("at byte 1024: no tar header"), "{}", scene.error());
    scene.write("s.tar", &shard(&[("1.txt", b"1")]));
    assert!(scene.error().contains("no .jpg"), "{}", scene.error());
}

#[test]
fn the_fingerprint_of_a_copy_is_the_same() {
    let build = |name: &str, members: &[(&str, &[u8])]| {
        let scene = Scene::new();
        scene.write(Path::new(name), &shard(members));
        scene.open().unwrap().fingerprint()
    };
    let base = build("s.tar", &[("1.jpg", b"a"), ("1.cls", b"1")]);
    assert_eq!(base, build("s.tar", &[("1.jpg", b"b"), ("1.cls", b"1")]), "same extents");
    assert_ne!(base, build("t.tar", &[("1.jpg", b"a"), ("1.cls", b"1")]));
    assert_ne!(base, build("s.tar", &[("1.jpg", b"a"), ("1.cls", b"2")]));
    assert_ne!(base, build("s.tar", &[("1.cls", b"1"), ("1.jpg", b"a")]));
    assert_ne!(base, build("s.tar", &[("1.jpg", b"aa"), ("1.cls", b"1")]));
}

/// Orders, caches and states of earlier versions depend on these fingerprints. They are the same as when only adjacent
/// members were grouped.
#[test]
fn the_fingerprints_of_ordinary_shards_stay() {
    let scene = Scene::new();
    for number in 0..3usize {
        let members: Vec<(String, Vec<u8>)> = (0..20 + number)
            .flat_map(|i| {
                let stem = format!("{}/{:05}", ["a", "b.c/d", "."][number], 7919 * i % 100_000);
                let image = (format!("{stem}.{}", ["jpg", "JPEG", "png"][i % 3]), vec![1; 331 * i % 1700]);
                let caption = (format!("{stem}.txt"), b"a caption".to_vec());
                let label = match i % 4 {
                    0 => (format!("{stem}.json"), format!("{{\"label\": {i}}}").into_bytes()),
                    _ => (format!("{stem}.cls"), i.to_string().into_bytes()),
                };
                if i % 2 == 0 { [label, image, caption] } else { [image, caption, label] }
            })
            .collect();
        let members: Vec<_> = members.iter().map(|(name, data)| (name.as_str(), data.as_slice())).collect();
        scene.write(format!("s-{number}.tar"), &shard(&members));
    }
    assert_eq!(
        scene.open().unwrap().fingerprint().to_string(),
        "b95503f340e3d9f9853bb7ec4de6ef19d7dd1563d0572a6b8314914a48e8cc2b"
    );
    let scene = Scene::new();
    scene.write(
        "s.tar",
        &shard(&[("2.jpg", b"one"), ("1.jpg", b"three"), ("1.txt", b"text"), ("3.png", b"")]),
    );
    assert_eq!(
        scene.open().unwrap().fingerprint().to_string(),
        "03450032fc5ff9d808be3a706f09029d6bc058f00ee356ee8fc0283dfc7b5be3"
    );
}
