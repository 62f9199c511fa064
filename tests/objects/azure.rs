//! The tests of object stores with Azure's protocol: Azure's own emulator, which checks signatures.

use crate::common::{Dataset, Killable, succeeds};
use crate::store::{await_port, free_port, hashes, program, provided, refused, requests};
use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential};
use object_store::client::HttpRequestBody;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// The emulator's account and key, which are public.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

struct Azurite {
    _server: Killable,
    port: u16,
}

impl Azurite {
    fn start() -> Option<Self> {
        let script = provided("Azurite", "azurite/node_modules/azurite/dist/src/blob/main.js")?;
        let port = free_port();
        let mut command = Command::new("node");
        command.arg(script).args(["--inMemoryPersistence", "--silent", "--skipApiVersionCheck"]);
        command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()]);
        let server = Killable::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let azurite = Self { _server: server, port };
        await_port(port);
        Some(azurite)
    }

    /// Puts an object into the store, with the account's key.
    fn put(&self, place: &str, body: Vec<u8>) {
        let (port, length) = (self.port, body.len());
        let uri = format!("http://127.0.0.1:{port}/{ACCOUNT}/{place}");
        let mut request = hyper::Request::put(&uri)
            .header("content-length", length.to_string())
            .header("x-ms-blob-type", "BlockBlob")
            .body(HttpRequestBody::from(body.clone()))
            .unwrap();
        let key = AzureCredential::AccessKey(AzureAccessKey::try_new(KEY).unwrap());
        AzureAuthorizer::new(&key, ACCOUNT).try_authorize(&mut request).unwrap();
        let path = request.uri().path_and_query().unwrap();
        let mut head = format!("PUT {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n");
        for (name, value) in request.headers() {
            head += &format!("{name}: {}\r\n", value.to_str().unwrap());
        }
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        stream.write_all(&body).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 201"), "{place}: {answer}");
    }

    fn put_directory(&self, from: &Path, place: &str) {
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let place = format!("{place}/{}", path.file_name().unwrap().to_str().unwrap());
            if path.is_dir() {
                self.put_directory(&path, &place);
            } else {
                self.put(&place, fs::read(&path).unwrap());
            }
        }
    }

    fn bench(&self, dataset: &Dataset, place: &str) -> Command {
        let mut program =
            self.program(dataset, &["bench", place, "--json", "--checksum", "--batch-size", "16"]);
        program.args(["--image-size", "32", "--threads", "2", "--last-batch", "partial"]);
        program
    }

    fn program(&self, dataset: &Dataset, args: &[&str]) -> Command {
        let mut program = program(args);
        program
            .env("AZURE_STORAGE_USE_EMULATOR", "true")
            .env("AZURITE_BLOB_STORAGE_URL", format!("http://127.0.0.1:{}", self.port))
            .env("FORELOAD_INDEX_DIR", dataset.beside("program-index"));
        program
    }
}

fn epochs(program: &mut Command) -> Vec<String> {
    let output = succeeds(program);
    hashes(&serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn containers_are_the_directories_that_lie_in_them() {
    let Some(azurite) = Azurite::start() else { return };
    azurite.put("box?restype=container", Vec::new());
    for (dataset, name) in [(Dataset::folder(40), "folder"), (Dataset::shards(40, 15), "shards")] {
        azurite.put_directory(&dataset.beside("data"), &format!("box/{name}"));
        let expected = epochs(&mut azurite.bench(&dataset, dataset.beside("data").to_str().unwrap()));
        assert_eq!(epochs(&mut azurite.bench(&dataset, &format!("az://box/{name}"))), expected);
        // The second start finds nothing changed, and reads no byte.
        let gets =
            requests(&mut azurite.program(&dataset, &["index", &format!("az://box/{name}"), "--json"]));
        assert_eq!(gets["gets"], 0, "{gets}");
        // Data that a listing contains is not requested again.
        assert_eq!(gets["heads"], 0, "{gets}");
        assert_eq!(epochs(&mut azurite.bench(&dataset, &format!("az://box/{name}/"))), expected);
        let other = "b3RoZXIga2V5IG9mIHRoaXJ0eS10d28gYnl0ZXMgISE=";
        let wrong =
            azurite.bench(&dataset, "az://box/other").env("AZURE_STORAGE_ACCOUNT_KEY", other).output();
        let error = String::from_utf8(wrong.unwrap().stderr).unwrap();
        assert!(error.contains("the key of AZURE_STORAGE_ACCOUNT_KEY"), "{error}");
        assert!(!error.contains(other), "{error}");
        let error = refused(&mut azurite.bench(&dataset, "az://none/data"));
        assert!(error.contains("no bucket none"), "{error}");
    }
}
