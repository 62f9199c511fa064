//! `range-server DIR [OPTIONS]`: serves DIR, with the faults of its options.
//!
//! Prints its address when it listens, stops when its standard input ends, and prints the counters as JSON; with
//! `--stay` it runs until it is killed. To restrict it to one core, start it with `taskset`.

use range_server::{
    Access, CertificateKind, EtagKind, Identity, IndexStyle, Options, RangeServer, TlsVersions,
};
use std::error::Error;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

const USAGE: &str = "usage: range-server DIR
  --address 127.0.0.1 --port 0   where it listens
  --fault [PATH ]KIND:WHEN[:ARG] a way of failing, such as cut:0.05:1000; may be repeated
  --seed 0                       for what is drawn
  --etag strong|weak|off         which ETag objects have
  --no-last-modified             objects have no Last-Modified
  --index python|nginx|apache|off  how directories are listed
  --authorization VALUE          what every request must have as Authorization, such as 'Bearer token'
  --query NAME=VALUE             what every request must have in its query
  --tls DIR                      speak TLS; write ca.pem, server.pem and key.pem there
  --certificate sound|self-signed|expired|other-host
  --tls-version 1.2|1.3          speak no other
  --stay                         do not stop when standard input ends";

fn main() {
    if let Err(error) = run() {
        eprintln!("range-server: {error}");
        std::process::exit(2);
    }
}

fn run() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let mut options = Options::default();
    let (mut address, mut port) = (IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    let (mut root, mut tls, mut stay) = (None, None, false);
    let (mut certificate, mut versions) = (CertificateKind::Sound, TlsVersions::Both);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} wants a value\n{USAGE}"));
        match argument.as_str() {
            "--address" => address = value()?.parse()?,
            "--port" => port = value()?.parse()?,
            "--fault" => options.faults.push(value()?.parse()?),
            "--seed" => options.seed = value()?.parse()?,
            "--etag" => {
                options.etag = match value()?.as_str() {
                    "strong" => EtagKind::Strong,
                    "weak" => EtagKind::Weak,
                    "off" => EtagKind::Off,
                    other => return Err(format!("--etag {other}: give strong, weak or off").into()),
                }
            }
            "--no-last-modified" => options.last_modified = false,
            "--index" => {
                options.index = match value()?.as_str() {
                    "python" => IndexStyle::Python,
                    "nginx" => IndexStyle::Nginx,
                    "apache" => IndexStyle::Apache,
                    "off" => IndexStyle::Off,
                    other => return Err(format!("--index {other}: give python, nginx, apache or off").into()),
                }
            }
            "--authorization" => options.access = Some(Access::Header(value()?)),
            "--query" => options.access = Some(Access::Query(value()?)),
            "--tls" => tls = Some(PathBuf::from(value()?)),
            "--certificate" => certificate = value()?.parse()?,
            "--tls-version" => {
                versions = match value()?.as_str() {
                    "1.2" => TlsVersions::Only12,
                    "1.3" => TlsVersions::Only13,
                    other => return Err(format!("--tls-version {other}: give 1.2 or 1.3").into()),
                }
            }
            "--stay" => stay = true,
            other if other.starts_with("--") || root.is_some() => {
                return Err(format!("{other}: not known\n{USAGE}").into());
            }
            other => root = Some(other.to_owned()),
        }
    }
    let root = root.ok_or(USAGE)?;
    options.address = SocketAddr::new(address, port);
    if let Some(directory) = tls {
        let mut identity = Identity::new(certificate)?;
        identity.versions = versions;
        identity.write(&directory)?;
        options.tls = Some(identity);
    }
    let server = RangeServer::start(Path::new(&root), options)?;
    println!("{}", server.url());
    std::io::stdout().flush()?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    if stay {
        loop {
            std::thread::park();
        }
    }
    println!("{}", serde_json::to_string_pretty(&server.stats())?);
    Ok(())
}
