//! Runs a test in a process of its own, to test things that exist once per process: its peak memory, its limits, its
//! end.

use super::waits::{wait_for, wait_until};
use foreload::testing::rng::RandomStream;
use std::io::{Read, Write};
use std::process::{Child, Command, Output};
use std::time::Duration;

/// A command that runs `test` of this program alone, in a single thread, without capturing its output.
pub fn child<Test: Fn()>(_test: Test) -> Command {
    // The type of a function is named by its path. The test harness names the test by that path without the program's
    // name.
    let (_, name) = std::any::type_name::<Test>().split_once("::").expect("a program and a path");
    let mut program = Command::new(std::env::current_exe().expect("this program"));
    program.args(["--exact", name, "--include-ignored", "--test-threads=1", "--nocapture"]);
    program
}

/// Runs a command, which must succeed.
pub fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let [out, error] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{command:?}: {out}{error}");
    output
}

/// Runs one test as a [`child`], which must pass. Returns its standard output.
pub fn passes(child: &mut Command) -> String {
    let shown = String::from_utf8_lossy(&succeeds(child).stdout).into_owned();
    assert!(shown.contains("1 passed"), "{shown}");
    shown
}

/// The names of this process's threads that the library has started, all of which begin with `foreload-`.
pub fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this process's threads");
    // A thread that has ended by now has no name.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("foreload-")).map(|name| name.trim_end().to_owned()).collect()
}

/// Returns when all of the library's threads have ended; fails if they stay.
pub fn await_no_threads() {
    // The system lists a thread a little longer than it runs. A thread that waits forever never ends.
    wait_for("all threads have ended", threads, Vec::is_empty);
}

/// A process that a test kills. Dropping it kills and reaps it too, so that it never outlives a test that fails.
pub struct Killable(pub Child);

impl Killable {
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("a process"))
    }

    /// Kills the process now and waits for its end.
    pub fn kill(mut self) {
        self.0.kill().expect("a process");
        self.0.wait().expect("a status");
    }

    /// Kills the process at a moment within `longest` that is drawn from `random`.
    pub fn kill_within(self, longest: Duration, random: &mut RandomStream) {
        std::thread::sleep(longest.mul_f64(random.unit()));
        self.kill();
    }

    /// Kills the process as soon as a condition holds. Fails if the process ends before that.
    pub fn kill_when(mut self, what: &str, mut is_so: impl FnMut() -> bool) {
        wait_until(what, || {
            let is_so = is_so();
            assert!(
                is_so || self.0.try_wait().unwrap().is_none(),
                "it ended before it was killed, when {what}"
            );
            is_so
        });
        self.kill();
    }
}

impl Drop for Killable {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The byte that a child writes after each step.
const STEP: u8 = 1;

/// Reports one step to the test that runs this process as a child.
pub fn report_step() {
    let mut out = std::io::stdout();
    out.write_all(&[STEP]).and_then(|()| out.flush()).unwrap();
}

/// Reads the output of children until they have reported `count` steps, and calls `look` after every read. Returns
/// whether they reported all steps; otherwise they have ended.
pub fn await_steps(output: &mut impl Read, count: u64, mut look: impl FnMut()) -> bool {
    let (mut seen, mut bytes) = (0, [0; 64]);
    while seen < count {
        let length = output.read(&mut bytes).unwrap();
        if length == 0 {
            return false;
        }
        seen += bytes[..length].iter().filter(|&&byte| byte == STEP).count() as u64;
        look();
    }
    true
}
