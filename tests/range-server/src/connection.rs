//! The life of a connection: it receives requests and sends responses. The pages below `/-/` control the server.

use crate::answer::{Answer, answer};
use crate::fault::{Fault, Kind, Rules};
use crate::request::{Received, Request, receive};
use crate::wire::{After, Wire, transmit};
use crate::{Shared, locked};
use rustix::net::sockopt::set_socket_linger;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Serves a connection until it ends.
pub(crate) fn serve(shared: &Shared, number: u64, socket: TcpStream) {
    locked(&shared.counters).connected();
    // Send the header at once, without waiting for the body.
    let opened = socket.set_nodelay(true).and_then(|()| Wire::open(socket, shared.tls.as_ref()));
    match opened {
        Ok(mut wire) => {
            let after = converse(shared, &mut wire);
            // The table holds the socket, too, and a reset is sent when its last owner closes it.
            shared.forget(number);
            match after {
                After::Reset => drop(set_socket_linger(wire.socket(), Some(Duration::ZERO))),
                After::Cut => drop(wire.socket().shutdown(Shutdown::Both)),
                After::Stay | After::Close => {
                    wire.finish();
                    drop(wire.socket().shutdown(Shutdown::Both));
                }
            }
        }
        Err(_) => {
            shared.forget(number);
            locked(&shared.counters).stats.failed_handshakes += 1;
        }
    }
    locked(&shared.counters).open -= 1;
}

fn converse(shared: &Shared, wire: &mut Wire) -> After {
    let mut buffer = Vec::new();
    loop {
        let request = match receive(wire, &mut buffer) {
            Received::Request(request) => request,
            Received::End => return After::Close,
            Received::Refused(status) => {
                let answer = Answer::text(status, "refused");
                let _ = transmit(wire, &answer, false, &[], true, &mut 0);
                return After::Close;
            }
        };
        let (head, last) = (request.is_head(), request.closes());
        let outcome = if request.target.starts_with("/-/") {
            transmit(wire, &steer(shared, &request), head, &[], last, &mut 0)
        } else {
            exchange(shared, wire, request, head, last)
        };
        match outcome {
            Ok(After::Stay) => {}
            Ok(after) => return after,
            Err(_) => return After::Cut,
        }
    }
}

fn exchange(
    shared: &Shared,
    wire: &mut Wire,
    request: Request,
    head: bool,
    last: bool,
) -> std::io::Result<After> {
    let number = shared.number.fetch_add(1, Ordering::Relaxed);
    let range = request.field("range").filter(|_| !head);
    let faults = locked(&shared.rules).draw(&request.target, range, head);
    let answer = answer(&shared.root, &shared.options, &request, &faults, number);
    // Everything except the bytes is counted before the client can get the response, so that the counters include it
    // then.
    count(shared, &request, range.is_some(), &faults, answer.status);
    if shared.options.record {
        locked(&shared.recorded).push(request.clone());
    }
    let mut sent = 0;
    let outcome = transmit(wire, &answer, head, &faults, last, &mut sent);
    let mut counters = locked(&shared.counters);
    counters.answering -= 1;
    counters.stats.bytes += sent;
    counters.path(request.raw_path()).bytes += sent;
    outcome
}

fn count(shared: &Shared, request: &Request, ranged: bool, faults: &[Kind], status: u16) {
    let mut counters = locked(&shared.counters);
    counters.asked();
    counters.path(request.raw_path()).requests += 1;
    let credentials = ["authorization", "proxy-authorization", "cookie"];
    let stats = &mut counters.stats;
    stats.heads += u64::from(request.is_head());
    stats.ranged += u64::from(ranged);
    stats.with_credentials += u64::from(credentials.iter().any(|name| request.field(name).is_some()));
    stats.with_query += u64::from(request.query().is_some());
    stats.proxied += u64::from(request.proxied);
    *stats.statuses.entry(status).or_insert(0) += 1;
    for fault in faults {
        *stats.faults.entry(fault.name().to_owned()).or_insert(0) += 1;
    }
}

/// Answers `GET /-/stats`, and `GET` or `PUT /-/faults`: JSON, with a list of rules as text.
fn steer(shared: &Shared, request: &Request) -> Answer {
    let json = |value: serde_json::Result<String>| match value {
        Ok(text) => Answer::json(text + "\n"),
        Err(error) => Answer::text(500, &error.to_string()),
    };
    match (request.method.as_str(), request.raw_path()) {
        ("GET" | "HEAD", "/-/stats") => json(serde_json::to_string_pretty(&locked(&shared.counters).stats)),
        ("GET" | "HEAD", "/-/faults") => json(serde_json::to_string(locked(&shared.rules).faults())),
        ("PUT", "/-/faults") => match serde_json::from_slice::<Vec<Fault>>(&request.body) {
            Ok(faults) => {
                *locked(&shared.rules) = Rules::new(shared.options.seed, faults);
                Answer::text(200, "set")
            }
            Err(error) => Answer::text(400, &error.to_string()),
        },
        _ => Answer::text(404, "give /-/stats or /-/faults"),
    }
}
