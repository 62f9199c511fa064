//! A socket that others feed: through real sockets, with processes that are killed.

use super::{PATIENCE, keys, member, receive, receive_nothing, settled};
use crate::common::child;
use crate::peers::fuzz::fuzz;
use foreload::Notices;
use foreload::testing::peers::{TlsIdentity, Token};
use foreload::testing::stream::{
    Arrival, FeederOptions, Replay, SocketAddress, SocketFeeder, SocketOptions, SocketSource, SourcePosition,
    StreamSource,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What a child is to do: `feed` or `receive`, and the path of the socket.
const ROLE: &str = "FORELOAD_TEST_SOCKET";

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    (directory, path)
}

fn options(path: &Path) -> SocketOptions {
    SocketOptions::new(SocketAddress::Unix(path.to_owned()), "simulator")
}

fn opened(options: SocketOptions, position: &SourcePosition) -> SocketSource {
    let mut source = SocketSource::new(options, Notices::default()).unwrap();
    source.open(position).unwrap();
    source
}

fn receiver(path: &Path) -> SocketSource {
    opened(options(path), &SourcePosition::default())
}

fn keeping(path: &Path, position: &SourcePosition) -> SocketSource {
    opened(SocketOptions { keeps: true, ..options(path) }, position)
}

fn feeder(path: &Path) -> SocketFeeder {
    let options = FeederOptions::new(SocketAddress::Unix(path.to_owned()));
    SocketFeeder::start(options, Notices::default()).unwrap()
}

fn pixels(number: u64) -> Vec<u8> {
    (0..500 + number * 13 % 3000).map(|at| (at * 7 + number) as u8).collect()
}

fn feed(feeder: &SocketFeeder, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        let (pixels, class) = (pixels(number), (number % 10).to_string());
        let members: [(&str, &[u8]); 2] = [("jpg", &pixels), ("cls", class.as_bytes())];
        assert!(feeder.send(&format!("{number:06}"), &members, PATIENCE).unwrap());
    }
}

fn check(arrivals: &[Arrival], numbers: impl IntoIterator<Item = u64>) {
    let numbers: Vec<u64> = numbers.into_iter().collect();
    let expected: Vec<String> = numbers.iter().map(|number| format!("{number:06}")).collect();
    assert_eq!(keys(arrivals), expected);
    for (number, arrival) in numbers.iter().zip(arrivals) {
        assert_eq!(member(arrival, "jpg"), pixels(*number));
        assert_eq!(arrival.record.as_ref().unwrap().label, Some((number % 10) as u32));
    }
}

#[test]
fn what_is_fed_is_received_in_order_by_the_owner_of_a_file() {
    let (_directory, path) = place();
    // The feeder may be there first.
    let early = feeder(&path);
    feed(&early, 1..=50);
    let mut source = receiver(&path);
    assert_eq!((source.replay(), source.name()), (Replay::Never, "simulator"));
    assert_eq!(source.describe(), format!("stream \"simulator\" fed at {}", path.display()));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    check(&receive(&mut source, 50), 1..=50);
    assert!(early.flush(true, PATIENCE).unwrap(), "what is received is kept no longer");
    let other = feeder(&path);
    feed(&other, 51..=60);
    check(&receive(&mut source, 10), 51..=60);
    assert!(source.acknowledge(&SourcePosition::default()).unwrap());
    assert!(source.fetch("000001").unwrap_err().to_string().contains("cannot be got again"));
    drop(source);
    assert!(!path.exists());
}

#[test]
fn a_receiver_that_is_full_lets_feeders_wait() {
    let (_directory, path) = place();
    let mut source = opened(SocketOptions { window: 20_000, ..options(&path) }, &SourcePosition::default());
    let address = SocketAddress::Unix(path);
    let feeder = SocketFeeder::start(
        FeederOptions { buffer: 50_000, ..FeederOptions::new(address) },
        Notices::default(),
    )
    .unwrap();
    let sample = [("jpg", &[7_u8; 5000][..])];
    let mut sent = 0;
    while feeder.send(&sent.to_string(), &sample, Duration::from_millis(500)).unwrap() {
        sent += 1;
        assert!(sent < 20, "nobody stops it");
    }
    assert!((9..=10).contains(&sent), "{sent} samples fit");
    // Larger than the window, and than the buffer: alone it may go.
    let large = std::thread::scope(|scope| {
        let large = scope.spawn(|| feeder.send("large", &[("jpg", &[1; 80_000][..])], PATIENCE));
        assert_eq!(receive(&mut source, sent).len(), sent);
        large.join().unwrap()
    });
    assert!(large.unwrap());
    assert_eq!(member(&receive(&mut source, 1)[0], "jpg").len(), 80_000);
    assert!(feeder.flush(false, PATIENCE).unwrap());
}

#[test]
fn over_tcp_a_token_is_needed_and_shown_nowhere_and_tls_hides_it() {
    let local = SocketAddress::Tcp("127.0.0.1:0".parse().unwrap());
    let none = SocketSource::new(SocketOptions::new(local.clone(), "s"), Notices::default());
    let none = none.err().unwrap().to_string();
    assert!(none.contains("token: is None"), "{none}");

    let (token, wrong) = (Token::random().unwrap(), Token::random().unwrap());
    let identity = TlsIdentity::for_this_job().unwrap();
    let pin = identity.pin();
    for tls in [None, Some(identity)] {
        let encrypted = tls.is_some();
        let options =
            SocketOptions { token: Some(token.clone()), tls, ..SocketOptions::new(local.clone(), "s") };
        let mut shown = format!("{options:?}");
        let notices = Notices::default();
        let mut source = SocketSource::new(options, notices.clone()).unwrap();
        source.open(&SourcePosition::default()).unwrap();
        let described = source.describe();
        let address = described.split_whitespace().find_map(|word| word.parse().ok()).expect("an address");
        let address = SocketAddress::Tcp(address);
        let feeder = |token: &Token, pin| {
            let options =
                FeederOptions { token: Some(token.clone()), pin, ..FeederOptions::new(address.clone()) };
            (format!("{options:?}"), SocketFeeder::start(options, Notices::default()).unwrap())
        };
        let (debug, right) = feeder(&token, encrypted.then_some(pin));
        feed(&right, 1..=20);
        check(&receive(&mut source, 20), 1..=20);
        let (_, stranger) = feeder(&wrong, encrypted.then_some(pin));
        let refused = stranger.flush(false, Duration::ZERO).and_then(|_| {
            stranger.send("k", &[("jpg", b"x")], PATIENCE)?;
            stranger.flush(false, PATIENCE)
        });
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("the token is wrong"), "{refused}");
        receive_nothing(&mut source);
        let said = notices.take();
        assert!(said.len() == 1 && said[0].contains("the token is wrong"), "{said:?}");
        if encrypted {
            let (_, plain) = feeder(&token, None);
            plain.send("k", &[("jpg", b"x")], PATIENCE).unwrap();
            assert!(!plain.flush(false, Duration::from_millis(300)).unwrap_or(false));
        }
        shown += &[described, debug, refused, said[0].clone()].concat();
        for secret in [token.reveal(), wrong.reveal()] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}

#[test]
fn samples_that_are_kept_come_again_but_for_those_that_a_state_has() {
    let (_directory, path) = place();
    let feeder = feeder(&path);
    let mut first = keeping(&path, &SourcePosition::default());
    assert_eq!(first.replay(), Replay::Listed);
    feed(&feeder, 1..=30);
    let given = receive(&mut first, 20);
    assert!(feeder.flush(false, Duration::from_millis(50)).is_ok());
    // Ten are behind a checkpoint; five of those were acknowledged before the end.
    let keys_of = |range: std::ops::Range<usize>| settled(keys(&given)[range].iter().copied());
    assert!(first.acknowledge(&keys_of(0..5)).unwrap());
    drop(first);
    let mut again = keeping(&path, &keys_of(5..10));
    check(&receive(&mut again, 20), 11..=30);
    receive_nothing(&mut again);
    assert!(!feeder.flush(true, Duration::from_millis(100)).unwrap(), "they are kept");
    let all = settled((6..=30).map(|number| format!("{number:06}")));
    assert!(again.acknowledge(&all).unwrap());
    assert!(feeder.flush(true, PATIENCE).unwrap());
    assert!(again.acknowledge(&SourcePosition::default()).unwrap());
    feed(&feeder, 31..=35);
    check(&receive(&mut again, 5), 31..=35);
}

#[test]
fn what_a_feeder_cannot_be_told_is_remembered_until_it_is_back() {
    let (_directory, path) = place();
    let mut source = keeping(&path, &settled(["000001"]));
    // Its feeder has not come back yet, and may send it.
    assert!(!source.acknowledge(&settled(["000001"])).unwrap());
    let feeder = feeder(&path);
    feed(&feeder, 1..=3);
    check(&receive(&mut source, 2), 2..=3);
    assert!(source.acknowledge(&settled(["000001", "000002", "000003"])).unwrap());
    assert!(feeder.flush(true, PATIENCE).unwrap());
    // One that says goodbye takes what it kept along.
    feed(&feeder, 4..=5);
    receive(&mut source, 2);
    drop(feeder);
    std::thread::sleep(Duration::from_millis(200));
    assert!(source.acknowledge(&settled(["000004", "000005"])).unwrap());
}

#[test]
fn samples_that_cannot_be_used_fail_alone() {
    let (_directory, path) = place();
    let mut source = opened(SocketOptions { max_bytes: 4096, ..options(&path) }, &SourcePosition::default());
    let feeder = feeder(&path);
    let large = vec![3; 3_000_000];
    let send = |key: &str, members: &[(&str, &[u8])]| feeder.send(key, members, PATIENCE);
    for (key, members) in [
        ("good", &[("jpg", &b"x"[..])][..]),
        ("long", &[("jpg", &large[..5000])]),
        ("huge", &[("jpg", &large)]),
        ("none", &[]),
        ("twice", &[("jpg", b"x"), ("JPG", b"y")]),
        ("class", &[("cls", b"cat")]),
        ("last", &[("cls", b"1")]),
    ] {
        assert!(send(key, members).unwrap());
    }
    let arrivals = receive(&mut source, 7);
    assert_eq!(keys(&arrivals), ["good", "long", "huge", "none", "twice", "class", "last"]);
    let wrong: Vec<_> = arrivals.iter().map(|arrival| arrival.record.as_ref().err().cloned()).collect();
    assert!(wrong[0].is_none() && wrong[6].is_none());
    let expected =
        ["5000 bytes, max_bytes is 4096", "max_bytes is 4096", "0 members", "two members", "no class"];
    for (wrong, expected) in wrong[1..6].iter().zip(expected) {
        assert!(wrong.as_ref().unwrap().contains(expected), "{wrong:?}");
    }
    assert!(send(&"k".repeat(2000), &[]).unwrap_err().to_string().contains("2000 bytes"));
    assert!(feeder.flush(true, PATIENCE).unwrap());
}

#[test]
fn a_socket_of_another_is_left_alone_and_one_of_the_dead_is_replaced() {
    let (directory, path) = place();
    let living = receiver(&path);
    let refused = |path: &Path| {
        let mut source = SocketSource::new(options(path), Notices::default()).unwrap();
        source.open(&SourcePosition::default()).unwrap_err().to_string()
    };
    assert!(refused(&path).contains("another process listens there"));
    drop(living);
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(receiver(&path));
    let file = directory.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    assert!(refused(&file).contains("no socket"));
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    assert!(refused(&directory.path().join("d".repeat(200))).contains("107 bytes"));
}

/// What the processes that are killed do; alone it does nothing.
#[test]
fn feeds_or_receives_until_it_is_killed() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, path) = role.split_once(':').unwrap();
    let path = Path::new(path);
    if role == "feed" {
        let feeder = feeder(path);
        for number in 1.. {
            feed(&feeder, [number]);
        }
    }
    let mut source = keeping(path, &SourcePosition::default());
    loop {
        for arrival in receive(&mut source, 1) {
            println!("took {}", arrival.key);
        }
    }
}

fn process(role: &str, path: &Path) -> Child {
    let mut program = child(feeds_or_receives_until_it_is_killed);
    program.env(ROLE, format!("{role}:{}", path.display()));
    program.stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_feeder_that_is_killed_leaves_whole_samples_and_harms_nobody() {
    let (_directory, path) = place();
    let mut source = receiver(&path);
    for _ in 0..2 {
        let mut process = process("feed", &path);
        let mut arrivals = receive(&mut source, 200);
        process.kill().unwrap();
        process.wait().unwrap();
        receive_the_rest(&mut source, &mut arrivals);
        let count = arrivals.len() as u64;
        check(&arrivals, 1..=count);
    }
    let feeder = feeder(&path);
    feed(&feeder, 1..=5);
    check(&receive(&mut source, 5), 1..=5);
}

/// Receives what was on its way, until nothing comes for a while.
fn receive_the_rest(source: &mut SocketSource, into: &mut Vec<Arrival>) {
    let mut before = usize::MAX;
    while into.len() != before {
        before = into.len();
        source.receive(1 << 20, Duration::from_millis(500), into).unwrap();
    }
}

#[test]
fn a_receiver_that_is_killed_is_given_again_what_was_not_acknowledged() {
    let (_directory, path) = place();
    let mut process = process("receive", &path);
    let feeder = feeder(&path);
    feed(&feeder, 1..=100);
    let lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
    let took = lines.filter(|line| line.contains("took ")).take(40).count();
    assert_eq!(took, 40);
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(path.exists(), "the dead cannot remove it");
    let mut source = keeping(&path, &settled((1..=40).map(|number| format!("{number:06}"))));
    check(&receive(&mut source, 60), 41..=100);
    receive_nothing(&mut source);
}

/// The frames of a feeder without a token that sends a sample.
fn conversation() -> Vec<u8> {
    let frame = |kind: u8, body: &[u8]| [&[kind][..], &(body.len() as u32).to_le_bytes(), body].concat();
    let sample = [
        &1_u64.to_le_bytes()[..],
        &[1, 0],
        b"k",
        &[2, 0],
        &[3, 6, 0, 0, 0],
        b"jpgpixels",
        &[3, 1, 0, 0, 0],
        b"cls7",
    ];
    let hello = [&b"FLSTREAM"[..], &[1, 0], &[9; 16]].concat();
    let numbers = [7_u64.to_le_bytes(), 8_u64.to_le_bytes()].concat();
    [frame(1, &hello), frame(4, &sample.concat()), frame(9, &[]), frame(7, &numbers), frame(8, &[])].concat()
}

/// Sends bytes and hangs up. Whatever the answer, it must not take long.
fn say(path: &Path, bytes: &[u8]) {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // Whoever is refused may be told before all is said.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let start = Instant::now();
    let _ = stream.read_to_end(&mut Vec::new());
    assert!(start.elapsed() < PATIENCE / 2);
}

#[test]
fn broken_frames_harm_nobody_else() {
    let (_directory, path) = place();
    let notices = Notices::default();
    let mut source = SocketSource::new(options(&path), notices.clone()).unwrap();
    source.open(&SourcePosition::default()).unwrap();
    let feeder = feeder(&path);
    let whole = conversation();
    say(&path, &whole);
    let arrivals = receive(&mut source, 1);
    assert_eq!((keys(&arrivals), member(&arrivals[0], "jpg")), (vec!["k"], &b"pixels"[..]));
    // Cut off anywhere.
    for cut in 0..whole.len() {
        say(&path, &whole[..cut]);
    }
    say(&path, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    // A frame that says that it has nearly 4 GiB takes no memory for them.
    let hello = whole[..5 + 26].to_vec();
    say(&path, &[&hello[..], &[4, 255, 255, 255, 255], &whole[5 + 26 + 5..]].concat());
    say(&path, &[&hello[..], &[7, 255, 255, 255, 255]].concat());
    let mut rest = Vec::new();
    source.receive(10_000, Duration::from_millis(200), &mut rest).unwrap();
    assert!(rest.iter().all(|arrival| arrival.key == "k" && arrival.record.is_ok()), "{rest:?}");
    feed(&feeder, 1..=5);
    check(&receive(&mut source, 5), 1..=5);
    let said = notices.take();
    assert!(said.len() == 1 && said[0].contains("a feeder was refused"), "{said:?}");
}

#[test]
fn any_bytes_give_samples_or_refusals() {
    let (_directory, path) = place();
    let mut source = receiver(&path);
    let whole = conversation();
    fuzz("frames of a feeder", |random| {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = random.next_u32() as u8,
                2 => bytes.truncate(at.max(1)),
                _ => {
                    let piece = bytes[at..(at + random.below(60) as usize).min(bytes.len())].to_owned();
                    drop(bytes.splice(at..at, piece));
                }
            }
        }
        say(&path, &bytes);
        source.receive(1000, Duration::ZERO, &mut Vec::new()).unwrap();
    });
    let feeder = feeder(&path);
    feed(&feeder, 1..=5);
    let mut arrivals = Vec::new();
    let start = Instant::now();
    while arrivals.last().is_none_or(|last: &Arrival| last.key != "000005") {
        assert!(start.elapsed() < PATIENCE);
        source.receive(1000, Duration::from_millis(50), &mut arrivals).unwrap();
    }
}
