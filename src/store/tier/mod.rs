//! Tiers: the places that a sample's bytes can come from. Fast tiers keep copies of samples. The order of the epochs is
//! known in advance, and decides which samples they keep.
//!
//! ```text
//! reader ─┬─ memory has a copy of the file's version? ────► copied ────────────────────┐
//!         ├─ a directory has one? ─► io_uring on segments ─────────────────────────────┼─► checksum ─► slot
//!         ├─ another node owns the sample? ─► request to that node ────────────────────┘
//!         └─ otherwise ─► the source's reader, on its own thread ─► slot ─► offered to the tiers
//! stager (its own thread) ─► the source, in large chunks, in the order of next use ─► offered to the tiers
//! ```
//!
//! A [`Cache`] has a list of tiers that keep copies, from the fastest to the slowest: memory ([`ram`]), directories on
//! local drives ([`store`]), and the caches of the job's other nodes ([`peers`]). [`copies`] defines their common
//! interface. Below them is the source. The cache's reader works over all tiers and applies the plans; the pipeline
//! only sees a reader.
//!
//! - A [`plan`] for each tier (pure) decides which samples it admits and evicts.
//! - [`placement`] (pure) computes the owner node of each sample.
//! - [`fill`] chooses whether samples are kept as they are read, or staged ahead.
//! - [`convert`] converts copies to other storage formats.
//!
//! Training never depends on the tiers. A sample that a tier cannot give in time is read from the source, and a sample
//! that cannot be written in time is not kept. Both are counted. Only threads that decompress blocks wait for the
//! store, briefly. → `tests/load/tiers.rs`

mod cache;
mod catalog;
mod convert;
pub mod copies;
mod counters;
mod directory;
pub mod fill;
pub mod measure;
mod peers;
pub mod placement;
pub mod plan;
mod ram;
mod rates;
mod read_blocking;
mod reader;
mod revalidate;
mod route;
mod stage;
mod stats;
pub mod store;

pub use cache::{Cache, CacheOptions, NoForms, OpenSource, SourceUse, TierOptions};
pub use convert::{FormChoice, ThrottledPeriods, form_of_record, most_bytes};
pub use fill::{Fill, FillChoice};
pub use peers::{PeersOptions, RankMeeting, RankPlace, RanksMet, SharedJob, gather, node_names};
pub use rates::{Machine, TierRates};
pub use stats::{CacheStats, TierStats};
pub use store::Verify;

pub use base::tier_name::TierName;

/// The maximum wait for a thread of the cache to end: a little longer than dropping a reader takes.
const END_LIMIT: std::time::Duration = std::time::Duration::from_secs(1);
