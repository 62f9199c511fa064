//! The sources of a stream as Python specifies them in JSON.

use crate::{FolderAfter, FolderOptions, FolderSource, RankShare, StreamSource, WatchChoice};
#[cfg(feature = "redis")]
use crate::{RedisOptions, RedisSource};
#[cfg(feature = "zeromq")]
use crate::{ZeroMqKind, ZeroMqOptions, ZeroMqSource};
use base::error::{Error, Result};
use base::names::NamedValue;
use base::notices::Notices;
use base::units::parse_duration;
use serde::Deserialize;
use std::path::PathBuf;

/// A source as Python specifies it.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum SourceSpec {
    Folder(FolderSpec),
    Redis(RedisSpec),
    ZeroMq(ZeroMqSpec),
    /// A Python iterator. The caller of [`SourceSpec::open`] owns the iterator.
    Iterator {
        name: String,
    },
}

/// A directory to which files are added, as Python specifies it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FolderSpec {
    path: PathBuf,
    name: String,
    members: Option<Vec<String>>,
    done: Option<String>,
    classes: Option<Vec<String>>,
    after: String,
    move_to: Option<PathBuf>,
    watch: String,
    poll: String,
}

/// A Redis stream as Python specifies it. It may contain a password, so it has no `Debug`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "it is read, and then refused"))]
pub struct RedisSpec {
    url: String,
    stream: String,
    name: String,
    group: Option<String>,
    consumer: Option<String>,
    start: String,
    username: Option<String>,
    password: Option<String>,
    trim: bool,
    claim_after: String,
}

impl SourceSpec {
    /// Parses the JSON that Python passes.
    ///
    /// # Errors
    /// [`Error::Config`] if the JSON cannot be parsed.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| Error::config("source", error.to_string()))
    }

    /// Opens the source, for samples of up to `max_bytes`. `iterator` creates the source for [`SourceSpec::Iterator`].
    ///
    /// # Errors
    /// [`Error::Config`], which names the setting.
    pub fn open(
        self,
        max_bytes: u32,
        share: RankShare,
        notices: &Notices,
        iterator: impl FnOnce(String) -> Result<Box<dyn StreamSource>>,
    ) -> Result<Box<dyn StreamSource>> {
        match self {
            Self::Folder(spec) => spec.open(max_bytes, share, notices),
            Self::Redis(spec) => spec.open(max_bytes, share, notices),
            Self::ZeroMq(spec) => spec.open(max_bytes, share, notices),
            Self::Iterator { name } => iterator(name),
        }
    }
}

impl FolderSpec {
    fn open(self, max_bytes: u32, share: RankShare, notices: &Notices) -> Result<Box<dyn StreamSource>> {
        let after = match (self.after.as_str(), self.move_to) {
            ("keep", None) => FolderAfter::Keep,
            ("delete", None) => FolderAfter::Delete,
            ("move", Some(to)) => FolderAfter::Move(to),
            (other, to) => {
                let message = format!(
                    "after={other:?} does not fit move_to={to:?}: use after=\"keep\" or \"delete\" without \
                     move_to, or after=\"move\" with it"
                );
                return Err(Error::config("Folder", message));
            }
        };
        let root =
            std::path::absolute(&self.path).map_err(|error| Error::io("resolve", &self.path, error))?;
        let options = FolderOptions {
            root,
            name: self.name,
            members: self.members,
            done: self.done,
            classes: self.classes,
            after,
            watch: WatchChoice::parse("watch", &self.watch)?,
            poll: parse_duration("poll", &self.poll)?,
            max_bytes: max_bytes.into(),
            share,
        };
        Ok(Box::new(FolderSource::new(options, notices.clone())?))
    }
}

/// A ZeroMQ socket as Python specifies it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(feature = "zeromq"), expect(dead_code, reason = "it is read, and then refused"))]
pub struct ZeroMqSpec {
    name: String,
    socket: String,
    endpoints: Vec<String>,
    bind: bool,
    topics: Vec<String>,
}

#[cfg(feature = "zeromq")]
impl ZeroMqSpec {
    fn open(self, max_bytes: u32, share: RankShare, notices: &Notices) -> Result<Box<dyn StreamSource>> {
        let kind = match self.socket.as_str() {
            "pull" => ZeroMqKind::Pull,
            "sub" => ZeroMqKind::Sub,
            other => {
                let message = format!("ZeroMQ: socket is {other:?}, must be \"pull\" or \"sub\"");
                return Err(Error::config("source", message));
            }
        };
        let options = ZeroMqOptions {
            endpoints: self.endpoints,
            bind: self.bind,
            topics: self.topics,
            max_bytes: max_bytes as usize,
            share,
            ..ZeroMqOptions::new(kind, "", self.name)
        };
        Ok(Box::new(ZeroMqSource::new(options, notices.clone())?))
    }
}

#[cfg(feature = "redis")]
impl RedisSpec {
    fn open(self, max_bytes: u32, share: RankShare, notices: &Notices) -> Result<Box<dyn StreamSource>> {
        let options = RedisOptions {
            name: Some(self.name),
            group: self.group,
            consumer: self.consumer,
            start: self.start,
            username: self.username,
            password: self.password,
            trim: self.trim,
            claim_after: parse_duration("claim_after", &self.claim_after)?,
            max_bytes: max_bytes as usize,
            share,
            ..RedisOptions::new(self.url, self.stream)
        };
        Ok(Box::new(RedisSource::new(options, notices.clone())?))
    }
}

#[cfg(not(feature = "zeromq"))]
impl ZeroMqSpec {
    fn open(self, _: u32, _: RankShare, _: &Notices) -> Result<Box<dyn StreamSource>> {
        Err(Error::left_out("streams of ZeroMQ", "zeromq"))
    }
}

#[cfg(not(feature = "redis"))]
impl RedisSpec {
    fn open(self, _: u32, _: RankShare, _: &Notices) -> Result<Box<dyn StreamSource>> {
        Err(Error::left_out("streams of Redis", "redis"))
    }
}
