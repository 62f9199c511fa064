//! From the bytes of an image to a tensor: decoders, random transforms, and access to the GPU that can run both. From
//! the elements of an array to a tensor: conversion.

#![warn(missing_docs, unreachable_pub)]

pub mod arrays;
pub mod augment;
pub mod decode;
pub mod gpu;
mod level;
