//! The places of producers. A place is a numbered lock, and a socket in the user's runtime directory.

use super::key::SharedKey;
use super::socket::{Connected, Listener, Socket};
use base::error::{Error, Result};
use base::node::{LockKind, RangeLocks, RuntimeDirectory};
use std::fs::File;
use std::os::fd::OwnedFd;

/// File with one lockable byte for each place.
const LOCKS: &str = "locks";

const SOCKET: &str = ".sock";

/// The maximum number of producers of the same batches at a time. Each serves consumers that are at about the same
/// step.
pub(crate) const MAX_PRODUCERS: u32 = 64;

/// The places at which producers of batches with one key are found.
pub struct ProducerPlaces {
    directory: RuntimeDirectory,
    key: SharedKey,
}

/// A lock on a place. The process with the lock is the place's producer. The kernel releases the lock when that process
/// exits.
pub struct PlaceLock {
    locks: RangeLocks,
    number: u32,
}

impl ProducerPlaces {
    /// Opens the user's runtime directory, in which the producers of this key are found.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no directory that only this user can access.
    pub fn open(key: SharedKey) -> Result<Self> {
        Ok(Self { directory: RuntimeDirectory::open("shared")?, key })
    }

    pub fn key(&self) -> SharedKey {
        self.key
    }

    fn name(&self, number: u32) -> String {
        format!("{}.{number}{SOCKET}", self.key)
    }

    fn lock(&self, number: u32) -> u64 {
        self.key.first_lock() + u64::from(number)
    }

    /// Connects to the producer with this number.
    ///
    /// # Errors
    /// The errors of [`Socket::connect`].
    pub fn connect(&self, number: u32) -> Result<Connected> {
        Socket::connect(&self.directory, &self.name(number))
    }

    /// Locks the place with this number; `None` if another process holds the lock.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if files cannot be locked.
    pub fn claim(&self, number: u32) -> Result<Option<PlaceLock>> {
        let locks = self.directory.locks(LOCKS)?;
        let byte = self.lock(number);
        match locks.try_lock(byte..byte + 1, LockKind::Exclusive) {
            Ok(true) => Ok(Some(PlaceLock { locks, number })),
            Ok(false) => Ok(None),
            Err(error) => {
                let path = self.directory.path().join(LOCKS);
                Err(Error::Unavailable(format!("cannot lock {}: {error}", path.display())))
            }
        }
    }

    /// Returns whether another process holds the lock of the place with this number, or the lock cannot be checked.
    pub fn is_claimed(&self, number: u32) -> bool {
        !matches!(self.claim(number), Ok(Some(_)))
    }

    /// Locks the first free place.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if no place is free.
    pub fn lock_any(&self) -> Result<PlaceLock> {
        for number in 0..MAX_PRODUCERS {
            if let Some(claim) = self.claim(number)? {
                return Ok(claim);
            }
        }
        Err(Error::Unavailable(format!(
            "{MAX_PRODUCERS} processes already make these batches, and no more are allowed"
        )))
    }

    /// Takes over the lock that this process was started with.
    pub fn inherit(claim: OwnedFd, number: u32) -> PlaceLock {
        PlaceLock { locks: RangeLocks::new(File::from(claim)), number }
    }

    /// Listens at a locked place. Replaces the socket of a producer that no longer exists.
    ///
    /// # Errors
    /// The errors of [`Listener::bind`].
    pub fn listen(&self, claim: &PlaceLock) -> Result<Listener> {
        self.remove_abandoned();
        Listener::bind(&self.directory, &self.name(claim.number))
    }

    /// Removes the socket at a locked place.
    pub fn leave(&self, claim: &PlaceLock) {
        self.directory.remove(&self.name(claim.number));
    }

    /// Removes the abandoned sockets of this key: those of producers that no longer exist.
    fn remove_abandoned(&self) {
        let Ok(locks) = self.directory.locks(LOCKS) else { return };
        let prefix = format!("{}.", self.key);
        for name in self.directory.names() {
            let number = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(SOCKET));
            let Some(number) = number.and_then(|number| number.parse::<u32>().ok()) else { continue };
            let byte = self.lock(number.min(0xFF));
            // With the lock held, no producer can start at this place while its socket is removed.
            if locks.try_lock(byte..byte + 1, LockKind::Exclusive).unwrap_or(false) {
                self.directory.remove(&name);
                let _ = locks.unlock(byte..byte + 1);
            }
        }
    }
}

impl PlaceLock {
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the descriptor that holds the lock, to pass it to a new process.
    pub fn into_file(self) -> Result<OwnedFd> {
        let file = self.locks.descriptor_above(2);
        file.map_err(|error| Error::Unavailable(format!("no file descriptor is left: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_had_by_one_and_comes_free_with_it() {
        let place = tempfile::tempdir().unwrap();
        let open = |key| ProducerPlaces { directory: RuntimeDirectory::within(place.path()).unwrap(), key };
        let (one, other) = (SharedKey::of(b"one"), SharedKey::of(b"other"));
        let places = open(one);
        let claim = places.claim(0).unwrap().unwrap();
        assert!(places.claim(0).unwrap().is_none() && open(one).claim(0).unwrap().is_none());
        assert!(open(other).claim(0).unwrap().is_some(), "other batches");
        assert_eq!(open(one).lock_any().unwrap().number(), 1);
        let listener = places.listen(&claim).unwrap();
        assert!(matches!(open(one).connect(0).unwrap(), Connected::To(_)));
        let inherited = ProducerPlaces::inherit(claim.into_file().unwrap(), 0);
        assert!(places.claim(0).unwrap().is_none());
        drop((inherited, listener));
        let again = places.claim(0).unwrap().unwrap();
        // An abandoned socket is removed when another producer listens.
        let second = places.claim(1).unwrap().unwrap();
        assert_eq!(places.directory.names().iter().filter(|name| name.ends_with(SOCKET)).count(), 1);
        drop(again);
        let _listener = places.listen(&second).unwrap();
        let sockets: Vec<_> =
            places.directory.names().into_iter().filter(|name| name.ends_with(SOCKET)).collect();
        assert_eq!(sockets, [places.name(1)]);
        places.leave(&second);
        assert!(matches!(places.connect(1).unwrap(), Connected::Nobody));
    }
}
