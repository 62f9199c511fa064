//! Packed datasets written by an attacker: wrong names and bytes are errors, and no file is written outside of the
//! target.

use super::{Scene, tree};
use crate::common::{jpeg, tar};
use sha2::{Digest, Sha256};
use std::fs;
use std::ops::Range;

/// Makes a packed dataset with one shard; returns the byte range of its footer.
fn packed(scene: &Scene) -> Range<usize> {
    for name in ["aa/bb.jpg", "aa/cc.jpg"] {
        scene.write(format!("data/{name}"), &jpeg(name.len() as u64));
    }
    scene.json("pack", "data", "packed", &[]);
    footer(scene)
}

/// The byte range of the footer of the only shard.
fn footer(scene: &Scene) -> Range<usize> {
    let bytes = fs::read(scene.path("packed/000000.packed")).unwrap();
    let trailer = bytes.len() - 64;
    let number = |at: usize| u64::from_le_bytes(bytes[trailer + at..][..8].try_into().unwrap()) as usize;
    assert_eq!(number(0) + number(8), trailer);
    number(0)..trailer
}

/// Changes the footer, and updates all its digests.
fn forge(scene: &Scene, footer: &Range<usize>, change: impl FnOnce(&mut [u8])) {
    let shard = scene.path("packed/000000.packed");
    let mut bytes = fs::read(&shard).unwrap();
    let hex =
        |bytes: &[u8]| -> String { Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect() };
    let before = hex(&bytes[footer.clone()]);
    change(&mut bytes[footer.clone()]);
    let (digest, after) = (Sha256::digest(&bytes[footer.clone()]), hex(&bytes[footer.clone()]));
    bytes[footer.end + 16..footer.end + 48].copy_from_slice(&digest);
    fs::write(&shard, bytes).unwrap();
    let manifest = scene.path("packed/foreload-packed.json");
    let text = fs::read_to_string(&manifest).unwrap();
    assert!(text.contains(&before));
    fs::write(&manifest, text.replace(&before, &after)).unwrap();
}

/// Overwrites a name in the footer with another one of the same length.
fn rename(footer: &mut [u8], name: &[u8], other: &[u8]) {
    let at = footer.windows(name.len()).rposition(|found| found == name).expect("the name");
    footer[at..at + name.len()].copy_from_slice(other);
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for (name, why) in [
        (&b"/a/bb.jpg"[..], "is absolute"),
        (b"../bb.jpg", "contains the component .."),
        (b"aa/../b.j", "contains the component .."),
        (b"aa//b.jpg", "contains an empty component"),
        (b"./aaa.jpg", "contains an empty component"),
        (b"aa/cc.jpg", "exists already"),
        (b"aa/c\0.jpg", "contains a NUL byte"),
    ] {
        let scene = Scene::new();
        let footer = packed(&scene);
        let before = tree(scene.directory.path());
        forge(&scene, &footer, |footer| rename(footer, b"aa/bb.jpg", name));
        let said = scene.error("unpack", "packed", "back", &["--threads", "1"]);
        assert!(said.contains(why), "{name:?}: {said}");
        let mut after = tree(scene.directory.path());
        after.retain(|path, _| !path.starts_with(b"back") && !path.starts_with(b"packed"));
        assert!(after.iter().all(|(path, bytes)| before.get(path) == Some(bytes)), "{:?}", after.keys());
    }
}

#[test]
fn archives_lie_nowhere_else_either() {
    let scene = Scene::new();
    let image = jpeg(1);
    let archive = tar(&[("aa/bb.jpg", &image), ("aa/cc.jpg", &image)]);
    for (from, to, why) in [
        (&b"shard.tar"[..], &b"../rd.tar"[..], "contains the component .."),
        (b"shard.tar", b"/hard.tar", "is absolute"),
        (b"aa/bb.jpg", b"../bb.jpg", "contains the component .."),
        (b"aa/bb.jpg", b"/a/bb.jpg", "is absolute"),
    ] {
        scene.write("data/shard.tar", &archive);
        for directory in ["packed", "back"] {
            let _ = fs::remove_dir_all(scene.path(directory));
        }
        scene.json("pack", "data", "packed", &[]);
        let footer = footer(&scene);
        forge(&scene, &footer, |footer| rename(footer, from, to));
        let said = scene.error("unpack", "packed", "back", &[]);
        assert!(said.contains(why), "{to:?}: {said}");
        assert!(!scene.path("rd.tar").exists() && !scene.path("bb.jpg").exists());
    }
}

#[test]
fn a_damaged_member_is_refused_by_name() {
    let scene = Scene::new();
    packed(&scene);
    let shard = scene.path("packed/000000.packed");
    let mut bytes = fs::read(&shard).unwrap();
    bytes[60] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let said = scene.error("unpack", "packed", "back", &[]);
    assert!(said.contains("000000.packed") && said.contains("\"aa/bb.jpg\" at byte 16"), "{said}");
    assert!(!scene.path("back/aa/bb.jpg").exists(), "nothing is written that is wrong");
}

#[test]
fn a_link_in_the_way_is_not_followed() {
    let scene = Scene::new();
    packed(&scene);
    fs::create_dir(scene.path("elsewhere")).unwrap();
    // The target must be an empty directory, so that it cannot contain links.
    fs::create_dir(scene.path("back")).unwrap();
    std::os::unix::fs::symlink(scene.path("elsewhere"), scene.path("back/aa")).unwrap();
    assert!(scene.error("unpack", "packed", "back", &[]).contains("is not empty"));
    assert_eq!(fs::read_dir(scene.path("elsewhere")).unwrap().count(), 0);
}
