//! Tiers: the places a sample's bytes can come from, and what is kept on the fast ones because the schedule says so.
//!
//! A [`Cache`] has a list of tiers that keep copies, from the fastest to the slowest ([`copies`] says what they have in
//! common): memory ([`ram`]), directories on local drives ([`store`]), the caches of the job's other nodes ([`peers`]).
//! Below them all is the source. A [`plan`] for each tier (pure) says what to admit and what to evict, [`placement`] on
//! which node a sample is at home, [`fill`] how the tiers are filled, and [`convert`] which form copies have. The
//! cache's reader works over all tiers and carries the plans out beneath the pipeline.

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
mod side_thread;
mod stage;
mod stats;
pub mod store;

pub use cache::{Cache, OpenSource, SourceUse};
pub use cache::{CacheOptions, NoForms, TierOptions};
pub use convert::FormChoice;
pub use convert::{ThrottledPeriods, form_of_record, most_bytes};
pub use fill::Fill;
pub use fill::FillChoice;
pub use peers::{PeersOptions, RankMeeting, RanksMet};
pub use peers::{RankPlace, SharedJob, gather, node_names};
pub use rates::Machine;
pub use rates::TierRates;
pub use stats::{CacheStats, TierStats};
pub use store::Verify;

pub use base::tier_name::TierName;
