//! Computes how many sockets a process needs to share its cache with a job's other nodes, and raises the limit for
//! them.

use super::read_connections;
use crate::peers::allow_open_files;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of files, other than sockets, that training may have open: shards, segments, libraries and the files of
/// the framework.
const OTHER_FILES: u64 = 512;

/// Spare connections of a server, for clients without the token. For the job itself, a server accepts twice the usual
/// number of connections, because a rank that abandons a read connects again before the server has closed the old
/// connection.
const SPARE_CONNECTIONS: u64 = 64;

/// The number of sockets that all loaders of this process have reserved.
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// The sockets that are reserved for a loader, until dropped.
#[derive(Debug)]
pub(in crate::tier) struct SocketReservation(u64);

impl Drop for SocketReservation {
    fn drop(&mut self) {
        RESERVED.fetch_sub(self.0, Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct ReservedSockets {
    pub reservation: SocketReservation,
    pub connections: usize,
    /// The warning for the user, if the system does not allow enough sockets.
    pub warning: Option<String>,
}

/// The maximum number of sockets of a loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SocketBudget {
    outgoing: u64,
    /// Connections of ranks to the server of this process, if it has one.
    incoming: u64,
}

impl SocketBudget {
    pub(super) fn new(nodes: &[Vec<u32>], serves: bool, depth: usize) -> Self {
        // To each node there is one more connection, for pushes.
        let each = read_connections(depth, nodes.len()) as u64 + 1;
        let ranks: usize = nodes.iter().map(Vec::len).sum();
        // This node counts too: its ranks read from its server if the server keeps copies in memory.
        let outgoing = nodes.len() as u64 * each;
        let incoming = if serves { ranks as u64 * each } else { 0 };
        Self { outgoing, incoming }
    }

    /// Raises the limit on open files for these sockets, in addition to the sockets of the process's other loaders.
    pub(super) fn reserve(self) -> ReservedSockets {
        let reservation = SocketReservation(self.outgoing + self.incoming + SPARE_CONNECTIONS);
        let wanted = RESERVED.fetch_add(reservation.0, Relaxed) + reservation.0 + OTHER_FILES;
        let allowed = allow_open_files(wanted);
        let warning = (allowed < wanted).then(|| {
            format!(
                "the limit of open files is {allowed}, but this process may need {wanted} in a job of this size, \
                 mostly for connections to other nodes: samples without a connection are read from the source. Raise \
                 the hard limit (`ulimit -Hn`, LimitNOFILE= of a service, or the container's)"
            )
        });
        let connections = (2 * self.incoming + SPARE_CONNECTIONS).min(allowed / 2) as usize;
        ReservedSockets { reservation, connections, warning }
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
        let needs = SocketBudget::new(&job(1024, 8), true, 64);
        assert_eq!(needs, SocketBudget { outgoing: 2048, incoming: 2 * 1024 * 8 });
        let needs = SocketBudget::new(&job(2, 1), true, 64);
        assert_eq!(needs, SocketBudget { outgoing: 10, incoming: 10 });
        assert_eq!(SocketBudget::new(&job(1024, 8), false, 64).incoming, 0);
    }

    #[test]
    fn who_may_not_open_so_many_is_told() {
        let few = SocketBudget { outgoing: 10, incoming: 10 }.reserve();
        assert_eq!((few.connections, &few.warning), (84, &None));
        let ReservedSockets { reservation, connections, warning } =
            SocketBudget { outgoing: 1 << 40, incoming: 1 << 40 }.reserve();
        assert!(connections > 0 && connections < 1 << 40, "{connections}");
        assert!(warning.is_some_and(|warning| warning.contains("Raise the hard limit")));
        // While the first loader exists, its sockets are added to the sockets of other loaders.
        let second = || SocketBudget { outgoing: 1, incoming: 1 }.reserve();
        assert!(second().warning.is_some());
        drop(reservation);
        assert!(second().warning.is_none());
    }
}
