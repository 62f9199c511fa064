//! A feature of a `tf.Example`: the contents of its list.

use super::super::wire::{WireMessage, WireValue};
use crate::dataset::table::CellExtent;
use crate::source::{Malformed, ReadAt, Window};

/// The maximum number of items in a list. The index stores all of them for each record.
pub(super) const LONGEST_LIST: usize = 64;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum FeatureValue {
    #[default]
    Nothing,
    Bytes(CellExtent),
    Float(f32),
    Integer(i64),
    Floats(Vec<f32>),
    Integers(Vec<i64>),
    /// A list that cannot be read, because it is too long or mixes types. The string names the type of its values.
    Several(&'static str),
}

pub(super) const BYTES: &str = "bytes";
pub(super) const FLOATS: &str = "floats";
pub(super) const INTEGERS: &str = "integers";

/// A feature's list while it is parsed. If the message has several lists of one type, their items are joined. A list of
/// another type replaces the earlier lists.
#[derive(Default)]
pub(super) struct FeatureList {
    /// The field number in `Feature`: 1 for a list of bytes, 2 for floats, 3 for integers.
    of: u64,
    pub(super) value: FeatureValue,
}

impl FeatureList {
    pub(super) fn take<S: ReadAt + ?Sized>(
        &mut self,
        source: &mut Window<'_, S>,
        mut feature: WireMessage,
    ) -> Result<(), Malformed> {
        while let Some((number, value)) = feature.next(source)? {
            let (1..=3, WireValue::Bytes { start, end }) = (number, value) else { continue };
            if self.of != number {
                (self.of, self.value) = (number, FeatureValue::Nothing);
            }
            let mut list = WireMessage::new(start, end);
            while let Some((field, value)) = list.next(source)? {
                if field != 1 {
                    continue;
                }
                match (number, value) {
                    (1, WireValue::Bytes { start, end }) => {
                        let wrong =
                            |_| Malformed { offset: start, message: "a value is too long".to_owned() };
                        let length = u32::try_from(end - start).map_err(wrong)?;
                        self.add(FeatureValue::Bytes(CellExtent { offset: start, length }));
                    }
                    (2, WireValue::Fixed32(bits)) => {
                        self.add(FeatureValue::Float(f32::from_bits(bits)));
                    }
                    (2, WireValue::Bytes { start, end }) => {
                        let mut packed = WireMessage::new(start, end);
                        self.packed(&mut packed, |packed| {
                            packed.fixed32(source).map(|bits| FeatureValue::Float(f32::from_bits(bits)))
                        })?;
                    }
                    (3, WireValue::Varint(number)) => {
                        self.add(FeatureValue::Integer(number.cast_signed()));
                    }
                    (3, WireValue::Bytes { start, end }) => {
                        let mut packed = WireMessage::new(start, end);
                        self.packed(&mut packed, |packed| {
                            packed.varint(source).map(|number| FeatureValue::Integer(number.cast_signed()))
                        })?;
                    }
                    // Ignore a value whose type does not match its field, as all readers of protocol buffers do.
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Reads the numbers of a packed list. Stops if the list is too long.
    fn packed(
        &mut self,
        list: &mut WireMessage,
        mut next: impl FnMut(&mut WireMessage) -> Result<FeatureValue, Malformed>,
    ) -> Result<(), Malformed> {
        while !list.is_done() && !matches!(self.value, FeatureValue::Several(_)) {
            let value = next(list)?;
            self.add(value);
        }
        Ok(())
    }

    fn add(&mut self, value: FeatureValue) {
        use FeatureValue::{Float, Floats, Integer, Integers, Nothing, Several};
        let known = std::mem::replace(&mut self.value, Nothing);
        self.value = match (known, value) {
            (Nothing, value) => value,
            (Float(first), Float(number)) => Floats(vec![first, number]),
            (Integer(first), Integer(number)) => Integers(vec![first, number]),
            (Floats(mut list), Float(number)) if list.len() < LONGEST_LIST => {
                list.push(number);
                Floats(list)
            }
            (Integers(mut list), Integer(number)) if list.len() < LONGEST_LIST => {
                list.push(number);
                Integers(list)
            }
            (known, _) => Several(known.words()),
        };
    }
}

impl FeatureValue {
    pub(super) fn each(&self) -> usize {
        match self {
            Self::Floats(list) => list.len(),
            Self::Integers(list) => list.len(),
            _ => 1,
        }
    }

    pub(super) fn words(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Bytes(_) => BYTES,
            Self::Float(_) | Self::Floats(_) => FLOATS,
            Self::Integer(_) | Self::Integers(_) => INTEGERS,
            Self::Several(what) => what,
        }
    }
}
