//! A stream in Redis that one consumer reads in order, without a group.

use super::server::{RedisServer, add, pixels};
use super::{after, gaps, keys, member, receive, receive_nothing};
use crate::common::{Ending, wait_until};
use foreload::Notices;
use foreload::testing::stream::{RankShare, RedisOptions, RedisSource, Replay, SourcePosition, StreamSource};
use redis::cmd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SECRET: &str = "streng-geheim@s/Kennwort";
const SECRET_IN_URL: &str = "streng-geheim%40s%2FKennwort";

fn options(server: &RedisServer) -> RedisOptions {
    RedisOptions::new(server.url(), "images")
}

fn opened(options: RedisOptions, position: &SourcePosition, notices: &Notices) -> RedisSource {
    let mut source = RedisSource::new(options, notices.clone()).unwrap();
    source.open(position).unwrap();
    source
}

/// A source of all samples of the stream.
fn source(server: &RedisServer) -> RedisSource {
    opened(options(server), &SourcePosition::default(), &Notices::default())
}

fn ids(numbers: impl IntoIterator<Item = u64>) -> Vec<String> {
    numbers.into_iter().map(|number| format!("1-{number}")).collect()
}

#[test]
fn entries_are_samples_in_order_and_a_position_goes_on_behind_them() {
    let Some(server) = RedisServer::start() else { return };
    server.add("images", 1..=100);
    let mut source = source(&server);
    assert_eq!((source.name(), source.replay()), ("images", Replay::Ordered));
    let first = receive(&mut source, 30);
    assert_eq!(keys(&first), ids(1..=30));
    for (number, arrival) in (1..).zip(&first) {
        assert_eq!(member(arrival, "jpg"), pixels(number));
        assert_eq!(arrival.record.as_ref().unwrap().label, Some((number % 10) as u32));
        assert_eq!(arrival.record.as_ref().unwrap().key(), arrival.key);
    }
    let rest = receive(&mut source, 70);
    assert_eq!((keys(&rest), gaps(&rest)), (keys(&rest), 0));
    assert_eq!(keys(&rest), ids(31..=100));
    receive_nothing(&mut source);
    server.add("images", [101]);
    assert_eq!(keys(&receive(&mut source, 1)), ["1-101"]);

    let mut position = after("1-50");
    position.settled = ids([52, 60]);
    let notices = Notices::default();
    let mut again = opened(options(&server), &position, &notices);
    // A source in order gives all later samples again. The caller keeps the record of settled samples.
    assert_eq!(keys(&receive(&mut again, 51)), ids(51..=101));
    assert_eq!(again.fetch("1-7").unwrap().member("jpg"), Some(&pixels(7)[..]));
    let gone = again.fetch("1-1000").unwrap_err().to_string();
    assert!(gone.contains("1-1000 no longer exists"), "{gone}");
    assert_eq!(notices.take(), [""; 0]);
}

#[test]
fn a_stream_is_read_from_where_it_is_said() {
    let Some(server) = RedisServer::start() else { return };
    server.add("images", 1..=10);
    let from = |start: &str| {
        let start = RedisOptions { start: start.to_owned(), ..options(&server) };
        opened(start, &SourcePosition::default(), &Notices::default())
    };
    let (mut new, mut id) = (from("new"), from("1-8"));
    receive_nothing(&mut new);
    assert_eq!(keys(&receive(&mut id, 2)), ids([9, 10]));
    server.add("images", [11]);
    assert_eq!(keys(&receive(&mut new, 1)), ids([11]));
    // A stream that does not exist yet.
    let later = RedisOptions::new(server.url(), "later");
    let mut later = opened(later, &SourcePosition::default(), &Notices::default());
    receive_nothing(&mut later);
    server.add("later", [1]);
    assert_eq!(keys(&receive(&mut later, 1)), ids([1]));
}

#[test]
fn ranks_divide_a_stream_among_them() {
    let Some(server) = RedisServer::start() else { return };
    server.add("images", 1..=200);
    let mut all = Vec::new();
    for rank in 0..3 {
        let share = RankShare { rank, world_size: 3 };
        let mut source = opened(
            RedisOptions { share, ..options(&server) },
            &SourcePosition::default(),
            &Notices::default(),
        );
        let mut own = Vec::new();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(500) {
            source.receive(64, Duration::from_millis(50), &mut own).unwrap();
        }
        assert!((40..95).contains(&own.len()), "rank {rank} has {}", own.len());
        all.extend(own.into_iter().map(|arrival| arrival.key));
    }
    all.sort_by_key(|key| key[2..].parse::<u64>().unwrap());
    assert_eq!(all, ids(1..=200));
}

#[test]
fn a_server_that_is_killed_amid_reading_loses_nothing_and_doubles_nothing() {
    let Some(mut server) = RedisServer::start() else { return };
    let notices = Notices::default();
    let mut source = opened(options(&server), &SourcePosition::default(), &notices);
    let (count, url, stop, added) = (3000, server.url(), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ending = Ending(&stop);
        scope.spawn(|| {
            let client = redis::Client::open(url.as_str()).unwrap();
            let mut connection = None;
            let mut number = 1;
            while number <= count && !stop.load(Ordering::Relaxed) {
                let Some(open) = &mut connection else {
                    connection = client.get_connection().ok();
                    continue;
                };
                match add(open, "images", number) {
                    Ok(()) => {
                        added.store(number, Ordering::Relaxed);
                        number += 1;
                    }
                    Err(_) => connection = None,
                }
            }
        });
        let reader = scope.spawn(|| receive(&mut source, count as usize));
        for kill in 1..5 {
            wait_until("more samples are added", || added.load(Ordering::Relaxed) >= kill * count / 5);
            server.kill();
            // During this time there is no server.
            std::thread::sleep(Duration::from_millis(50));
            server.run();
        }
        let arrivals = reader.join().unwrap();
        assert_eq!(keys(&arrivals), ids(1..=count));
        assert_eq!(gaps(&arrivals), 0);
    });
    let said = notices.take();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].starts_with("redis stream \"images\" at ") && said[0].contains("reconnecting"),
        "{said:?}"
    );
}

#[test]
fn entries_that_were_trimmed_unread_are_counted() {
    let Some(server) = RedisServer::start() else { return };
    server.add("images", 1..=20);
    server.ask(&["XTRIM", "images", "MINID", "=", "1-6"]);
    let notices = Notices::default();
    let mut source = opened(options(&server), &SourcePosition::default(), &notices);
    let first = receive(&mut source, 5);
    assert_eq!((keys(&first), gaps(&first)), (keys(&first), 0), "what was not requested is not missing");
    assert_eq!(keys(&first), ids(6..=10));
    // Without a group, the server deletes entries that were not read. The number of missing entries is reported with
    // the next entry.
    server.ask(&["XTRIM", "images", "MINID", "=", "1-16"]);
    server.add("images", 21..=30);
    let mut rest = receive(&mut source, 15);
    assert_eq!(keys(&rest), ids(16..=30));
    receive_nothing(&mut source);
    server.add("images", [31]);
    rest.extend(receive(&mut source, 1));
    assert_eq!(gaps(&rest), 5);
    let said = notices.take();
    assert!(said.len() == 1 && said[0].contains("5 entries after 1-"), "{said:?}");

    // After a restart, the number of missing entries is unknown.
    server.ask(&["XTRIM", "images", "MINID", "=", "1-25"]);
    let mut again = opened(options(&server), &after("1-12"), &notices);
    assert_eq!(keys(&receive(&mut again, 7)), ids(25..=31));
    let said = notices.take();
    assert!(said.len() == 1 && said[0].contains("no longer has 1-12"), "{said:?}");
    // Later losses are counted again.
    server.add("images", 32..=40);
    server.ask(&["XTRIM", "images", "MINID", "=", "1-36"]);
    let mut rest = receive(&mut again, 5);
    receive_nothing(&mut again);
    server.add("images", [41]);
    rest.extend(receive(&mut again, 1));
    assert_eq!(gaps(&rest), 4);
}

#[test]
fn a_stream_that_was_made_anew_is_spoken_of() {
    let Some(server) = RedisServer::start() else { return };
    server.add("images", 1..=3);
    let notices = Notices::default();
    let mut source = opened(options(&server), &after("1-9"), &notices);
    receive_nothing(&mut source);
    let said = notices.take();
    assert!(said.len() == 1 && said[0].contains("entries up to 1-9 were read"), "{said:?}");
    server.add("images", [10]);
    assert_eq!(keys(&receive(&mut source, 1)), ids([10]));
}

#[test]
fn entries_that_are_no_samples_fail_alone() {
    let Some(server) = RedisServer::start() else { return };
    let mut connection = server.connect();
    let mut entry = |fields: &[(&[u8], &[u8])]| {
        let mut command = cmd("XADD");
        command.arg("images").arg("*");
        for (name, value) in fields {
            command.arg(*name).arg(*value);
        }
        command.query::<String>(&mut connection).unwrap();
    };
    entry(&[(b"jpg", b"1")]);
    entry(&[(b"jpg", &[7; 5000])]);
    entry(&[(b"\xff\xfe", b"x")]);
    entry(&[(b"jpg", b"1"), (b"JPG", b"2")]);
    entry(&[(b"__key__", b"1")]);
    entry(&[(b"cls", b"cat")]);
    entry(&[(b"", b"x")]);
    entry(&[(b"jpg", b"2")]);
    let options = RedisOptions { max_bytes: 4096, ..options(&server) };
    let mut source = opened(options, &SourcePosition::default(), &Notices::default());
    let arrivals = receive(&mut source, 8);
    let wrong: Vec<_> = arrivals.iter().map(|arrival| arrival.record.as_ref().err()).collect();
    assert!(wrong[0].is_none() && wrong[7].is_none());
    let expected = [
        "5003 bytes, but max_bytes is 4096",
        "UTF-8",
        "two members",
        "__key__",
        "not a class number",
        "called \"\"",
    ];
    for (wrong, expected) in wrong[1..7].iter().zip(expected) {
        assert!(wrong.unwrap().contains(expected), "{wrong:?}");
    }
}

#[test]
fn entries_are_removed_only_where_that_is_asked_for() {
    let Some(server) = RedisServer::start() else { return };
    server.add("images", 1..=10);
    let left = || match server.ask(&["XLEN", "images"]) {
        redis::Value::Int(left) => left,
        other => panic!("{other:?}"),
    };
    for (trim, expected) in [(false, 10), (true, 6)] {
        let options = RedisOptions { trim, ..options(&server) };
        let mut source = opened(options, &SourcePosition::default(), &Notices::default());
        receive(&mut source, 10);
        assert!(!source.acknowledge(&after("1-4")).unwrap());
        assert_eq!(left(), expected);
    }
}

#[test]
fn a_password_is_used_and_shown_nowhere() {
    let Some(server) = RedisServer::start_with(&["--requirepass", SECRET]) else { return };
    let notices = Notices::default();
    let url = server.url();
    let right = [
        RedisOptions { password: Some(SECRET.to_owned()), ..options(&server) },
        RedisOptions::new(format!("{url}?user=default&pass={SECRET_IN_URL}"), "images"),
    ];
    let mut shown = Vec::new();
    for options in right {
        shown.push(format!("{options:?}"));
        let source = opened(options, &SourcePosition::default(), &notices);
        shown.extend([source.describe(), source.name().to_owned()]);
    }
    let wrong = format!("{SECRET}!");
    let refused = |options: RedisOptions| {
        let source = RedisSource::new(options, notices.clone());
        source.and_then(|mut source| source.open(&SourcePosition::default())).unwrap_err().to_string()
    };
    let none = refused(options(&server));
    assert!(none.contains("NOAUTH") && none.contains("pass username= and password="), "{none}");
    let other = refused(RedisOptions { password: Some(wrong), ..options(&server) });
    assert!(other.contains("user or password is wrong"), "{other}");
    shown.extend([none, other]);
    // Secrets in a URL that cannot be used, or that leads to no server.
    for url in [
        format!("redis://user:{SECRET}@host:port"),
        format!("redis://user:{SECRET_IN_URL}@host:port"),
        format!("http://user:{SECRET_IN_URL}@host"),
        SECRET.to_owned(),
        format!("redis://user:{SECRET_IN_URL}@127.0.0.1:1/0"),
        format!("unix:///nowhere?pass={SECRET_IN_URL}"),
    ] {
        let error = refused(RedisOptions::new(url, "images"));
        assert!(error.contains("Redis: url") || error.contains("that a server runs there"), "{error}");
        shown.push(error);
    }
    shown.extend(notices.take());
    for text in &shown {
        for secret in [SECRET, SECRET_IN_URL, "streng", "Kennwort"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

#[test]
fn settings_that_cannot_work_are_refused_in_words() {
    let base = || RedisOptions::new("redis://127.0.0.1:6379", "images");
    let refused = |options: RedisOptions, expected: &str| {
        let error = RedisSource::new(options, Notices::default()).err().unwrap().to_string();
        assert!(error.starts_with("config: source: Redis: ") && error.contains(expected), "{error}");
    };
    refused(RedisOptions { stream: String::new(), ..base() }, "stream");
    refused(RedisOptions { start: "yesterday".to_owned(), ..base() }, "start: is \"yesterday\"");
    refused(RedisOptions { consumer: Some("me".to_owned()), ..base() }, "set group=");
    refused(RedisOptions { trim: true, group: Some("g".to_owned()), ..base() }, "trim");
    refused(RedisOptions { share: RankShare { rank: 2, world_size: 2 }, ..base() }, "rank is 2");
    refused(RedisOptions { url: "rediss://host/#insecure".to_owned(), ..base() }, "#insecure");
    refused(RedisOptions { max_bytes: 0, ..base() }, "max_bytes");
    refused(RedisOptions { claim_after: Duration::ZERO, ..base() }, "claim_after");
}

#[test]
fn a_key_that_is_no_stream_is_an_error() {
    let Some(server) = RedisServer::start() else { return };
    server.ask(&["SET", "images", "x"]);
    let mut source = RedisSource::new(options(&server), Notices::default()).unwrap();
    let error = source.open(&SourcePosition::default()).unwrap_err().to_string();
    assert!(error.contains("WRONGTYPE") && error.contains("producers XADD to"), "{error}");
    let error = source.open(&after("sample-7")).unwrap_err().to_string();
    assert!(error.contains("not an entry id"), "{error}");
}
