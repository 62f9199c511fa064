//! Datasets in object stores, on real servers of their protocols. Whatever the store does, the batches are those of the
//! directory that it serves, or there is an error that says why not.

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
