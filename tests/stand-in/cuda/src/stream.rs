//! Streams: threads that run queued operations in order, with random delays, and events between them.

use crate::clock::{Clock, Stamp};
use crate::settings::settings;
use crate::shadow::{Access, Mark};
use crate::world::{CHANGED, World, lock, operation};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A stream, alive or destroyed.
pub struct Stream {
    pub context: u64,
    pub flags: u32,
    /// The clock of its latest queued operation.
    pub clock: Arc<Clock>,
    /// The number of its latest queued operation, and of its latest completed operation.
    pub queued: u64,
    pub done: u64,
    /// Whether it is the legacy default stream: it and blocking streams wait for each other.
    pub legacy: bool,
    queue: VecDeque<Queued>,
    closing: bool,
}

/// The clock and the queue of a stream when an event was recorded.
#[derive(Clone)]
pub struct Record {
    pub stream: usize,
    pub number: u64,
    pub clock: Arc<Clock>,
    pub passed: Arc<Mutex<Option<Instant>>>,
}

/// An event.
pub struct Event {
    pub context: u64,
    pub flags: u32,
    pub record: Option<Record>,
}

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

type Work = Box<dyn FnOnce(&mut Running) + Send>;

struct Queued {
    operation: Running,
    number: u64,
    /// The operations of other streams that must complete first: (stream, number).
    waits: Vec<(usize, u64)>,
    accesses: Vec<Access>,
    work: Work,
}

/// An operation while it runs.
pub struct Running {
    pub mark: Mark,
    pub clock: Arc<Clock>,
    pub order: u64,
    pub context: u64,
    /// Whether the memory of all its accesses exists.
    pub sound: bool,
    random: u64,
}

impl Running {
    /// Records an access that becomes known only now; returns whether its memory exists.
    pub fn check(&self, access: Access) -> bool {
        lock().check(access, &self.mark, &self.clock, self.order, self.context)
    }

    /// A random number of 31 bits.
    pub fn draw(&mut self) -> u64 {
        // This is xorshift64*.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33
    }

    /// Sometimes waits for a random time.
    pub fn dawdle(&mut self) {
        let draw = self.draw();
        let longest = settings().delay_us;
        if longest > 0 && draw.is_multiple_of(2) {
            std::thread::sleep(Duration::from_micros((draw >> 1) % longest));
        }
    }
}

impl Stream {
    /// The entry for the host, which is number 0 in the list of actors and does nothing.
    pub fn of_the_host() -> Self {
        Self::new(0, NON_BLOCKING, false)
    }

    fn new(context: u64, flags: u32, legacy: bool) -> Self {
        let (clock, queue) = (Arc::default(), VecDeque::new());
        Self { context, flags, clock, queued: 0, done: 0, legacy, queue, closing: false }
    }

    pub fn blocking(&self) -> bool {
        self.flags & NON_BLOCKING == 0
    }
}

/// The requirements of an operation that is queued.
#[derive(Default)]
pub struct Plan {
    pub accesses: Vec<Access>,
    /// The events to wait for.
    pub after: Vec<Record>,
}

impl World {
    /// Opens a stream with its thread; returns its actor.
    pub fn open_stream(&mut self, context: u64, flags: u32, legacy: bool) -> usize {
        let actor = self.streams.len();
        self.streams.push(Stream::new(context, flags, legacy));
        let name = format!("stream {actor}");
        std::thread::Builder::new().name(name).spawn(move || run(actor)).expect("a thread for a stream");
        actor
    }

    /// Lets a stream's thread end when its queue is empty.
    pub fn close_stream(&mut self, actor: usize) {
        self.streams[actor].closing = true;
        CHANGED.notify_all();
    }

    /// Queues an operation; returns its number in its stream.
    pub fn queue(
        &mut self,
        actor: usize,
        name: &str,
        plan: Plan,
        work: impl FnOnce(&mut Running) + Send + 'static,
    ) -> u64 {
        self.order += 1;
        let mut clock = (*self.streams[actor].clock).clone();
        clock.join(&self.host);
        let mut waits = Vec::new();
        for record in &plan.after {
            clock.join(&record.clock);
            waits.push((record.stream, record.number));
        }
        let (legacy, blocking, context) = {
            let own = &self.streams[actor];
            (own.legacy, own.blocking(), own.context)
        };
        for (other, stream) in self.streams.iter().enumerate() {
            let ordered = stream.context == context
                && ((legacy && stream.blocking()) || (blocking && stream.legacy))
                && other != actor;
            if ordered {
                clock.join(&stream.clock);
                waits.push((other, stream.queued));
            }
        }
        let stamp: Stamp = clock.step(actor);
        let clock = Arc::new(clock);
        let order = self.order;
        let stream = &mut self.streams[actor];
        stream.queued += 1;
        stream.clock = clock.clone();
        let number = stream.queued;
        let mark = Mark { stamp, operation: operation(name, order, Some(actor)) };
        let random = settings().seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (order << 20) | 1;
        let running = Running { mark, clock, order, context, sound: true, random };
        let work = Box::new(work);
        stream.queue.push_back(Queued { operation: running, number, waits, accesses: plan.accesses, work });
        CHANGED.notify_all();
        number
    }

    /// Marks the end of what a stream has queued.
    pub fn record(&mut self, actor: usize) -> Record {
        let passed = Arc::new(Mutex::new(None));
        let place = passed.clone();
        let number = self.queue(actor, "cuEventRecord", Plan::default(), move |_| {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        });
        Record { stream: actor, number, clock: self.streams[actor].clock.clone(), passed }
    }

    /// Records that the host has seen the progress of a stream.
    pub fn host_joins(&mut self, clock: &Clock) {
        self.host.join(clock);
    }

    fn next(&mut self, actor: usize) -> Option<Queued> {
        let first = self.streams[actor].queue.front()?;
        let ready = first.waits.iter().all(|(stream, number)| self.streams[*stream].done >= *number);
        ready.then(|| self.streams[actor].queue.pop_front()).flatten()
    }
}

/// Runs the thread of a stream.
fn run(actor: usize) {
    let mut world = lock();
    loop {
        let Some(mut next) = world.next(actor) else {
            if world.streams[actor].closing && world.streams[actor].queue.is_empty() {
                return;
            }
            world = CHANGED.wait(world).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        world.running += 1;
        drop(world);
        next.operation.dawdle();
        world = lock();
        let operation = &mut next.operation;
        for access in next.accesses {
            operation.sound &=
                world.check(access, &operation.mark, &operation.clock, operation.order, operation.context);
        }
        drop(world);
        (next.work)(operation);
        world = lock();
        world.running -= 1;
        world.streams[actor].done = next.number;
        if world.running == 0 {
            world.memory.release();
        }
        CHANGED.notify_all();
    }
}
