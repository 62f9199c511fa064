//! The program `range-server`: its options, its pages below `/-/`, its exit.

use crate::{Client, content};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

#[test]
fn the_program_serves_and_is_steered() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("object"), content()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_range-server"));
    command.arg(directory.path()).args([
        "--fault",
        "status:first=1:503",
        "--etag",
        "off",
        "--index",
        "nginx",
    ]);
    let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(program.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://").unwrap().parse().unwrap();
    let mut client = Client::new(address);
    assert_eq!(client.get("/object", "bytes=0-9").status, 503);
    assert_eq!(client.get("/object", "bytes=0-9").body, content()[..10]);
    let put = |client: &mut Client<std::net::TcpStream>, body: &str| {
        let length = body.len().to_string();
        client
            .stream
            .write_all(format!("PUT /-/faults HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes())
            .unwrap();
        client.receive(false)
    };
    let rules = r#"["status:always:404","/x cut:0.5:10"]"#;
    assert_eq!(put(&mut client, rules).status, 200);
    assert_eq!(client.ask("GET", "/-/faults", &[]).body, format!("{rules}\n").into_bytes());
    assert_eq!(client.get("/object", "bytes=0-9").status, 404);
    let wrong = put(&mut client, r#"["cut"]"#);
    assert!(wrong.status == 400 && wrong.body.starts_with(b"cut: no fault"));
    let stats: serde_json::Value = serde_json::from_slice(&client.ask("GET", "/-/stats", &[]).body).unwrap();
    assert_eq!((&stats["requests"], &stats["faults"]["status"]), (&3.into(), &2.into()));
    drop(program.stdin.take());
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(program.wait().unwrap().success());
    let last: serde_json::Value = serde_json::from_str(&rest).unwrap();
    assert_eq!(last["paths"]["/object"]["requests"], 3);
}

#[test]
fn certificates_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let keys = directory.path().join("keys");
    let mut command = Command::new(env!("CARGO_BIN_EXE_range-server"));
    command.arg(directory.path()).arg("--tls").arg(&keys).args(["--certificate", "self-signed"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.stdout.starts_with(b"https://127.0.0.1:"));
    for (name, opening) in
        [("ca.pem", "CERTIFICATE"), ("server.pem", "CERTIFICATE"), ("key.pem", "PRIVATE KEY")]
    {
        let text = fs::read_to_string(keys.join(name)).unwrap();
        assert!(text.starts_with(&format!("-----BEGIN {opening}-----")), "{text}");
    }
}

#[test]
fn wrong_options_are_refused() {
    for arguments in [&[][..], &["a", "--fault", "cut"], &["a", "--etag", "x"], &["a", "b"], &["a", "--port"]]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_range-server")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stderr.starts_with(b"range-server: "));
    }
}
