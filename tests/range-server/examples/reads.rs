//! `reads HOST:PORT PATH [CONNECTIONS] [SECONDS] [BYTES]`: how many ranges per second one thread gets, and their CPU
//! time.
//!
//! The client is as simple as possible: in turn, it writes a request to each connection, then reads each response.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, path, rest @ ..] = &arguments[..] else {
        return Err("usage: reads HOST:PORT PATH [CONNECTIONS] [SECONDS] [BYTES]".into());
    };
    let number = |at: usize, default: u64| rest.get(at).map_or(Ok(default), |text| text.parse::<u64>());
    let (connections, seconds, length) = (number(0, 16)?, number(1, 5)?, number(2, 110_000)?);
    let mut sockets = Vec::new();
    for _ in 0..connections {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        sockets.push(socket);
    }
    let mut probe = &sockets[0];
    write!(probe, "HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut head = [0; 4096];
    let count = probe.read(&mut head)?;
    let text = String::from_utf8_lossy(&head[..count]).to_lowercase();
    let size = text.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next());
    let size: u64 = size.ok_or("no length")?.parse()?;
    if size < length {
        return Err(format!("{path} has {size} bytes").into());
    }
    let mut buffer = vec![0; length as usize + 4096];
    let (started, mut reads, mut drawn) = (Instant::now(), 0u64, 1u64);
    while started.elapsed() < Duration::from_secs(seconds) {
        for mut socket in &sockets {
            drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let first = (drawn >> 11) % (size - length + 1);
            let last = first + length - 1;
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nRange: bytes={first}-{last}\r\n\r\n");
            socket.write_all(request.as_bytes())?;
        }
        for mut socket in &sockets {
            let (mut got, mut wanted) = (0, usize::MAX);
            while got < wanted {
                got += match socket.read(&mut buffer[got..])? {
                    0 => return Err("cut".into()),
                    count => count,
                };
                if wanted == usize::MAX
                    && let Some(at) = buffer[..got].windows(4).position(|bytes| bytes == b"\r\n\r\n")
                {
                    wanted = at + 4 + length as usize;
                }
            }
            reads += 1;
        }
    }
    let took = started.elapsed().as_secs_f64();
    let cpu = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = cpu.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    // User and system time, in hundredths of a second.
    let cpu = (fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) * 1e4;
    println!("{:.0} reads/s, {:.1} us of this client's CPU each", reads as f64 / took, cpu / reads as f64);
    Ok(())
}
