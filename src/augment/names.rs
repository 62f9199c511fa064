//! The names that users write for what has a few values: for settings, for the parameters of transforms, for messages.

use super::{BoxFormat, DType, Filter, Padding};
use serde::de::{Deserialize, Deserializer, Error};

/// Gives a type its names, in one list for all that reads or writes them, and reads it from a text.
macro_rules! named {
    ($type:ident: $($name:literal => $variant:ident),+ $(,)?) => {
        impl $type {
            /// Every value with the name that users write.
            pub const NAMES: &'static [(&'static str, Self)] = &[$(($name, Self::$variant)),+];
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let given = String::deserialize(deserializer)?;
                let found = Self::NAMES.iter().find(|(name, _)| *name == given);
                found.map(|(_, value)| *value).ok_or_else(|| {
                    D::Error::custom(format!("is {given:?}, must be one of {}", [$($name),+].join(", ")))
                })
            }
        }
    };
}

named!(DType: "float32" => F32, "float16" => F16, "bfloat16" => Bf16, "uint8" => U8);

named!(BoxFormat: "xyxy" => Xyxy, "xywh" => Xywh, "cxcywh" => Cxcywh);

named!(Filter:
    "nearest" => Nearest,
    "nearest-exact" => NearestExact,
    "bilinear" => Bilinear,
    "bicubic" => Bicubic,
);

named!(Padding: "constant" => Constant, "edge" => Edge, "reflect" => Reflect, "symmetric" => Symmetric);
