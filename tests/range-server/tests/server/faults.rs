//! Each fault, as seen on the wire, and when faults happen.

use crate::{Client, content, serve};
use range_server::{Fault, Kind, Options, RangeServer, Retry, When};
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn failing(rules: &[&str]) -> (TempDir, RangeServer, Client<TcpStream>) {
    let faults = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let (directory, server) = serve(Options { faults, seed: 7, ..Options::default() });
    let client = Client::new(server.address());
    (directory, server, client)
}

const RANGE: &str = "bytes=1000-100999";

fn part() -> Vec<u8> {
    content()[1000..101_000].to_vec()
}

#[test]
fn rules_are_what_they_read_as() {
    let rules = [
        "status:0.1:503",
        "status:first=3:429,retry=2",
        "status:after=10:503,date=4",
        "cut:0.05:1000",
        "reset:each=2:0",
        "slow:always:20000",
        "stall:0.02:1.5,after=100",
        "mute:always:30",
        "dribble:always:2.5",
        "range-start:always:-1",
        "range-total:always:5",
        "length:always:-3",
        "whole:always",
        "etag:always",
        "changed:after=4",
        "/train/ redirect:always:302,http://127.0.0.1:9{path}",
        "chunked:always:1000",
        "close:0.3",
        "leave:0.3",
        "hang-up:0.3",
        "garbage:0.3",
        "/a padding:0.3:100000",
    ];
    for rule in rules {
        assert_eq!(rule.parse::<Fault>().unwrap().to_string(), rule);
    }
    let fault = Fault::new(Kind::Status { code: 429, retry: Retry::Seconds(2) }, When::First(3)).below("/b");
    assert_eq!("/b status:first=3:429,retry=2".parse(), Ok(fault));
    let wrong =
        ["", "cut", "cut:1", "cut:2:5", "cut:0.1:x", "none:0.1", "whole:0.1:3", "slow:1:0", "status:1:99"];
    for rule in wrong {
        let refused = rule.parse::<Fault>().unwrap_err();
        assert!(refused.starts_with(&format!("{rule}: no fault")), "{refused}");
    }
}

#[test]
fn statuses_come_with_a_time_to_wait() {
    let (_directory, server, mut client) = failing(&["status:first=2:503,retry=7"]);
    for expected in [503, 503, 206] {
        let reply = client.get("/object", RANGE);
        assert_eq!(reply.status, expected);
        assert_eq!(reply.field("retry-after"), (expected == 503).then_some("7"));
    }
    server.set_faults(vec!["status:always:429,date=100".parse().unwrap()]);
    let reply = client.get("/object", RANGE);
    let date = httpdate::parse_http_date(reply.field("retry-after").unwrap()).unwrap();
    assert!(date > std::time::SystemTime::now());
    server.set_faults(vec!["/obj status:always:401".parse().unwrap()]);
    assert!(client.get("/object", RANGE).field("www-authenticate").is_some());
    assert_eq!(client.get("/empty", RANGE).status, 416, "another path is not concerned");
    assert_eq!(server.stats().faults["status"], 4);
}

#[test]
fn bodies_are_cut() {
    for (rule, length, cut) in [
        ("cut:always:1234", 1234, ErrorKind::UnexpectedEof),
        ("cut:always:999999999", 99_999, ErrorKind::UnexpectedEof),
        ("reset:always:1234", 1234, ErrorKind::ConnectionReset),
    ] {
        let (_directory, _server, mut client) = failing(&[rule]);
        let reply = client.get("/object", RANGE);
        assert_eq!((reply.status, reply.cut), (206, Some(cut)), "{rule}");
        assert_eq!(reply.field("content-length"), Some("100000"));
        // A reset may arrive before data that was sent earlier.
        let whole = reply.body.len() == length || rule.starts_with("reset") && reply.body.len() < length;
        assert!(whole && part().starts_with(&reply.body), "{rule}: {} bytes", reply.body.len());
    }
}

#[test]
fn answers_are_late_or_slow() {
    // Only a lower bound of the time can be asserted, because a machine may be slow.
    let rules = [
        ("slow:always:400000", 250),
        ("stall:always:0.2", 200),
        ("stall:always:0.2,after=500", 200),
        ("stall:always:0.2,after=999999999", 200),
        ("mute:always:0.2", 200),
        ("dribble:always:1", 200),
    ];
    for (rule, milliseconds) in rules {
        let (_directory, _server, mut client) = failing(&[rule]);
        let started = Instant::now();
        let reply = client.get("/object", RANGE);
        assert!(started.elapsed() >= Duration::from_millis(milliseconds), "{rule}: {:?}", started.elapsed());
        assert_eq!((reply.status, reply.cut), (206, None), "{rule}: {:?}", started.elapsed());
        assert!(reply.body == part(), "{rule}");
        assert_eq!(client.ask("HEAD", "/empty", &[]).status, 200, "{rule}: the connection stays open");
    }
}

#[test]
fn a_stall_begins_behind_the_header() {
    let (_directory, _server, mut client) = failing(&["stall:always:100,after=500"]);
    client.stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let reply = client.get("/object", RANGE);
    assert_eq!((reply.status, reply.body.len(), reply.cut), (206, 500, Some(ErrorKind::WouldBlock)));
    // Here the server is dropped. It does not wait until the stall is over.
}

#[test]
fn ranges_and_lengths_are_wrong() {
    let (_directory, server, mut client) = failing(&["range-start:always:1"]);
    let reply = client.get("/object", RANGE);
    assert_eq!(reply.field("content-range"), Some("bytes 1001-101000/600000"));
    assert!(reply.body == content()[1001..101_001], "the body is of the range that is said");
    let reply = client.get("/object", "bytes=-5");
    assert_eq!(
        reply.field("content-range"),
        Some("bytes 599994-599998/600000"),
        "no later range: an earlier one"
    );
    assert_eq!(client.ask("GET", "/object", &[]).status, 200);
    assert_eq!(server.stats().faults["range-start"], 2, "without a range nothing happened");

    server.set_faults(vec!["range-total:always:-3".parse().unwrap()]);
    let reply = client.get("/object", RANGE);
    assert_eq!(reply.field("content-range"), Some("bytes 1000-100999/599997"));
    assert!(reply.body == part());

    server.set_faults(vec!["whole:always".parse().unwrap()]);
    let reply = client.get("/object", RANGE);
    assert_eq!((reply.status, reply.field("content-range"), reply.body.len()), (200, None, 600_000));

    server.set_faults(vec!["length:first=1:3".parse().unwrap()]);
    assert!(client.get("/object", RANGE).body == part());
    client.send("HEAD", "/empty", &[]);
    assert!(
        client.until(b"HTTP").unwrap().starts_with(b"\0\0\0HTTP"),
        "what was too much comes before the next"
    );

    server.set_faults(vec!["length:first=1:-3".parse().unwrap()]);
    let mut client = Client::new(server.address());
    client.send("GET", "/object", &[("Range", RANGE)]);
    client.send("GET", "/empty", &[]);
    let reply = client.receive(false);
    assert!(reply.body[..99_997] == part()[..99_997] && reply.body[99_997..] == *b"HTT");
}

#[test]
fn versions_change() {
    let (_directory, server, mut client) = failing(&["changed:after=1"]);
    let first = client.get("/object", RANGE);
    let tag = first.field("etag").unwrap();
    assert!(first.body == part());
    let second = client.get("/object", RANGE);
    assert!(
        second.body.iter().zip(part()).all(|(own, before)| *own == !before) && second.body.len() == 100_000
    );
    assert_ne!(second.field("etag"), Some(tag));
    assert_ne!(second.field("last-modified"), first.field("last-modified"));
    assert_eq!(client.ask("GET", "/object", &[("If-Match", tag)]).status, 412);

    server.set_faults(vec!["etag:always".parse().unwrap()]);
    let reply = client.ask("GET", "/object", &[("If-Match", tag), ("Range", RANGE)]);
    assert!(reply.status == 206 && reply.body == part(), "conditions are passed over");
    let other = client.get("/object", RANGE);
    assert!(reply.field("etag") != Some(tag) && reply.field("etag") != other.field("etag"));
}

#[test]
fn clients_are_sent_elsewhere() {
    let rules = [
        ("redirect:always:http://169.254.169.254/latest", 302, "http://169.254.169.254/latest"),
        ("redirect:always:301,file:///etc/passwd", 301, "file:///etc/passwd"),
        ("redirect:always:307,https://127.0.0.1:9{path}", 307, "https://127.0.0.1:9/object?a=b"),
        ("redirect:always:{path}", 302, "/object?a=b"),
    ];
    for (rule, status, location) in rules {
        let (_directory, _server, mut client) = failing(&[rule]);
        let reply = client.get("/object?a=b", RANGE);
        assert_eq!((reply.status, reply.field("location")), (status, Some(location)));
    }
}

#[test]
fn headers_and_connections_are_odd() {
    let (_directory, server, mut client) = failing(&["chunked:always:1000"]);
    let reply = client.get("/object", RANGE);
    assert!(reply.body == part() && reply.field("content-length").is_none());
    server.set_faults(vec!["padding:always:100000".parse().unwrap()]);
    assert_eq!(client.get("/object", RANGE).field("x-padding").unwrap().len(), 100_000);
    server.set_faults(vec!["garbage:first=1".parse().unwrap(), "hang-up:each=1".parse().unwrap()]);
    assert_eq!(client.get("/object", RANGE).cut, Some(ErrorKind::UnexpectedEof));
    for (rule, says) in [("close:always", Some("close")), ("leave:always", None)] {
        server.set_faults(vec![rule.parse().unwrap()]);
        let mut client = Client::new(server.address());
        let reply = client.get("/object", RANGE);
        assert!(reply.body == part());
        assert_eq!(reply.field("connection"), says);
        assert_eq!(client.stream.read(&mut [0]).unwrap(), 0, "{rule}: the connection has ended");
    }
    server.set_faults(vec!["garbage:always".parse().unwrap()]);
    assert_eq!(Client::new(server.address()).get("/object", RANGE).cut, Some(ErrorKind::InvalidData));
}

/// The statuses of three tries of each of some ranges, requested in the order of `order`.
fn statuses(order: impl Iterator<Item = usize> + Clone) -> Vec<u16> {
    let (_directory, _server, mut client) = failing(&["status:0.3:503"]);
    let mut statuses = vec![0; 600];
    for attempt in 0..3 {
        for number in order.clone() {
            let reply = client.get("/object", &format!("bytes={number}-{}", number + 9));
            statuses[attempt * 200 + number] = reply.status;
        }
    }
    statuses
}

#[test]
fn rates_are_kept_in_whatever_order_requests_come() {
    let forward = statuses(0..200);
    assert_eq!(forward, statuses((0..200).rev()));
    let failed = forward.iter().filter(|status| **status == 503).count();
    // 180 of 600 are expected; eight standard deviations are 90.
    assert!((90..270).contains(&failed), "{failed}");
    assert_ne!(forward[..200], forward[200..400], "another try is another draw");
}

#[test]
fn faults_of_each_request_are_for_its_first_tries() {
    let (_directory, _server, mut client) = failing(&["status:each=2:500"]);
    let ranges = ["bytes=0-1", "bytes=2-3", "bytes=0-1", "bytes=0-1", "bytes=2-3", "bytes=2-3"];
    let statuses: Vec<u16> = ranges.map(|range| client.get("/object", range).status).to_vec();
    assert_eq!(statuses, [500, 500, 500, 206, 500, 206]);
}
