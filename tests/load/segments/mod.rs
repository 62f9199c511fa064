//! The segment store of streams with real files and real processes: reads give right bytes or an error, the quota
//! holds, and withdrawn samples are gone, whatever happens.

mod basics;
mod damage;
mod faults;
mod kill;
mod model;
mod quota;
mod world;
