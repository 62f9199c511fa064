//! The responses of a server to clients that have its token.

use super::*;
use foreload::testing::peers::{ConnectionLimits, TlsIdentity};
use std::sync::atomic::AtomicBool;

/// Reads every sample several times in random order, with many reads in flight.
fn hammer(client: &mut Client, kept: u64, reads: u64, seed: u64) {
    let mut random = RandomKey::new(b"peers' order", seed, 0, Use::Order).stream(0);
    let (mut answers, mut asked, mut checked) = (Vec::new(), 0, 0);
    while checked < reads {
        while asked < reads && client.transfer.in_flight() < 40 {
            client.post(random.below(client.transfer.stats().len() as u64) as usize, random.below(kept));
            asked += 1;
        }
        client.transfer.wait_until(Some(Instant::now() + PATIENCE), &mut answers).unwrap();
        for answer in answers.drain(..) {
            assert_eq!(check(answer), Ok(()), "seed {seed}");
            checked += 1;
        }
    }
    assert_eq!(client.transfer.in_flight(), 0);
    assert!(client.holds_nothing());
}

#[test]
fn many_samples_from_memory_and_files_are_right() {
    let servers = [server(TestShelf::in_memory(50)), server(TestShelf::in_file(50))];
    let peers = servers.each_ref().map(|server| plain(server.address()));
    let mut client = Client::new(&peers, &patient());
    hammer(&mut client, 50, 1500, 8);
    for (server, peer) in servers.iter().zip(client.transfer.stats()) {
        let (served, counts) = (server.stats(), peer.counts);
        assert!(counts.hits > 600 && counts.hits == counts.reads, "{peer:?}");
        assert_eq!((served.served, served.served_bytes), (counts.hits, counts.bytes));
        assert_eq!(peer.latency.count(), counts.hits);
        assert!(
            counts.connects <= 4 && served.connections == counts.connects,
            "connections are kept: {peer:?}"
        );
    }
}

#[test]
fn connections_are_opened_when_they_are_needed() {
    let server = server(TestShelf::in_memory(5));
    let mut client = Client::of(&server);
    assert_eq!(server.stats().connections, 0);
    for _ in 0..20 {
        client.ask(0, 4).unwrap();
    }
    assert_eq!(server.stats().connections, 1, "reads one after the other need one");
}

#[test]
fn what_is_not_kept_is_absent_and_costs_no_connection() {
    let server = server(TestShelf::in_memory(5));
    let mut client = Client::of(&server);
    for _ in 0..10 {
        assert_eq!(client.ask(0, 7), Err(Miss::Absent));
        assert_eq!(client.ask(0, 2), Ok(()));
    }
    let counts = client.transfer.stats()[0].counts;
    assert_eq!((counts.reads, counts.hits, counts.absent, counts.connects), (20, 10, 10, 1));
    assert!(client.holds_nothing());
}

#[test]
fn datasets_and_generations_are_kept_apart() {
    let server = server(TestShelf::in_memory(5));
    let other = SharedDataset { fingerprint: Fingerprint([1; 32]), ..DATASET };
    let later = SharedDataset { generation: 4, ..DATASET };
    let ask = |dataset, sample| {
        let options = HttpOptions { dataset, ..patient() };
        Client::new(&[plain(server.address())], &options).ask(0, sample)
    };
    assert_eq!(ask(other, 1), Err(Miss::Refused));
    assert_eq!(ask(later, 1), Err(Miss::Refused));
    server.share(later, Arc::new(TestShelf::in_memory(2)));
    server.share(other, Arc::new(TestShelf::in_file(9)));
    assert_eq!((ask(later, 1), ask(later, 4)), (Ok(()), Err(Miss::Absent)));
    assert_eq!((ask(other, 8), ask(DATASET, 4)), (Ok(()), Ok(())));
    server.withdraw(&DATASET);
    assert_eq!((ask(other, 8), ask(DATASET, 4)), (Ok(()), Err(Miss::Refused)));
}

#[test]
fn ranges_and_headers_are_those_of_http() {
    let server = server(TestShelf::in_memory(5));
    let bytes = sample_bytes(3);
    let get = |headers: &str| {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let text = request("GET", &path(3), &format!("connection: close\r\n{headers}"));
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        (String::from_utf8(answer[..head].to_owned()).unwrap().to_lowercase(), answer[head + 4..].to_owned())
    };
    let (head, body) = get("");
    assert!(head.starts_with("http/1.1 200") && body == bytes, "{head}");
    for line in [
        format!("content-length: {}", bytes.len()),
        format!("foreload-crc32c: {:08x}", crc_on_the_wire(3, &bytes)),
        format!("etag: \"{:016x}\"", VERSION.0),
    ] {
        assert!(head.contains(&line), "{line}: {head}");
    }
    let (head, body) = get("range: bytes=100-299\r\n");
    assert!(head.starts_with("http/1.1 206") && body == bytes[100..300], "{head}");
    assert!(head.contains(&format!("content-range: bytes 100-299/{}", bytes.len())), "{head}");
    let (head, body) = get("range: bytes=9000000-\r\n");
    assert!(head.starts_with("http/1.1 416") && body.is_empty(), "{head}");
}

#[test]
fn with_tls_the_announced_certificate_alone_is_believed() {
    let identity = || TlsIdentity::for_this_job().unwrap();
    let (own, other) = (identity(), identity());
    let (pin, wrong) = (own.pin(), other.pin());
    let options = ServerOptions { tls: Some(own), ..ServerOptions::new(loopback(), token()) };
    let server = Server::start(options).unwrap();
    server.share(DATASET, Arc::new(TestShelf::in_memory(50)));
    let address = server.address();
    let mut client = Client::new(&[Peer { address, pin: Some(pin) }], &patient());
    hammer(&mut client, 50, 300, 9);
    assert!(client.transfer.describe().contains("TLS"));
    assert_eq!(
        Client::new(&[Peer { address, pin: Some(wrong) }], &patient()).ask(0, 1),
        Err(Miss::Unreachable)
    );
    let served = server.stats().served;
    // A client without encryption gets no response, and no sample is served.
    assert!(Client::new(&[plain(address)], &patient()).ask(0, 1).is_err());
    assert_eq!(server.stats().served, served);
    let unencrypted = super::server(TestShelf::in_memory(2));
    let peer = Peer { address: unencrypted.address(), pin: Some(pin) };
    assert_eq!(Client::new(&[peer], &patient()).ask(0, 1), Err(Miss::Unreachable));
}

#[test]
fn bytes_under_way_and_connections_are_bounded() {
    let length = sample_bytes(3).len();
    let options = ServerOptions {
        bytes_under_way: length + 1,
        connections: 2,
        ..ServerOptions::new(loopback(), token())
    };
    let server = Server::start(options).unwrap();
    server.share(DATASET, Arc::new(TestShelf::in_memory(5)));
    // Responses that the client does not read: it requests far more than the sockets' buffers hold.
    let mut stuck = TcpStream::connect(server.address()).unwrap();
    stuck.write_all(request("GET", &path(3), "").repeat(200).as_bytes()).unwrap();
    let mut client = Client::of(&server);
    wait_until("it is busy", || client.ask(0, 3) == Err(Miss::Busy));
    let counts = client.transfer.stats()[0].counts;
    assert_eq!((counts.connects, server.stats().open_connections), (1, 2));
    // A third connection is closed at once.
    let mut third = Client::of(&server);
    assert_eq!(third.ask(0, 4), Err(Miss::Unreachable));
    assert_eq!(server.stats().dropped_connections, 1);
    drop(stuck);
    wait_until("there is room again", || client.ask(0, 3).is_ok());
    wait_until("there is a place again", || third.ask(0, 4).is_ok());
}

#[test]
fn a_limit_of_bandwidth_is_kept_and_who_would_wait_long_is_told() {
    let options = ServerOptions { bandwidth: Some(2_000_000), ..ServerOptions::new(loopback(), token()) };
    let server = Server::start(options).unwrap();
    server.share(DATASET, Arc::new(TestShelf::in_memory(50)));
    let mut client = Client::of(&server);
    let begin = Instant::now();
    (1..50).for_each(|sample| client.post(0, sample));
    let answers: Vec<_> = client.answers().into_iter().map(check).collect();
    assert!(answers.contains(&Ok(())) && answers.contains(&Err(Miss::Busy)), "{answers:?}");
    // The limit is a rate of served bytes, so the duration of the test does not matter.
    let bytes = client.transfer.stats()[0].counts.bytes as f64;
    let allowed = 2e6 * (begin.elapsed().as_secs_f64() + 0.1) + 200_000.0;
    assert!(bytes <= allowed, "{bytes} of {allowed}");
}

#[test]
fn while_own_reads_wait_samples_are_still_served() {
    let wait = Arc::new(AtomicBool::new(true));
    let options = ServerOptions { own_reads_wait: wait.clone(), ..ServerOptions::new(loopback(), token()) };
    let server = Server::start(options).unwrap();
    server.share(DATASET, Arc::new(TestShelf::in_file(50)));
    let mut client = Client::of(&server);
    hammer(&mut client, 50, 200, 10);
}

#[test]
fn connections_that_are_slow_are_closed() {
    let short = Duration::from_millis(100);
    let limits = ConnectionLimits { first_request: short, idle: short, request: short };
    let server = Server::start(ServerOptions { limits, ..ServerOptions::new(loopback(), token()) }).unwrap();
    server.share(DATASET, Arc::new(TestShelf::in_memory(5)));
    let closed = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        // A reset counts as an end of the connection, too.
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
    };
    let connect = || TcpStream::connect(server.address()).unwrap();
    // Four bad clients: no bytes at all; a byte from time to time; a request without reading the response; silence
    // after a response.
    let silent = connect();
    let trickle = connect();
    let mut writes = trickle.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        let bytes = format!("GET {} HTTP/1.1\r\nx: {}", path(3), "y".repeat(60_000));
        for byte in bytes.as_bytes().iter().map(std::slice::from_ref) {
            if writes.write_all(byte).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("all of it was taken");
    });
    let mut greedy = connect();
    greedy.write_all(request("GET", &path(3), "").repeat(500).as_bytes()).unwrap();
    let mut client = Client::of(&server);
    wait_until("it is answered in time", || client.ask(0, 3).is_ok());
    wait_until("all are closed", || server.stats().open_connections == 0);
    assert!(server.stats().slow_connections >= 4, "{:?}", server.stats());
    closed(silent);
    closed(trickle);
    closed(greedy);
    writer.join().unwrap();
    // The client's connection is closed as well, and it opens another one.
    wait_until("it is answered again", || client.ask(0, 3).is_ok());
}

#[test]
fn answers_wake_who_listens_and_the_waker_wakes_who_waits() {
    let server = server(TestShelf::in_memory(5));
    let (woken, wakes) = std::sync::mpsc::channel();
    let waker = Waker(Arc::new(move || woken.send(()).unwrap()));
    let mut transfer = HttpTransfer::new(&[plain(server.address())], &patient(), waker).unwrap();
    let slots = SlotPool::new(2 << 20).unwrap();
    let mut out = Vec::new();
    assert!(!transfer.listen(), "nothing is in flight");
    assert!(!transfer.wait_until(None, &mut out).unwrap(), "and nothing is waited for");
    for _ in 0..10 {
        let length = sample_bytes(2).len() as u32;
        let slot = slots.try_take(length as usize).unwrap();
        transfer.post(PeerRead { token: 2, peer: 0, sample: 2, length, most: length, version: None, slot });
        if transfer.listen() {
            wakes.recv_timeout(PATIENCE).unwrap();
        }
        assert!(!transfer.listen(), "there is an answer already");
        transfer.try_answers(&mut out);
        assert_eq!(check(out.pop().unwrap()), Ok(()));
        assert!(wakes.try_recv().is_err(), "who listens is woken once");
    }
    let wake = transfer.waker();
    let waking = std::thread::spawn(move || (wake.0)());
    assert!(transfer.wait_until(Some(Instant::now() + PATIENCE), &mut out).unwrap());
    waking.join().unwrap();
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let server = server(TestShelf::in_memory(1));
    for (listen, remedy) in [
        (server.address(), "give each loader its own port"),
        ("192.0.2.1:0".parse().unwrap(), "use an address of this machine"),
    ] {
        let error = Server::start(ServerOptions::new(listen, token())).err().expect("refused").to_string();
        let refused = format!("config: peers: listen: cannot listen on {listen}: ");
        assert!(error.starts_with(&refused) && error.contains(remedy), "{error}");
    }
    let options = HttpOptions { connections: 0, ..patient() };
    assert!(HttpTransfer::new(&[], &options, Waker(Arc::new(|| {}))).is_err());
    let shown = format!("{:?} {:?}", ServerOptions::new(loopback(), token()), patient());
    assert!(!shown.contains(token().reveal()), "{shown}");
}
