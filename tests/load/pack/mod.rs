//! Datasets that are packed into shards, read from these shards, and unpacked again.

mod broken_off;
mod changed;
mod hostile;
mod kills;
mod manifests;
mod odd_shards;
mod parts;
mod round_trip;
mod same_dataset;
mod tables;
mod tar_labels;
mod tars;
mod verify;

use crate::common::jpeg;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A directory for a dataset, its packed shards, and the unpacked result.
struct Scene {
    directory: TempDir,
}

impl Scene {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// The program with these arguments, and with its own index directory.
    fn command(&self, command: &str, from: &Path, into: &Path, more: &[&str]) -> Command {
        let mut program = Command::new(env!("CARGO_BIN_EXE_foreload"));
        program.arg(command).args([from, into]).args(more).env("FORELOAD_INDEX_DIR", self.path("index"));
        program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        program
    }

    fn run(&self, command: &str, from: &str, into: &str, more: &[&str]) -> Output {
        self.command(command, &self.path(from), &self.path(into), more).output().unwrap()
    }

    /// Runs the program, which must succeed, and returns the summary.
    fn json(&self, command: &str, from: &str, into: &str, more: &[&str]) -> Value {
        let output = self.run(command, from, into, &[more, &["--json"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Runs the program, which must fail, and returns the message.
    fn error(&self, command: &str, from: &str, into: &str, more: &[&str]) -> String {
        let output = self.run(command, from, into, more);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{:?}: {said}", output.status);
        said
    }
}

/// All files below a directory by their paths, with their bytes; `None` for a directory.
fn tree(root: &Path) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            if path.is_dir() {
                found.insert(name, None);
                left.push(path);
            } else {
                found.insert(name, Some(fs::read(&path).unwrap()));
            }
        }
    }
    found
}

/// A dataset of class directories with unusual names.
fn odd_folder(scene: &Scene) {
    let names: [&[u8]; 9] = [
        b"cat/0.jpg",
        b"cat/0.JPEG",
        b"cat/0.png",
        b"cat/with space.jpg",
        b"cat/deep/er/\xff\xfe.jpg",
        b"dog/a.b.c.jpeg",
        b"dog/\xc3\xbc\n.jpg",
        b"dog/-x.webp",
        b"dog/-..jpg",
    ];
    for (number, name) in (0..).zip(names) {
        scene.write(Path::new("data").join(OsStr::from_bytes(name)), &jpeg(number));
    }
    scene.write("data/cat/empty.jpg", b"");
    scene.write("data/cat/empty too.jpg", b"");
    scene.write("data/dog/damaged.jpg", &jpeg(40)[..300]);
    scene.write("data/dog/page.jpg", b"<!DOCTYPE html>");
    fs::create_dir(scene.path("data/none")).unwrap();
}
