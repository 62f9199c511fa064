//! A test as a process of its own: for what a process has only one of, like its peak memory, its limits and its end.

use std::process::Command;
use std::time::{Duration, Instant};

/// A command that runs `test` of this program alone, in a single thread, without capturing its output.
pub fn child<Test: Fn()>(_test: Test) -> Command {
    // A function's type is named by its path; the test harness calls it by what follows the program's name.
    let (_, name) = std::any::type_name::<Test>().split_once("::").expect("a program and a path");
    let mut program = Command::new(std::env::current_exe().expect("this program"));
    program.args(["--exact", name, "--include-ignored", "--test-threads=1", "--nocapture"]);
    program
}

/// The names of this process's threads that the library has started, all of which begin with `foreload-`.
pub fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this process's threads");
    // A thread that ends meanwhile has no name any more.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("foreload-")).map(|name| name.trim_end().to_owned()).collect()
}

/// Returns when all of the library's threads have ended; fails if they stay.
pub fn await_no_threads() {
    // The system lists a thread a little longer than it runs. A thread that waits for something never ends.
    let patience = Instant::now();
    while !threads().is_empty() {
        assert!(patience.elapsed() < Duration::from_secs(30), "these do not end: {:?}", threads());
        std::thread::sleep(Duration::from_millis(1));
    }
}
