//! A test as a process of its own: for what a process has one of, like its peak memory, its limits and its end.

use std::process::Command;

/// This program, told to run `test` alone, in a single thread; what is printed is not held back.
pub fn child<Test: Fn()>(_test: Test) -> Command {
    // A function's type has its path for a name; the test harness calls it by what follows the program's name.
    let (_, name) = std::any::type_name::<Test>().split_once("::").expect("a program and a path");
    let mut program = Command::new(std::env::current_exe().expect("this program"));
    program.args(["--exact", name, "--include-ignored", "--test-threads=1", "--nocapture"]);
    program
}
