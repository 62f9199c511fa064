//! Messages of ZeroMQ, sent by the library's own sockets.

use super::{gaps, keys, member, receive, receive_nothing};
use crate::common::wait_until;
use foreload::Notices;
use foreload::testing::peers::Bytes;
use foreload::testing::stream::{
    RankShare, Received, Replay, SourcePosition, StreamSource, ZeroMqKind, ZeroMqOptions, ZeroMqSource,
};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use zeromq::{PubSocket, PushSocket, Socket, SocketSend, ZmqMessage};

/// The frames of a message.
type Frames = Vec<Vec<u8>>;

fn frames(parts: &[(&str, &str)]) -> Frames {
    parts.iter().flat_map(|(name, value)| [name.as_bytes().to_vec(), value.as_bytes().to_vec()]).collect()
}

fn message(frames: Frames) -> ZmqMessage {
    let frames: Vec<Bytes> = frames.into_iter().map(Bytes::from).collect();
    ZmqMessage::try_from(frames).unwrap()
}

/// A publisher or a pusher on its own thread, which ends when this value is dropped.
struct Sending {
    messages: Option<Sender<Frames>>,
    thread: Option<std::thread::JoinHandle<()>>,
    endpoint: String,
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.messages = None;
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Sending {
    /// Binds to an address, or connects to it.
    fn start<Kind: Socket + SocketSend + 'static>(endpoint: &str, bind: bool) -> Self {
        let (messages, incoming) = channel::<Frames>();
        let (ready, bound) = channel();
        let endpoint = endpoint.to_owned();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut socket = Kind::new();
                if bind {
                    ready.send(socket.bind(&endpoint).await.unwrap().to_string()).unwrap();
                } else {
                    socket.connect(&endpoint).await.unwrap();
                    ready.send(endpoint).unwrap();
                }
                loop {
                    match incoming.try_recv() {
                        Ok(frames) => {
                            // Without a receiver, a push waits or fails. Then it is tried again.
                            while socket.send(message(frames.clone())).await.is_err() {
                                tokio::time::sleep(Duration::from_millis(5)).await;
                            }
                        }
                        Err(std::sync::mpsc::TryRecvError::Empty) => {
                            tokio::time::sleep(Duration::from_millis(2)).await;
                        }
                        Err(std::sync::mpsc::TryRecvError::Disconnected) => break,
                    }
                }
                // Give the last messages time to be sent.
                tokio::time::sleep(Duration::from_millis(50)).await;
            });
        });
        Self { messages: Some(messages), thread: Some(thread), endpoint: bound.recv().unwrap() }
    }

    fn send(&self, frames: Frames) {
        self.messages.as_ref().unwrap().send(frames).unwrap();
    }

    fn send_numbers(&self, numbers: impl IntoIterator<Item = u64>) {
        numbers
            .into_iter()
            .for_each(|number| self.send(frames(&[("jpg", "pixels"), ("cls", &number.to_string())])));
    }

    fn send_sequence(&self, topic: &str, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            let number = number.to_string();
            let mut frames = frames(&[("cls", &number), ("__seq__", &number)]);
            frames.insert(0, topic.as_bytes().to_vec());
            self.send(frames);
        }
    }
}

fn pull(endpoint: &str) -> ZeroMqOptions {
    ZeroMqOptions::new(ZeroMqKind::Pull, endpoint, "camera")
}

fn sub(endpoint: &str, topic: &str) -> ZeroMqOptions {
    let topics = vec![topic.to_owned()];
    ZeroMqOptions { topics, ..ZeroMqOptions::new(ZeroMqKind::Sub, endpoint, "camera") }
}

fn opened(options: ZeroMqOptions, after: Option<&str>, notices: &Notices) -> ZeroMqSource {
    let mut source = ZeroMqSource::new(options, notices.clone()).unwrap();
    let position = SourcePosition { after: after.map(str::to_owned), ..SourcePosition::default() };
    source.open(&position).unwrap();
    source
}

/// Waits until published messages arrive, and takes them all.
fn subscribed(source: &mut ZeroMqSource, publisher: &Sending, topic: &str) {
    let mut arrivals = Vec::new();
    wait_until("what is published arrives", || {
        publisher.send_sequence(topic, [0]);
        let received = source.receive(1000, Duration::from_millis(50), &mut arrivals).unwrap();
        assert_eq!(received, Received::More);
        !arrivals.is_empty()
    });
    while source.receive(1000, Duration::from_millis(150), &mut arrivals).is_ok() && !arrivals.is_empty() {
        arrivals.clear();
    }
}

#[test]
fn what_is_pushed_is_pulled_and_numbered_from_where_a_state_was() {
    let pusher = Sending::start::<PushSocket>("tcp://127.0.0.1:0", true);
    let notices = Notices::default();
    let mut source = opened(pull(&pusher.endpoint), None, &notices);
    assert_eq!((source.replay(), source.name()), (Replay::Never, "camera"));
    assert_eq!(source.describe(), format!("zeromq PULL socket connected to {}", pusher.endpoint));
    pusher.send_numbers(0..100);
    let arrivals = receive(&mut source, 100);
    let expected: Vec<String> = (1..=100).map(|number| number.to_string()).collect();
    assert_eq!(keys(&arrivals), expected);
    for (number, arrival) in (0..).zip(&arrivals) {
        assert_eq!(member(arrival, "jpg"), b"pixels");
        assert_eq!(arrival.record.as_ref().unwrap().label, Some(number));
    }
    pusher.send(frames(&[("jpg", "x"), ("__key__", "own/1")]));
    pusher.send(frames(&[("jpg", "x"), ("__seq__", "900")]));
    assert_eq!(keys(&receive(&mut source, 2)), ["own/1", "900"]);
    drop(source);
    let mut source = opened(pull(&pusher.endpoint), Some("70"), &notices);
    receive_nothing(&mut source);
    // The library pushes some messages to a socket that was closed, until it notices.
    let mut arrivals = Vec::new();
    wait_until("what is pushed arrives", || {
        pusher.send_numbers([5]);
        source.receive(1, Duration::from_millis(50), &mut arrivals).unwrap();
        !arrivals.is_empty()
    });
    assert_eq!(keys(&arrivals), ["71"]);
    assert_eq!(notices.take(), [""; 0]);
}

#[test]
fn others_may_connect_and_come_back() {
    let options = ZeroMqOptions { bind: true, ..pull("tcp://127.0.0.1:0") };
    let mut source = opened(options, None, &Notices::default());
    let described = source.describe();
    let endpoint = described.split_whitespace().last().unwrap().to_owned();
    assert!(described.contains("bound to tcp://127.0.0.1:"), "{described}");
    for round in 1..=2 {
        // The source's runtime runs only during a receive.
        let pusher = std::thread::spawn({
            let endpoint = endpoint.clone();
            move || {
                let pusher = Sending::start::<PushSocket>(&endpoint, false);
                pusher.send_numbers(0..10);
                pusher
            }
        });
        assert_eq!(receive(&mut source, 10).len(), 10, "round {round}");
        drop(pusher.join().unwrap());
    }
}

#[test]
fn a_pusher_that_is_started_later_or_anew_is_found() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = format!("tcp://{free}");
    let notices = Notices::default();
    let mut source = opened(pull(&endpoint), None, &notices);
    receive_nothing(&mut source);
    for _ in 0..2 {
        let pusher = Sending::start::<PushSocket>(&endpoint, true);
        pusher.send_numbers(0..10);
        assert_eq!(receive(&mut source, 10).len(), 10);
        drop(pusher);
        receive_nothing(&mut source);
    }
    let said = notices.take();
    assert!(said.len() == 1 && said[0].contains("no answer from"), "{said:?}");
}

#[test]
fn messages_that_a_publisher_numbers_are_counted_when_they_are_missing() {
    let publisher = Sending::start::<PubSocket>("tcp://127.0.0.1:0", true);
    let notices = Notices::default();
    let mut source = opened(sub(&publisher.endpoint, "images"), None, &notices);
    subscribed(&mut source, &publisher, "images");
    notices.take();
    publisher.send_sequence("images", 1..=10);
    publisher.send_sequence("other", 11..=12);
    publisher.send_sequence("images", 13..=20);
    publisher.send_sequence("images", [30]);
    let arrivals = receive(&mut source, 19);
    assert_eq!(gaps(&arrivals), 11);
    assert_eq!((arrivals[10].gap, arrivals[18].gap), (2, 9));
    assert_eq!(arrivals[18].key, "30");
    let said = notices.take();
    assert!(said.len() == 1 && said[0].contains("2 messages after number 10 were lost"), "{said:?}");
    // Messages that were sent while there was no receiver are missing, too.
    drop(source);
    let mut source = opened(sub(&publisher.endpoint, "images"), Some("30"), &notices);
    receive_nothing(&mut source);
    publisher.send_sequence("images", [36]);
    assert_eq!(gaps(&receive(&mut source, 1)), 5);
    publisher.send_sequence("images", [2]);
    assert_eq!(gaps(&receive(&mut source, 1)), 0);
    let said = notices.take().concat();
    assert!(said.contains("went from 36 to 2"), "{said:?}");
}

#[test]
fn ranks_divide_what_is_published_by_its_numbers() {
    let publisher = Sending::start::<PubSocket>("tcp://127.0.0.1:0", true);
    let mut ranks: Vec<ZeroMqSource> = (0..3)
        .map(|rank| {
            let share = RankShare { rank, world_size: 3 };
            let options = ZeroMqOptions { share, ..sub(&publisher.endpoint, "") };
            let mut source = opened(options, Some("0"), &Notices::default());
            receive_nothing(&mut source);
            source
        })
        .collect();
    publisher.send_sequence("t", (1..=10).chain(20..=30));
    let mut all = Vec::new();
    let mut missing = 0;
    for (rank, source) in ranks.iter_mut().enumerate() {
        let arrivals = receive(source, 7);
        assert!(keys(&arrivals).iter().all(|key| key.parse::<usize>().unwrap() % 3 == rank));
        missing += gaps(&arrivals);
        all.extend(arrivals.into_iter().map(|arrival| arrival.key.parse::<u64>().unwrap()));
    }
    all.sort_unstable();
    assert_eq!(all, (1..=10).chain(20..=30).collect::<Vec<_>>());
    assert_eq!(missing, 9, "11 to 19, each counted by the rank whose it was");
    // A message without a number cannot be assigned to a rank: one rank reports that.
    publisher.send(frames(&[("jpg", "x")]));
    let wrong = receive(&mut ranks[0], 1).remove(0).record.unwrap_err();
    assert!(wrong.contains("no __seq__"), "{wrong}");
    receive_nothing(&mut ranks[1]);
}

#[test]
fn a_publisher_that_does_not_number_is_spoken_of_once() {
    let publisher = Sending::start::<PubSocket>("tcp://127.0.0.1:0", true);
    let notices = Notices::default();
    let mut source = opened(sub(&publisher.endpoint, ""), None, &notices);
    receive_nothing(&mut source);
    publisher.send_numbers(1..=3);
    assert_eq!(keys(&receive(&mut source, 3)), ["1", "2", "3"]);
    let said = notices.take();
    assert!(said.len() == 1 && said[0].contains("messages have no __seq__"), "{said:?}");
}

#[test]
fn messages_that_are_no_samples_fail_alone() {
    let pusher = Sending::start::<PushSocket>("tcp://127.0.0.1:0", true);
    let options = ZeroMqOptions { max_bytes: 1000, ..pull(&pusher.endpoint) };
    let mut source = opened(options, None, &Notices::default());
    pusher.send(frames(&[("jpg", "x")]));
    pusher.send(vec![b"jpg".to_vec(), b"x".to_vec(), b"cls".to_vec()]);
    pusher.send(vec![b"jpg".to_vec(), vec![1; 2000]]);
    pusher.send(frames(&[("__seq__", "one")]));
    pusher.send(frames(&[("__other__", "x")]));
    pusher.send(frames(&[("cls", "cat")]));
    pusher.send(frames(&[("jpg", "y")]));
    let arrivals = receive(&mut source, 7);
    let wrong: Vec<_> = arrivals.iter().map(|arrival| arrival.record.as_ref().err().cloned()).collect();
    assert!(wrong[0].is_none() && wrong[6].is_none());
    let expected =
        ["3 frames", "2003 bytes, but max", "not a decimal number", "__other__", "not a class number"];
    for (wrong, expected) in wrong[1..6].iter().zip(expected) {
        assert!(wrong.as_ref().unwrap().contains(expected), "{wrong:?}");
    }
}

#[test]
fn settings_that_cannot_work_are_refused_in_words() {
    let refused = |options: ZeroMqOptions, expected: &str| {
        let error = ZeroMqSource::new(options, Notices::default()).err().unwrap().to_string();
        assert!(error.starts_with("config: source: ZeroMQ: ") && error.contains(expected), "{error}");
    };
    refused(pull("127.0.0.1"), "endpoint \"127.0.0.1\"");
    refused(ZeroMqOptions { endpoints: vec![], ..pull("") }, "endpoints: is empty");
    refused(ZeroMqOptions { topics: vec!["t".to_owned()], ..pull("tcp://127.0.0.1:1") }, "topics");
    refused(ZeroMqOptions { share: RankShare { rank: 3, world_size: 2 }, ..pull("tcp://h:1") }, "rank is 3");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp://{}", taken.local_addr().unwrap());
    let mut source =
        ZeroMqSource::new(ZeroMqOptions { bind: true, ..pull(&endpoint) }, Notices::default()).unwrap();
    let error = source.open(&SourcePosition::default()).unwrap_err().to_string();
    assert!(error.contains("pass a free address of this machine"), "{error}");
}
