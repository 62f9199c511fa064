//! A socket that other processes feed samples into, and the end that feeds.
//!
//! A feeder numbers its samples and keeps each until it is *received*: until the receiver has handed it on. Where it
//! is to keep them longer, until they are *acknowledged*, which means that a checkpoint has them behind it, a receiver
//! that was killed gets them again, and passes over those that its state lists. Without that, what a killed receiver
//! had received is gone, and a feeder needs memory for a moment's samples alone.
//!
//! How much may be under way is the receiver's to say, for each feeder; a feeder that has no more room lets its caller
//! wait. A connection that breaks is made again by the feeder, which sends again what did not arrive. Frames are
//! described in [`wire`].

mod address;
mod connections;
mod feeder;
mod receiving;
mod wire;

pub use address::SocketAddress;
pub use feeder::{FeederOptions, SocketFeeder};

use crate::error::{Error, Result};
use crate::http::{RuntimeThread, TlsIdentity, Token};
use crate::notices::{NoticeKind, Notices};
use crate::stream::record::Record;
use crate::stream::source::{Arrival, Received, Replay, SourcePosition, StreamSource};
use address::{ListeningSocket, SETTING, SocketFile, acceptor};
use receiving::Receiving;
use std::sync::Arc;
use std::time::Duration;

/// A socket that is listened on.
#[derive(Debug)]
pub struct SocketOptions {
    /// Where to listen.
    pub address: SocketAddress,
    /// The name of the stream, which is part of every sample's identity.
    pub name: String,
    /// What a feeder must know. A TCP address needs one; the file of a Unix socket is its owner's alone anyway.
    pub token: Option<Token>,
    /// With it TCP connections are encrypted.
    pub tls: Option<TlsIdentity>,
    /// The most bytes of a sample. A longer one is passed over and fails.
    pub max_bytes: usize,
    /// The bytes of each feeder's samples that may wait here.
    pub window: usize,
    /// The most connections at a time. One more is closed at once.
    pub connections: usize,
    /// Whether feeders keep samples until a checkpoint no longer needs them. They need memory for what comes in
    /// between two checkpoints.
    pub keeps: bool,
    /// After how long a feeder that went away without a word is taken for dead, with what it kept.
    pub forget_after: Duration,
}

impl SocketOptions {
    /// To listen at an address for samples of up to 64 MiB, 64 MiB of them waiting, from up to 256 feeders, which keep
    /// samples until they are received.
    pub fn new(address: SocketAddress, name: impl Into<String>) -> Self {
        Self {
            address,
            name: name.into(),
            token: None,
            tls: None,
            max_bytes: 64 << 20,
            window: 64 << 20,
            connections: 256,
            keeps: false,
            forget_after: Duration::from_secs(600),
        }
    }

    fn check(&self) -> Result<()> {
        let refused = |what: &str| Err(Error::config(SETTING, format!("Socket: {what}")));
        let tcp = matches!(self.address, SocketAddress::Tcp(_));
        if self.name.is_empty() {
            return refused("name: is empty, must be the name of the stream");
        }
        if self.max_bytes == 0 || self.window == 0 || self.connections == 0 {
            return refused("max_bytes, window and connections must be at least 1");
        }
        if tcp && self.token.is_none() {
            return refused(
                "token: is None, and an address of TCP is open to whoever reaches it; give a token, which \
                 `openssl rand -hex 32` prints, to this end and to those who feed",
            );
        }
        if !tcp && self.tls.is_some() {
            return refused("tls: is for an address of TCP; a Unix socket does not leave the machine");
        }
        Ok(())
    }
}

/// A socket as a source of samples. Others connect to it from when it is opened until it is dropped.
pub struct SocketSource {
    options: SocketOptions,
    notices: Notices,
    what: String,
    receiving: Arc<Receiving>,
    /// The thread that speaks to feeders, and the socket's file.
    listening: Option<(RuntimeThread, Option<SocketFile>)>,
}

impl SocketSource {
    /// A source that listens once it is opened.
    ///
    /// # Errors
    /// [`Error::Config`] for `source` where a setting cannot work.
    pub fn new(options: SocketOptions, notices: Notices) -> Result<Self> {
        options.check()?;
        let receiving = Arc::new(Receiving::new(&options, notices.clone()));
        let what = describe(&options, &options.address);
        Ok(Self { options, notices, what, receiving, listening: None })
    }
}

fn describe(options: &SocketOptions, address: &SocketAddress) -> String {
    let tls = if options.tls.is_some() { " with TLS" } else { "" };
    format!("stream {:?} fed at {address}{tls}", options.name)
}

impl StreamSource for SocketSource {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn replay(&self) -> Replay {
        if self.options.keeps { Replay::Listed } else { Replay::Never }
    }

    fn open(&mut self, position: &SourcePosition) -> Result<()> {
        let tls = acceptor(self.options.tls.as_ref())?;
        let socket = ListeningSocket::bind(&self.options.address)?;
        self.what = describe(&self.options, &socket.address);
        self.receiving.go_on_at(position);
        let mut file = None;
        let begin = || {
            let (listener, socket) = socket.into_async(tls)?;
            file = socket;
            Ok(connections::listen(listener, self.receiving.clone(), self.options.connections))
        };
        let died = {
            let receiving = self.receiving.clone();
            move || receiving.die()
        };
        let thread = RuntimeThread::start("foreload-socket", begin, died)?;
        self.listening = Some((thread, file));
        self.notices.notify(NoticeKind::Information, format!("{}: listening", self.what));
        Ok(())
    }

    fn receive(&mut self, most: usize, patience: Duration, into: &mut Vec<Arrival>) -> Result<Received> {
        self.receiving.receive(most, patience, into)?;
        Ok(Received::More)
    }

    fn acknowledge(&mut self, position: &SourcePosition) -> Result<bool> {
        if !self.options.keeps {
            return Ok(true);
        }
        Ok(self.receiving.acknowledge(position))
    }

    fn fetch(&mut self, key: &str) -> Result<Record> {
        Err(Error::Unavailable(format!(
            "{}: sample {key:?} cannot be got again: a socket keeps nothing; replay a journal with a source that does, \
             such as a folder or Redis",
            self.what
        )))
    }

    fn describe(&self) -> String {
        self.what.clone()
    }
}
