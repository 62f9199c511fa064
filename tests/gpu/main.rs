//! `foreload::gpu` against the stand-in for the driver: no GPU is needed, and none is used.

#[path = "../stand-in/mod.rs"]
mod stand_in;

mod augment;
mod children;
mod faults;
mod memory;
mod order;
mod probe;
mod work;
