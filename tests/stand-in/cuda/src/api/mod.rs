//! The functions of `cuda.h`, by its names.

#![allow(non_snake_case)]

mod capture;
mod copies;
mod device;
mod launch;
mod memory;
mod streams;
