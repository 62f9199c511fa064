//! A budget of processor time. Threads record the time that they use, and sleep if they have used more than their
//! share.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Processor time, in seconds per processor, that threads may use beyond their share before they must sleep. It allows
/// short bursts.
const BURST: f64 = 0.05;

/// Maximum time that a thread sleeps, in seconds, before it checks again whether there is work.
const LONGEST_REST: f64 = 0.1;

pub(in crate::pipeline) struct CpuBudget {
    origin: Instant,
    /// The number of processors that may be busy on average, as the bits of an `f64`. The number is not under the lock
    /// of `cpu_debt`, because a forked child reads it, and another thread may have held that lock at the fork.
    cores: AtomicU64,
    cpu_debt: Mutex<CpuDebt>,
}

#[derive(Debug)]
struct CpuDebt {
    /// Processor time, in seconds, that threads have used beyond their share.
    debt: f64,
    paid_until: Duration,
}

impl CpuDebt {
    /// Records at time `now` that threads have used `taken` seconds of processor time, with a share of `cores`
    /// processors. Returns how many seconds the thread must sleep.
    fn charge(&mut self, cores: f64, now: Duration, taken: f64) -> f64 {
        let passed = now.saturating_sub(self.paid_until).as_secs_f64();
        self.paid_until = self.paid_until.max(now);
        // Unused processor time is not saved up for later, so the debt is never negative.
        self.debt = (self.debt - passed * cores).max(0.0) + taken;
        ((self.debt - BURST * cores) / cores).clamp(0.0, LONGEST_REST)
    }
}

impl CpuBudget {
    pub(super) fn new(cores: f64) -> Self {
        let cpu_debt = Mutex::new(CpuDebt { debt: 0.0, paid_until: Duration::ZERO });
        Self { origin: Instant::now(), cores: AtomicU64::new(cores.to_bits()), cpu_debt }
    }

    pub(super) fn set(&self, cores: f64) {
        self.cores.store(cores.to_bits(), Ordering::Relaxed);
    }

    pub(in crate::pipeline) fn cores(&self) -> f64 {
        f64::from_bits(self.cores.load(Ordering::Relaxed))
    }

    fn charge(&self, taken: Duration) -> Duration {
        let mut cpu_debt = self.cpu_debt.lock().unwrap_or_else(PoisonError::into_inner);
        Duration::from_secs_f64(cpu_debt.charge(self.cores(), self.origin.elapsed(), taken.as_secs_f64()))
    }
}

pub(in crate::pipeline) struct CpuMeter {
    budget: Arc<CpuBudget>,
    taken: Duration,
}

impl CpuMeter {
    pub(in crate::pipeline) fn new(budget: Arc<CpuBudget>) -> Self {
        Self { budget, taken: thread_cpu_time() }
    }

    pub(super) fn note(&mut self) -> Duration {
        let taken = thread_cpu_time();
        let more = taken.saturating_sub(std::mem::replace(&mut self.taken, taken));
        self.budget.charge(more)
    }

    /// Records the processor time used since the last call, and sleeps if the threads have used more than their share.
    pub(in crate::pipeline) fn record_and_rest(&mut self) {
        let rest = self.note();
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
    }
}

fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates threads that are busy whenever they do not sleep. Returns how many processors they keep busy on
    /// average, in virtual time.
    fn taken(cores: f64, threads: usize) -> f64 {
        let mut cpu_debt = CpuDebt { debt: 0.0, paid_until: Duration::ZERO };
        let (mut free_at, mut taken, job) = (vec![0.0; threads], 0.0, 1e-3);
        loop {
            let next = (0..threads).min_by(|a, b| f64::total_cmp(&free_at[*a], &free_at[*b])).unwrap();
            let now: f64 = free_at[next] + job;
            if now > 60.0 {
                return taken / 60.0;
            }
            taken += job;
            free_at[next] = now + cpu_debt.charge(cores, Duration::from_secs_f64(now), job);
        }
    }

    #[test]
    fn threads_take_their_share_and_no_more() {
        for (cores, threads) in [(0.3, 1), (0.5, 2), (1.0, 2), (1.5, 2), (2.5, 8)] {
            let taken = taken(cores, threads);
            assert!((0.93 * cores..=1.03 * cores).contains(&taken), "{taken} of {cores}, {threads} threads");
        }
        assert!((taken(4.0, 2) - 2.0).abs() < 0.01, "a share that is not reached costs nothing");
    }

    #[test]
    fn a_meter_measures_its_own_thread() {
        let budget = Arc::new(CpuBudget::new(1e-6));
        let mut meter = CpuMeter::new(budget.clone());
        while thread_cpu_time() < meter.taken + Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        assert_eq!(meter.note(), Duration::from_secs_f64(LONGEST_REST));
        budget.set(1e6);
        assert_eq!(meter.note(), Duration::ZERO);
    }
}
