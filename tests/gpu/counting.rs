//! Counts the allocations of single threads of this program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, which counts calls by thread.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

/// The counts by the lower bits of the thread id, which are enough to distinguish the threads of one test.
static ALLOCATIONS: [AtomicU64; 1 << 16] = [const { AtomicU64::new(0) }; 1 << 16];

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending has no thread-local storage any more.
    let _ = THREAD.try_with(|thread| {
        if thread.get() == 0 {
            // SAFETY: no arguments, always succeeds.
            thread.set(unsafe { libc::gettid() } as u32);
        }
        ALLOCATIONS[(thread.get() & 0xffff) as usize].fetch_add(1, Ordering::Relaxed);
    });
}

// SAFETY: the system's allocator does the work; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(address, layout, bytes) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(address, layout) }
    }
}

/// How often a thread has allocated.
pub fn allocations(thread: u32) -> u64 {
    ALLOCATIONS[(thread & 0xffff) as usize].load(Ordering::Relaxed)
}

/// The ids of this process's threads whose names begin with `prefix`.
pub fn threads(prefix: &str) -> Vec<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let found = tasks.filter_map(|task| {
        let task = task.ok()?;
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        name.starts_with(prefix).then(|| task.file_name().to_str()?.parse().ok())?
    });
    found.collect()
}
