//! Streams: samples that arrive while training runs, and a buffer of earlier ones that are rehearsed.
//!
//! A stream has no epoch and no permutation. What stands in place of the schedule is a plan that is made step by step:
//! so many samples that arrived, in the order of their arrival, and so many that are drawn from the buffer.

#![allow(dead_code)]

pub(crate) mod record;
pub(crate) mod reservoir;
pub(crate) mod segments;
pub(crate) mod source;
