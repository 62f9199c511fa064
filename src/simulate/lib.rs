//! What a job would cost: the performance model of Dryden, Böhringer, Ben-Nun and Hoefler, "Clairvoyant Prefetching for
//! Distributed Machine Learning I/O" (SC'21), over the plans of [`store::tier`]. All of it is pure but for reading a
//! scenario's file.
//!
//! A [`Scenario`] says what is trained on which machine, and [`access`] which node uses which sample when; a [`Policy`]
//! decides what each node's caches hold ([`cache`], [`shared`], [`next_use`], [`owner`]) and writes down what comes
//! from where in each step ([`ledger`]); the [`clock`] makes seconds of that, and an [`outcome`] says both by tier,
//! node and epoch. [`predict`] answers for one job on one kind of machine, from measured rates.

#![warn(missing_docs, unreachable_pub)]

pub mod access;
pub mod cache;
pub mod clock;
pub mod counts;
pub mod ledger;
mod next_use;
mod nodes;
mod outcome;
mod owner;
mod policy;
pub mod predict;
pub mod scenario;
pub mod shared;
mod simulation;

pub use outcome::PolicyOutcome;
pub use policy::Policy;
pub use scenario::{Bytes, Scenario};
pub use simulation::Simulation;
