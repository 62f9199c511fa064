//! The cache's store with real files and real processes: stored samples are right and within the quota, whatever
//! happens.

mod basics;
mod damage;
mod faults;
mod forked;
mod inspect;
mod kill;
mod refusals;
mod sharing;
pub mod world;
