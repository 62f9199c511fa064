//! The segment store of streams with real files and real processes: bytes are right or an error, the quota holds, and
//! what is withdrawn is gone, whatever happens.

mod basics;
mod damage;
mod faults;
mod kill;
mod model;
mod quota;
mod world;
