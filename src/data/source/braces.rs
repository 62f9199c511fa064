//! Braces in names, expanded as in bash and WebDataset: `train-{000000..000127}.tar`, `{a,b}`.
//!
//! The number and total size of the names are computed before expansion. So no pattern can use more memory than
//! allowed.

const MAX_NAMES: u64 = 1_000_000;
const MAX_BYTES: u64 = 256 << 20;
const MAX_PATTERN: usize = 64 << 10;
const MAX_DEPTH: usize = 32;

/// Expands a text with braces into names, in bash's order; `None` if it has no braces that bash would expand.
///
/// # Errors
/// What is wrong with the pattern, as the end of a sentence that begins with the pattern.
pub(super) fn expand(text: &str) -> Result<Option<Vec<String>>, String> {
    if !text.contains('{') {
        return Ok(None);
    }
    if text.len() > MAX_PATTERN {
        return Err(format!(
            "is a brace pattern of more than {MAX_PATTERN} bytes: give several shorter patterns as a list"
        ));
    }
    let pattern = Pattern::parse(text, 0)?;
    if pattern.0.iter().all(|element| matches!(element, PatternElement::Literal(_))) {
        return Ok(None);
    }
    let count = pattern.count();
    if count.names > MAX_NAMES || count.bytes > MAX_BYTES {
        return Err(format!(
            "expands to more than {MAX_NAMES} names or {} MiB of names: use a smaller brace pattern",
            MAX_BYTES >> 20
        ));
    }
    Ok(Some(pattern.names()))
}

struct Pattern<'a>(Vec<PatternElement<'a>>);

enum PatternElement<'a> {
    Literal(&'a str),
    /// Alternatives, as in `{a,b}`.
    Choice(Vec<Pattern<'a>>),
    Range(Range),
}

/// Numbers or letters from `first` in equal steps, as in `{000..127..2}`.
struct Range {
    first: i64,
    /// Number of elements after the first one.
    steps: u64,
    /// Difference between neighbours; negative in a descending range.
    step: i128,
    kind: RangeKind,
}

enum RangeKind {
    /// Integers, padded with zeros to a minimum width: the number of characters.
    Numbers(usize),
    Letters,
}

#[derive(Clone, Copy)]
struct PatternCount {
    names: u64,
    bytes: u64,
}

impl<'a> Pattern<'a> {
    fn parse(text: &'a str, depth: usize) -> Result<Self, String> {
        if depth > MAX_DEPTH {
            return Err(format!("nests braces more than {MAX_DEPTH} deep"));
        }
        let (mut elements, mut rest) = (Vec::new(), text);
        while let Some((start, end)) = first_group(rest) {
            let (before, group) = (&rest[..start], &rest[start + 1..end]);
            let element = if group.contains(',') {
                let parts = parts(group).into_iter().map(|part| Self::parse(part, depth + 1));
                PatternElement::Choice(parts.collect::<Result<_, _>>()?)
            } else {
                Range::parse(group).map_or(PatternElement::Literal(&rest[start..=end]), PatternElement::Range)
            };
            elements.extend([PatternElement::Literal(before), element]);
            rest = &rest[end + 1..];
        }
        elements.push(PatternElement::Literal(rest));
        Ok(Self(elements))
    }

    fn count(&self) -> PatternCount {
        let none = PatternCount { names: 1, bytes: 0 };
        self.0.iter().map(PatternElement::count).fold(none, |all, one| PatternCount {
            names: all.names.saturating_mul(one.names),
            bytes: all.bytes.saturating_mul(one.names).saturating_add(one.bytes.saturating_mul(all.names)),
        })
    }

    /// Returns all names, and allocates memory for them. Check [`Pattern::count`] first.
    fn names(&self) -> Vec<String> {
        self.0.iter().fold(vec![String::new()], |before, element| match element {
            PatternElement::Literal(text) => before.into_iter().map(|name| name + text).collect(),
            several => {
                let ends = several.names();
                before.iter().flat_map(|name| ends.iter().map(move |end| format!("{name}{end}"))).collect()
            }
        })
    }
}

impl PatternElement<'_> {
    fn count(&self) -> PatternCount {
        match self {
            Self::Literal(text) => PatternCount { names: 1, bytes: text.len() as u64 },
            Self::Choice(parts) => {
                parts.iter().map(Pattern::count).fold(PatternCount { names: 0, bytes: 0 }, |all, one| {
                    PatternCount {
                        names: all.names.saturating_add(one.names),
                        bytes: all.bytes.saturating_add(one.bytes),
                    }
                })
            }
            Self::Range(range) => {
                let names = range.steps.saturating_add(1);
                PatternCount { names, bytes: names.saturating_mul(range.widest() as u64) }
            }
        }
    }

    fn names(&self) -> Vec<String> {
        match self {
            Self::Literal(text) => vec![(*text).to_owned()],
            Self::Choice(parts) => parts.iter().flat_map(Pattern::names).collect(),
            Self::Range(range) => (0..=range.steps).map(|step| range.name(step)).collect(),
        }
    }
}

impl Range {
    /// Parses `first..last` or `first..last..step`; `None` for anything else.
    fn parse(text: &str) -> Option<Self> {
        let (first, rest) = text.split_once("..")?;
        let (last, step) = match rest.split_once("..") {
            Some((last, step)) => (last, step.parse::<i64>().ok()?),
            None => (rest, 1),
        };
        let step = if step == 0 { 1 } else { i128::from(step).abs() };
        let letter = |text: &str| match text.as_bytes() {
            [letter] if letter.is_ascii_alphabetic() => Some(i64::from(*letter)),
            _ => None,
        };
        let (from, to, kind) = match (letter(first), letter(last)) {
            (Some(from), Some(to)) => (from, to, RangeKind::Letters),
            _ => (
                first.parse::<i64>().ok()?,
                last.parse::<i64>().ok()?,
                RangeKind::Numbers(width(first, last)),
            ),
        };
        let distance = i128::from(to) - i128::from(from);
        let steps = u64::try_from(distance.abs() / step).ok()?;
        Some(Self { first: from, steps, step: if distance < 0 { -step } else { step }, kind })
    }

    fn name(&self, number: u64) -> String {
        let value = i128::from(self.first) + self.step * i128::from(number);
        match self.kind {
            RangeKind::Letters => u8::try_from(value).map_or('?', char::from).to_string(),
            RangeKind::Numbers(width) => format!("{value:0width$}"),
        }
    }

    fn widest(&self) -> usize {
        match self.kind {
            RangeKind::Letters => 1,
            RangeKind::Numbers(_) => self.name(0).len().max(self.name(self.steps).len()),
        }
    }
}

/// Returns the width to which all numbers are padded with zeros, if `first` or `last` begins with a zero; else 0.
fn width(first: &str, last: &str) -> usize {
    let padded = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        digits.len() > 1 && digits.starts_with('0')
    };
    if padded(first) || padded(last) { first.len().max(last.len()) } else { 0 }
}

/// Returns the positions of the first opening brace that has a matching closing brace, and of that closing brace.
/// Between the braces must be a comma or two dots.
fn first_group(text: &str) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let mut from = 0;
    while let Some(start) = (from..bytes.len()).find(|&at| bytes[at] == b'{') {
        // At the beginning of a text, bash takes `{}` literally.
        let is_word = start == 0 && bytes.get(1) == Some(&b'}');
        if let Some(end) = closing(bytes, start + 1).filter(|_| !is_word) {
            return Some((start, end));
        }
        from = start + 1;
    }
    None
}

/// Returns the position of the brace that closes the group that begins at `start`.
fn closing(bytes: &[u8], start: usize) -> Option<usize> {
    let (mut level, mut is_group) = (0, false);
    for at in start..bytes.len() {
        match bytes[at] {
            b'}' if level == 0 && is_group => return Some(at),
            b'{' => level += 1,
            b'}' if level > 0 => level -= 1,
            b',' if level == 0 => is_group = true,
            b'.' if level == 0 && bytes.get(at + 1) == Some(&b'.') && bytes.get(at + 2) != Some(&b'}') => {
                is_group = true;
            }
            _ => {}
        }
    }
    None
}

/// Splits a group at its commas, ignoring commas in inner braces.
fn parts(group: &str) -> Vec<&str> {
    let (mut parts, mut level, mut start) = (Vec::new(), 0, 0);
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => level += 1,
            b'}' if level > 0 => level -= 1,
            b',' if level == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn names(text: &str) -> Vec<String> {
        expand(text).unwrap().unwrap_or_else(|| vec![text.to_owned()])
    }

    #[test]
    fn patterns_of_shards() {
        assert_eq!(names("d/t-{000..002}.tar"), ["d/t-000.tar", "d/t-001.tar", "d/t-002.tar"]);
        assert_eq!(names("{a,b}/{9..11..2}"), ["a/9", "a/11", "b/9", "b/11"]);
        assert_eq!(names("x{a,{1..2},c}"), ["xa", "x1", "x2", "xc"]);
        for plain in ["x", "{x}.tar", "a{b", "}{", "{1..x}", "{..3}"] {
            assert_eq!(expand(plain), Ok(None), "{plain}");
        }
    }

    #[test]
    fn what_is_too_much_is_refused_before_it_is_made() {
        for text in [
            "{1..1000001}",
            "{1..1000}{1..1001}",
            "{0..9223372036854775807}",
            "{-9223372036854775808..9223372036854775807}",
            &format!("{}{{1..1000000}}", "x".repeat(300)),
            &"{1..9}".repeat(400),
            &format!("{}{}", "{a,".repeat(40), "}".repeat(40)),
            &format!("{}{{a,b}}", "x".repeat(MAX_PATTERN)),
        ] {
            assert!(expand(text).is_err(), "{} bytes", text.len());
        }
        assert_eq!(names("{1..1000000}").len(), 1_000_000);
    }

    #[test]
    fn bash_gives_the_same_names() {
        let seed = 17;
        println!("seed {seed}");
        let mut state: u64 = seed;
        let mut below = |count: u64| {
            // Knuth's MMIX generator. Only its upper bits are random enough.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % count
        };
        let words = [
            "{", "}", ",", "..", "{", "}", ",", "a", "c", "01", "3", "-2", "12", "/", "{1..3}", "{a,b}", ".",
        ];
        let texts: Vec<String> = (0..3000)
            .map(|_| (0..1 + below(9)).map(|_| words[below(words.len() as u64) as usize]).collect())
            .collect();
        let lines: Vec<String> = texts.iter().map(|text| format!("printf '<%s>' {text}; echo")).collect();
        let output = Command::new("bash").arg("-c").arg(lines.join("\n")).output().expect("bash");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let written = String::from_utf8(output.stdout).unwrap();
        let mut several = 0;
        for (text, line) in texts.iter().zip(written.lines()) {
            // Bash drops words that are empty, so drop them from our names as well.
            let own = names(text);
            several += usize::from(own.len() > 1);
            let own: String =
                own.iter().filter(|name| !name.is_empty()).map(|name| format!("<{name}>")).collect();
            assert_eq!(own, line.replace("<>", ""), "{text}");
        }
        assert_eq!(written.lines().count(), texts.len());
        assert!(several > 300, "{several} patterns gave several names");
    }
}
