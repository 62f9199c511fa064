//! A macro that defines counters and their names from a single list.

/// Defines a struct of plain numbers with the method `by_name`, and a struct of atomic counters with the same fields.
macro_rules! counters {
    (
        $(#[$about:meta])* $plain:ident, $(#[$about_shared:meta])* $shared:ident:
        $($(#[$meaning:meta])* $name:ident,)+
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $plain {
            $($(#[$meaning])* pub $name: u64,)+
        }

        impl $plain {
            /// Returns all numbers with their names.
            pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }
        }

        impl std::ops::AddAssign for $plain {
            fn add_assign(&mut self, more: Self) {
                $(self.$name += more.$name;)+
            }
        }

        $(#[$about_shared])*
        #[derive(Default)]
        pub(in crate::peers) struct $shared {
            $(pub(in crate::peers) $name: std::sync::atomic::AtomicU64,)+
        }

        impl $shared {
            pub(in crate::peers) fn read(&self) -> $plain {
                $plain { $($name: self.$name.load(std::sync::atomic::Ordering::Relaxed),)+ }
            }
        }
    };
}

pub(super) use counters;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(super) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Relaxed);
}
