//! Tiers: the places a sample's bytes can come from, and what is kept on the fast one because the schedule says so.
//!
//! A [`plan`] (pure) says what to admit and evict, [`fill`] how to fill; the [`store`] is the tier on NVMe; a [`Cache`]
//! is both, with the thread that stages ahead; its reader, over both tiers, carries the plan out beneath the pipeline.

mod cache;
pub mod fill;
mod look;
pub mod measure;
pub mod plan;
mod rates;
mod read_blocking;
mod reader;
mod stage;
mod stats;
pub mod store;
mod way;

pub use cache::{Cache, CacheOptions, OpenSource};
pub use fill::{Fill, FillChoice};
pub use rates::{Machine, TierRates};
pub use reader::TieredReader;
pub use stats::TierStats;
pub use store::Verify;
