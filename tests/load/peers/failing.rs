//! Peers whose responses are wrong, late, incomplete or missing.

use super::*;
use foreload::testing::peers::BreakerState;
use std::io::BufRead;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A peer that answers each request as the test says.
pub(super) struct Liar {
    address: SocketAddr,
    /// The requests so far.
    requests: Arc<AtomicUsize>,
}

impl Liar {
    /// `answer` gets the number of the request, the connection, and the requested sample. It returns whether the
    /// connection stays open.
    pub(super) fn new(answer: impl Fn(usize, &mut TcpStream, u64) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(loopback()).unwrap();
        let (address, requests, answer) =
            (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default(), Arc::new(answer));
        let counter = requests.clone();
        // The thread runs until the process ends, because its socket is never closed.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, answer, counter) = (stream.unwrap(), answer.clone(), counter.clone());
                std::thread::spawn(move || {
                    let mut lines = std::io::BufReader::new(stream.try_clone().unwrap());
                    while let Some(sample) = asked_for(&mut lines) {
                        if !answer(counter.fetch_add(1, Relaxed), &mut stream, sample) {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, requests }
    }

    pub(super) fn peer(&self) -> Peer {
        plain(self.address)
    }
}

/// The sample of the next request.
fn asked_for(lines: &mut impl BufRead) -> Option<u64> {
    let mut request = String::new();
    lines.read_line(&mut request).ok()?;
    let sample = request.split(' ').nth(1)?.rsplit('/').next()?.parse().ok()?;
    while request.trim_end() != "" {
        request.clear();
        lines.read_line(&mut request).ok()?;
    }
    Some(sample)
}

/// The response that a correct server sends.
pub(super) fn right_answer(sample: u64) -> Vec<u8> {
    answer_with(&sample_bytes(sample), crc_on_the_wire(sample, &sample_bytes(sample)))
}

fn answer_with(bytes: &[u8], crc: u32) -> Vec<u8> {
    let (length, version) = (bytes.len(), VERSION.0);
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nforeload-crc32c: {crc:08x}\r\netag: \"{version:016x}\"\r\n\r\n"
    );
    [head.as_bytes(), bytes].concat()
}

/// The client's result with a peer that sends this response and closes the connection.
fn outcome(answer: impl Fn(u64) -> Vec<u8> + Send + Sync + 'static) -> Result<(), Miss> {
    let liar = Liar::new(move |_, stream, sample| {
        let _ = stream.write_all(&answer(sample));
        false
    });
    let mut client = Client::new(&[liar.peer()], &hasty(20_000));
    let outcome = client.ask(0, 3);
    assert!(client.holds_nothing());
    outcome
}

#[test]
fn wrong_answers_are_never_taken_for_the_sample() {
    assert_eq!(outcome(right_answer), Ok(()));
    let spoiled = |at: usize| {
        move |sample| {
            let mut bytes = sample_bytes(sample).to_vec();
            let crc = crc_on_the_wire(sample, &bytes);
            let at = at.min(bytes.len() - 1);
            bytes[at] ^= 0x10;
            answer_with(&bytes, crc)
        }
    };
    for at in [0, 7000, usize::MAX] {
        assert_eq!(outcome(spoiled(at)), Err(Miss::Wrong));
    }
    let other = |sample| right_answer(sample + 1);
    assert_eq!(outcome(other), Err(Miss::Wrong), "another sample");
    let shorter = |sample| {
        let bytes = sample_bytes(sample);
        answer_with(&bytes[1..], crc_on_the_wire(sample, &bytes[1..]))
    };
    assert_eq!(outcome(shorter), Err(Miss::Wrong), "a sample that is shorter, and in no form");
    let replaced = |from: &'static str, to: &'static str| {
        move |sample| {
            let answer = right_answer(sample);
            let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
            let text = String::from_utf8(answer[..head].to_owned()).unwrap().replace(from, to);
            [text.as_bytes(), &answer[head..]].concat()
        }
    };
    assert_eq!(outcome(replaced("foreload-crc32c", "x")), Err(Miss::Wrong), "no checksum");
    assert_eq!(outcome(replaced("etag", "x")), Err(Miss::Wrong), "no version");
    assert_eq!(outcome(replaced("\"12345678", "\"12345679")), Err(Miss::Wrong), "another version");
    assert_eq!(outcome(replaced("content-length", "x")), Err(Miss::Wrong), "no length");
    assert_eq!(outcome(replaced("200 OK", "206 Part")), Err(Miss::Wrong), "a part");
    assert_eq!(outcome(replaced("200 OK", "302 Found")), Err(Miss::Wrong), "elsewhere");
    assert_eq!(outcome(replaced("200 OK", "500 Error")), Err(Miss::Wrong), "no answer of ours");
    assert_eq!(outcome(replaced("HTTP/1.1", "SMTP")), Err(Miss::Wrong), "another protocol");
}

#[test]
fn half_answers_and_resets_are_misses() {
    for share in [0.0, 0.001, 0.5, 0.999] {
        let cut = move |sample| {
            let answer = right_answer(sample);
            answer[..(answer.len() as f64 * share) as usize].to_owned()
        };
        assert_eq!(outcome(cut), Err(Miss::Unreachable), "{share} of it");
    }
    let liar = Liar::new(|_, stream, sample| {
        let answer = right_answer(sample);
        let _ = stream.write_all(&answer[..answer.len() / 2]);
        // With a linger time of 0 the connection is reset, not closed.
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        // SAFETY: the option's value is a struct of the right type that outlives the call.
        unsafe {
            let (value, length) = ((&raw const linger).cast(), size_of::<libc::linger>() as libc::socklen_t);
            let socket = std::os::fd::AsRawFd::as_raw_fd(stream);
            libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_LINGER, value, length);
        }
        false
    });
    assert_eq!(Client::new(&[liar.peer()], &hasty(20_000)).ask(0, 3), Err(Miss::Unreachable));
}

#[test]
fn a_slow_peer_costs_a_deadline_and_its_late_answer_is_nobodys() {
    let (release, released) = crossbeam_channel::unbounded::<()>();
    // The peer answers the first request when the test says so, and stops in the middle of the response.
    let liar = Liar::new(move |number, stream, sample| {
        let answer = right_answer(sample);
        let (first, second) = answer.split_at(answer.len() / 2);
        let _ = stream.write_all(first);
        if number == 0 {
            let _ = released.recv();
        }
        stream.write_all(second).is_ok()
    });
    let mut client = Client::new(&[liar.peer()], &hasty(400));
    assert_eq!(client.ask(0, 3), Err(Miss::Timeout));
    assert!(client.holds_nothing(), "the slot is back though the answer is on its way");
    release.send(()).unwrap();
    for sample in 4..10 {
        assert_eq!(client.ask(0, sample), Ok(()), "on another connection");
    }
    let counts = client.transfer.stats()[0].counts;
    assert_eq!((counts.timeouts, counts.connects, counts.connections), (1, 2, 1));
}

#[test]
fn all_reads_in_flight_end_with_a_peer_that_says_nothing() {
    let silent = TcpListener::bind(loopback()).unwrap();
    let mut client = Client::new(&[plain(silent.local_addr().unwrap())], &hasty(300));
    (1..60).for_each(|sample| client.post(0, sample));
    let answers = client.answers();
    assert!(answers.len() == 59 && answers.into_iter().all(|answer| check(answer) == Err(Miss::Timeout)));
    assert!(client.holds_nothing());
}

#[test]
fn reads_behind_those_that_fail_are_given_up_with_them() {
    let silent = TcpListener::bind(loopback()).unwrap();
    // The deadline of each sample is a fifth of a second later than that of the sample before it.
    let deadline = DeadlineLimits { slowest: 2_000_000, ..allowed(Duration::from_millis(300)) };
    let options = HttpOptions { deadline, breaker: BreakerLimits::default(), ..patient() };
    let mut client = Client::new(&[plain(silent.local_addr().unwrap())], &options);
    (1..60).for_each(|sample| client.post(0, sample));
    let misses: Vec<Miss> = client.answers().into_iter().filter_map(|answer| check(answer).err()).collect();
    assert_eq!(misses.len(), 59);
    let of = |miss| misses.iter().filter(|&&found| found == miss).count();
    assert_eq!(of(Miss::Timeout) + of(Miss::Breaker), 59);
    // After four failures the peer is skipped for a backoff period. By then, three more requests were sent on the free
    // connections.
    assert!(of(Miss::Timeout) < 20, "{misses:?}");
}

#[test]
fn a_sample_has_the_time_that_its_bytes_take() {
    let (slowest, limit) = (sample_bytes(3).len() as u64, Duration::from_millis(300));
    let slow = Liar::new(move |_, stream, sample| {
        std::thread::sleep(2 * limit);
        stream.write_all(&right_answer(sample)).is_ok()
    });
    // At that rate the sample takes a second. Its limit is four seconds plus the latency.
    let deadline = DeadlineLimits { slowest, ..allowed(limit) };
    let mut client = Client::new(&[slow.peer()], &HttpOptions { deadline, ..patient() });
    assert_eq!(client.ask(0, 3), Ok(()));
    let deadline = allowed(limit);
    let mut client = Client::new(&[slow.peer()], &HttpOptions { deadline, ..patient() });
    assert_eq!(client.ask(0, 3), Err(Miss::Timeout));
}

#[test]
fn a_peer_that_fails_is_left_alone_then_tried_and_trusted_again() {
    let works = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let switch = works.clone();
    let liar = Liar::new(move |_, stream, sample| {
        switch.load(Relaxed) && stream.write_all(&right_answer(sample)).is_ok()
    });
    let millisecond = Duration::from_millis(1);
    let breaker = BreakerLimits { failures: 3, first: 100 * millisecond, longest: 400 * millisecond };
    let mut client = Client::new(&[liar.peer()], &HttpOptions { breaker, ..patient() });
    for _ in 0..3 {
        assert_eq!(client.ask(0, 2), Err(Miss::Unreachable));
    }
    assert_eq!(client.transfer.stats()[0].breaker, BreakerState::Open);
    let asked = liar.requests.load(Relaxed);
    assert_eq!(client.ask(0, 2), Err(Miss::Breaker));
    assert_eq!(liar.requests.load(Relaxed), asked, "it is not asked");
    wait_until("it is tried again", || client.ask(0, 2) == Err(Miss::Unreachable));
    works.store(true, Relaxed);
    wait_until("it is trusted again", || client.ask(0, 2).is_ok());
    assert_eq!(client.transfer.stats()[0].breaker, BreakerState::Closed);
    for _ in 0..10 {
        assert_eq!(client.ask(0, 2), Ok(()));
    }
    let counts = client.transfer.stats()[0].counts;
    let misses: u64 = ["absent", "busy", "timeouts", "refused", "wrong", "unreachable", "breaker"]
        .iter()
        .map(|miss| counts.by_name().find(|(name, _)| name == miss).unwrap().1)
        .sum();
    assert_eq!(counts.reads, counts.hits + misses, "{counts:?}");
    let notices = client.notices.take();
    assert!(notices.len() == 1 && notices[0].contains("cannot be reached"), "{notices:?}");
}

#[test]
fn one_bad_peer_does_not_touch_the_others() {
    let (good, silent) = (server(TestShelf::in_memory(50)), TcpListener::bind(loopback()).unwrap());
    let nobody = TcpListener::bind(loopback()).unwrap().local_addr().unwrap();
    let peers = [plain(good.address()), plain(silent.local_addr().unwrap()), plain(nobody)];
    let mut client = Client::new(&peers, &patient());
    // Reads that wait for the silent peer do not delay reads from the good one, which all end earlier.
    client.post(1, 1);
    for round in 0..5 {
        (1..50).for_each(|sample| client.post(0, sample));
        let (mut answers, mut right) = (Vec::new(), 0);
        while right < 49 {
            client.transfer.wait_until(Some(Instant::now() + PATIENCE), &mut answers).unwrap();
            for answer in answers.drain(..) {
                assert_eq!(answer.peer, 0, "round {round}");
                assert_eq!(check(answer), Ok(()));
                right += 1;
            }
        }
    }
    client.post(2, 1);
    let mut answers = Vec::new();
    client.transfer.wait_until(Some(Instant::now() + PATIENCE), &mut answers).unwrap();
    assert_eq!(check(answers.pop().unwrap()), Err(Miss::Unreachable));
    assert_eq!(client.transfer.in_flight(), 1);
}
