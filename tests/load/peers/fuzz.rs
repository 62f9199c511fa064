//! Hostile bytes, sent to the server and as responses to the client: the result is a refusal or a miss, never a panic,
//! a wrong sample or a hang.
//!
//! Each test runs for a moment; `FORELOAD_FUZZ_SECONDS` makes it longer, `FORELOAD_FUZZ_SEED` repeats a run.

use super::failing::{Liar, right_answer};
use super::*;
use crate::common::fuzz;
use foreload::testing::rng::RandomStream;

/// Flips bits, overwrites, cuts, repeats, or inserts words of HTTP.
fn mutate(bytes: &mut Vec<u8>, random: &mut RandomStream) {
    const WORDS: [&[u8]; 10] = [
        b"\r\n",
        b"\r\n\r\n",
        b": ",
        b"content-length: 99999999999999999999\r\n",
        b"content-length: 0\r\n",
        b"transfer-encoding: chunked\r\n",
        b"range: bytes=0-0\r\n",
        b"\0",
        b"expect: 100-continue\r\n",
        b"HTTP/1.0",
    ];
    for _ in 0..=random.below(4) {
        let Some(last) = (bytes.len() as u64).checked_sub(1) else { return };
        // Most of the important bytes are at the beginning.
        let near = if random.below(3) > 0 { last.min(300) } else { last };
        let at = random.below(near + 1) as usize;
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next_u32() as u8,
            2 => bytes.truncate(at),
            3 => {
                let piece = bytes[at..(at + random.below(400) as usize).min(bytes.len())].to_owned();
                bytes.splice(at..at, piece);
            }
            4 => drop(bytes.splice(at..at, WORDS[random.below(10) as usize].iter().copied())),
            _ => {
                let length = random.below(300) as usize;
                bytes.splice(at..at, random_bytes(random, length));
            }
        }
    }
}

#[test]
fn any_bytes_are_a_request_or_refused() {
    let served_cache = Arc::new(TestShelf::in_memory(5));
    let server = Server::start(ServerOptions::new(loopback(), token())).unwrap();
    server.share(DATASET, served_cache.clone());
    let mut client = Client::of(&server);
    let bytes = sample_bytes(4);
    let (length, crc, version) = (bytes.len(), crc_on_the_wire(4, &bytes), VERSION.0);
    let headers = format!(
        "content-length: {length}\r\nforeload-crc32c: {crc:08x}\r\nforeload-version: \"{version:016x}\"\r\n"
    );
    let push = [request("PUT", &path(4), &headers).as_bytes(), &bytes].concat();
    let seeds = [
        request("GET", &path(3), "").into_bytes(),
        request("GET", &path(3), "range: bytes=7-70\r\n").into_bytes(),
        push,
    ];
    fuzz("requests", |random| {
        let mut text = seeds[random.below(3) as usize].clone();
        mutate(&mut text, random);
        exchange(server.address(), &text);
        if random.below(20) == 0 {
            assert_eq!(client.ask(0, 3), Ok(()), "it still serves");
        }
        let pushed = served_cache.pushed.lock().unwrap();
        assert!(pushed.iter().all(|(&sample, bytes)| *bytes == sample_bytes(sample)));
    });
    assert_eq!(client.ask(0, 3), Ok(()));
    drop(client);
    wait_until("no connection is left", || server.stats().open_connections == 0);
}

#[test]
fn any_bytes_are_the_sample_or_a_miss() {
    let answers = Arc::new(Mutex::new(Vec::new()));
    let next = answers.clone();
    let liar = Liar::new(move |_, stream, _| {
        let _ = stream.write_all(&next.lock().unwrap());
        false
    });
    let mut client = Client::new(&[liar.peer()], &hasty(10_000));
    let mut outcomes = std::collections::BTreeMap::new();
    fuzz("answers", |random| {
        let mut answer = right_answer(3);
        if random.below(8) > 0 {
            mutate(&mut answer, random);
        }
        *answers.lock().unwrap() = answer;
        client.post(0, 3);
        // Any version is accepted here: the caller compares it with the known version, and rejects others.
        let outcome = client.answers().pop().expect("an answer").result.map(|copy| {
            assert!(*copy.bytes == sample_bytes(3) && copy.crc == checksum(&copy.bytes));
        });
        *outcomes.entry(outcome).or_insert(0) += 1;
        assert!(client.holds_nothing());
    });
    println!("{outcomes:?}");
    assert!(outcomes.contains_key(&Ok(())) && outcomes.contains_key(&Err(Miss::Wrong)), "{outcomes:?}");
    assert!(client.transfer.stats()[0].counts.connections <= 1, "what broke is not kept");
}
