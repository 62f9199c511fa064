//! The protocol between peers, for client and server: paths, headers, and the encoding of values in them.
//!
//! The path of a sample is `/v1/{fingerprint, 64 hexadecimal digits}/{generation}/samples/{id}`. `GET` returns the
//! sample's bytes, with the version of the source file as the `ETag` and the CRC-32C of the bytes in a header. `PUT`
//! pushes a sample, with its version and its CRC-32C in headers.

use base::crc::checksum;
use data::dataset::{FileVersion, Fingerprint};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

/// The header with the CRC-32C of the whole sample, as eight hexadecimal digits. The value is combined with the CRC of
/// the sample id and version, so that damaged headers cannot confuse one sample or version with another.
pub(super) const CRC: HeaderName = HeaderName::from_static("foreload-crc32c");

/// The header with the version of a pushed sample, in the format of an `ETag` (with quotes).
pub(super) const VERSION: HeaderName = HeaderName::from_static("foreload-version");

/// Identifies a dataset in one launch of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SharedDataset {
    /// The identity of the dataset.
    pub fingerprint: Fingerprint,
    /// A number for one launch of the job. After a restart, nodes never communicate with nodes of the earlier launch.
    pub generation: u64,
}

impl SharedDataset {
    /// Returns the identifier of a dataset for the launch of a job with this `secret`, which only the job's ranks know.
    pub fn of_job(fingerprint: Fingerprint, secret: &[u8; 32]) -> Self {
        // The generation is sent in clear text, unlike the secret, so it must not reveal the secret.
        let digest: [u8; 32] =
            Sha256::new().chain_update(b"generation").chain_update(secret).finalize().into();
        let (first, _) = digest.split_first_chunk().expect("32 bytes");
        Self { fingerprint, generation: u64::from_le_bytes(*first) }
    }

    pub(super) fn path(&self, sample: u64) -> String {
        format!("/v1/{}/{}/samples/{sample}", self.fingerprint, self.generation)
    }

    /// Parses a path into its dataset and sample id; `None` for a path that [`SharedDataset::path`] does not return.
    pub(super) fn parse(path: &str) -> Option<(Self, u64)> {
        let mut parts = path.strip_prefix("/v1/")?.split('/');
        let mut part = || parts.next();
        let (fingerprint, generation, samples, sample) = (part()?, part()?, part()?, part()?);
        let dataset =
            Self { fingerprint: parse_fingerprint(fingerprint)?, generation: parse_number(generation)? };
        let sample = parse_number(sample)?;
        (samples == "samples" && part().is_none()).then_some((dataset, sample))
    }
}

fn parse_fingerprint(text: &str) -> Option<Fingerprint> {
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(Fingerprint(bytes))
}

/// Parses a number in canonical decimal form. `str::parse` alone would also accept `+7` and `007`.
fn parse_number(text: &str) -> Option<u64> {
    let number = text.parse().ok()?;
    (text == "0" || text.starts_with(|first: char| ('1'..='9').contains(&first))).then_some(number)
}

pub(super) fn version_value(version: FileVersion) -> HeaderValue {
    HeaderValue::try_from(format!("\"{:016x}\"", version.0)).expect("quotes and hexadecimal digits")
}

pub(super) fn version_of(headers: &HeaderMap, name: HeaderName) -> Option<FileVersion> {
    let digits = headers.get(name)?.to_str().ok()?.strip_prefix('"')?.strip_suffix('"')?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok().map(FileVersion))?
}

pub(super) fn crc_value(sample: u64, version: FileVersion, crc: u32) -> HeaderValue {
    let combined = crc ^ crc_of_name(sample, version);
    HeaderValue::try_from(format!("{combined:08x}")).expect("hexadecimal digits")
}

/// Decodes the checksum of a sample's bytes from the headers. The result is wrong if the headers belong to another
/// sample or version.
pub(super) fn crc_of(headers: &HeaderMap, sample: u64, version: FileVersion) -> Option<u32> {
    let digits = headers.get(CRC)?.to_str().ok().filter(|digits| digits.len() == 8)?;
    Some(u32::from_str_radix(digits, 16).ok()? ^ crc_of_name(sample, version))
}

fn crc_of_name(sample: u64, version: FileVersion) -> u32 {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&sample.to_le_bytes());
    name[8..].copy_from_slice(&version.0.to_le_bytes());
    checksum(&name)
}

pub(super) fn length_of(headers: &HeaderMap) -> Option<u64> {
    parse_number(headers.get(hyper::header::CONTENT_LENGTH)?.to_str().ok()?)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestedRange {
    /// The whole sample: there is no range, or RFC 9110 allows a server to ignore it (several ranges, other units,
    /// invalid).
    Whole,
    Part(std::ops::Range<u64>),
    /// The range is not in the sample.
    Outside,
}

pub(super) fn range_of(headers: &HeaderMap, length: u64) -> RequestedRange {
    let header = headers.get(hyper::header::RANGE).and_then(|value| value.to_str().ok());
    let Some((first, last)) = header.and_then(|text| text.strip_prefix("bytes=")?.split_once('-')) else {
        return RequestedRange::Whole;
    };
    let range = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => first..last.saturating_add(1).min(length),
        (Ok(first), _) if last.is_empty() => first..length,
        (_, Ok(last)) if first.is_empty() => length.saturating_sub(last)..length,
        _ => return RequestedRange::Whole,
    };
    if range.start < range.end { RequestedRange::Part(range) } else { RequestedRange::Outside }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset() -> SharedDataset {
        SharedDataset { fingerprint: Fingerprint(std::array::from_fn(|at| 7 * at as u8)), generation: 42 }
    }

    #[test]
    fn a_path_says_what_it_was_made_of_and_has_one_form() {
        for sample in [0, 1, 90, u64::MAX] {
            let path = dataset().path(sample);
            assert_eq!(SharedDataset::parse(&path), Some((dataset(), sample)), "{path}");
        }
        let path = dataset().path(12);
        let spoiled = [
            path.replace("/v1", "/v2"),
            path.replace("samples", "sample"),
            path.replace("/12", "/+12"),
            path.replace("/12", "/012"),
            path.replace("/12", "/-1"),
            path.replace("/12", "/99999999999999999999"),
            path.replace("/42/", "//"),
            path.replace("/v1/00", "/v1/"),
            path.replace("/v1/0", "/v1/+"),
            path.to_uppercase(),
            format!("{path}/"),
            format!("{path}/more"),
            path[1..].to_owned(),
            String::new(),
        ];
        for path in spoiled {
            assert_eq!(SharedDataset::parse(&path), None, "{path}");
        }
    }

    #[test]
    fn each_start_of_a_job_has_a_number_of_its_own() {
        let of = |secret| SharedDataset::of_job(dataset().fingerprint, &[secret; 32]);
        assert_eq!((of(1), of(1).fingerprint), (of(1), dataset().fingerprint));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn values_come_back_from_headers() {
        let (mut headers, version) = (HeaderMap::new(), FileVersion(77));
        assert_eq!(
            (crc_of(&headers, 5, version), version_of(&headers, VERSION), length_of(&headers)),
            (None, None, None)
        );
        headers.insert(CRC, crc_value(5, version, 0xAB));
        headers.insert(VERSION, version_value(version));
        assert_eq!(
            (crc_of(&headers, 5, version), version_of(&headers, VERSION)),
            (Some(0xAB), Some(version))
        );
        assert_ne!(crc_of(&headers, 6, version), Some(0xAB), "it is that of sample 5");
        assert_ne!(crc_of(&headers, 5, FileVersion(78)), Some(0xAB), "it is that of version 77");
        for wrong in ["", "ab", "\"ab\"", "000000zz", "00000000000"] {
            headers.insert(CRC, wrong.parse().unwrap());
            headers.insert(VERSION, wrong.parse().unwrap());
            let found = (crc_of(&headers, 5, version), version_of(&headers, VERSION));
            assert_eq!(found, (None, None), "{wrong}");
        }
    }

    #[test]
    fn ranges_are_those_of_http() {
        let asked = |range: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(hyper::header::RANGE, range.parse().unwrap());
            range_of(&headers, 100)
        };
        assert_eq!(range_of(&HeaderMap::new(), 100), RequestedRange::Whole);
        for (range, part) in [
            ("0-0", 0..1),
            ("10-19", 10..20),
            ("90-", 90..100),
            ("90-900", 90..100),
            ("-7", 93..100),
            ("-900", 0..100),
        ] {
            assert_eq!(asked(&format!("bytes={range}")), RequestedRange::Part(part), "{range}");
        }
        for range in ["bytes=100-", "bytes=100-200", "bytes=-0"] {
            assert_eq!(asked(range), RequestedRange::Outside, "{range}");
        }
        for range in ["bytes=0-1,3-4", "bytes=5-4", "lines=0-1", "bytes=-", "bytes=a-b", "bytes 0-1", ""] {
            assert_eq!(asked(range), RequestedRange::Whole, "{range}");
        }
    }
}
