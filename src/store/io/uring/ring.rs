//! The ring: its setup, the memory and the files that are registered with it, and the system calls.

use base::slot::SlotPool;
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{Builder, IoUring, Probe, cqueue, opcode, squeue};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

/// The setups of a ring, best first. Kernels before 6.1 support only `Cooperative` (since 5.19) and `Plain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RingMode {
    /// The flags SINGLE_ISSUER, DEFER_TASKRUN and SUBMIT_ALL (Linux 6.1). The waiting thread itself processes
    /// completions.
    Deferred,
    /// The flags COOP_TASKRUN and SUBMIT_ALL (Linux 5.19). The kernel does not interrupt the thread for completions.
    Cooperative,
    /// No setup flags.
    Plain,
}

impl RingMode {
    /// All setups, in the order in which Foreload tries them.
    pub const PREFERENCE: [Self; 3] = [Self::Deferred, Self::Cooperative, Self::Plain];

    /// Returns a description of the setup's flags.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Deferred => "deferred task work",
            Self::Cooperative => "cooperative task work",
            Self::Plain => "no setup flags",
        }
    }

    fn set(self, builder: &mut Builder) {
        match self {
            Self::Deferred => builder.setup_single_issuer().setup_defer_taskrun().setup_submit_all(),
            Self::Cooperative => builder.setup_coop_taskrun().setup_submit_all(),
            Self::Plain => builder,
        };
    }
}

/// The maximum size in bytes of an iovec that the kernel registers as a buffer.
const LARGEST_BUFFER: usize = 1 << 30;

/// The user data of the ring's own requests. Callers must not use these two values.
const WAKE: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

/// An io_uring with a table of direct descriptors and an eventfd that wakes it. If the limits allow it, the memory of a
/// slot pool is registered as buffers.
pub(crate) struct Ring {
    ring: IoUring,
    pub mode: RingMode,
    /// The reason why the memory of the slots is not registered; `None` if it is.
    pub unregistered: Option<String>,
    /// The thread that owns the ring: the first thread that uses it.
    owner: Option<ThreadId>,
    /// A write to this eventfd wakes [`Ring::enter`].
    pub wake: Arc<OwnedFd>,
    wake_armed: bool,
    base: usize,
    /// Keeps the registered memory mapped.
    _slots: SlotPool,
}

impl Ring {
    /// Makes a ring for up to `entries` queued requests and `files` direct descriptors. `mode` is the setup; `None`
    /// uses the best that the kernel grants.
    pub(crate) fn new(
        entries: u32,
        files: u32,
        mode: Option<RingMode>,
        slots: &SlotPool,
        register: bool,
    ) -> io::Result<Self> {
        let (ring, mode) = match mode {
            Some(mode) => (build(mode, entries)?, mode),
            None => best_mode(entries)?,
        };
        let submitter = ring.submitter();
        let mut probe = Probe::new();
        submitter.register_probe(&mut probe)?;
        let needed = [
            opcode::OpenAt::CODE,
            opcode::Close::CODE,
            opcode::Read::CODE,
            opcode::ReadFixed::CODE,
            opcode::PollAdd::CODE,
            opcode::AsyncCancel::CODE,
        ];
        let params = ring.params();
        if !needed.iter().all(|&code| probe.is_supported(code))
            || !params.is_feature_linked_file()
            || !params.is_feature_ext_arg()
            || !params.is_feature_nodrop()
        {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring is too old (before 5.17)",
            ));
        }
        submitter
            .register_files_sparse(files)
            .or_else(|_| submitter.register_files(&vec![-1; files as usize]))?;
        // Kernel threads run opens, and buffered reads on network file systems. Their default number is too low.
        let _ = submitter.register_iowq_max_workers(&mut [files.clamp(8, 64); 2]);
        let unregistered = match register {
            true => register_arena(&ring, slots).err().map(|error| refusal(&error)),
            false => Some("registration is turned off".to_owned()),
        };
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let base = slots.as_raw().0 as usize;
        let _slots = slots.clone();
        Ok(Self { ring, mode, unregistered, owner: None, wake, wake_armed: false, base, _slots })
    }

    /// Returns whether the current thread may use the ring. The first thread that calls this function becomes the owner
    /// of the ring.
    pub(crate) fn bind_to_thread(&mut self) -> io::Result<bool> {
        let current = std::thread::current().id();
        match self.owner {
            Some(owner) => Ok(owner == current || self.mode != RingMode::Deferred),
            None => {
                self.ring.submitter().register_enable_rings()?;
                self.owner = Some(current);
                Ok(true)
            }
        }
    }

    /// Returns the index of the registered buffer that contains the whole range; `None` if no single buffer does.
    pub(crate) fn registered(&self, address: usize, length: usize) -> Option<u16> {
        let first = (address - self.base) / LARGEST_BUFFER;
        let last = (address - self.base + length.max(1) - 1) / LARGEST_BUFFER;
        (self.unregistered.is_none() && first == last).then_some(first as u16)
    }

    /// Queues requests, which may be linked to one another.
    ///
    /// # Safety
    /// The memory that the requests name must live until their completions have arrived.
    pub(crate) unsafe fn push(&mut self, entries: &[squeue::Entry]) -> io::Result<()> {
        // SAFETY: the caller keeps that memory alive.
        while unsafe { self.ring.submission().push_multiple(entries) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    /// Submits queued requests, and waits for `want` completions or until `limit`. After `Ok`, fewer completions may be
    /// available.
    pub(crate) fn enter(&mut self, want: usize, limit: Option<Duration>) -> io::Result<()> {
        if !self.wake_armed {
            let poll =
                opcode::PollAdd::new(Fd(self.wake.as_raw_fd()), libc::POLLIN as u32).build().user_data(WAKE);
            // SAFETY: the request names no memory, and the eventfd lives as long as the ring.
            unsafe { self.push(&[poll]) }?;
            self.wake_armed = true;
        }
        let entered = match limit {
            None => self.ring.submit_and_wait(want),
            Some(limit) => {
                let time = Timespec::from(limit);
                self.ring.submitter().submit_with_args(want, &SubmitArgs::new().timespec(&time))
            }
        };
        match entered {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // The call was interrupted or timed out, or the kernel needs completions to be taken first.
                Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Takes the available completions. Returns whether the eventfd was written to.
    pub(crate) fn reap(&mut self, out: &mut Vec<cqueue::Entry>) -> bool {
        let before = out.len();
        out.extend(self.ring.completion());
        let mut woken = false;
        let mut kept = before;
        for place in before..out.len() {
            match out[place].user_data() {
                WAKE => {
                    woken = true;
                    self.wake_armed = false;
                    // Reset the eventfd to zero. Otherwise the next poll ends at once.
                    let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
                }
                CANCEL => {}
                _ => {
                    out.swap(kept, place);
                    kept += 1;
                }
            }
        }
        out.truncate(kept);
        woken
    }

    /// Asks the kernel to cancel all requests (Linux 5.19). An older kernel completes them instead.
    pub(crate) fn cancel_all(&mut self) {
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::any().all()).build().user_data(CANCEL);
        // SAFETY: the request names no memory.
        let _ = unsafe { self.push(&[cancel]) };
    }
}

fn build(mode: RingMode, entries: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    // The ring is disabled until the thread that will drive it enables it, because SINGLE_ISSUER binds the ring to that
    // thread.
    builder.dontfork().setup_clamp().setup_r_disabled().setup_cqsize(2 * entries.next_power_of_two());
    mode.set(&mut builder);
    builder.build(entries)
}

fn best_mode(entries: u32) -> io::Result<(IoUring, RingMode)> {
    let mut last = io::Error::from_raw_os_error(libc::EINVAL);
    for mode in RingMode::PREFERENCE {
        match build(mode, entries) {
            Ok(ring) => return Ok((ring, mode)),
            // The kernel does not support a flag of this mode. Any other error would occur in every mode.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn register_arena(ring: &IoUring, slots: &SlotPool) -> io::Result<()> {
    let (base, length) = slots.as_raw();
    let buffers: Vec<libc::iovec> = (0..length)
        .step_by(LARGEST_BUFFER)
        .map(|start| libc::iovec {
            iov_base: base.wrapping_add(start).cast(),
            iov_len: LARGEST_BUFFER.min(length - start),
        })
        .collect();
    // SAFETY: the ranges are those of the arena, which `Ring` keeps alive by a clone of the pool. The kernel reads into
    // them only if a request says so.
    unsafe { ring.submitter().register_buffers(&buffers) }
}

fn refusal(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => "the locked-memory limit is too low, see `ulimit -l`".to_owned(),
        _ => error.to_string(),
    }
}
