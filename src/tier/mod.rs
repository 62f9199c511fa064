//! Tiers: the places a sample's bytes can come from, and what is kept on the fast one because the schedule says so.
//!
//! A *plan* (pure) says where each sample of the look-ahead window comes from and what to admit, stage ahead and
//! evict; the *store* is the tier on NVMe; a [`crate::io::Reader`] over both carries the plan out beneath the pipeline.

pub mod plan;
mod rates;
pub mod store;

pub use rates::{Machine, TierRates};
