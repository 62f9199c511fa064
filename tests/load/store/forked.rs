//! A process that forks while it has a store: the child may end in any way.

use super::world::{PLENTY, World};
use crate::common::{child, passes};
use foreload::testing::tier::store::Offer;

#[test]
fn a_forked_child_ends_nothing_of_its_parents() {
    passes(&mut child(forks_on_purpose));
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn forks_on_purpose() {
    let world = World::new(1, 60, 9000);
    let store = world.open(PLENTY);
    let claim = store.lock_unit(3).expect("nobody has it");
    world.store_all(&store, 0..30);
    // Some samples are queued, and a segment is open.
    world.offer_all(&store, 30..50);
    // SAFETY: the child uses only its own memory, and exits without the parent's exit handlers.
    let process = unsafe { libc::fork() };
    if process == 0 {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            assert_eq!(world.check(&store, "in the child"), 30);
            assert_eq!(store.offer(0, 55, world.version(), world.bytes(55)), Offer::Off);
            assert!(store.lock_unit(4).is_none());
            store.refresh();
            store.publish_at_end();
            store.flush();
            drop((claim, store));
        }));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(ended.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(process, &raw mut status, 0) };
    assert_eq!(status, 0, "the child's end");
    let other = world.open(PLENTY);
    assert!(other.lock_unit(3).is_none(), "still claimed");
    world.store_all(&store, 50..60);
    assert_eq!(world.check(&store, "in the parent"), 60);
    drop(claim);
    assert!(other.lock_unit(3).is_some());
}
