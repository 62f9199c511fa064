//! Services that issue credentials fail as servers do: a training continues when they answer again.

use crate::common::Dataset;
use crate::store::{KEY, SECRET, hashes, program};
use range_server::{Options, RangeServer};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Starts a service whose credentials have to be renewed for every signed request. It answers one request in four.
fn giver() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/credentials", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let lines = BufReader::new(client.try_clone().unwrap()).lines();
            let _head: Vec<String> =
                lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let number = count.fetch_add(1, Ordering::SeqCst);
            let (status, body) = match number % 4 {
                3 => (
                    "200 OK",
                    serde_json::json!({
                        "AccessKeyId": KEY, "SecretAccessKey": SECRET, "Token": "token",
                        "Expiration": "2000-01-01T00:00:00Z",
                    })
                    .to_string(),
                ),
                _ => ("503 Service Unavailable", String::new()),
            };
            let length = body.len();
            // The client may have hung up.
            let _ = write!(
                client,
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
        }
    });
    (url, asked)
}

#[test]
fn renewals_that_fail_for_a_while_fail_no_sample() {
    let dataset = Dataset::shards(60, 60);
    let shard = dataset.path(0);
    let store = dataset.beside("store/box");
    std::fs::create_dir_all(&store).unwrap();
    std::fs::hard_link(&shard, store.join("shard.tar")).unwrap();
    // This server does not check signatures: only the credentials are under test.
    let server = RangeServer::start(&dataset.beside("store"), Options::default()).unwrap();
    let (giver, asked) = giver();
    let token = dataset.beside("token");
    std::fs::write(&token, "token").unwrap();
    let epochs = |place: &str| {
        let args = ["bench", place, "--json", "--checksum", "--epochs", "2", "--batch-size", "16"];
        let mut program = program(&[&args[..], &["--image-size", "32", "--last-batch", "partial"]].concat());
        program
            .env("AWS_CONTAINER_CREDENTIALS_FULL_URI", &giver)
            .env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &token)
            .env("AWS_ENDPOINT_URL", server.url())
            .env("HOME", dataset.beside("home"))
            .env("FORELOAD_INDEX_DIR", dataset.beside("program-index"));
        let output = program.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !told.contains(SECRET), "{told}");
        hashes(&serde_json::from_slice(&output.stdout).unwrap())
    };
    let expected = epochs(shard.to_str().unwrap());
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert_eq!(epochs("s3://box/shard.tar"), expected);
    assert!(asked.load(Ordering::SeqCst) >= 8, "{asked:?}");
}
