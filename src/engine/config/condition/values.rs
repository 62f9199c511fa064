//! Values in conditions, and their operators.

use data::dataset::{CellValue, ColumnKind, ColumnValues};
use std::borrow::Cow;
use std::cmp::Ordering;

/// A value of a sample, or one that the condition states.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ConditionValue<'a> {
    Whole(i64),
    Number(f64),
    /// A number that is stored as float32. It is compared as float32, so that `score == 0.1` can be true.
    Single(f32),
    Text(Cow<'a, str>),
    Truth(bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConditionType {
    Number,
    Text,
    Truth,
}

impl ConditionType {
    pub(super) fn of_column(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::Numbers => Self::Number,
            ColumnKind::Texts => Self::Text,
            ColumnKind::Truths => Self::Truth,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Number => "a number",
            Self::Text => "a text",
            Self::Truth => "true or false",
        }
    }
}

impl<'a> ConditionValue<'a> {
    pub(super) fn of_cell(cell: CellValue<'a>) -> Self {
        match cell {
            CellValue::Bool(truth) => Self::Truth(truth),
            CellValue::Integer(number) => Self::Whole(number),
            CellValue::Float(number) => Self::Number(number),
            CellValue::Text(text) => Self::Text(Cow::Borrowed(text)),
            // Columns of lists are refused before.
            CellValue::IntegerList(_) | CellValue::FloatList(_) | CellValue::Bytes(_) => Self::Truth(false),
        }
    }

    pub(super) fn of_own(values: &'a ColumnValues, sample: u64) -> Self {
        match values {
            ColumnValues::Bools(..) => Self::Truth(values.whole(sample) != 0),
            ColumnValues::Integers(..) => Self::Whole(values.whole(sample)),
            ColumnValues::Floats(_, numbers) => Self::Single(numbers[sample as usize]),
            ColumnValues::Texts(texts) => Self::Text(Cow::Borrowed(&texts[sample as usize])),
        }
    }

    pub(super) fn kind(&self) -> ConditionType {
        match self {
            Self::Whole(_) | Self::Number(_) | Self::Single(_) => ConditionType::Number,
            Self::Text(_) => ConditionType::Text,
            Self::Truth(_) => ConditionType::Truth,
        }
    }

    pub(super) fn truth(self) -> Option<bool> {
        if let Self::Truth(truth) = self { Some(truth) } else { None }
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::Whole(number) => Some(*number as f64),
            Self::Number(number) => Some(*number),
            Self::Single(number) => Some((*number).into()),
            Self::Text(_) | Self::Truth(_) => None,
        }
    }

    fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            (Self::Truth(a), Self::Truth(b)) => Some(a.cmp(b)),
            (Self::Whole(a), Self::Whole(b)) => Some(a.cmp(b)),
            (Self::Whole(a), Self::Number(b)) => order_with_float(*a, *b),
            (Self::Number(a), Self::Whole(b)) => order_with_float(*b, *a).map(Ordering::reverse),
            (Self::Single(_), _) | (_, Self::Single(_)) => {
                (self.number()? as f32).partial_cmp(&(other.number()? as f32))
            }
            _ => self.number()?.partial_cmp(&other.number()?),
        }
    }
}

/// Compares exactly, also whole numbers that float64 cannot express.
fn order_with_float(whole: i64, number: f64) -> Option<Ordering> {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if number.is_nan() {
        return None;
    }
    if !(-END..END).contains(&number) {
        return 0.0.partial_cmp(&number);
    }
    let floor = number.floor();
    Some(whole.cmp(&(floor as i64)).then(if number > floor { Ordering::Less } else { Ordering::Equal }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparator {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

impl Comparator {
    /// Compares two values. A number that is not a number (NaN) differs from all numbers.
    pub(super) fn holds(self, a: &ConditionValue<'_>, b: &ConditionValue<'_>) -> Option<bool> {
        let order = a.order(b);
        Some(match self {
            Self::Less => order == Some(Ordering::Less),
            Self::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Self::Greater => order == Some(Ordering::Greater),
            Self::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
            Self::Equal => order == Some(Ordering::Equal),
            Self::NotEqual => order != Some(Ordering::Equal),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Operation {
    /// Computes with whole numbers where that is exact, else with float64.
    pub(super) fn result(
        self,
        a: &ConditionValue<'_>,
        b: &ConditionValue<'_>,
    ) -> Option<ConditionValue<'static>> {
        if let (ConditionValue::Whole(a), ConditionValue::Whole(b)) = (a, b) {
            let exact = match self {
                Self::Add => a.checked_add(*b),
                Self::Subtract => a.checked_sub(*b),
                Self::Multiply => a.checked_mul(*b),
                Self::Divide => None,
            };
            if let Some(exact) = exact {
                return Some(ConditionValue::Whole(exact));
            }
        }
        let (a, b) = (a.number()?, b.number()?);
        Some(ConditionValue::Number(match self {
            Self::Add => a + b,
            Self::Subtract => a - b,
            Self::Multiply => a * b,
            Self::Divide => a / b,
        }))
    }
}
