//! A stream in Redis whose entries are shared by a group of consumers.

use super::server::RedisServer;
use super::{keys, receive, receive_nothing, settled};
use foreload::Notices;
use foreload::testing::stream::{Arrival, RedisOptions, RedisSource, Replay, SourcePosition, StreamSource};
use redis::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

fn options(server: &RedisServer, consumer: &str) -> RedisOptions {
    RedisOptions {
        group: Some("train".to_owned()),
        consumer: Some(consumer.to_owned()),
        claim_after: Duration::from_millis(800),
        ..RedisOptions::new(server.url(), "images")
    }
}

fn opened(server: &RedisServer, consumer: &str, position: &SourcePosition, notices: &Notices) -> RedisSource {
    let mut source = RedisSource::new(options(server, consumer), notices.clone()).unwrap();
    source.open(position).unwrap();
    source
}

fn source(server: &RedisServer, consumer: &str) -> RedisSource {
    opened(server, consumer, &SourcePosition::default(), &Notices::default())
}

fn numbers(arrivals: &[Arrival]) -> Vec<u64> {
    arrivals.iter().map(|arrival| arrival.key[2..].parse().unwrap()).collect()
}

/// The number of entries that were assigned and not acknowledged.
fn pending(server: &RedisServer) -> i64 {
    match server.ask(&["XPENDING", "images", "train"]) {
        Value::Array(facts) => match facts[0] {
            Value::Int(count) => count,
            _ => panic!("{facts:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_group_is_made_with_its_stream_and_deals_out_each_entry_once() {
    let Some(server) = RedisServer::start() else { return };
    let (mut one, mut two) = (source(&server, "one"), source(&server, "two"));
    assert_eq!(one.replay(), Replay::Unordered);
    assert!(one.describe().ends_with(", group \"train\""), "{}", one.describe());
    server.add("images", 1..=60);
    let mut all = Vec::new();
    for _ in 0..6 {
        all.extend(numbers(&receive(&mut one, 5)));
        all.extend(numbers(&receive(&mut two, 5)));
    }
    all.sort_unstable();
    assert_eq!(all, (1..=60).collect::<Vec<_>>());
    receive_nothing(&mut one);
    assert_eq!(pending(&server), 60);
}

#[test]
fn what_is_not_acknowledged_comes_again_after_a_restart_but_for_what_is_settled() {
    let Some(server) = RedisServer::start() else { return };
    server.add("images", 1..=30);
    let mut first = source(&server, "one");
    let given = receive(&mut first, 20);
    // A checkpoint has twelve entries. The first ten of these can be acknowledged.
    let keys_of = |from: usize, to: usize| settled(keys(&given)[from..to].iter().copied());
    assert!(first.acknowledge(&keys_of(0, 10)).unwrap());
    assert_eq!(pending(&server), 10);
    drop(first);
    let mut again = opened(&server, "one", &keys_of(10, 12), &Notices::default());
    assert_eq!(numbers(&receive(&mut again, 18)), (13..=30).collect::<Vec<_>>());
    receive_nothing(&mut again);
    assert!(again.acknowledge(&settled((11..=30).map(|number| format!("1-{number}")))).unwrap());
    assert_eq!(pending(&server), 0);
}

#[test]
fn entries_of_a_dead_consumer_are_taken_over_and_those_of_a_living_one_are_not() {
    let Some(server) = RedisServer::start() else { return };
    let notices = Notices::default();
    let (mut dead, mut slow) = (source(&server, "dead"), source(&server, "slow"));
    server.add("images", 1..=40);
    let lost = receive(&mut dead, 10);
    let kept = receive(&mut slow, 10);
    drop(dead);
    let mut heir = opened(&server, "heir", &SourcePosition::default(), &notices);
    let (mut inherited, start) = (Vec::new(), Instant::now());
    // Longer than the time after which a consumer counts as dead. A slow consumer requests nothing, and reports that it
    // is alive.
    while start.elapsed() < Duration::from_millis(3000) {
        heir.receive(7, Duration::from_millis(50), &mut inherited).unwrap();
        slow.receive(0, Duration::from_millis(50), &mut Vec::new()).unwrap();
    }
    let mut expected: BTreeSet<u64> = (1..=40).collect();
    numbers(&kept).iter().for_each(|number| assert!(expected.remove(number)));
    let mut got = numbers(&inherited);
    got.sort_unstable();
    assert_eq!(got, expected.into_iter().collect::<Vec<_>>());
    assert!(numbers(&lost).iter().all(|number| got.contains(number)));
    let said = notices.take();
    assert!(said.len() == 1 && said[0].contains("consumer \"dead\" was silent"), "{said:?}");
}

#[test]
fn a_server_that_is_killed_gives_a_group_what_it_had_dealt_out_once() {
    let Some(mut server) = RedisServer::start() else { return };
    server.add("images", 1..=900);
    let mut source = source(&server, "one");
    let mut all = receive(&mut source, 100);
    for _ in 0..3 {
        let reader = std::thread::spawn(move || {
            all.extend(receive(&mut source, 200));
            (source, all)
        });
        std::thread::sleep(Duration::from_millis(3));
        server.kill();
        server.run();
        (source, all) = reader.join().unwrap();
        let settled = settled(keys(&all).iter().copied());
        // The server may be killed between the two calls; the entry is acknowledged later.
        assert!(source.acknowledge(&settled).unwrap());
    }
    all.extend(receive(&mut source, 200));
    let mut got = numbers(&all);
    got.sort_unstable();
    assert_eq!(got, (1..=900).collect::<Vec<_>>());
}

#[test]
fn an_answer_that_was_lost_on_its_way_is_asked_for_again() {
    let Some(server) = RedisServer::start() else { return };
    let mut source = source(&server, "one");
    server.add("images", 1..=5);
    assert_eq!(receive(&mut source, 2).len(), 2);
    // Entries that were assigned to this consumer on another connection, which was lost before they arrived.
    server.ask(&["XREADGROUP", "GROUP", "train", "one", "COUNT", "2", "STREAMS", "images", ">"]);
    server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    server.ask(&["XDEL", "images", "1-4"]);
    let rest = receive(&mut source, 3);
    assert_eq!(numbers(&rest), [3, 4, 5]);
    let wrong = rest[1].record.as_ref().unwrap_err();
    assert!(wrong.contains("deleted from the stream"), "{wrong}");
}

#[test]
fn a_stream_that_is_deleted_is_made_anew_and_that_is_said() {
    let Some(server) = RedisServer::start() else { return };
    let notices = Notices::default();
    let mut source = opened(&server, "one", &SourcePosition::default(), &notices);
    server.add("images", 1..=3);
    receive(&mut source, 3);
    server.ask(&["DEL", "images"]);
    receive_nothing(&mut source);
    server.add("images", 4..=6);
    assert_eq!(numbers(&receive(&mut source, 3)), [4, 5, 6]);
    let said = notices.take();
    assert!(said.len() == 1 && said[0].contains("the stream or the group no longer exists"), "{said:?}");
}
