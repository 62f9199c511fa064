//! Reading, the cache, the whole pipeline on the CPU, and the program.

mod alike;
mod blocks;
mod brokers;
mod buckets;
mod cached_parts;
mod campaign;
mod cli;
#[path = "../common/mod.rs"]
mod common;
mod cpu_share;
mod encoded;
mod forms;
mod fresh;
mod http;
mod io;
mod locality;
mod mixing;
mod nodes;
mod one_version;
mod pack;
mod peers;
mod pipeline;
mod progressive;
mod rebuilt;
mod repeats;
mod resume;
mod segments;
mod settings;
mod store;
mod tables;
mod tier_list;
mod tiers;
mod together;
mod trace;
