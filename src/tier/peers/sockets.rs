//! How many sockets a process needs to share its cache with a job's other nodes, and that it may open them.

use super::read_connections;
use crate::peers::allow_open_files;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The files that training has open beside: shards, segments, libraries and the framework's own.
const FILES_BESIDE: u64 = 512;

/// The connections to a server beyond those that the job needs, for strangers. Each rank that gives up a read opens a
/// new connection before the server has done with the old one, so that it may have twice as many for a while.
const CONNECTIONS_BESIDE: u64 = 64;

/// What the loaders of this process need together. Those that are gone are not taken off, for a limit costs nothing.
static PROMISED: AtomicU64 = AtomicU64::new(0);

/// The sockets of a loader at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SocketNeeds {
    /// To other nodes' servers.
    asking: u64,
    /// Of other nodes' ranks to the server of this process, if it has one.
    serving: u64,
}

impl SocketNeeds {
    /// Those of a process, where each has `depth` reads in flight.
    pub(super) fn new(nodes: &[Vec<u32>], serves: bool, depth: usize) -> Self {
        // Pushes have a connection of their own.
        let each = read_connections(depth, nodes.len()) as u64 + 1;
        let ranks: usize = nodes.iter().map(Vec::len).sum();
        // Ranks ask the server of their own node, too, where that has memory.
        let asking = nodes.len() as u64 * each;
        let serving = if serves { ranks as u64 * each } else { 0 };
        Self { asking, serving }
    }

    /// Has the process allowed to open them. Returns the most connections that the server is to have, and where the
    /// system does not allow so many, what to tell the user.
    pub(super) fn provide(self) -> (usize, Option<String>) {
        let own = self.asking + self.serving + CONNECTIONS_BESIDE;
        let wanted = PROMISED.fetch_add(own, Relaxed) + own + FILES_BESIDE;
        let allowed = allow_open_files(wanted);
        let warning = (allowed < wanted).then(|| {
            format!(
                "this process may have {allowed} files open, but in a job of this size it may need {wanted}, most of \
                 them for connections to other nodes: samples for which there is none come from the source; raise the \
                 hard limit (`ulimit -Hn`, LimitNOFILE= of a service, or the container's)"
            )
        });
        let connections = (2 * self.serving + CONNECTIONS_BESIDE).min(allowed / 2) as usize;
        (connections, warning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(nodes: u32, ranks: u32) -> Vec<Vec<u32>> {
        (0..nodes).map(|node| (node * ranks..(node + 1) * ranks).collect()).collect()
    }

    #[test]
    fn a_server_has_room_for_all_ranks_of_a_large_job() {
        let needs = SocketNeeds::new(&job(1024, 8), true, 64);
        assert_eq!(needs, SocketNeeds { asking: 2048, serving: 2 * 1024 * 8 });
        let needs = SocketNeeds::new(&job(2, 1), true, 64);
        assert_eq!(needs, SocketNeeds { asking: 10, serving: 10 });
        assert_eq!(SocketNeeds::new(&job(1024, 8), false, 64).serving, 0);
        assert_eq!(needs.provide(), (84, None));
    }

    #[test]
    fn who_may_not_open_so_many_is_told() {
        let (connections, warning) = SocketNeeds { asking: 1 << 40, serving: 1 << 40 }.provide();
        PROMISED.fetch_sub((2 << 40) + CONNECTIONS_BESIDE, Relaxed);
        assert!(connections > 0 && connections < 1 << 40, "{connections}");
        assert!(warning.is_some_and(|warning| warning.contains("raise the hard limit")));
    }
}
