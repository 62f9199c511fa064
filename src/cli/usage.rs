//! The resources that this process has used so far, as the kernel counts them.

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProcessUsage {
    pub cpu_seconds: f64,
    pub peak_rss_bytes: u64,
}

impl ProcessUsage {
    pub(super) fn now() -> Self {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the pointer is to writable memory of the right type; all-zero is a valid rusage if the call fails.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            usage.assume_init()
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
        Self {
            cpu_seconds: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            // Linux counts in KiB.
            peak_rss_bytes: usage.ru_maxrss as u64 * 1024,
        }
    }
}
