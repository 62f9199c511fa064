//! What the processes of one user on a node have in common: the directory in which they find one another, sockets,
//! and locks that end with the process that holds them.

mod directory;
mod ranges;
mod socket;

pub(crate) use directory::RuntimeDirectory;
pub(crate) use ranges::{LockKind, RangeLocks};
pub(crate) use socket::{NEVER_WAITING, PeerProcess, SocketContact, UserListener, accept, connect, listen};
