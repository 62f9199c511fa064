//! Clients that do not belong to the job, or do not speak its protocol.

use super::*;

#[test]
fn a_stranger_gets_401_and_nothing_else_whatever_is_asked() {
    let server = server(TestShelf::in_memory(5));
    let other = Token::random().unwrap();
    let known = token().reveal().to_owned();
    let cut = &known[..known.len() - 1];
    let authorizations = [
        String::new(),
        format!("authorization: Bearer {}\r\n", other.reveal()),
        format!("authorization: Bearer {cut}\r\n"),
        format!("authorization: Bearer {known}0\r\n"),
        format!("authorization: Basic {known}\r\n"),
        format!("authorization: {known}\r\n"),
        format!("x-authorization: Bearer {known}\r\n"),
    ];
    let paths = [path(3), path(400), path(3).replace("a5", "00"), "/".into(), "/v1/".into(), "*".into()];
    let mut asked = 0;
    let mut seen = std::collections::BTreeSet::new();
    for authorization in &authorizations {
        for path in &paths {
            for method in ["GET", "PUT", "OPTIONS", "BREW"] {
                let text = format!(
                    "{method} {path} HTTP/1.1\r\nhost: x\r\n{authorization}content-length: 0\r\n\r\n"
                );
                seen.insert(exchange(server.address(), text.as_bytes()).to_lowercase());
                asked += 1;
            }
        }
    }
    assert_eq!(seen.len(), 1, "every answer is the same: {seen:?}");
    let answer = seen.pop_first().unwrap();
    assert_eq!(answer, "http/1.1 401 unauthorized\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    let stats = server.stats();
    assert_eq!((stats.strangers, stats.served, stats.malformed), (asked, 0, 0));
    // A client with another token gets one warning about that.
    let millisecond = Duration::from_millis(1);
    let breaker = BreakerLimits { failures: 4, first: 20 * millisecond, longest: 50 * millisecond };
    let options = HttpOptions { token: other, breaker, ..patient() };
    let mut client = Client::new(&[plain(server.address())], &options);
    for _ in 0..4 {
        assert_eq!(client.ask(0, 1), Err(Miss::Refused));
    }
    wait_until("a trial is refused, too", || client.ask(0, 1) == Err(Miss::Refused));
    wait_until("another trial is refused", || client.ask(0, 1) == Err(Miss::Refused));
    let notices = client.notices.take();
    assert!(notices.len() == 1 && notices[0].contains("same start of the job"), "{notices:?}");
    assert!(!notices[0].contains(options.token.reveal()));
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let server = server(TestShelf::in_memory(5));
    let status = |text: &str| status_and_body(&exchange(server.address(), text.as_bytes())).0;
    for (wrong, expected) in [
        (request("GET", "/", ""), 404),
        (request("GET", "/v1/abc/3/samples/1", ""), 404),
        (request("GET", &format!("{}?x=1", path(400)), ""), 404),
        (request("DELETE", &path(3), ""), 405),
        (request("HEAD", &path(3), ""), 405),
        (request("GET", &path(3).replace("/3/", "/4/"), ""), 409),
        (request("GET", &path(3), "content-length: x\r\n"), 400),
        (request("GET", &path(3), "no colon\r\n"), 400),
        ("GET / HTTP/9.9\r\n\r\n".into(), 400),
        ("\0\u{1}\u{2} nonsense\r\n\r\n".into(), 400),
        (request("GET", &path(3), &"x: y\r\n".repeat(100)), 431),
        (request("GET", &path(3), &format!("x: {}\r\n", "y".repeat(100_000))), 431),
        (request("GET", &format!("/{}", "y".repeat(80_000)), ""), 431),
    ] {
        assert_eq!(status(&wrong), expected, "{:.80}", wrong);
    }
    assert_eq!(status(&request("GET", &path(3), "connection: close\r\n")), 200);
}
