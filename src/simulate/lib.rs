//! Simulates the cost of a training job, for the plans of [`store::tier`] and for other policies. Pure except for
//! reading files.
//!
//! It uses the performance model of NoPFS: Dryden, Böhringer, Ben-Nun and Hoefler, "Clairvoyant Prefetching for
//! Distributed Machine Learning I/O" (SC'21).
//!
//! 1. A [`Scenario`] describes the training and the machine. [`access`] determines which node uses which sample when.
//! 2. A [`Policy`] decides what each node's caches hold ([`cache`], [`shared`], [`next_use`], [`owner`]), and counts
//!    the bytes of each step by source ([`traffic`]).
//! 3. The [`clock`] converts these bytes to seconds, and [`outcome`] reports bytes and seconds by tier, node and epoch.
//!
//! [`predict`] predicts the cost of one job on one kind of machine, from measured rates.

#![warn(missing_docs, unreachable_pub)]

pub mod access;
pub mod cache;
pub mod clock;
pub mod counts;
mod next_use;
mod nodes;
mod outcome;
mod owner;
mod policy;
pub mod predict;
pub mod scenario;
pub mod shared;
mod simulation;
pub mod traffic;

pub use outcome::PolicyOutcome;
pub use policy::Policy;
pub use scenario::{Bytes, Scenario};
pub use simulation::Simulation;
