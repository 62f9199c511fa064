//! Tar archives, as the `tar` crate writes them.

use super::jpeg;
use std::path::Path;

/// An archive of these members in their order.
pub fn tar_of(members: impl IntoIterator<Item = (impl AsRef<Path>, impl AsRef<[u8]>)>) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let bytes = bytes.as_ref();
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, bytes).unwrap();
    }
    archive.into_inner().unwrap()
}

/// An archive of members that a test writes out.
pub fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    tar_of(members.iter().copied())
}

/// An archive of samples: the stem of each, and its members by the extensions of their names.
pub fn tar_of_samples<M>(samples: impl IntoIterator<Item = (String, M)>) -> Vec<u8>
where
    M: IntoIterator<Item = (&'static str, Vec<u8>)>,
{
    tar_of(samples.into_iter().flat_map(|(stem, members)| {
        members.into_iter().map(move |(key, bytes)| (format!("{stem}.{key}"), bytes))
    }))
}

/// Sample `number` for [`tar_of_samples`]: an image with one of three labels.
pub fn labelled(number: usize) -> (String, [(&'static str, Vec<u8>); 2]) {
    let class = (number % 3).to_string().into_bytes();
    (format!("{number:05}"), [("cls", class), ("jpg", jpeg(number as u64))])
}
