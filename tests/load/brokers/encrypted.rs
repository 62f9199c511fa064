//! A Redis server over TLS, read in a child process: an environment variable says which certificates it trusts.

use super::server::{RedisServer, pixels};
use super::{keys, member, receive};
use crate::common::child;
use foreload::Notices;
use foreload::testing::stream::{RedisOptions, RedisSource, SourcePosition, StreamSource};
use std::path::Path;

/// The variable with the URL of the server for a child.
const SERVER: &str = "FORELOAD_TEST_REDIS";

fn write_pem(path: &Path, kind: &str, der: &[u8]) {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    let pem = format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"));
    std::fs::write(path, pem).unwrap();
}

/// The test that the child runs; without the variable it does nothing.
#[test]
fn reads_by_tls_or_says_why_not() {
    let Ok(url) = std::env::var(SERVER) else { return };
    let mut source = RedisSource::new(RedisOptions::new(url, "images"), Notices::default()).unwrap();
    match source.open(&SourcePosition::default()) {
        Ok(()) => {
            let arrivals = receive(&mut source, 50);
            assert_eq!(keys(&arrivals)[49], "1-50");
            assert_eq!(member(&arrivals[49], "jpg"), pixels(50));
            println!("has read");
        }
        Err(error) => println!("refused: {error}"),
    }
}

#[test]
fn a_server_is_read_by_tls_if_its_certificate_is_trusted() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("certificate.pem"), directory.path().join("key.pem"));
    let stranger = directory.path().join("stranger.pem");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    write_pem(&certificate, "CERTIFICATE", made.cert.der());
    write_pem(&key, "PRIVATE KEY", &made.signing_key.serialize_der());
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    write_pem(&stranger, "CERTIFICATE", other.cert.der());
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let options = ["--tls-port", &port, "--tls-auth-clients", "no", "--tls-cert-file", &path(&certificate)];
    let more = ["--tls-key-file", &path(&key), "--tls-ca-cert-file", &path(&certificate)];
    let Some(server) = RedisServer::start_with(&[&options[..], &more[..]].concat()) else { return };
    server.add("images", 1..=50);
    let run = |trusted: &Path| {
        let mut program = child(reads_by_tls_or_says_why_not);
        program.env(SERVER, format!("rediss://localhost:{port}")).env("SSL_CERT_FILE", trusted);
        let output = program.env_remove("SSL_CERT_DIR").output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = run(&certificate);
    assert!(said.contains("has read"), "{said}");
    let said = run(&stranger);
    assert!(said.contains("refused: redis stream \"images\" at localhost:"), "{said}");
}
