//! Names of files that are numbered, such as segments.

/// The name of file `number` with this extension.
pub fn name(number: u64, extension: &str) -> String {
    format!("{number:08}.{extension}")
}

/// The number of the file that is called `found` and has this extension.
pub fn parse(found: &str, extension: &str) -> Option<u64> {
    let digits = found.strip_suffix(extension)?.strip_suffix('.')?;
    let as_written = digits.len() == 8 || digits.len() > 8 && !digits.starts_with('0');
    let only_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    if as_written && only_digits { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_only_as_they_are_written() {
        assert_eq!(parse(&name(7, "seg"), "seg"), Some(7));
        assert_eq!(parse(&name(123_456_789_012, "seg"), "seg"), Some(123_456_789_012));
        for foreign in
            ["7.seg", "+0000007.seg", "00000007.seg~", "00000007", "0000000x.seg", ".seg", "000000007.seg"]
        {
            assert_eq!(parse(foreign, "seg"), None, "{foreign}");
        }
        assert_eq!(parse(&name(7, "seg"), "snap"), None);
    }
}
