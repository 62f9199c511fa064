//! Waits of tests: until a condition holds, and until the clock of the file system has ticked. No wait is without end.

use foreload::testing::dataset::TICK;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Calls `look` until `is_so` holds for its value, and returns the value. Fails after a minute with a message that
/// names `what`.
pub fn wait_for<Seen: Debug>(
    what: &str,
    mut look: impl FnMut() -> Seen,
    is_so: impl Fn(&Seen) -> bool,
) -> Seen {
    let start = Instant::now();
    loop {
        let seen = look();
        if is_so(&seen) {
            return seen;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "waited a minute until {what}: {seen:?}");
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Waits until a condition holds. Fails like [`wait_for`].
pub fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    wait_for(what, is_so, |so| *so);
}

/// Sleeps longer than a tick of the file system's clock, so that a file that is written next is newer than all before.
pub fn tick() {
    std::thread::sleep(2 * TICK);
}

/// Sets the flag that ends another thread's loop when this value is dropped, also if the test fails.
pub struct Ending<'a>(pub &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
