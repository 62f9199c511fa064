//! The GPU code, tested with stand-ins for NVIDIA's libraries: no GPU is needed, and none is used.

mod arrays;
mod augment;
mod capture;
mod children;
#[path = "../common/mod.rs"]
mod common;
mod counting;
mod faults;
mod forms;
mod memory;
mod mixing;
mod nvjpeg;
mod ops;
mod order;
mod packed;
mod pauses;
mod pipeline;
mod probe;
mod progressive;
mod recipes;
mod several_images;
mod shares;
mod skipped;
mod stand_in;
mod starts;
mod steady;
mod streams;
mod views;
mod work;
