//! Samples between two processes, as between two nodes: the processor time of both ends together, samples per second,
//! and the used share of a link. Prints a line for each way to serve.
//!
//! `cargo bench --bench peers -- [--reads N] [--depth N] [--bytes N] [--tls]`. With `--link 1gbit` the server runs in
//! its own network namespace, over a link that is shaped to that rate; this needs the right to make namespaces.

mod link;
mod serve;

use clap::{Parser, ValueEnum};
use foreload::testing::io::Waker;
use foreload::testing::peers::{
    CertificatePin, HttpOptions, HttpTransfer, Miss, Peer, PeerAnswer, PeerRead, Token,
};
use foreload::testing::rng::{RandomKey, Use};
use foreload::testing::slot::SlotPool;
use foreload::{Notices, Result};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;
use std::time::Instant;

/// The number of samples.
const SAMPLES: u64 = 1024;

#[derive(Parser)]
struct Arguments {
    /// Measured reads; half as many come before, unmeasured
    #[arg(long, default_value_t = 20_000)]
    reads: u64,
    /// Reads in flight
    #[arg(long, default_value_t = 32)]
    depth: usize,
    /// Bytes of a sample
    #[arg(long, default_value_t = 110_000)]
    bytes: u32,
    /// Connections
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Encrypt
    #[arg(long)]
    tls: bool,
    /// Shape the link to this rate, as `tc` writes it
    #[arg(long)]
    link: Option<String>,
    /// Serve, as a process of its own
    #[arg(long, hide = true, value_enum)]
    serve: Option<From>,
    /// Where to serve
    #[arg(long, hide = true, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// What `cargo bench` adds
    #[arg(long, hide = true)]
    bench: bool,
}

/// Where the server stores the samples.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum From {
    /// In memory
    Memory,
    /// In a file that is in the page cache
    File,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(from) = arguments.serve {
        return serve::serve(&arguments, from);
    }
    let link = arguments.link.as_deref().map(link::ShapedLink::new);
    for from in [From::Memory, From::File] {
        measure(&arguments, from, link.as_ref())?;
    }
    Ok(())
}

/// The processor time of this process so far, in microseconds.
fn processor_time() -> u64 {
    // SAFETY: a struct of integers, for which zeros are valid; the call only writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    [usage.ru_utime, usage.ru_stime]
        .iter()
        .map(|time| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64)
        .sum()
}

/// The server's process.
struct ServerProcess {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl ServerProcess {
    fn start(arguments: &Arguments, from: From, link: Option<&link::ShapedLink>) -> Self {
        let mut command = link::command(link);
        command.arg("--serve").arg(format!("{from:?}").to_lowercase());
        command.args(["--bytes", &arguments.bytes.to_string()]);
        if arguments.tls {
            command.arg("--tls");
        }
        if let Some(link) = link {
            command.arg("--listen").arg(link.server_address());
        }
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this program once more");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, answers }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the server's answer");
        line.trim().to_owned()
    }

    fn processor_time(&mut self) -> u64 {
        self.process.stdin.as_mut().expect("a pipe").write_all(b"\n").expect("the server lives");
        self.line().parse().expect("microseconds")
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

fn measure(arguments: &Arguments, from: From, link: Option<&link::ShapedLink>) -> Result<()> {
    let mut server = ServerProcess::start(arguments, from, link);
    let (address, token, pin) = (server.line(), server.line(), server.line());
    let pin = (!pin.is_empty()).then(|| {
        let byte = |at: usize| u8::from_str_radix(&pin[2 * at..2 * at + 2], 16).expect("hexadecimal digits");
        CertificatePin(std::array::from_fn(byte))
    });
    let peer = Peer { address: address.parse().expect("an address"), pin };
    let notices = Notices::default();
    let options = HttpOptions {
        connections: arguments.connections,
        notices: notices.clone(),
        ..HttpOptions::new(serve::dataset(), Token::new(&token)?)
    };
    let mut transfer = HttpTransfer::new(&[peer], &options, Waker(Arc::new(|| {})))?;
    let mut reader = Reading {
        slots: SlotPool::new(2 * arguments.depth * (arguments.bytes as usize + 8192))?,
        order: RandomKey::new(b"peers", 0, 0, Use::Order),
        missed: Vec::new(),
        asked: 0,
    };
    reader.read(&mut transfer, arguments, arguments.reads / 2)?;
    let (served_before, read_before, begin) = (server.processor_time(), processor_time(), Instant::now());
    reader.read(&mut transfer, arguments, arguments.reads)?;
    let seconds = begin.elapsed().as_secs_f64();
    let each = |time: u64| time as f64 / arguments.reads as f64;
    let (client, served) =
        (each(processor_time() - read_before), each(server.processor_time() - served_before));
    let rate = arguments.reads as f64 / seconds;
    let stats = &transfer.stats()[0];
    print!(
        "peers from={} bytes={} depth={} connections={} samples/s={rate:.0} MB/s={:.1} cpu_us={:.1} \
         (client {client:.1} server {served:.1}) p50_ms={:.2} p99_ms={:.2} missed={}",
        format!("{from:?}").to_lowercase(),
        arguments.bytes,
        arguments.depth,
        stats.counts.connections,
        rate * f64::from(arguments.bytes) / 1e6,
        client + served,
        1e3 * stats.latency.quantile(0.5),
        1e3 * stats.latency.quantile(0.99),
        reader.missed.len(),
    );
    match link {
        Some(link) => println!(
            " link={} share={:.3}",
            link.rate(),
            rate * f64::from(arguments.bytes) / link.bytes_a_second()
        ),
        None => println!(),
    }
    notices.take().iter().for_each(|notice| eprintln!("{notice}"));
    Ok(())
}

struct Reading {
    slots: SlotPool,
    order: RandomKey,
    missed: Vec<Miss>,
    asked: u64,
}

impl Reading {
    /// Reads this many samples in random order, and discards the bytes.
    fn read(&mut self, transfer: &mut HttpTransfer, arguments: &Arguments, reads: u64) -> Result<()> {
        let (end, mut answers) = (self.asked + reads, Vec::<PeerAnswer>::new());
        while self.asked < end || transfer.in_flight() > 0 {
            while self.asked < end && transfer.in_flight() < arguments.depth {
                let Some(slot) = self.slots.try_take(arguments.bytes as usize) else { break };
                let sample = self.order.stream(self.asked).below(SAMPLES);
                transfer.post(PeerRead {
                    token: self.asked,
                    peer: 0,
                    sample,
                    length: arguments.bytes,
                    most: arguments.bytes,
                    version: None,
                    slot,
                });
                self.asked += 1;
            }
            transfer.wait_until(None, &mut answers)?;
            self.missed.extend(answers.drain(..).filter_map(|answer| answer.result.err()));
        }
        Ok(())
    }
}
