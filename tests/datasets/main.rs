//! Several datasets as one, parts of a dataset, and datasets of files that are no images.

#[path = "../common/mod.rs"]
mod common;
mod files;
mod pipelines;
#[path = "../scene/mod.rs"]
mod scene;
mod selected;
mod together;
