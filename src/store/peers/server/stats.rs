//! Statistics of a server.

use base::counting::counters;

counters! {
    /// Counters since the server was started, and a gauge.
    ServerStats,
    /// The atomic counters.
    pub(in crate::peers) ServerCounters:
    /// The number of connections that were accepted.
    connections,
    /// The number of connections that were closed at once, because there were too many.
    dropped_connections,
    /// The number of times that a connection could not be accepted, usually for lack of file descriptors.
    accept_errors,
    /// The number of connections that were closed because they exceeded a time limit.
    slow_connections,
    /// The number of requests without the token.
    strangers,
    /// The number of samples that were served, whole or in part.
    served,
    /// The bytes of the samples that were served.
    served_bytes,
    /// The number of requests for a sample that is not kept.
    absent,
    /// The number of requests for a sample whose copy is not of the version that the sample's file has now.
    stale,
    /// The number of requests without a version, for a sample whose current version is not known.
    unconfirmed,
    /// The number of requests for another dataset, or for another launch of the job.
    other_datasets,
    /// The number of requests that were refused because the server was busy.
    busy,
    /// The number of copies that could not be read, or had a wrong checksum.
    unreadable,
    /// The number of requests that are invalid, or ask for something that does not exist.
    malformed,
    /// The number of pushed samples that were taken.
    pushes_taken,
    /// The bytes of the pushed samples that were taken.
    pushed_bytes,
    /// The number of pushed samples that were refused because they were kept already, there was no space, or the server
    /// was busy.
    pushes_refused,
    /// The number of pushed samples whose length or checksum was wrong.
    pushes_damaged,
    /// Gauge: the number of connections that are open.
    open_connections,
}
