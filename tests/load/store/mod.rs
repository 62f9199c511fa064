//! The cache's store with real files and real processes: what is kept is right and within the quota, whatever happens.

mod basics;
mod damage;
mod faults;
mod forked;
mod inspect;
mod kill;
mod refusals;
mod sharing;
pub mod world;
