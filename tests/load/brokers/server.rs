//! A real Redis server, which can be killed and started again.

use crate::common::{Killable, wait_until};
use redis::{Connection, Value, cmd};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A server on a Unix socket in its own directory, which logs each command before it answers.
pub struct RedisServer {
    /// This field is dropped first, because the server writes to the directory.
    child: Option<Killable>,
    directory: TempDir,
    options: Vec<String>,
}

impl RedisServer {
    /// Starts a server; `None` if Redis is not installed and not required.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Starts a server with more options.
    pub fn start_with(options: &[&str]) -> Option<Self> {
        let there = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
        if !there.is_ok_and(|status| status.success()) {
            let why = "no redis-server: apt-get install redis-server";
            assert!(std::env::var_os("FORELOAD_REQUIRE_REDIS").is_none_or(|said| said != "1"), "{why}");
            eprintln!("skipped: {why}");
            return None;
        }
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut server = Self { directory: tempfile::tempdir().unwrap(), options, child: None };
        server.run();
        Some(server)
    }

    /// Starts the server again, with the data from its log.
    pub fn run(&mut self) {
        let directory = self.directory.path();
        let mut program = Command::new("redis-server");
        program.current_dir(directory).args(["--port", "0", "--unixsocket", "socket", "--save", ""]);
        program.args(["--appendonly", "yes", "--appendfsync", "always"]).args(&self.options);
        self.child = Some(Killable::start(program.stdout(Stdio::null()).stderr(Stdio::null())));
        let client = redis::Client::open(self.url()).unwrap();
        wait_until("redis-server answers", || {
            let Ok(mut connection) = client.get_connection() else { return false };
            // An answer that it is loading, or wants a password, shows that the server runs.
            let answer = cmd("PING").query::<String>(&mut connection);
            !matches!(answer, Err(error) if error.code() == Some("LOADING"))
        });
    }

    /// Kills the server at once, as `kill -9` does.
    pub fn kill(&mut self) {
        drop(self.child.take());
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    pub fn url(&self) -> String {
        format!("unix://{}", self.path("socket").display())
    }

    pub fn connect(&self) -> Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    /// Adds samples with these numbers. Sample N has the id `1-N`.
    pub fn add(&self, stream: &str, numbers: impl IntoIterator<Item = u64>) {
        let mut connection = self.connect();
        for number in numbers {
            add(&mut connection, stream, number).unwrap();
        }
    }

    /// Sends a command.
    pub fn ask(&self, words: &[&str]) -> Value {
        cmd(words[0]).arg(&words[1..]).query(&mut self.connect()).unwrap()
    }
}

/// The content of the member `jpg` of the sample with this number.
pub fn pixels(number: u64) -> Vec<u8> {
    let length = 100 + (number as usize * 37) % 2000;
    (0..length).map(|at| (at as u64 * 31 + number) as u8).collect()
}

/// Adds a sample; it may have been added before.
pub fn add(connection: &mut Connection, stream: &str, number: u64) -> redis::RedisResult<()> {
    let mut command = cmd("XADD");
    command.arg(stream).arg(format!("1-{number}")).arg("jpg").arg(pixels(number));
    let added = command.arg("cls").arg(number % 10).query::<Value>(connection);
    match added {
        Err(error) if error.to_string().contains("equal or smaller") => Ok(()),
        other => other.map(drop),
    }
}
