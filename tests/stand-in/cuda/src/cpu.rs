//! The processor time that each thread spent in this library; the rest of a caller's time is its own.

use std::sync::atomic::{AtomicU64, Ordering};

/// The nanoseconds by thread id; its lower bits are enough to tell the threads of one test apart.
static SPENT: [AtomicU64; 1 << 16] = [const { AtomicU64::new(0) }; 1 << 16];

/// Adds the time of the calling thread until it is dropped.
pub struct Spending {
    began: u64,
}

impl Spending {
    pub fn begin() -> Self {
        Self { began: now() }
    }
}

impl Drop for Spending {
    fn drop(&mut self) {
        // SAFETY: no arguments, always succeeds.
        let thread = (unsafe { libc::gettid() }) as usize & 0xffff;
        SPENT[thread].fetch_add(now() - self.began, Ordering::Relaxed);
    }
}

fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The nanoseconds that a thread spent in calls.
#[unsafe(no_mangle)]
extern "C" fn standin_cpu(thread: u32) -> u64 {
    SPENT[(thread & 0xffff) as usize].load(Ordering::Relaxed)
}
