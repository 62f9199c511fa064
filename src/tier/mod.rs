//! Tiers: the places a sample's bytes can come from, and what is kept on the fast one because the schedule says so.
//!
//! A [`plan`] (pure) says what to admit and what to evict, [`fill`] how the fast tier is filled, and the [`store`] is
//! the tier on NVMe. A [`Cache`] owns all three and the thread that stages ahead; its reader works over both tiers and
//! carries the plan out beneath the pipeline.

mod cache;
pub(crate) mod fill;
pub(crate) mod measure;
pub(crate) mod placement;
pub(crate) mod plan;
mod rates;
mod read_blocking;
mod reader;
mod revalidate;
mod route;
mod stage;
mod stats;
pub(crate) mod store;

pub use cache::CacheOptions;
pub(crate) use cache::{Cache, OpenSource};
pub(crate) use fill::Fill;
pub use fill::FillChoice;
pub use rates::Machine;
pub(crate) use rates::TierRates;
pub use stats::TierStats;
pub use store::Verify;
