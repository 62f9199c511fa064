//! Columns of small values, as the index file stores them: for each column, a presence byte per sample, followed by all
//! values.

use super::FieldKind;
use super::format::u64_at;
use super::table::{NULL_TYPE, TableCells, TableColumn};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Range;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CellType {
    /// Booleans, a byte each.
    Truths,
    /// Integers, i64.
    Integers,
    /// Floating-point numbers, f64.
    Floats,
    /// Lists of this many integers, i64.
    IntegerLists(u32),
    /// Lists of this many floating-point numbers, f64.
    FloatLists(u32),
    /// Strings: for each string its end (u64), followed by the bytes of all strings.
    Texts,
    /// Bytes of a member, stored like strings.
    Bytes,
    /// A column that cannot be read, with the reason.
    Refused(String),
}

impl CellType {
    pub(super) fn words(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Truths => "booleans",
            Self::Integers => "integers",
            Self::Floats => "floating-point numbers",
            Self::IntegerLists(each) => return format!("lists of {each} integers").into(),
            Self::FloatLists(each) => return format!("lists of {each} floating-point numbers").into(),
            Self::Texts => "texts",
            Self::Bytes => "values of different lengths",
            Self::Refused(_) => "unreadable values",
        })
    }

    /// The length of the list that each sample has; `None` for single values.
    pub(super) fn each(&self) -> Option<u32> {
        match self {
            Self::IntegerLists(each) | Self::FloatLists(each) => Some(*each),
            _ => None,
        }
    }

    /// Whether values have different lengths, so that their ends are stored.
    pub(super) fn has_ends(&self) -> bool {
        matches!(self, Self::Texts | Self::Bytes)
    }

    /// Whether the column has the null type in this shard. Other shards then determine the type of the column.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Refused(reason) if reason == NULL_TYPE)
    }

    /// The size of a value in bytes. For strings and bytes, this is the size of an end.
    pub(super) fn width(&self) -> u64 {
        match self {
            Self::Truths => 1,
            Self::Integers | Self::Floats | Self::Texts | Self::Bytes => 8,
            Self::IntegerLists(each) | Self::FloatLists(each) => 8 * u64::from(*each),
            Self::Refused(_) => 0,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ColumnFacts {
    pub(super) name: String,
    pub(super) kind: FieldKind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) classes: Vec<String>,
    pub(super) cells: CellType,
    #[serde(default)]
    pub(super) text_bytes: u64,
}

impl ColumnFacts {
    /// The properties of a shard's column; `None` if the values stay in the shard and are not copied to the index.
    pub(super) fn of(column: &TableColumn) -> Option<Self> {
        let cells = match &column.cells {
            TableCells::Extents(_) => return None,
            TableCells::Bools(_) => CellType::Truths,
            TableCells::Integers(_) => CellType::Integers,
            TableCells::Floats(_) => CellType::Floats,
            TableCells::IntegerLists(each, _) => CellType::IntegerLists(*each),
            TableCells::FloatLists(each, _) => CellType::FloatLists(*each),
            TableCells::Texts(_) => CellType::Texts,
            TableCells::Bytes(_) => CellType::Bytes,
            TableCells::Refused(reason) => CellType::Refused(reason.clone()),
        };
        let text_bytes = match &column.cells {
            TableCells::Texts(texts) => texts.iter().flatten().map(|text| text.len() as u64).sum(),
            TableCells::Bytes(cells) => cells.iter().flatten().map(|bytes| bytes.len() as u64).sum(),
            _ => 0,
        };
        let (name, classes) = (column.name.clone(), column.classes.clone());
        Some(Self { name, kind: column.kind, classes, cells, text_bytes })
    }

    /// Merges the properties of the same column in another shard. If the types differ, a field that selects the column
    /// fails with an error.
    pub(super) fn merge(&mut self, other: &Self) {
        if other.cells.is_nothing() {
            return;
        }
        if self.cells.is_nothing() {
            self.clone_from(other);
            return;
        }
        if self.classes != other.classes {
            self.classes.clear();
        }
        self.text_bytes += other.text_bytes;
        match (&self.cells, &other.cells) {
            (CellType::Refused(_), _) => {}
            (_, CellType::Refused(_)) => self.cells = other.cells.clone(),
            (own, others) if own == others => {}
            (own, others) => {
                let (own, others) = (own.words(), others.words());
                self.refuse(format!("holds {own} in some shards and {others} in others"));
            }
        }
    }

    pub(super) fn refuse(&mut self, reason: String) {
        self.cells = CellType::Refused(reason);
    }

    pub(super) fn bytes(&self, samples: u64) -> u64 {
        match self.cells {
            CellType::Refused(_) => 0,
            _ => samples.saturating_mul(1 + self.cells.width()).saturating_add(self.text_bytes),
        }
    }
}

/// The bytes of a shard's column in the spill file: presence bytes, then the values. Strings and bytes are stored
/// as the lengths of all values (u32 each), then their bytes.
pub(super) fn spilled(cells: &TableCells) -> Vec<u8> {
    fn both<T, const N: usize>(cells: &[Option<T>], bytes: impl Fn(&T) -> [u8; N]) -> Vec<u8> {
        let present = cells.iter().map(|cell| u8::from(cell.is_some()));
        let values = cells.iter().flat_map(|cell| cell.as_ref().map_or([0; N], &bytes));
        present.chain(values).collect()
    }
    fn lists<T: Copy>(each: u32, cells: &[Option<Box<[T]>>], bytes: impl Fn(T) -> [u8; 8]) -> Vec<u8> {
        let mut spilled: Vec<u8> = cells.iter().map(|cell| u8::from(cell.is_some())).collect();
        for cell in cells {
            match cell {
                Some(list) => spilled.extend(list.iter().flat_map(|&number| bytes(number))),
                None => spilled.resize(spilled.len() + 8 * each as usize, 0),
            }
        }
        spilled
    }
    fn ends<T>(cells: &[Option<T>], value: impl Fn(&T) -> &[u8]) -> Vec<u8> {
        let mut bytes = both(cells, |cell| (value(cell).len() as u32).to_le_bytes());
        cells.iter().flatten().for_each(|cell| bytes.extend(value(cell)));
        bytes
    }
    match cells {
        TableCells::Bools(cells) => both(cells, |&truth| [u8::from(truth)]),
        TableCells::Integers(cells) => both(cells, |number| number.to_le_bytes()),
        TableCells::Floats(cells) => both(cells, |number| number.to_le_bytes()),
        TableCells::IntegerLists(each, cells) => lists(*each, cells, i64::to_le_bytes),
        TableCells::FloatLists(each, cells) => lists(*each, cells, f64::to_le_bytes),
        TableCells::Texts(cells) => ends(cells, |text| text.as_bytes()),
        TableCells::Bytes(cells) => ends(cells, |bytes| bytes),
        TableCells::Extents(_) | TableCells::Refused(_) => Vec::new(),
    }
}

pub(super) fn spilled_bytes(facts: &ColumnFacts, samples: u64) -> Option<u64> {
    let width = match facts.cells {
        CellType::Refused(_) => return Some(0),
        CellType::Texts | CellType::Bytes => 4,
        _ => facts.cells.width(),
    };
    samples.checked_mul(1 + width)?.checked_add(facts.text_bytes)
}

/// Parses the cells of a column from the bytes of [`spilled`]; `None` for bytes that [`spilled`] cannot have written.
pub(super) fn unspilled(facts: &ColumnFacts, samples: usize, bytes: &[u8]) -> Option<TableCells> {
    fn both<T, const N: usize>(
        present: &[u8],
        values: &[u8],
        value: impl Fn([u8; N]) -> T,
    ) -> Option<Vec<Option<T>>> {
        let (values, []) = values.as_chunks::<N>() else { return None };
        let cell = |(&present, raw): (&u8, &[u8; N])| match present {
            0 => Some(None),
            1 => Some(Some(value(*raw))),
            _ => None,
        };
        (values.len() == present.len()).then(|| present.iter().zip(values).map(cell).collect())?
    }
    fn lists<T>(
        each: u32,
        present: &[u8],
        values: &[u8],
        value: impl Fn([u8; 8]) -> T,
    ) -> Option<Vec<Option<Box<[T]>>>> {
        let width = 8 * each as usize;
        if width == 0 || values.len() != present.len().checked_mul(width)? {
            return None;
        }
        let cell = |(&present, raw): (&u8, &[u8])| match present {
            0 => Some(None),
            1 => Some(Some(raw.as_chunks().0.iter().map(|raw| value(*raw)).collect())),
            _ => None,
        };
        present.iter().zip(values.chunks_exact(width)).map(cell).collect()
    }
    fn ends<T>(present: &[u8], values: &[u8], value: impl Fn(&[u8]) -> Option<T>) -> Option<Vec<Option<T>>> {
        let (lengths, mut rest) = values.split_at_checked(present.len().checked_mul(4)?)?;
        let cell = |length: Option<u32>| match length {
            None => Some(None),
            Some(length) => {
                let (own, behind) = rest.split_at_checked(length as usize)?;
                rest = behind;
                value(own).map(Some)
            }
        };
        let lengths = both(present, lengths, u32::from_le_bytes)?;
        let cells = lengths.into_iter().map(cell).collect::<Option<_>>()?;
        rest.is_empty().then_some(cells)
    }
    if let CellType::Refused(reason) = &facts.cells {
        return bytes.is_empty().then(|| TableCells::Refused(reason.clone()));
    }
    let (present, values) = bytes.split_at_checked(samples)?;
    match facts.cells {
        CellType::Truths => both(present, values, |[truth]| truth != 0).map(TableCells::Bools),
        CellType::Integers => both(present, values, i64::from_le_bytes).map(TableCells::Integers),
        CellType::Floats => both(present, values, f64::from_le_bytes).map(TableCells::Floats),
        CellType::IntegerLists(each) => {
            let cells = lists(each, present, values, i64::from_le_bytes);
            cells.map(|cells| TableCells::IntegerLists(each, cells))
        }
        CellType::FloatLists(each) => {
            let cells = lists(each, present, values, f64::from_le_bytes);
            cells.map(|cells| TableCells::FloatLists(each, cells))
        }
        CellType::Texts => {
            let text = |own: &[u8]| Some(Box::from(std::str::from_utf8(own).ok()?));
            ends(present, values, text).map(TableCells::Texts)
        }
        CellType::Bytes => ends(present, values, |own| Some(Box::from(own))).map(TableCells::Bytes),
        CellType::Refused(_) => None,
    }
}

/// A sample's value in a column of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CellValue<'a> {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
    /// Integers (i64), as stored in the index.
    IntegerList(&'a [[u8; 8]]),
    /// Floating-point numbers (f64), as stored in the index.
    FloatList(&'a [[u8; 8]]),
    /// A string.
    Text(&'a str),
    /// The bytes of a member.
    Bytes(&'a [u8]),
}

impl CellValue<'_> {
    fn list<T>(self, number: impl Fn([u8; 8]) -> T) -> Option<Box<[T]>> {
        match self {
            Self::IntegerList(raw) | Self::FloatList(raw) => {
                Some(raw.iter().map(|raw| number(*raw)).collect())
            }
            _ => None,
        }
    }
}

pub(super) struct ColumnCells<'a> {
    pub(super) facts: ColumnFacts,
    samples: usize,
    bytes: Cow<'a, [u8]>,
}

impl<'a> ColumnCells<'a> {
    /// The column at index `number` of `columns`. `section` holds the bytes of all columns.
    pub(super) fn of(columns: &[ColumnFacts], number: usize, section: &'a [u8], samples: u64) -> Self {
        let before: u64 =
            columns[..number].iter().fold(0, |sum, column| sum.saturating_add(column.bytes(samples)));
        let facts = columns[number].clone();
        let end = before.saturating_add(facts.bytes(samples));
        let bytes = usize::try_from(before).ok().zip(usize::try_from(end).ok());
        let bytes = bytes.and_then(|(start, end)| section.get(start..end)).unwrap_or_default();
        Self { facts, samples: samples as usize, bytes: Cow::Borrowed(bytes) }
    }

    pub(super) fn owned(self) -> ColumnCells<'static> {
        ColumnCells { facts: self.facts, samples: self.samples, bytes: Cow::Owned(self.bytes.into_owned()) }
    }

    pub(super) fn get(&self, sample: u64) -> Option<CellValue<'_>> {
        let sample = sample as usize;
        if self.bytes.get(sample).is_none_or(|&present| present == 0) {
            return None;
        }
        let values = &self.bytes[self.samples..];
        let list = |each: u32| values.as_chunks().0.get(sample * each as usize..)?.get(..each as usize);
        match self.facts.cells {
            CellType::Truths => Some(CellValue::Bool(*values.get(sample)? != 0)),
            CellType::Integers => Some(CellValue::Integer(u64_at(values, 8 * sample).cast_signed())),
            CellType::Floats => Some(CellValue::Float(f64::from_bits(u64_at(values, 8 * sample)))),
            CellType::IntegerLists(each) => list(each).map(CellValue::IntegerList),
            CellType::FloatLists(each) => list(each).map(CellValue::FloatList),
            CellType::Texts | CellType::Bytes => {
                let end = |of: usize| u64_at(values, 8 * of) as usize;
                let start = sample.checked_sub(1).map_or(0, end);
                let bytes = values.get(8 * self.samples..)?.get(start..end(sample))?;
                match self.facts.cells {
                    CellType::Texts => std::str::from_utf8(bytes).ok().map(CellValue::Text),
                    _ => Some(CellValue::Bytes(bytes)),
                }
            }
            CellType::Refused(_) => None,
        }
    }

    pub(super) fn cells(&self, samples: Range<u64>) -> TableCells {
        fn each<'c, T>(
            cells: &'c ColumnCells<'_>,
            samples: Range<u64>,
            value: impl Fn(CellValue<'c>) -> Option<T>,
        ) -> Vec<Option<T>> {
            samples.map(|sample| cells.get(sample).and_then(&value)).collect()
        }
        match &self.facts.cells {
            CellType::Truths => TableCells::Bools(each(self, samples, |value| match value {
                CellValue::Bool(truth) => Some(truth),
                _ => None,
            })),
            CellType::Integers => TableCells::Integers(each(self, samples, |value| match value {
                CellValue::Integer(number) => Some(number),
                _ => None,
            })),
            CellType::Floats => TableCells::Floats(each(self, samples, |value| match value {
                CellValue::Float(number) => Some(number),
                _ => None,
            })),
            CellType::IntegerLists(length) => {
                let list = |value: CellValue<'_>| value.list(i64::from_le_bytes);
                TableCells::IntegerLists(*length, each(self, samples, list))
            }
            CellType::FloatLists(length) => {
                let list = |value: CellValue<'_>| value.list(f64::from_le_bytes);
                TableCells::FloatLists(*length, each(self, samples, list))
            }
            CellType::Texts => TableCells::Texts(each(self, samples, |value| match value {
                CellValue::Text(text) => Some(Box::from(text)),
                _ => None,
            })),
            CellType::Bytes => TableCells::Bytes(each(self, samples, |value| match value {
                CellValue::Bytes(bytes) => Some(Box::from(bytes)),
                _ => None,
            })),
            CellType::Refused(reason) => TableCells::Refused(reason.clone()),
        }
    }

    /// Whether the values of the samples from `first` on differ from these cells, which were read from the shard.
    pub(super) fn differs(&self, first: u64, cells: &TableCells) -> bool {
        let known = |at: usize| self.get(first + at as u64);
        let is = |at: usize, found: Option<CellValue<'_>>| match (known(at), found) {
            // In this comparison NaN equals NaN.
            (Some(CellValue::Float(known)), Some(CellValue::Float(found))) => {
                known.to_bits() == found.to_bits()
            }
            (known, found) => known == found,
        };
        match cells {
            TableCells::Bools(cells) => !(0..).zip(cells).all(|(at, cell)| is(at, cell.map(CellValue::Bool))),
            TableCells::Integers(cells) => {
                !(0..).zip(cells).all(|(at, cell)| is(at, cell.map(CellValue::Integer)))
            }
            TableCells::Floats(cells) => {
                !(0..).zip(cells).all(|(at, cell)| is(at, cell.map(CellValue::Float)))
            }
            TableCells::IntegerLists(_, cells) => !(0..).zip(cells).all(|(at, cell)| {
                let raw: Option<Vec<[u8; 8]>> =
                    cell.as_ref().map(|list| list.iter().map(|number| number.to_le_bytes()).collect());
                is(at, raw.as_deref().map(CellValue::IntegerList))
            }),
            TableCells::FloatLists(_, cells) => !(0..).zip(cells).all(|(at, cell)| {
                let raw: Option<Vec<[u8; 8]>> =
                    cell.as_ref().map(|list| list.iter().map(|number| number.to_le_bytes()).collect());
                is(at, raw.as_deref().map(CellValue::FloatList))
            }),
            TableCells::Texts(cells) => {
                !(0..).zip(cells).all(|(at, cell)| is(at, cell.as_deref().map(CellValue::Text)))
            }
            TableCells::Bytes(cells) => {
                !(0..).zip(cells).all(|(at, cell)| is(at, cell.as_deref().map(CellValue::Bytes)))
            }
            // Refused columns have no values. If only the reason for the refusal differs, the column counts as equal.
            TableCells::Extents(_) | TableCells::Refused(_) => {
                !matches!(self.facts.cells, CellType::Refused(_))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(cells: CellType) -> ColumnFacts {
        ColumnFacts { name: "x".to_owned(), kind: FieldKind::Text, classes: Vec::new(), cells, text_bytes: 7 }
    }

    #[test]
    fn other_shards_say_what_a_column_without_a_type_is() {
        let nothing = || facts(CellType::Refused(NULL_TYPE.to_owned()));
        for (mut one, other) in [(nothing(), facts(CellType::Texts)), (facts(CellType::Texts), nothing())] {
            one.merge(&other);
            assert_eq!((one.cells, one.text_bytes), (CellType::Texts, 7));
        }
        let mut both = nothing();
        both.merge(&nothing());
        assert!(both.cells.is_nothing());
        let mut refused = facts(CellType::Refused("it holds lists".to_owned()));
        refused.merge(&facts(CellType::Texts));
        assert_eq!(refused.cells, CellType::Refused("it holds lists".to_owned()));
    }

    #[test]
    fn bytes_come_back_as_they_went() {
        let cells = TableCells::Bytes(vec![Some(Box::from(*b"a\xff")), None, Some(Box::from(*b""))]);
        let column = TableColumn {
            name: "x".to_owned(),
            kind: FieldKind::Array,
            classes: Vec::new(),
            cells: cells.clone(),
        };
        let (facts, bytes) = (ColumnFacts::of(&column).unwrap(), spilled(&cells));
        assert_eq!((facts.text_bytes, spilled_bytes(&facts, 3)), (2, Some(bytes.len() as u64)));
        assert_eq!(unspilled(&facts, 3, &bytes), Some(cells));
        assert_eq!(unspilled(&facts, 3, &bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn lists_come_back_as_they_went() {
        let (whole, float) =
            (vec![Some(Box::from([1, -2])), None], vec![Some(Box::from([0.5, f64::NAN])), None]);
        for cells in [TableCells::IntegerLists(2, whole), TableCells::FloatLists(2, float)] {
            let column = TableColumn {
                name: "x".to_owned(),
                kind: FieldKind::Float,
                classes: Vec::new(),
                cells: cells.clone(),
            };
            let (facts, bytes) = (ColumnFacts::of(&column).unwrap(), spilled(&cells));
            assert_eq!((bytes.len() as u64, spilled_bytes(&facts, 2)), (34, Some(34)));
            let found = unspilled(&facts, 2, &bytes).unwrap();
            // NaN does not equal itself, so compare strings.
            assert_eq!(format!("{found:?}"), format!("{cells:?}"));
            let columns = [facts.clone()];
            let kept = ColumnCells::of(&columns, 0, &bytes, 2);
            assert_eq!(format!("{:?}", kept.cells(0..2)), format!("{cells:?}"));
            assert!(!kept.differs(0, &cells) && kept.get(1).is_none());
            assert!(kept.differs(0, &TableCells::IntegerLists(2, vec![Some(Box::from([1, 3])), None])));
            assert_eq!(unspilled(&facts, 2, &bytes[1..]), None);
            let none = ColumnFacts { cells: CellType::FloatLists(0), ..facts };
            assert_eq!(unspilled(&none, 2, &bytes), None);
        }
        let mut two = facts(CellType::IntegerLists(2));
        two.merge(&facts(CellType::IntegerLists(3)));
        let why = "holds lists of 2 integers in some shards and lists of 3 integers in others";
        assert_eq!(two.cells, CellType::Refused(why.to_owned()));
    }
}
