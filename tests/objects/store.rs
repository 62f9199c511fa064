//! A server with S3's protocol that checks signatures, with a proxy in front of it, and the program as its client.

use crate::common::{Dataset, Killable, succeeds, wait_until};
use crate::proxy::Proxy;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The store's access key and its secret, which must not appear in any output.
pub const KEY: &str = "SCHLUESSELKENNUNG";
pub const SECRET: &str = "streng/geheimes+kennwort";

/// A dataset, and a store that serves it.
pub struct Store {
    /// This field is dropped first, because the server has the dataset's directory open.
    _server: Killable,
    pub dataset: Dataset,
    pub proxy: Proxy,
}

/// The path of a program below `.envs`, where `make test-objects` installs it; `None` if it is missing and not
/// required.
pub fn provided(name: &str, path: &str) -> Option<PathBuf> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join(".envs").join(path);
    if found.exists() {
        return Some(found);
    }
    let why = format!("no {name} in {}: make test-objects puts it there", found.display());
    assert!(std::env::var_os("FORELOAD_REQUIRE_OBJECTS").is_none_or(|said| said != "1"), "{why}");
    eprintln!("skipped: {why}");
    None
}

/// A port on which no server listens.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits until a server listens on a port.
pub fn await_port(port: u16) {
    wait_until(&format!("somebody listens at {port}"), || TcpStream::connect(("127.0.0.1", port)).is_ok());
}

/// Links a directory's files into another directory, which it creates.
fn link(from: &Path, into: &Path) {
    fs::create_dir_all(into).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let place = into.join(path.file_name().unwrap());
        if path.is_dir() { link(&path, &place) } else { fs::hard_link(&path, &place).unwrap() }
    }
}

impl Store {
    /// A store whose bucket `box` has the dataset's files below `sets/data`; `None` if there is no server.
    pub fn new(dataset: Dataset) -> Option<Self> {
        let program = provided("s3s-fs", "s3s-fs/bin/s3s-fs")?;
        let root = dataset.beside("store");
        link(&dataset.beside("data"), &root.join("box/sets/data"));
        let port = free_port();
        let mut command = Command::new(program);
        command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--access-key", KEY, "--secret-key", SECRET]).arg(&root);
        let server = Killable::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let proxy = Proxy::start(port);
        let store = Self { _server: server, dataset, proxy };
        await_port(port);
        Some(store)
    }

    /// A file of the store.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dataset.beside("store/box/sets").join(name)
    }

    /// A command of the program, configured for this store only.
    pub fn program(&self, args: &[&str]) -> Command {
        let mut program = program(args);
        program
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.proxy.port()))
            .env("HOME", self.dataset.beside("home"))
            .env("FORELOAD_INDEX_DIR", self.dataset.beside("program-index"));
        program
    }

    /// The hashes of the batches of each epoch of the dataset at `place`, a path or a URL.
    pub fn epochs(&self, place: &str, more: &[&str]) -> Vec<String> {
        hashes(&self.report(place, more))
    }

    /// The program's report of three epochs.
    pub fn report(&self, place: &str, more: &[&str]) -> serde_json::Value {
        let output = succeeds(&mut self.bench(place, more));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The command that runs three epochs.
    pub fn bench(&self, place: &str, more: &[&str]) -> Command {
        let usual = [
            "--epochs",
            "3",
            "--batch-size",
            "16",
            "--image-size",
            "32",
            "--threads",
            "2",
            "--last-batch",
            "partial",
        ];
        let mut program = self.program(&["bench", place, "--json", "--checksum"]);
        program.args(usual).args(more);
        program
    }

    /// The expected hashes: the epochs of the directory itself.
    pub fn expected(&self) -> Vec<String> {
        self.epochs(self.dataset.beside("data").to_str().unwrap(), &[])
    }
}

/// A command of the program without environment variables that concern stores.
pub fn program(args: &[&str]) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_foreload"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["AWS_", "AZURE_", "GOOGLE_", "HTTP", "http", "NO_PROXY"].iter().any(|own| text.starts_with(own)) {
            program.env_remove(&name);
        }
    }
    program.args(args).env("AWS_EC2_METADATA_DISABLED", "true");
    program
}

/// The requests that `foreload index --json` reports.
pub fn requests(program: &mut Command) -> serde_json::Value {
    let output = succeeds(program);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    report["requests"].clone()
}

/// The hashes of the epochs in a report.
pub fn hashes(report: &serde_json::Value) -> Vec<String> {
    let epochs = report["epochs"].as_array().unwrap();
    epochs.iter().map(|epoch| epoch["sha256"].as_str().unwrap().to_owned()).collect()
}

/// The error that a program must end with.
pub fn refused(program: &mut Command) -> String {
    let output: Output = program.output().unwrap();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}
