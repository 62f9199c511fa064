//! Objects without faults: ranges, conditions, pages, access, counters.

use crate::{Client, HARD, content, serve};
use range_server::{Access, EtagKind, IndexStyle, Options};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn ranges_are_those_of_the_file() {
    let (_directory, server) = serve(Options::default());
    let content = content();
    let size = content.len();
    let mut client = Client::new(server.address());
    let mut drawn = 1u64;
    for _ in 0..300 {
        drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let first = (drawn >> 33) as usize % size;
        let end = (first + 1 + (drawn >> 20) as usize % 300_000).min(size);
        let reply = client.get("/object", &format!("bytes={first}-{}", end - 1));
        assert_eq!(reply.status, 206);
        assert_eq!(reply.field("content-range").unwrap(), format!("bytes {first}-{}/{size}", end - 1));
        assert!(reply.body == content[first..end], "bytes {first} to {end}");
    }
    let cases = [
        ("bytes=599000-", 206, Some(599_000..size)),
        ("bytes=599000-99999999999", 206, Some(599_000..size)),
        ("bytes=-5", 206, Some(size - 5..size)),
        ("bytes=-99999999999", 206, Some(0..size)),
        ("bytes=600000-", 416, None),
        ("bytes=600000-600001", 416, None),
        ("bytes=-0", 416, None),
        ("bytes=5-4", 200, Some(0..size)),
        ("bytes=0-1,5-6", 200, Some(0..size)),
        ("bytes=+1-2", 200, Some(0..size)),
        ("lines=0-1", 200, Some(0..size)),
    ];
    for (range, status, part) in cases {
        let reply = client.get("/object", range);
        assert_eq!(reply.status, status, "{range}");
        match part {
            Some(part) => assert!(reply.body == content[part], "{range}"),
            None => assert_eq!(reply.field("content-range"), Some("bytes */600000")),
        }
    }
    assert_eq!(client.get("/empty", "bytes=0-").status, 416);
    assert_eq!(client.ask("GET", "/empty", &[]).status, 200);
    let head = client.ask("HEAD", "/object", &[("Range", "bytes=0-4")]);
    assert_eq!((head.status, head.field("content-length")), (200, Some("600000")));
    assert_eq!(server.stats().connections, 1, "the connection is kept");
}

#[test]
fn conditions_are_judged_by_the_version() {
    let (directory, server) = serve(Options::default());
    let mut client = Client::new(server.address());
    let first = client.ask("HEAD", "/object", &[]);
    let (tag, modified) = (first.field("etag").unwrap(), first.field("last-modified").unwrap());
    let weak = format!("W/{tag}");
    let list = format!("\"a\", {tag}");
    let (before, after) = ("Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:00 GMT");
    let cases = [
        ("If-Match", tag, 206),
        ("If-Match", &list, 206),
        ("If-Match", "*", 206),
        ("If-Match", "\"a\"", 412),
        ("If-Match", &weak, 412),
        ("If-None-Match", tag, 304),
        ("If-None-Match", &weak, 304),
        ("If-None-Match", "\"a\"", 206),
        ("If-Range", tag, 206),
        ("If-Range", &weak, 200),
        ("If-Range", "\"a\"", 200),
        ("If-Range", modified, 206),
        ("If-Range", after, 200),
        ("If-Modified-Since", modified, 304),
        ("If-Modified-Since", before, 206),
        ("If-Unmodified-Since", modified, 206),
        ("If-Unmodified-Since", before, 412),
    ];
    for (name, value, status) in cases {
        let reply = client.ask("GET", "/object", &[("Range", "bytes=0-9"), (name, value)]);
        assert_eq!(reply.status, status, "{name}: {value}");
    }
    fs::write(directory.path().join("object"), "another").unwrap();
    let reply = client.ask("GET", "/object", &[("If-Match", tag)]);
    assert_eq!(reply.status, 412, "a file that was written again is another version");
}

#[test]
fn versions_can_be_weak_or_unsaid() {
    let (_directory, server) = serve(Options { etag: EtagKind::Weak, ..Options::default() });
    let mut client = Client::new(server.address());
    let tag = client.ask("HEAD", "/object", &[]).field("etag").unwrap().to_owned();
    assert!(tag.starts_with("W/\""), "{tag}");
    assert_eq!(client.ask("GET", "/object", &[("If-Match", &tag)]).status, 412);
    assert_eq!(client.ask("GET", "/object", &[("If-None-Match", &tag)]).status, 304);
    let unsaid = Options { etag: EtagKind::Off, last_modified: false, ..Options::default() };
    let (_directory, server) = serve(unsaid);
    let reply = Client::new(server.address()).ask("GET", "/object", &[]);
    assert_eq!((reply.field("etag"), reply.field("last-modified")), (None, None));
}

/// The URLs that a page links to.
fn links(page: &[u8]) -> BTreeSet<String> {
    let page = String::from_utf8(page.to_vec()).unwrap();
    page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&")).collect()
}

#[test]
fn every_link_of_a_page_leads_to_its_file() {
    for style in [IndexStyle::Python, IndexStyle::Nginx, IndexStyle::Apache] {
        let (_directory, server) = serve(Options { index: style, ..Options::default() });
        let mut client = Client::new(server.address());
        let page = client.ask("GET", "/in%20a%20folder/", &[]);
        assert_eq!(page.status, 200);
        let mut found = BTreeSet::new();
        for link in links(&page.body).iter().filter(|link| link.ends_with(".jpg")) {
            let reply = client.ask("GET", &format!("/in%20a%20folder/{link}"), &[]);
            assert_eq!(reply.status, 200, "{style:?}: {link}");
            found.insert(String::from_utf8(reply.body).unwrap());
        }
        assert_eq!(found, HARD.iter().map(|name| (*name).to_owned()).collect(), "{style:?}");
        let without_slash = client.ask("GET", "/in%20a%20folder", &[]);
        assert_eq!(without_slash.field("location"), Some("/in%20a%20folder/"));
    }
    let (_directory, server) = serve(Options { index: IndexStyle::Off, ..Options::default() });
    assert_eq!(Client::new(server.address()).ask("GET", "/", &[]).status, 404);
}

#[test]
fn pages_are_those_of_pythons_server() {
    let (directory, server) = serve(Options::default());
    let mut command = Command::new("python3");
    command.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]).current_dir(directory.path());
    let Ok(mut python) = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn() else {
        eprintln!("skipped: no python3");
        return;
    };
    let mut line = String::new();
    BufReader::new(python.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port: u16 =
        line.split_whitespace().skip_while(|word| *word != "port").nth(1).unwrap().parse().unwrap();
    for path in ["/", "/in%20a%20folder/"] {
        // This is HTTP/1.0, in which a response ends with the connection.
        let page = |port: u16| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
            let mut page = Vec::new();
            stream.read_to_end(&mut page).unwrap();
            page
        };
        let (ours, theirs) = (page(server.address().port()), page(port));
        assert_eq!(links(&ours), links(&theirs));
        assert!(links(&ours).len() > 2);
    }
    python.kill().unwrap();
    python.wait().unwrap();
}

#[test]
fn nothing_outside_the_directory_is_served() {
    let (directory, server) = serve(Options::default());
    let secret = directory.path().parent().unwrap().join(format!("secret-{}", std::process::id()));
    fs::write(&secret, "secret").unwrap();
    let name = secret.file_name().unwrap().to_str().unwrap();
    let mut client = Client::new(server.address());
    for path in [format!("/../{name}"), format!("/%2e%2e/{name}"), format!("/in%20a%20folder/../../{name}")] {
        assert_eq!(client.ask("GET", &path, &[]).status, 400, "{path}");
    }
    let path = format!("/{}", secret.display());
    assert_eq!(client.ask("GET", &path, &[]).status, 404, "{path}");
    fs::remove_file(secret).unwrap();
    assert_eq!(client.ask("GET", "/%zz", &[]).status, 400);
    assert_eq!(client.ask("GET", "/nothing", &[]).status, 404);
    assert_eq!(client.ask("GET", "/object/", &[]).status, 404);
    assert_eq!(client.ask("DELETE", "/object", &[]).status, 405);
}

#[test]
fn what_is_asked_for_must_be_given_and_is_seen() {
    let header = Access::Header("Bearer secret".to_owned());
    let (_directory, server) = serve(Options { access: Some(header), record: true, ..Options::default() });
    let mut client = Client::new(server.address());
    let refused = client.ask("GET", "/object", &[]);
    assert_eq!(refused.status, 401);
    assert!(refused.field("www-authenticate").is_some());
    assert_eq!(client.ask("GET", "/object", &[("Authorization", "Bearer other")]).status, 401);
    assert_eq!(client.ask("GET", "/object", &[("authorization", "Bearer secret")]).status, 200);
    assert_eq!(server.stats().with_credentials, 2);
    let seen = server.requests();
    assert_eq!(
        seen.iter().map(|request| request.field("Authorization")).collect::<Vec<_>>(),
        [None, Some("Bearer other"), Some("Bearer secret")]
    );

    let query = Access::Query("token=secret".to_owned());
    let (_directory, server) = serve(Options { access: Some(query), ..Options::default() });
    let mut client = Client::new(server.address());
    assert_eq!(client.ask("GET", "/object", &[]).status, 403);
    assert_eq!(client.ask("GET", "/object?token=secre", &[]).status, 403);
    assert_eq!(client.ask("GET", "/object?a=b&token=secret", &[]).status, 200);
    assert_eq!(client.ask("GET", "http://elsewhere/object?token=secret", &[]).status, 200);
    let stats = server.stats();
    assert_eq!((stats.with_credentials, stats.with_query, stats.proxied), (0, 3, 1));
}

#[test]
fn counters_say_what_has_happened() {
    let (_directory, server) = serve(Options::default());
    let mut clients: Vec<_> = (0..5).map(|_| Client::new(server.address())).collect();
    for client in &mut clients {
        client.get("/object", "bytes=0-9");
    }
    clients[0].ask("GET", "/object", &[]);
    clients[1].ask("HEAD", "/object", &[]);
    clients[2].ask("GET", "/-/stats", &[]);
    clients[3].ask("GET", "/nothing", &[]);
    // Bytes are counted after they were sent, and the client may get them before that.
    let bytes = 600_050 + "not found\n".len() as u64;
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.stats().bytes < bytes && Instant::now() < deadline {
        thread::yield_now();
    }
    let stats = server.stats();
    assert_eq!((stats.requests, stats.heads, stats.ranged), (8, 1, 5));
    assert_eq!((stats.connections, stats.most_connections), (5, 5));
    assert_eq!(stats.statuses.into_iter().collect::<Vec<_>>(), [(200, 2), (206, 5), (404, 1)]);
    assert_eq!((stats.paths["/object"].requests, stats.paths["/object"].bytes), (7, 600_050));
    assert_eq!(stats.bytes, bytes);
}

#[test]
fn what_is_no_request_is_refused() {
    let (_directory, server) = serve(Options::default());
    let long = "x".repeat(100_000);
    for (fields, status) in [(vec![("A", long.as_str())], 431), (vec![("Transfer-Encoding", "chunked")], 411)]
    {
        assert_eq!(Client::new(server.address()).ask("GET", "/object", &fields).status, status);
    }
    assert_eq!(Client::new(server.address()).ask("G T", "/object", &[]).status, 400);
}
