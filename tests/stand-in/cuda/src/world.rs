//! The state of the stand-in, and the checks that every access passes.

use crate::capture::Capture;
use crate::clock::{Clock, Stamp};
use crate::faults::Faults;
use crate::memory::Memory;
use crate::pool::Pool;
use crate::settings::{Leaks, settings};
use crate::shadow::{Access, Kind, Mark, Operation, Shadow};
use crate::status::{INVALID_HANDLE, Status};
use crate::stream::{Event, Stream};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// A range of page-locked host memory.
#[derive(Debug)]
pub struct HostRange {
    pub end: u64,
    /// The context that registered it; `None` for memory of every context.
    pub context: Option<u64>,
    /// The length of the mapping if it was allocated here; `None` if it was registered.
    pub allocated: Option<usize>,
}

/// A loaded image.
#[derive(Debug)]
pub struct Module {
    pub context: u64,
    /// The whole image, which is searched for names of kernels.
    pub image: Vec<u8>,
    /// The number of launches that did not run yet.
    pub queued: u64,
}

/// The whole state, behind one lock.
pub struct World {
    /// The process that called `cuInit`; 0 before.
    pub process: u32,
    /// The number of the latest operation or free.
    pub order: u64,
    /// The clock of the host.
    pub host: Clock,
    /// How often each device's primary context was retained.
    pub retained: Vec<u64>,
    /// All streams, also destroyed ones. The index of a stream is its actor; index 0 is the host.
    pub streams: Vec<Stream>,
    /// The actors of streams by handle; those of default streams by (context, thread), with thread 0 for the legacy
    /// one.
    pub by_handle: HashMap<u64, usize>,
    pub defaults: HashMap<(u64, u64), usize>,
    pub events: HashMap<u64, Event>,
    pub pools: HashMap<u64, Pool>,
    pub modules: HashMap<u64, Module>,
    /// The functions: module, and index in the list of kernels.
    pub functions: HashMap<u64, (u64, usize)>,
    /// The raised limits of dynamic shared memory of functions.
    pub shared_limits: HashMap<(u64, usize), u32>,
    pub memory: Memory,
    pub host_ranges: BTreeMap<u64, HostRange>,
    pub shadow: Shadow,
    pub captures: Vec<Capture>,
    pub faults: Faults,
    pub violations: Vec<String>,
    pub abort: bool,
    pub counters: BTreeMap<&'static str, u64>,
    /// The number of operations that are running.
    pub running: u64,
    /// The number of queued operations that may write host memory.
    pub host_writers: u64,
    next_handle: u64,
    dead: HashMap<u64, &'static str>,
}

/// Notified whenever an operation is queued or done.
pub static CHANGED: Condvar = Condvar::new();

/// Locks the world.
pub fn lock() -> MutexGuard<'static, World> {
    static WORLD: OnceLock<Mutex<World>> = OnceLock::new();
    WORLD.get_or_init(|| Mutex::new(World::new())).lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn new() -> Self {
        Self {
            process: 0,
            order: 0,
            host: Clock::default(),
            retained: vec![0; settings().devices.max(0) as usize],
            streams: vec![Stream::of_the_host()],
            by_handle: HashMap::new(),
            defaults: HashMap::new(),
            events: HashMap::new(),
            pools: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            shared_limits: HashMap::new(),
            memory: Memory::reserve(),
            host_ranges: BTreeMap::new(),
            shadow: Shadow::default(),
            captures: Vec::new(),
            faults: Faults::from_environment(),
            violations: Vec::new(),
            abort: settings().abort,
            counters: BTreeMap::new(),
            running: 0,
            host_writers: 0,
            next_handle: 0x5ead_0000_0000,
            dead: HashMap::new(),
        }
    }

    /// The handle of a device's primary context.
    pub fn context_of(device: i32) -> u64 {
        0x5ead_c000_0000 + 256 * device as u64
    }

    /// The device whose primary context has this handle, if the context is retained.
    pub fn device_of(&self, context: u64) -> Option<i32> {
        let device = (0..self.retained.len() as i32).find(|device| Self::context_of(*device) == context)?;
        (self.retained[device as usize] > 0).then_some(device)
    }

    /// A new handle that is not a valid address.
    pub fn new_handle(&mut self) -> u64 {
        self.next_handle += 256;
        self.next_handle
    }

    /// Remembers a destroyed handle, to distinguish its use from that of an invalid handle.
    pub fn bury(&mut self, handle: u64, what: &'static str) {
        self.dead.insert(handle, what);
    }

    /// Reports the use of an invalid handle; returns the status for it.
    pub fn bad_handle(&mut self, call: &str, handle: u64) -> Status {
        if let Some(what) = self.dead.get(&handle) {
            self.violate(format!("{call} uses a destroyed {what}"));
        }
        INVALID_HANDLE
    }

    /// Adds to a counter that tests read.
    pub fn count(&mut self, name: &'static str, by: u64) {
        *self.counters.entry(name).or_default() += by;
    }

    /// Prints a violation, and aborts the process unless violations are only recorded.
    pub fn violate(&mut self, what: String) {
        eprintln!("CUDA stand-in: VIOLATION: {what} (seed {})", settings().seed);
        if self.abort {
            std::process::abort();
        }
        self.violations.push(what);
    }

    /// Records an access of an operation and does all checks; returns whether its memory exists.
    pub fn check(&mut self, access: Access, mark: &Mark, clock: &Clock, order: u64, context: u64) -> bool {
        let Access { kind, start, end } = access;
        if start >= end {
            return true;
        }
        let does = if kind == Kind::Write { "writes" } else { "reads" };
        let what = format!("{} {does} {} bytes at {start:#x}", mark.operation.text, end - start);
        let device = self.memory.is_device(start);
        if device {
            let problem = match self.memory.find(start) {
                None => Some("which no allocation holds".to_owned()),
                Some(found) if end > found.end => {
                    Some(format!("beyond the end of an allocation of {} bytes", found.end - found.start))
                }
                Some(found) => match (&found.freed, found.born) {
                    (Some((freed, by)), _) if *freed < order => Some(format!("after {} freed it", by.text)),
                    (_, Some(born)) if clock.after(born) => None,
                    _ => Some("in no order with its allocation".to_owned()),
                },
            };
            if let Some(problem) = problem {
                self.violate(format!("{what}, {problem}"));
                return false;
            }
        } else if !self.is_locked(start, end, context) {
            self.violate(format!("{what} of host memory that is not page-locked"));
            return false;
        }
        if let Some(clash) = self.shadow.access(access, mark, clock, device) {
            let (from, length) = (clash.start, clash.end - clash.start);
            self.violate(match clash.earlier {
                Some((how, by)) => {
                    format!("{what}; in no order with it {} has {how} {length} at {from:#x}", by.text)
                }
                None => format!("{what}, of which {length} at {from:#x} were never written"),
            });
        }
        true
    }

    /// Whether all these bytes are page-locked for a context.
    pub fn is_locked(&self, start: u64, end: u64, context: u64) -> bool {
        let range = self.host_ranges.range(..=start).next_back();
        range.is_some_and(|(_, range)| end <= range.end && range.context.is_none_or(|own| own == context))
    }

    /// Ends an allocation. The owner of the clock frees it.
    pub fn end_allocation(&mut self, start: u64, by: &Operation, clock: &Clock) {
        let Some(found) = self.memory.at(start) else { return };
        let (end, born) = (found.end, found.born);
        if born.is_none_or(|born| !clock.after(born)) {
            self.violate(format!("{} frees memory in no order with its allocation", by.text));
        }
        if let Some(clash) = self.shadow.end(start, end, clock)
            && let Some((how, earlier)) = clash.earlier
        {
            let text = format!("{} frees memory; in no order with it {} has {how} it", by.text, earlier.text);
            self.violate(text);
        }
        self.memory.give_up(start, end);
    }

    /// Advances the clock of the host by a step.
    pub fn host_step(&mut self) -> Stamp {
        self.host.step(crate::clock::HOST)
    }

    /// Gives an allocation's bytes back to its pool.
    pub fn give_back(&mut self, start: u64) {
        let Some(found) = self.memory.at(start) else { return };
        let bytes = found.end - found.start;
        if let crate::memory::Source::Pool(pool) = found.source
            && let Some(pool) = self.pools.get_mut(&pool)
        {
            pool.give_back(bytes);
        }
    }

    /// The bytes of a device that are not reserved.
    pub fn left(&self, device: i32) -> u64 {
        let pools = self.pools.values().filter(|pool| pool.device == device).map(|pool| pool.reserved);
        let plain = self.memory.live().filter(|found| found.source == crate::memory::Source::Plain);
        let plain = plain.map(|found| found.end - found.start);
        settings().memory.saturating_sub(pools.sum::<u64>() + plain.sum::<u64>())
    }

    /// Whether all queued operations are done.
    pub fn is_idle(&self) -> bool {
        self.streams.iter().all(|stream| stream.done == stream.queued)
    }

    /// All objects that were not freed.
    pub fn leaks(&self) -> Vec<String> {
        let mut leaks = Vec::new();
        let mut note = |what: &str, count: usize| {
            if count > 0 {
                leaks.push(format!("{count} {what}"));
            }
        };
        note("streams", self.by_handle.len());
        note("events", self.events.len());
        note("memory pools", self.pools.values().filter(|pool| !pool.destroyed).count());
        note("device allocations", self.memory.live().count());
        note("page-locked ranges", self.host_ranges.len());
        note("modules", self.modules.len());
        note("retained primary contexts", self.retained.iter().filter(|count| **count > 0).count());
        leaks
    }
}

/// Reports leaks at the end of the process.
pub extern "C" fn at_exit() {
    if settings().leaks == Leaks::Ignore {
        return;
    }
    let world = lock();
    let leaks = world.leaks();
    if world.process != std::process::id() || leaks.is_empty() {
        return;
    }
    eprintln!("CUDA stand-in: LEAK: {} at exit", leaks.join(", "));
    if settings().leaks == Leaks::Fail {
        // SAFETY: ends the process at once; output is not buffered.
        unsafe { libc::_exit(97) };
    }
}

/// An operation's name and number in messages.
pub fn operation(name: &str, order: u64, stream: Option<usize>) -> Arc<Operation> {
    let place = stream.map_or_else(|| "by the host".to_owned(), |stream| format!("on stream {stream}"));
    Arc::new(Operation { text: format!("{name} #{order} {place}") })
}
