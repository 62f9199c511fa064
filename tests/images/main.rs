//! From a file's bytes to a tensor on the CPU: decoding and augmentation, against libjpeg and plain references.

mod augment;
mod decode;
#[path = "../common/seeds.rs"]
mod seeds;
