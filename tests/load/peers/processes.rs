//! Peers in their own processes: frozen, killed, and started again; and a forked process with our connections.

use super::*;
use crate::common::{Killable, await_no_threads, child, passes};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

const ADDRESS: &str = "PEERS_TEST_ADDRESS";

/// A server of 50 samples in its own process. It ends when its standard input ends.
#[test]
#[ignore = "the other tests run it"]
fn serves_in_a_process_of_its_own() {
    let Ok(listen) = std::env::var(ADDRESS) else { return };
    let options = ServerOptions::new(listen.parse().unwrap(), token());
    let server = Server::start(options).unwrap();
    server.share(DATASET, Arc::new(TestShelf::in_file(50)));
    println!("serves on {}", server.address());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

struct Node {
    process: Killable,
    address: SocketAddr,
}

impl Node {
    fn start(listen: SocketAddr) -> Self {
        let mut command = child(serves_in_a_process_of_its_own);
        command.env(ADDRESS, listen.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Killable::start(&mut command);
        let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| Some(line.unwrap().split_once("serves on ")?.1.parse().unwrap()));
        Self { process, address: address.expect("the process serves") }
    }

    /// Stops the process, and returns when all of its threads are stopped.
    fn freeze(&self) {
        self.signal(libc::SIGSTOP);
        let tasks = || std::fs::read_dir(format!("/proc/{}/task", self.process.0.id())).unwrap();
        wait_until("it is frozen", || {
            tasks().all(|task| {
                // The state is the letter after the name, which ends with a parenthesis.
                let about = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
                about.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
            })
        });
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a plain call; the process is our child and was not reaped.
        assert_eq!(unsafe { libc::kill(self.process.0.id() as i32, signal) }, 0);
    }
}

/// Short deadlines, and a breaker with a short backoff period.
fn brisk() -> HttpOptions {
    let millisecond = Duration::from_millis(1);
    let breaker = BreakerLimits { failures: 4, first: 50 * millisecond, longest: 200 * millisecond };
    HttpOptions { breaker, ..hasty(400) }
}

#[test]
fn a_frozen_peer_costs_deadlines_until_it_is_left_alone_and_thaws() {
    let node = Node::start(loopback());
    let mut client = Client::new(&[plain(node.address)], &brisk());
    wait_until("it serves", || client.ask(0, 3).is_ok());
    node.freeze();
    (1..50).for_each(|sample| client.post(0, sample));
    let answers: Vec<_> = client.answers().into_iter().map(check).collect();
    // Parts of responses that the kernel has already buffered may still arrive.
    let given_up = |answer: &&Result<(), Miss>| matches!(answer, Err(Miss::Timeout | Miss::Breaker));
    assert!(answers.iter().filter(given_up).count() > 40, "{answers:?}");
    assert!(client.holds_nothing());
    wait_until("it is left alone", || client.ask(0, 3) == Err(Miss::Breaker));
    node.signal(libc::SIGCONT);
    for sample in 0..50 {
        wait_until("it serves again", || client.ask(0, sample).is_ok());
    }
}

#[test]
fn dropping_does_not_wait_for_frozen_peers() {
    let node = Node::start(loopback());
    let mut client = Client::new(&[plain(node.address)], &patient());
    assert_eq!(client.ask(0, 3), Ok(()));
    node.freeze();
    (1..50).for_each(|sample| client.post(0, sample));
    client.transfer.flush();
    let bytes = sample_bytes(7);
    client.transfer.pusher().push(0, 7, VERSION, checksum(&bytes), bytes);
    let Client { transfer, slots, .. } = client;
    // The deadline is far away: if the drop waited for it, the slots would still be in use below.
    drop(transfer);
    assert_eq!(slots.usage().in_use, 0, "all slots are back at once");
}

#[test]
fn a_peer_that_is_killed_and_back_is_found_again() {
    let mut node = Node::start(loopback());
    let address = node.address;
    let mut client = Client::new(&[plain(address)], &brisk());
    wait_until("it serves", || client.ask(0, 3).is_ok());
    let seed = 11;
    let mut random = RandomKey::new(b"kills", seed, 0, Use::Order).stream(0);
    for round in 0..3 {
        (1..50).for_each(|sample| client.post(0, sample));
        client.transfer.flush();
        // Kill the process in the middle of its responses.
        node.process.kill_within(Duration::from_micros(8000), &mut random);
        let answers: Vec<_> = client.answers().into_iter().map(check).collect();
        assert!(client.holds_nothing(), "round {round} of seed {seed}: {answers:?}");
        assert!(client.ask(0, 3).is_err());
        node = Node::start(address);
        wait_until("it is found again", || client.ask(0, 3).is_ok());
    }
}

#[test]
#[ignore = "the test below runs it"]
fn forks_with_a_server_and_a_client() {
    let server = server(TestShelf::in_memory(5));
    let mut client = Client::of(&server);
    assert_eq!(client.ask(0, 3), Ok(()));
    // SAFETY: the test runs in its own process; the child only drops its values, and exits.
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        drop(client.transfer);
        drop(server);
        // SAFETY: no other code may run in the child, in particular not the test harness.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: a plain call with a valid pointer for the status.
    assert_eq!(unsafe { libc::waitpid(forked, &mut status, 0) }, forked);
    assert_eq!(status, 0, "the child ended by itself");
    for sample in 0..5 {
        assert_eq!(client.ask(0, sample), Ok(()), "the parent has lost nothing");
    }
    drop(client);
    drop(server);
    await_no_threads();
    println!("all is well");
}

#[test]
fn a_forked_process_uses_nothing_and_breaks_nothing() {
    let text = passes(&mut child(forks_with_a_server_and_a_client));
    assert!(text.contains("all is well"), "{text}");
}
