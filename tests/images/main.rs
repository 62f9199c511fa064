//! From the bytes of a file to a tensor on the CPU: decoding and augmentation, against libjpeg and simple references.

mod augment;
mod decode;
#[path = "../common/fuzz.rs"]
#[allow(dead_code, reason = "the tests of images have loops of their own")]
mod fuzz;
#[path = "../common/seeds.rs"]
mod seeds;
