//! The entry of every function of the driver: it counts the call, fails on demand, and refuses what a real driver
//! refuses.

use crate::cost;
use crate::shadow::Operation;
use crate::status::{self, Status};
use crate::world::{CHANGED, World, lock};
use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{MutexGuard, PoisonError};

thread_local! {
    /// The contexts of this thread, the current one last.
    pub static CONTEXTS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    /// Whether this thread runs a host function, which may not call the driver.
    pub static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// The precondition of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// It needs nothing, not even `cuInit`.
    Nothing,
    /// It needs `cuInit`.
    Driver,
    /// It needs a current context.
    Context,
}

/// A call of the driver: the world and the caller's context.
pub struct Call {
    world: Option<MutexGuard<'static, World>>,
    pub name: &'static str,
    /// The current context.
    pub context: u64,
}

impl Deref for Call {
    type Target = World;

    fn deref(&self) -> &World {
        self.world.as_ref().expect("locked but in wait_until")
    }
}

impl DerefMut for Call {
    fn deref_mut(&mut self) -> &mut World {
        self.world.as_mut().expect("locked but in wait_until")
    }
}

impl Call {
    /// Waits with the world unlocked until `is_so` is true.
    pub fn wait_until(&mut self, is_so: impl Fn(&World) -> bool) {
        let mut world = self.world.take().expect("locked but in wait_until");
        while !is_so(&world) {
            world = CHANGED.wait(world).unwrap_or_else(PoisonError::into_inner);
        }
        self.world = Some(world);
    }

    /// The stream of a handle: 0 and 1 are the legacy default stream, 2 is the thread's default stream, others were
    /// created.
    pub fn stream(&mut self, handle: u64) -> Result<usize, Status> {
        let context = self.context;
        if handle <= 2 {
            // SAFETY: no arguments, always succeeds.
            let thread = if handle == 2 { (unsafe { libc::pthread_self() }) as u64 } else { 0 };
            let actor = match self.defaults.get(&(context, thread)) {
                Some(actor) => *actor,
                None => self.open_stream(context, 0, thread == 0),
            };
            self.defaults.insert((context, thread), actor);
            let name = self.name;
            return self.capture_permits_stream(name, actor).map(|()| actor);
        }
        let Some(&actor) = self.by_handle.get(&handle) else {
            let name = self.name;
            return Err(self.bad_handle(name, handle));
        };
        if self.streams[actor].context != context {
            let name = self.name;
            self.violate(format!("{name} on a stream of another context than the current one"));
            return Err(status::INVALID_HANDLE);
        }
        let name = self.name;
        self.capture_permits_stream(name, actor).map(|()| actor)
    }

    /// This call as an operation of the host.
    pub fn by_host(&mut self) -> Operation {
        self.order += 1;
        Operation { text: format!("{} #{} by the host", self.name, self.order) }
    }
}

/// Runs the body of a function of the driver.
pub fn enter(name: &'static str, needs: Needs, body: impl FnOnce(&mut Call) -> Result<(), Status>) -> Status {
    let run = || {
        let mut world = lock();
        let fault = world.faults.call(name);
        if IN_HOST_FUNCTION.get() {
            world.violate(format!("{name} is called in a host function"));
            return Err(status::NOT_PERMITTED);
        }
        if needs != Needs::Nothing {
            if world.process == 0 {
                return Err(status::NOT_INITIALIZED);
            }
            if world.process != std::process::id() {
                world.violate(format!("{name} is called in a process that was forked after cuInit"));
                return Err(status::NOT_INITIALIZED);
            }
        }
        let context = CONTEXTS.with_borrow(|contexts| contexts.last().copied().unwrap_or(0));
        if needs == Needs::Context && world.device_of(context).is_none() {
            let problem = if context == 0 { "no current context" } else { "a context that was released" };
            world.violate(format!("{name} is called with {problem}"));
            return Err(status::INVALID_CONTEXT);
        }
        world.capture_permits(name, context)?;
        if let Some(status) = fault {
            return Err(status);
        }
        world.count(cost::COUNTER, cost::of(name));
        body(&mut Call { world: Some(world), name, context })
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => 0,
        Ok(Err(status)) => status,
        Err(_) => {
            eprintln!("CUDA stand-in: {name} panicked");
            std::process::abort();
        }
    }
}

/// Stores a result at the caller's address.
pub fn put<T>(place: *mut T, value: T) -> Result<(), Status> {
    if place.is_null() {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: the caller of the driver's function guarantees that the pointer is valid.
    unsafe { place.write_unaligned(value) };
    Ok(())
}
