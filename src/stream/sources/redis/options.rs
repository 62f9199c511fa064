//! The settings of a Redis stream, and their checks.

use crate::share::RankShare;
use base::error::{Error, Result};
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};
use std::time::Duration;

const SETTING: &str = "source";

/// A stream in Redis, and how it is read.
#[derive(Clone)]
pub struct RedisOptions {
    /// The server: `redis://host:6379/0`, `rediss://` for TLS, `unix:///path`. The URL may contain user and password.
    pub url: String,
    /// The key of the stream in the server.
    pub stream: String,
    /// The stream's name in samples and saved states. Without it, the name is the key. If a loader reads streams with
    /// the same key from two servers, they need different names.
    pub name: Option<String>,
    /// The consumer group that shares the stream. Without a group the whole stream is read.
    pub group: Option<String>,
    /// The name of this reader in the group. It must be unique and the same after a restart; by default `rank-0` and so
    /// on.
    pub consumer: Option<String>,
    /// Where to begin without a state: `first`, `new`, or the id after which to begin.
    pub start: String,
    /// The user. Overrides the user in the URL.
    pub username: Option<String>,
    /// The password. Overrides the password in the URL. It is never shown.
    pub password: Option<String>,
    /// The maximum number of bytes of an entry's values. A longer entry fails, but only after the whole response is in
    /// memory.
    pub max_bytes: usize,
    /// Whether entries are removed from the server after a checkpoint no longer needs them.
    pub trim: bool,
    /// How long another consumer of the group must be silent before its entries are taken over.
    pub claim_after: Duration,
    /// This rank's share of the stream, if no group divides it.
    pub share: RankShare,
}

impl RedisOptions {
    /// Options to read all of a stream from its first entry.
    pub fn new(url: impl Into<String>, stream: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            stream: stream.into(),
            name: None,
            group: None,
            consumer: None,
            start: "first".to_owned(),
            username: None,
            password: None,
            max_bytes: 64 << 20,
            trim: false,
            claim_after: Duration::from_secs(60),
            share: RankShare::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.stream)
    }

    pub(super) fn consumer(&self) -> String {
        self.consumer.clone().unwrap_or_else(|| format!("rank-{}", self.share.rank))
    }

    /// Checks all settings. Returns the client, and the server's address without secrets.
    ///
    /// # Errors
    /// [`Error::Config`] for `source`.
    pub(super) fn check(&self) -> Result<(Client, String)> {
        let refused = |what: String| Err(Error::config(SETTING, format!("Redis: {what}")));
        if self.stream.is_empty() || self.name().is_empty() {
            return refused("stream: is empty, must be the key of a stream".to_owned());
        }
        if self.max_bytes == 0 {
            return refused("max_bytes: is 0, must be at least 1".to_owned());
        }
        if let Err(what) = self.share.check() {
            return refused(what);
        }
        if self.trim && (self.group.is_some() || self.share.world_size > 1) {
            return refused(
                "trim: other readers of the stream would lose entries; remove it, and let the server or the \
                 producers trim the stream"
                    .to_owned(),
            );
        }
        if self.group.as_deref() == Some("") || self.consumer.as_deref() == Some("") {
            return refused("group and consumer: must be names or None, not empty".to_owned());
        }
        if self.consumer.is_some() && self.group.is_none() {
            return refused("consumer: only applies with group=: set group=, or remove consumer=".to_owned());
        }
        // Signs of life would come too late for a shorter time.
        if self.claim_after < Duration::from_millis(500) {
            return refused("claim_after: must be at least 0.5 seconds".to_owned());
        }
        if !matches!(self.start.as_str(), "first" | "new")
            && super::replies::EntryId::parse(&self.start).is_none()
        {
            return refused(format!(
                "start: is {:?}, must be \"first\", \"new\" or an entry's id such as \"1700000000000-0\"",
                self.start
            ));
        }
        // The parser's own message about a URL is not shown, because it may contain a password.
        let Ok(info) = self.url.as_str().into_connection_info() else {
            return refused(
                "url: is not a server's address, must be like redis://host:6379/0, rediss://host:6379 or unix:///path; \
                 in a password, characters such as @ and / are written %40 and %2F"
                    .to_owned(),
            );
        };
        let info = self.with_credentials(info);
        match info.addr() {
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                return refused(
                    "url: #insecure is not supported; set SSL_CERT_FILE to the PEM file of the certificate to trust"
                        .to_owned(),
                );
            }
            ConnectionAddr::TcpTls { .. } => data::http::install_default_provider(),
            _ => {}
        }
        let place = info.addr().to_string();
        let Ok(client) = Client::open(info) else {
            return refused("url: cannot be used".to_owned());
        };
        Ok((client, place))
    }

    fn with_credentials(&self, info: ConnectionInfo) -> ConnectionInfo {
        let mut redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2);
        if let Some(username) = &self.username {
            redis = redis.set_username(username);
        }
        if let Some(password) = &self.password {
            redis = redis.set_password(password);
        }
        info.set_redis_settings(redis)
    }
}

impl std::fmt::Debug for RedisOptions {
    /// Shows everything except the URL and the credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisOptions")
            .field("stream", &self.stream)
            .field("name", &self.name)
            .field("group", &self.group)
            .field("consumer", &self.consumer)
            .field("start", &self.start)
            .field("max_bytes", &self.max_bytes)
            .field("trim", &self.trim)
            .field("claim_after", &self.claim_after)
            .field("share", &self.share)
            .finish_non_exhaustive()
    }
}
