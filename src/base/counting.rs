//! Macros that define counters and their names from a single list.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Defines a struct of plain numbers with the methods `by_name` and `since`, and with addition. With a second name,
/// also defines a struct of atomic counters with the same fields, whose method `read` returns the plain numbers.
#[macro_export]
macro_rules! counters {
    ($(#[$about:meta])* $plain:ident: $($(#[$meaning:meta])* $name:ident,)+) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $plain {
            $($(#[$meaning])* pub $name: u64,)+
        }

        impl $plain {
            /// Returns all numbers with their names.
            pub fn by_name(self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }

            /// Returns the increase of each counter since `before`.
            pub fn since(self, before: Self) -> Self {
                Self { $($name: self.$name - before.$name,)+ }
            }
        }

        impl std::ops::AddAssign for $plain {
            fn add_assign(&mut self, more: Self) {
                $(self.$name += more.$name;)+
            }
        }

        impl std::ops::Add for $plain {
            type Output = Self;
            fn add(mut self, more: Self) -> Self {
                self += more;
                self
            }
        }

        impl std::iter::Sum for $plain {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self::default(), std::ops::Add::add)
            }
        }
    };
    (
        $(#[$about:meta])* $plain:ident, $(#[$about_shared:meta])* $vis:vis $shared:ident:
        $($(#[$meaning:meta])* $name:ident,)+
    ) => {
        $crate::counters! { $(#[$about])* $plain: $($(#[$meaning])* $name,)+ }
        $crate::atomic_counters! { $(#[$about_shared])* $vis $shared, $plain: $($(#[$meaning])* $name,)+ }
    };
}

/// Defines a struct of atomic counters, whose method `read` returns a struct of plain numbers with the same fields.
#[macro_export]
macro_rules! atomic_counters {
    ($(#[$about:meta])* $vis:vis $shared:ident, $plain:ident: $($(#[$meaning:meta])* $name:ident,)+) => {
        $(#[$about])*
        #[derive(Default)]
        $vis struct $shared {
            $($(#[$meaning])* $vis $name: std::sync::atomic::AtomicU64,)+
        }

        impl $shared {
            /// Returns the numbers of all counters.
            $vis fn read(&self) -> $plain {
                $plain { $($name: self.$name.load(std::sync::atomic::Ordering::Relaxed),)+ }
            }
        }
    };
}

pub use crate::{atomic_counters, counters};

/// Adds `more` to a counter.
#[inline]
pub fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Relaxed);
}
