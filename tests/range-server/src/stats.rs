//! What the server counts: requests, connections, bytes, faults, credentials, and each path's part.

use serde::Serialize;
use std::collections::BTreeMap;

/// What has happened since the start. Requests below `/-/` are in none of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// All requests.
    pub requests: u64,
    /// Those that were HEAD.
    pub heads: u64,
    /// Those with a `Range`.
    pub ranged: u64,
    /// Bytes of bodies that were sent, those of answers with a fault among them.
    pub bytes: u64,
    /// Connections that were made.
    pub connections: u64,
    /// The most connections that were open at a time.
    pub most_connections: u64,
    /// The most requests that were being answered at a time.
    pub most_requests: u64,
    /// TLS handshakes that failed: a client that does not believe the certificate, or speaks no TLS.
    pub failed_handshakes: u64,
    /// Requests with `Authorization`, `Proxy-Authorization` or `Cookie`.
    pub with_credentials: u64,
    /// Requests with a query, where presigned addresses carry theirs.
    pub with_query: u64,
    /// Requests that gave a whole address, as a client gives it to a proxy.
    pub proxied: u64,
    /// Answers by their status.
    pub statuses: BTreeMap<u16, u64>,
    /// Faults by their names. An answer may have several.
    pub faults: BTreeMap<String, u64>,
    /// Requests by their paths, as they stand in requests, without their queries.
    pub paths: BTreeMap<String, PathStats>,
}

/// One path's part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PathStats {
    /// Requests for it.
    pub requests: u64,
    /// Bytes of bodies.
    pub bytes: u64,
}

/// The counters, and what is going on now.
#[derive(Default)]
pub(crate) struct Counters {
    pub stats: Stats,
    pub open: u64,
    pub answering: u64,
}

impl Counters {
    pub fn connected(&mut self) {
        self.open += 1;
        self.stats.connections += 1;
        self.stats.most_connections = self.stats.most_connections.max(self.open);
    }

    pub fn asked(&mut self) {
        self.answering += 1;
        self.stats.requests += 1;
        self.stats.most_requests = self.stats.most_requests.max(self.answering);
    }

    /// The path's part; memory is taken for the first request only.
    pub fn path(&mut self, path: &str) -> &mut PathStats {
        if !self.stats.paths.contains_key(path) {
            self.stats.paths.insert(path.to_owned(), PathStats::default());
        }
        self.stats.paths.get_mut(path).expect("it was just put there")
    }
}
