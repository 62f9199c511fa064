//! The counters of the server: requests, connections, bytes, faults, credentials, also per path.

use serde::Serialize;
use std::collections::BTreeMap;

/// The counts since the start. Requests below `/-/` are not counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// All requests.
    pub requests: u64,
    /// HEAD requests.
    pub heads: u64,
    /// Requests with a `Range`.
    pub ranged: u64,
    /// Bytes of bodies that were sent, including those of responses with a fault.
    pub bytes: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// The largest number of connections that were open at the same time.
    pub most_connections: u64,
    /// The largest number of requests that were answered at the same time.
    pub most_requests: u64,
    /// TLS handshakes that failed: the client does not trust the certificate, or does not speak TLS.
    pub failed_handshakes: u64,
    /// Requests with `Authorization`, `Proxy-Authorization` or `Cookie`.
    pub with_credentials: u64,
    /// Requests with a query. Presigned URLs have their credentials there.
    pub with_query: u64,
    /// Requests with a whole URL, as clients send them to a proxy.
    pub proxied: u64,
    /// Responses by their status.
    pub statuses: BTreeMap<u16, u64>,
    /// Faults by their names. A response may have several.
    pub faults: BTreeMap<String, u64>,
    /// Requests by their paths as sent, without their queries.
    pub paths: BTreeMap<String, PathStats>,
}

/// The counts of one path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PathStats {
    /// Requests for this path.
    pub requests: u64,
    /// Bytes of bodies.
    pub bytes: u64,
}

/// The counters, and the current numbers of connections and requests.
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

    /// The counts of a path; memory is allocated only for its first request.
    pub fn path(&mut self, path: &str) -> &mut PathStats {
        if !self.stats.paths.contains_key(path) {
            self.stats.paths.insert(path.to_owned(), PathStats::default());
        }
        self.stats.paths.get_mut(path).expect("it was just put there")
    }
}
