//! A test as a process of its own: for what a process has one of, like its peak memory, its limits and its end.

use std::process::Command;
use std::time::{Duration, Instant};

/// This program, told to run `test` alone, in a single thread; what is printed is not held back.
pub fn child<Test: Fn()>(_test: Test) -> Command {
    // A function's type has its path for a name; the test harness calls it by what follows the program's name.
    let (_, name) = std::any::type_name::<Test>().split_once("::").expect("a program and a path");
    let mut program = Command::new(std::env::current_exe().expect("this program"));
    program.args(["--exact", name, "--include-ignored", "--test-threads=1", "--nocapture"]);
    program
}

/// The names of this process's threads that the library has started: all of them are called `foreload-...`.
pub fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this process's threads");
    // One that ends meanwhile has no name any more.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("foreload-")).map(|name| name.trim_end().to_owned()).collect()
}

/// Returns when they have ended; fails if they stay.
pub fn await_no_threads() {
    // The system lists a thread a little longer than it runs. A thread that waits for something never ends.
    let patience = Instant::now();
    while !threads().is_empty() {
        assert!(patience.elapsed() < Duration::from_secs(30), "these do not end: {:?}", threads());
        std::thread::sleep(Duration::from_millis(1));
    }
}
