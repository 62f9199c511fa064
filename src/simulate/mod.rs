//! What a job would cost: the performance model of Dryden et al., "Clairvoyant Prefetching for Distributed Machine
//! Learning I/O" (SC'21), over the plans of [`crate::tier`].
