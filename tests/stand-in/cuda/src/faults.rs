//! Calls that fail on demand of a test.

use crate::status::{self, Status};
use std::collections::HashMap;

/// The planned faults, and how often each function was called.
#[derive(Default)]
pub struct Faults {
    planned: Vec<Fault>,
    calls: HashMap<&'static str, u64>,
}

struct Fault {
    name: String,
    /// The call at which it fails, counted from the start.
    at: u64,
    status: Status,
}

impl Faults {
    /// The faults that the environment asks for.
    pub fn from_environment() -> Self {
        let mut faults = Self::default();
        for wish in std::env::var("FORELOAD_STANDIN_FAIL").unwrap_or_default().split(',') {
            let mut parts = wish.split(':');
            if let (Some(name), Some(nth)) = (parts.next(), parts.next().and_then(|nth| nth.parse().ok())) {
                let status = parts.next().and_then(|status| status.parse().ok()).unwrap_or(0);
                faults.plan(name, nth, status);
            }
        }
        faults
    }

    /// Makes the `nth` call of `name` from now on (1 is the next) return `status`; 0 chooses a suitable one.
    pub fn plan(&mut self, name: &str, nth: u64, status: Status) {
        let at = self.calls.get(name).copied().unwrap_or(0) + nth;
        let status = if status != 0 { status } else { usual(name) };
        self.planned.push(Fault { name: name.to_owned(), at, status });
    }

    /// Counts a call; returns the status with which it must fail, if any.
    pub fn call(&mut self, name: &'static str) -> Option<Status> {
        let count = self.calls.entry(name).or_default();
        *count += 1;
        let due = self.planned.iter().position(|fault| fault.name == name && fault.at == *count)?;
        Some(self.planned.swap_remove(due).status)
    }

    /// How often a function was called.
    pub fn calls(&self, name: &str) -> u64 {
        self.calls.get(name).copied().unwrap_or(0)
    }

    /// Removes all planned faults.
    pub fn clear(&mut self) {
        self.planned.clear();
    }
}

fn usual(name: &str) -> Status {
    let takes_memory =
        ["Alloc", "Create", "Retain", "Load", "Register"].iter().any(|word| name.contains(word));
    match name {
        "cuInit" => status::NO_DEVICE,
        _ if takes_memory => status::OUT_OF_MEMORY,
        _ => status::UNKNOWN,
    }
}
