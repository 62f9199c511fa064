//! Samples that arrive over the network, from real servers and peers. None is lost and none comes twice, even if a
//! server or a peer is killed.

mod encrypted;
mod groups;
mod redis;
mod server;
mod zeromq;

use crate::common::wait_for;
use foreload::testing::stream::{Arrival, Received, SourcePosition, StreamSource};
use std::time::Duration;

/// A position at which only these samples are settled (their source never has to give them again).
fn settled(keys: impl IntoIterator<Item = impl Into<String>>) -> SourcePosition {
    SourcePosition { settled: keys.into_iter().map(Into::into).collect(), ..SourcePosition::default() }
}

/// The position after this sample.
fn after(key: impl Into<String>) -> SourcePosition {
    SourcePosition { after: Some(key.into()), ..SourcePosition::default() }
}

/// Receives until there are `count` samples; fails if they do not come.
fn receive(source: &mut dyn StreamSource, count: usize) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    let more = || {
        let most = count - arrivals.len();
        let received = source.receive(most, Duration::from_millis(100), &mut arrivals).unwrap();
        assert_eq!(received, Received::More);
        arrivals.len()
    };
    let came = wait_for(&format!("{count} samples have come"), more, |&came| came >= count);
    assert_eq!(came, count, "more than were asked for");
    arrivals
}

/// Checks that no sample arrives within a moment.
fn receive_nothing(source: &mut dyn StreamSource) {
    let mut arrivals = Vec::new();
    for _ in 0..3 {
        source.receive(100, Duration::from_millis(100), &mut arrivals).unwrap();
    }
    assert!(arrivals.is_empty(), "{arrivals:?}");
}

fn keys(arrivals: &[Arrival]) -> Vec<&str> {
    arrivals.iter().map(|arrival| arrival.key.as_str()).collect()
}

/// The bytes of a sample's member.
fn member<'a>(arrival: &'a Arrival, name: &str) -> &'a [u8] {
    arrival.record.as_ref().unwrap().member(name).unwrap()
}

fn gaps(arrivals: &[Arrival]) -> u64 {
    arrivals.iter().map(|arrival| arrival.gap).sum()
}
