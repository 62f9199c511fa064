//! A scanner for JSON as Python's `json.loads` accepts it: checks whether bytes are a document, and lists its first
//! level.
//!
//! Python writes and reads the documents of users. Its writer emits `NaN` and `Infinity`. Its reader accepts a byte
//! order mark, UTF-16 and UTF-32, unpaired surrogates and documents of any depth. No crate accepts exactly this:
//! serde_json rejects NaN, jiter rejects unpaired surrogates and deep documents, and json5 also accepts comments and
//! single quotes. So this scanner only checks a document, and Python creates the values. Python also checks its own
//! limits: the recursion depth, and 4300 digits for integers.

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// The reason why bytes are not a JSON document, and the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotJson {
    /// Byte offset of the error in the document's UTF-8 text.
    at: usize,
    expected: &'static str,
}

impl std::fmt::Display for NotJson {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}", self.expected, self.at)
    }
}

/// Converts a document to UTF-8. Detects the encoding as Python's `json.detect_encoding` does. Accepts unpaired
/// surrogates, as `json.loads` does.
///
/// # Errors
/// [`NotJson`] for bytes that are not text in the detected encoding.
pub fn utf8(bytes: &[u8]) -> Result<Cow<'_, [u8]>, NotJson> {
    let (unit, big, text) = match *bytes {
        [0, 0, 0xFE, 0xFF, ref text @ ..] => (4, true, text),
        [0xFF, 0xFE, 0, 0, ref text @ ..] => (4, false, text),
        [0xFE, 0xFF, ref text @ ..] => (2, true, text),
        [0xFF, 0xFE, ref text @ ..] => (2, false, text),
        [0xEF, 0xBB, 0xBF, ref text @ ..] => (1, false, text),
        [0, 0, _, _, ..] => (4, true, bytes),
        [0, _, _, _, ..] => (2, true, bytes),
        [_, 0, 0, 0, ..] => (4, false, bytes),
        [_, 0, _, _, ..] => (2, false, bytes),
        [0, _] => (2, true, bytes),
        [_, 0] => (2, false, bytes),
        _ => (1, false, bytes),
    };
    if unit == 1 {
        return check_utf8(text).map(|()| Cow::Borrowed(text));
    }
    let wrong = |number: usize| NotJson { at: unit * number, expected: "not text in UTF-16 or UTF-32" };
    if !text.len().is_multiple_of(unit) {
        return Err(wrong(text.len() / unit));
    }
    let in_order = |raw: &[u8]| {
        let add = |number, &byte: &u8| number << 8 | u32::from(byte);
        if big { raw.iter().fold(0, add) } else { raw.iter().rev().fold(0, add) }
    };
    let units = text.chunks(unit).map(in_order);
    // Replace unpaired surrogates: valid JSON has them only in strings, where any character is allowed.
    let decoded: String = if unit == 2 {
        let units = units.map(|unit| unit as u16);
        char::decode_utf16(units).map(|found| found.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    } else {
        let character = |(number, unit)| match unit {
            0xD800..=0xDFFF => Ok(char::REPLACEMENT_CHARACTER),
            other => char::from_u32(other).ok_or_else(|| wrong(number)),
        };
        units.enumerate().map(character).collect::<Result<_, _>>()?
    };
    Ok(Cow::Owned(decoded.into_bytes()))
}

/// Checks that bytes are UTF-8. Also accepts surrogates that are encoded in three bytes.
fn check_utf8(text: &[u8]) -> Result<(), NotJson> {
    let mut at = 0;
    while let Err(error) = std::str::from_utf8(&text[at..]) {
        at += error.valid_up_to();
        let [0xED, 0xA0..=0xBF, 0x80..=0xBF, ..] = text[at..] else {
            return Err(NotJson { at, expected: "not text in UTF-8" });
        };
        at += 3;
    }
    Ok(())
}

/// Scans a whole document in UTF-8. Calls `show` for each entry of the outermost object or list, with the key (`None`
/// in a list) and the value as they are written. The key includes its quotes.
///
/// # Errors
/// [`NotJson`] if `json.loads` would reject the document.
pub fn scan<'a>(text: &'a [u8], mut show: impl FnMut(Option<&'a [u8]>, &'a [u8])) -> Result<(), NotJson> {
    let mut scan = JsonScan { text, at: 0 };
    // For each open object or list, from the outermost on: whether it is an object.
    let mut open: Vec<bool> = Vec::new();
    // The key and the start of the current value in the outermost object or list.
    let (mut key, mut start) = (None, 0);
    'values: loop {
        scan.space();
        if open.len() == 1 {
            start = scan.at;
        }
        match scan.peek() {
            Some(bracket @ (b'{' | b'[')) => {
                scan.at += 1;
                scan.space();
                let is_object = bracket == b'{';
                if scan.peek() != Some(if is_object { b'}' } else { b']' }) {
                    open.push(is_object);
                    let found = if is_object { Some(scan.key()?) } else { None };
                    if open.len() == 1 {
                        key = found;
                    }
                    continue;
                }
                scan.at += 1;
            }
            Some(b'"') => {
                scan.string()?;
            }
            _ => scan.word()?,
        }
        // The end of this value may also be the end of the objects and lists that contain it.
        loop {
            if open.len() == 1 {
                show(key, &text[start..scan.at]);
            }
            scan.space();
            let Some(&is_object) = open.last() else { break 'values };
            match scan.peek() {
                Some(b',') => {
                    scan.at += 1;
                    scan.space();
                    let found = if is_object { Some(scan.key()?) } else { None };
                    if open.len() == 1 {
                        key = found;
                    }
                    continue 'values;
                }
                Some(b'}') if is_object => {}
                Some(b']') if !is_object => {}
                _ => return Err(scan.expected("a comma or a closing bracket is missing")),
            }
            scan.at += 1;
            open.pop();
        }
    }
    if scan.at < text.len() { Err(scan.expected("more follows the document")) } else { Ok(()) }
}

/// Decodes a string with its quotes. `None` for anything else, and for unpaired surrogates.
pub fn text(raw: &[u8]) -> Option<String> {
    serde_json::from_slice(raw).ok()
}

/// Reads a document with settings. Each object must have each key only once. (`json.loads` takes the last of several
/// values, which hides the other values from the user.)
///
/// # Errors
/// A message for a document that is not JSON, for the first key that an object has twice, and for lists and objects
/// nested too deeply. The message continues a sentence after "is".
pub fn settings(text: &str) -> Result<Value, String> {
    let read = serde_json::from_str(text).map(|UniqueKeys(value)| value);
    read.map_err(|error| match error.to_string() {
        // serde_json gives this error only as text.
        deep if deep.starts_with("recursion limit exceeded") => {
            "JSON that is nested too deeply: at most 127 levels are allowed".to_owned()
        }
        wrong => format!("not JSON: {wrong}"),
    })
}

struct UniqueKeys(Value);

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(UniqueKeysVisitor).map(Self)
    }
}

struct UniqueKeysVisitor;

impl<'de> Visitor<'de> for UniqueKeysVisitor {
    type Value = Value;

    fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(truth.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let next = || items.next_element().map(|item| item.map(|UniqueKeys(item)| item)).transpose();
        std::iter::from_fn(next).collect::<Result<_, _>>().map(Value::Array)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key {key:?} is given twice")));
            }
            let UniqueKeys(value) = entries.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

struct JsonScan<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> JsonScan<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn expected(&self, expected: &'static str) -> NotJson {
        NotJson { at: self.at, expected }
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn key(&mut self) -> Result<&'a [u8], NotJson> {
        if self.peek() != Some(b'"') {
            return Err(self.expected("a name in double quotes is missing"));
        }
        let key = self.string()?;
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.expected("a colon is missing"));
        }
        self.at += 1;
        Ok(key)
    }

    fn string(&mut self) -> Result<&'a [u8], NotJson> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(&self.text[start..self.at]);
                }
                Some(b'\\') => {
                    let length = match self.text[self.at + 1..] {
                        [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => 2,
                        [b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(u8::is_ascii_hexdigit) => 6,
                        _ => return Err(self.expected("a string has an invalid escape")),
                    };
                    self.at += length;
                }
                Some(0..0x20) => return Err(self.expected("a string has a control character")),
                Some(_) => self.at += 1,
                None => return Err(NotJson { at: start, expected: "a string has no end" }),
            }
        }
    }

    fn word(&mut self) -> Result<(), NotJson> {
        let rest = &self.text[self.at..];
        let words: [&[u8]; 6] = [b"null", b"true", b"false", b"NaN", b"Infinity", b"-Infinity"];
        if let Some(word) = words.into_iter().find(|word| rest.starts_with(word)) {
            self.at += word.len();
            return Ok(());
        }
        let digits = |from: usize| rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let mut end = usize::from(rest.first() == Some(&b'-'));
        end += match rest.get(end) {
            Some(b'0') => 1,
            Some(b'1'..=b'9') => digits(end),
            _ => return Err(self.expected("a value is missing")),
        };
        if let Some(b'.') = rest.get(end)
            && digits(end + 1) > 0
        {
            end += 1 + digits(end + 1);
        }
        if let Some(b'e' | b'E') = rest.get(end) {
            let sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
            if rest.len() > end + 1 + sign && digits(end + 1 + sign) > 0 {
                end += 1 + sign + digits(end + 1 + sign);
            }
        }
        self.at += end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_json(document: &[u8]) -> bool {
        utf8(document).and_then(|text| scan(&text, |_, _| {})).is_ok()
    }

    #[test]
    fn documents_are_what_python_takes() {
        let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
        for good in [
            &b" {\"a\": [1, -0.5e+3, NaN, -Infinity], \"\\ud800\": {}}\r\n"[..],
            b"Infinity",
            b"1e999",
            b"[[], {}, \"\xC3\xBC\xED\xA0\x80\"]",
            b"\xEF\xBB\xBF[1]",
            b"\xFF\xFE[\0]\0",
            b"\xFF\xFE[\0\"\0\0\xD8\"\0]\0",
            b"\0\0\0[\0\0\0]",
            b"1\0",
            &deep,
        ] {
            assert!(is_json(good), "{}", String::from_utf8_lossy(&good[..good.len().min(40)]));
        }
        for bad in [
            &b""[..],
            b" ",
            b"[1,]",
            b"{\"a\":1,}",
            b"{a:1}",
            b"{\"a\" 1}",
            b"[1}",
            b"[",
            b"01",
            b"1.",
            b"1e",
            b"-",
            b"nan",
            b"\"\t\"",
            b"\"\\x\"",
            b"\"\\u12g4\"",
            b"\"",
            b"\"\\",
            b"[1] 2",
            b"\xEF\xBB\xBF\xEF\xBB\xBF[1]",
            b"\"\xFF\"",
            b"\xFF\xFE[\0]",
            b"\0\0\0[\0\x11\0\0",
        ] {
            assert!(!is_json(bad), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn the_first_level_is_shown_as_it_is_written() {
        let mut shown = Vec::new();
        let document = br#"{"a" : [1, {"b": 2}], "\u0063":"x,y" , "d": {"a": 3}}"#;
        scan(document, |key, value| shown.push((key.and_then(text), String::from_utf8_lossy(value))))
            .unwrap();
        let shown: Vec<_> = shown.iter().map(|(key, value)| (key.as_deref().unwrap(), &**value)).collect();
        assert_eq!(shown, [("a", r#"[1, {"b": 2}]"#), ("c", r#""x,y""#), ("d", r#"{"a": 3}"#)]);
        let mut items = Vec::new();
        scan(b"[1, [2, 3] ,null]", |key, value| items.push((key, value))).unwrap();
        assert_eq!(items, [(None, &b"1"[..]), (None, b"[2, 3]"), (None, b"null")]);
    }

    #[test]
    fn settings_name_each_key_once() {
        let document = r#"{"a": [1, -2, 0.5, null, true, "x", {"a": {}}], "b": 18446744073709551615}"#;
        assert_eq!(settings(document).unwrap(), serde_json::from_str::<Value>(document).unwrap());
        for twice in
            [r#"{"a": 1, "a": 1}"#, r#"[{"b": {"a": 1, "c": 2, "a": 3}}]"#, r#"{"\u0061": 1, "a": 2}"#]
        {
            let error = settings(twice).unwrap_err();
            assert!(error.starts_with("not JSON: the key \"a\" is given twice at line 1"), "{error}");
        }
        assert!(settings("[1,]").is_err());
    }

    #[test]
    fn settings_have_a_depth() {
        let nested = |levels| ["[".repeat(levels), "]".repeat(levels)].concat();
        assert!(settings(&nested(127)).is_ok());
        assert!(settings(&nested(128)).unwrap_err().contains("at most 127 levels"));
    }
}
