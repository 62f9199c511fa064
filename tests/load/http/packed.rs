//! Packing a dataset on a server gives the same shards as packing the directory that it serves, in Foreload's format
//! and as tars.

use super::Served;
use crate::common::Dataset;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The shards in a directory by their names.
fn shards(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
    let named =
        entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    named.filter(|(name, _)| name.ends_with(".packed") || name.ends_with(".tar")).collect()
}

#[test]
fn packed_shards_are_the_same_bytes() {
    let served = Served::new(Dataset::shards(40, 13));
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for (from, to) in [("mds/all", "mds"), ("parquet/nulls", "parquet")] {
        let to = served.dataset.beside(to);
        fs::create_dir(&to).unwrap();
        for entry in fs::read_dir(fixtures.join(from).join("files")).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
    let pack = |source: &str, into: &Path, to: &str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_foreload"));
        program.args(["pack", source]).arg(into).args(["--to", to, "--shard-size", "5000"]);
        let output = program.env("FORELOAD_INDEX_DIR", served.dataset.beside("indices")).output().unwrap();
        assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
        shards(into)
    };
    for name in ["data", "mds", "parquet/train.parquet"] {
        for to in ["packed", "tar"] {
            let into =
                |place: &str| served.dataset.beside(&format!("{place}-{}-{to}", name.replace('/', "-")));
            let local = pack(served.dataset.beside(name).to_str().unwrap(), &into("local"), to);
            let remote = pack(&served.url(name), &into("remote"), to);
            assert!(!local.is_empty() && local == remote, "{name} as {to}");
        }
    }
}
