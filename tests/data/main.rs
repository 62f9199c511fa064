//! The parts that work before samples are read: datasets and their indexes, orders of samples, simulated caches.

mod arrays;
mod bad_shards;
mod bins;
mod braces;
mod buckets;
mod cancel;
mod changes;
#[path = "../common/mod.rs"]
mod common;
mod dataset;
mod examples;
mod fields;
mod files;
mod fuzz;
mod hugging_face;
mod index_file;
mod labels;
mod locality;
mod mds;
mod names;
mod neighbour_blocks;
mod packed;
mod scale;
mod schedule;
mod selected;
mod selection;
mod shards;
mod simulate;
mod simulate_caches;
mod simulate_cli;
mod simulate_nodes;
mod table_order;
mod tables;
mod tar_of_tars;
mod together;
mod zarr_layout;
