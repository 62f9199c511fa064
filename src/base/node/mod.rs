//! How the processes of one user on a node find one another: a runtime directory, sockets, and file locks that end with
//! the process that holds them.

mod directory;
mod ranges;
mod socket;

pub use directory::RuntimeDirectory;
pub use ranges::{LockKind, RangeLocks};
pub use socket::{NONBLOCKING_CLOEXEC, PeerProcess, SocketContact, UserListener, accept, connect, listen};
