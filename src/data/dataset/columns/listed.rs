//! A table that lists the files of a dataset: the column with the names of the files, and the values in the other
//! columns.

use super::matching::NAMES;
use super::{Cell, ColumnItem, Row, TableFault, parsed};
use crate::dataset::label_column::UsualLabels;
use crate::dataset::manifest::{FileListing, OF_TABLES};
use crate::dataset::table::{TableCells, TableColumn};
use crate::source::TableFormat;

/// Further names of the column that names the files of a dataset, in order of preference. All names in [`NAMES`] are
/// preferred to these.
const MORE_NAMES: [&str; 7] =
    ["filepath", "file_path", "image_path", "image_file", "url", "image_url", "uri"];

pub(in crate::dataset) const LISTED_LABELS: UsualLabels = UsualLabels {
    names: &["label", "cls", "class", "target", "label_name", "class_name"],
    numbers_first: false,
};

pub(in crate::dataset) struct ListingTable {
    header: Vec<String>,
    rows: Vec<Row>,
    naming: usize,
    label: Option<String>,
}

impl ListingTable {
    /// Parses the bytes of a table. `label` is the label column, if the user named one.
    ///
    /// # Errors
    /// [`TableFault`] if the bytes are not a table of this format, or no column names the files.
    pub(in crate::dataset) fn parse(
        format: TableFormat,
        text: &[u8],
        label: Option<&str>,
    ) -> Result<Self, TableFault> {
        let (header, rows) = parsed(format, text, false)?;
        let names = || NAMES.iter().chain(&MORE_NAMES);
        let naming = names().find_map(|name| header.iter().position(|column| column == name));
        let naming = naming.ok_or_else(|| {
            let known: Vec<&str> = names().copied().collect();
            let message = format!("has no column that names its files: call it {}", known.join(", "));
            TableFault { line: None, message }
        })?;
        Ok(Self { header, rows, naming, label: label.map(str::to_owned) })
    }

    fn column(&self, at: usize) -> TableColumn {
        let name = self.header[at].clone();
        let cells = match name.as_str() {
            "image" => {
                TableCells::Refused(format!("the images are the files in the column {:?}", self.naming()))
            }
            _ => self.cells(at),
        };
        TableColumn { name, kind: cells.kind(), classes: Vec::new(), cells }
    }

    /// The cells of a column: numbers if all cells are written as numbers, else strings. Class numbers can have leading
    /// zeros.
    fn cells(&self, at: usize) -> TableCells {
        use ColumnItem::{Bool, Float, Integer, TooLarge};
        let cells = || self.rows.iter().map(|row| &row.cells[at]);
        if let Some(row) =
            self.rows.iter().find(|row| matches!(row.cells[at], Cell::List(_) | Cell::Nested(_)))
        {
            return TableCells::Refused(format!("line {} has a list or an object", row.line));
        }
        let items: Vec<Option<ColumnItem>> = cells().map(Cell::number).collect();
        let is_empty = |cell: &Cell| matches!(cell, Cell::Empty);
        let name = self.header[at].as_str();
        let may_be_label = LISTED_LABELS.names.contains(&name) || self.label.as_deref() == Some(name);
        let is_text = |(cell, item): (&Cell, &Option<_>)| match item {
            Some(_) => !may_be_label && cell.is_written_as_name(),
            None => !is_empty(cell),
        };
        let has_texts = cells().zip(&items).any(is_text);
        if has_texts || items.iter().all(Option::is_none) {
            let text = |cell: &Cell| (!is_empty(cell)).then(|| cell.text().into_boxed_str());
            return TableCells::Texts(cells().map(text).collect());
        }
        let all = |like: fn(&ColumnItem) -> bool| items.iter().flatten().all(like);
        if all(|item| matches!(item, Bool(_))) {
            let truth = |item: &Option<ColumnItem>| item.map(|item| item == Bool(true));
            return TableCells::Bools(items.iter().map(truth).collect());
        }
        // float64, the type of numbers with fractions, cannot represent every integer above 2^53.
        let exact = |number: i64| number.unsigned_abs() <= 1 << 53;
        let whole = |item: &ColumnItem| match *item {
            Bool(truth) => Some(i64::from(truth)),
            Integer(number) => Some(number),
            TooLarge(_) | Float(_) => None,
        };
        if all(|item| matches!(item, Bool(_) | Integer(_))) {
            return TableCells::Integers(items.iter().map(|item| item.as_ref().and_then(whole)).collect());
        }
        let float = |item: &ColumnItem| match *item {
            Float(number) => Some(number),
            ref item => whole(item).filter(|&number| exact(number)).map(|number| number as f64),
        };
        if let Some(row) = items.iter().position(|item| item.is_some_and(|item| float(&item).is_none())) {
            let line = self.rows[row].line;
            return TableCells::Refused(format!(
                "line {line} has an integer that the type of the column cannot represent"
            ));
        }
        TableCells::Floats(items.iter().map(|item| item.as_ref().and_then(float)).collect())
    }
}

impl FileListing for ListingTable {
    fn naming(&self) -> &str {
        &self.header[self.naming]
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn place(&self, row: usize) -> String {
        format!("line {}", self.rows[row].line)
    }

    fn file(&self, row: usize) -> Result<&str, String> {
        match &self.rows[row].cells[self.naming] {
            Cell::Bare(text) | Cell::Text(text) if !text.is_empty() => Ok(text.as_str()),
            Cell::Empty | Cell::Bare(_) | Cell::Text(_) => {
                Err(format!("has no {:?}, which names the row's file", self.naming()))
            }
            other => Err(format!("{:?} is {other}, which is not a file name", self.naming())),
        }
    }

    fn columns(&mut self) -> Vec<TableColumn> {
        (0..self.header.len()).filter(|&at| at != self.naming).map(|at| self.column(at)).collect()
    }

    fn remedy(&self) -> &'static str {
        OF_TABLES
    }
}

impl Cell {
    pub(super) fn number(&self) -> Option<ColumnItem> {
        match self {
            Self::Bare(text) => ColumnItem::written(text.trim()),
            Self::Bool(truth) => Some(ColumnItem::Bool(*truth)),
            _ => None,
        }
    }

    /// Whether the digits are written as in a code or a name, which would be altered if it became a number. Examples
    /// are leading zeros, as in `007`, and a plus sign, as in `+49`.
    fn is_written_as_name(&self) -> bool {
        let Self::Bare(text) = self else { return false };
        let text = text.trim();
        let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
        matches!(digits, [b'+', ..] | [b'0', b'0'..=b'9', ..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::FieldKind;

    fn listing(text: &str) -> ListingTable {
        ListingTable::parse(TableFormat::Commas, text.as_bytes(), None).unwrap()
    }

    #[test]
    fn the_best_name_says_which_column_names_the_files() {
        let naming = |text: &str| listing(text).naming().to_owned();
        assert_eq!(naming("url,image,label\nu,i,1\n"), "image");
        assert_eq!(naming("image,file_name\ni,f\n"), "file_name");
        assert_eq!(naming("caption,image_url\nc,u\n"), "image_url");
        let none = ListingTable::parse(TableFormat::Commas, b"a,b\n1,2\n", None);
        assert!(none.err().unwrap().message().contains("call it file_name, path"));
    }

    #[test]
    fn columns_are_numbers_if_all_their_cells_are() {
        let text = "path,image,n,f,t,l,mixed,big\na,x,1,1.5,é,[1],1,9007199254740993\n\
                    b,x,,2,4x,[1],,0.5\nc,x,-3,,,[1],0.5,\n";
        let columns = listing(text).columns();
        let cells = |name: &str| columns.iter().find(|column| column.name == name).unwrap().cells.clone();
        assert_eq!(cells("n"), TableCells::Integers(vec![Some(1), None, Some(-3)]));
        assert_eq!(cells("f"), TableCells::Floats(vec![Some(1.5), Some(2.0), None]));
        assert_eq!(cells("t"), TableCells::Texts(vec![Some("é".into()), Some("4x".into()), None]));
        assert_eq!(cells("mixed"), TableCells::Floats(vec![Some(1.0), None, Some(0.5)]));
        for refused in ["image", "big"] {
            assert!(matches!(cells(refused), TableCells::Refused(_)), "{refused}");
        }
        let lists = b"{\"path\": \"a\", \"l\": [1], \"o\": {}}\n";
        let columns = ListingTable::parse(TableFormat::JsonLines, lists, None).unwrap().columns();
        assert!(columns.iter().all(|column| matches!(column.cells, TableCells::Refused(_))));
    }

    #[test]
    fn codes_of_digits_stay_as_they_are_written() {
        let text = "path,zip,phone,zero,point,minus,label\na,00501,+49,0,0.5,-0.25,01\nb,10115,,-0,0,0,10\n\
                    c,20095,1,7,00.5,-01,02\n";
        let columns = listing(text).columns();
        let cells = |name: &str| columns.iter().find(|column| column.name == name).unwrap().cells.clone();
        let texts = |texts: [&str; 3]| TableCells::Texts(texts.map(|text| Some(text.into())).to_vec());
        assert_eq!(cells("zip"), texts(["00501", "10115", "20095"]));
        assert_eq!(cells("phone"), TableCells::Texts(vec![Some("+49".into()), None, Some("1".into())]));
        assert_eq!(cells("zero"), TableCells::Integers(vec![Some(0), Some(0), Some(7)]));
        assert_eq!(cells("point"), texts(["0.5", "0", "00.5"]));
        assert_eq!(cells("minus"), texts(["-0.25", "0", "-01"]));
        // Class numbers are read as numbers however they are written.
        assert_eq!(cells("label"), TableCells::Integers(vec![Some(1), Some(10), Some(2)]));
        assert_eq!(listing("path,f\na,0.5\nb,-0.5\nc,0e1\n").columns()[0].kind, FieldKind::Float);
        let named = ListingTable::parse(TableFormat::Commas, text.as_bytes(), Some("zip")).unwrap().columns();
        assert_eq!(named[0].cells, TableCells::Integers(vec![Some(501), Some(10115), Some(20095)]));
    }
}
