//! Tables of separated values, CSV and TSV. The first line has the names of the columns.

use super::{Cell, Row, Table, TableFault};

/// Characters that programs write between values.
const SEPARATORS: [char; 4] = [';', ',', '\t', '|'];

/// Reads the table in `text`, the bytes of its file. With `trimmed`, blanks around values are removed.
pub(super) fn table(text: &[u8], separator: u8, trimmed: bool) -> Result<Table, TableFault> {
    check_quotes(text, separator, trimmed)?;
    let trim = if trimmed { csv::Trim::All } else { csv::Trim::Headers };
    let mut reader = csv::ReaderBuilder::new().delimiter(separator).trim(trim).from_reader(text);
    let mut lines = Lines { text, at: 0, line: 1 };
    let header: Vec<String> =
        reader.headers().map_err(|error| lines.broken(&error))?.iter().map(str::to_owned).collect();
    if let [only] = &header[..]
        && let Some(other) = SEPARATORS.into_iter().find(|&other| only.contains(other))
    {
        let message = format!(
            "has a single column, {only:?}; its values seem to be separated by {other:?}: use commas in a .csv file \
             and tabs in a .tsv file"
        );
        return Err(TableFault { line: None, message });
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| lines.broken(&error))?;
        let line = lines.of(record.position());
        rows.push(Row { line, cells: record.iter().map(cell).collect() });
    }
    Ok((header, rows))
}

/// Refuses quotes that are never closed, because the `csv` crate would read the rest of the file as one value. Also
/// refuses text after a closing quote, because the crate would append this text to the value. With `trimmed`, blanks
/// after a closing quote are allowed.
fn check_quotes(text: &[u8], separator: u8, trimmed: bool) -> Result<(), TableFault> {
    #[derive(Clone, Copy)]
    enum ValuePlace {
        Begin,
        Bare,
        /// Inside quotes that were opened on this line.
        Quoted(u64),
        Closed,
    }
    let (mut line, mut place) = (1, ValuePlace::Begin);
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        place = match (place, byte) {
            // Two quotes in a row stand for one quote character.
            (ValuePlace::Quoted(_), b'"') if bytes.next_if_eq(&b'"').is_none() => ValuePlace::Closed,
            (ValuePlace::Quoted(opened), _) => ValuePlace::Quoted(opened),
            (_, b'\n' | b'\r') => ValuePlace::Begin,
            (_, byte) if byte == separator => ValuePlace::Begin,
            (ValuePlace::Begin, b'"') => ValuePlace::Quoted(line),
            (ValuePlace::Closed, b' ' | b'\t') if trimmed => ValuePlace::Closed,
            (ValuePlace::Closed, _) => {
                let message =
                    "has text after a closing quote: quote the whole value, and double each quote inside it";
                return Err(TableFault::at(line, message));
            }
            (ValuePlace::Begin | ValuePlace::Bare, _) => ValuePlace::Bare,
        };
        line += u64::from(ends_line(byte, bytes.peek().copied()));
    }
    match place {
        ValuePlace::Quoted(opened) => Err(TableFault::at(opened, "has a quote that is never closed")),
        _ => Ok(()),
    }
}

/// Whether a byte that is followed by `next` ends a line.
fn ends_line(byte: u8, next: Option<u8>) -> bool {
    byte == b'\n' || byte == b'\r' && next != Some(b'\n')
}

/// Counts lines up to a row. Rows must be requested in ascending order.
struct Lines<'a> {
    text: &'a [u8],
    at: usize,
    line: u64,
}

impl Lines<'_> {
    /// The line on which a row begins. For the `csv` crate, a row begins right after the previous row. If an empty line
    /// is between the two rows, that position is on the empty line.
    fn of(&mut self, position: Option<&csv::Position>) -> u64 {
        let begin = position.map_or(0, |position| usize::try_from(position.byte()).unwrap_or(usize::MAX));
        while let Some(&byte) = self.text.get(self.at)
            && (self.at < begin || matches!(byte, b'\n' | b'\r'))
        {
            self.line += u64::from(ends_line(byte, self.text.get(self.at + 1).copied()));
            self.at += 1;
        }
        self.line
    }

    fn broken(&mut self, error: &csv::Error) -> TableFault {
        let line = self.of(error.position());
        let why = match error.kind() {
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                format!("it has {len} values, but there are {expected_len} columns")
            }
            csv::ErrorKind::Utf8 { err, .. } => err.to_string(),
            _ => error.to_string(),
        };
        TableFault::at(line, format!("is not a valid row: {why}"))
    }
}

fn cell(text: &str) -> Cell {
    if text.is_empty() { Cell::Empty } else { Cell::Bare(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<u64> {
        table(text.as_bytes(), b',', false).unwrap().1.iter().map(|row| row.line).collect()
    }

    fn fault(text: &str, trimmed: bool) -> String {
        table(text.as_bytes(), b',', trimmed).unwrap_err().message()
    }

    #[test]
    fn rows_have_the_lines_of_the_file() {
        assert_eq!(lines("a,b\n1,2\n\n\n3,4\n5,6\n"), [2, 5, 6]);
        assert_eq!(lines("\n\na,b\r\n\r\n1,2\r\n\r\n\"x\r\n\r\ny\",4\r\n5,6"), [5, 7, 10]);
        // Old programs end lines with a carriage return alone.
        assert_eq!(lines("a,b\r1,2\r\r3,4\r"), [2, 4]);
        let uneven = fault("a,b\n\n1,2\n\n\n3\n", false);
        assert_eq!(uneven, "line 6: is not a valid row: it has 1 values, but there are 2 columns");
        let odd = table(b"a,b\n\n1,2\n\n\xff,4\n", b',', false).unwrap_err().message();
        assert!(odd.starts_with("line 5: is not a valid row: invalid utf-8"), "{odd}");
    }

    #[test]
    fn quotes_hold_whole_values() {
        let (_, rows) = table(b"a,b\n\"1, \"\"2\"\"\",3\"4\"\n", b',', false).unwrap();
        let cells = ["1, \"2\"", "3\"4\""].map(|text| Cell::Bare(text.to_owned()));
        assert_eq!(rows[0].cells, cells);
        for text in ["a,b\n\n\"x\"y,1\n", "a,b\n\n1,\"x\" \"y\"\n", "a,\"b\n\"b\n1,2\n"] {
            for trimmed in [false, true] {
                let line = if text.starts_with("a,\"") { 2 } else { 3 };
                let message = fault(text, trimmed);
                assert!(message.starts_with(&format!("line {line}: has text after")), "{text:?}: {message}");
            }
        }
        assert!(fault("a,b\n\"1\" ,2\n", false).starts_with("line 2: has text after"));
        let (_, rows) = table(b"a,b\n\"1\" ,2\n", b',', true).unwrap();
        assert_eq!(rows[0].cells[0], Cell::Bare("1".to_owned()));
        assert_eq!(fault("a,b\n1,2\n\n3,\"4\n5,6\n", false), "line 4: has a quote that is never closed");
    }

    #[test]
    fn another_separator_is_named() {
        for (text, separator) in [("a;b\n1;2\n", "';'"), ("a\tb\n1\t2\n", "'\\t'")] {
            let message = fault(text, false);
            assert!(message.contains(&format!("separated by {separator}")), "{message}");
        }
    }
}
