//! An interval log: which stage did what, when, for how long, in the Trace Event Format that Perfetto and Chrome read.
