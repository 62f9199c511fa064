//! Datasets in object stores, by real servers of their protocols: whatever the store does, the batches are those of the
//! directory that lies in it, or there is an error that says why not.

mod azure;
mod cached;
#[path = "../common/mod.rs"]
mod common;
mod credentials;
mod faults;
mod proxy;
mod refusals;
mod same;
mod secrets;
mod store;
