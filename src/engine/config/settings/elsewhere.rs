//! Error messages for keywords that are not settings: names that other loaders use, and misspelled names.

use super::{LoaderKind, SettingsObject};

/// Keywords of other loaders and of earlier versions of Foreload, with the advice that the error message gives.
const OTHER_KEYWORDS: &[(&[&str], &str)] = &[
    (
        &["num_workers", "workers"],
        "use threads=N: threads of this process decode, by default one for each available processor",
    ),
    (&["num_threads"], "use threads=N"),
    (&["drop_last"], "use last_batch=\"drop\" for drop_last=True, last_batch=\"partial\" for False"),
    (
        &["transform", "augmentation", "augmentations", "preprocess"],
        "use transforms=[...] with classes of foreload.transforms, which have torchvision's names and parameters; \
         foreload.torch.ImageDataset.from_torchvision(dataset, batch_size=N) converts an ImageFolder with its \
         transforms",
    ),
    (
        &["target_transform"],
        "apply it to the labels of each batch, for example with a tensor as a lookup table: table[labels]",
    ),
    (
        &["pin_memory", "pin_memory_device"],
        "remove it: with device=\"cuda\" batches are already on the GPU, copied from page-locked memory",
    ),
    (
        &["prefetch_factor", "prefetch_queue_depth", "prefetch", "batches_ahead", "predownload"],
        "remove it: Foreload loads as far ahead as memory=\"...\" allows; queue_depth=N sets the number of reads in \
         flight, keep=N the number of batches that you keep",
    ),
    (&["collate_fn"], "remove it: batches are already assembled; process each batch as it arrives"),
    (
        &["sampler", "batch_sampler"],
        "use indices=, classes=, files=, where=, weights= or ratios= to choose samples, shuffle= for their order; \
         rank= and world_size= divide them among ranks",
    ),
    (&["persistent_workers"], "remove it: the threads live as long as the loader"),
    (&["worker_init_fn", "multiprocessing_context"], "remove it: there are threads and no worker processes"),
    (&["generator"], "use seed=N: order and augmentation depend on it alone"),
    (&["timeout"], "remove it: a batch that cannot be made raises an exception with the reason"),
    (
        &["root", "data_dir", "data_path", "urls", "file_root", "dataset"],
        "pass the path as the first positional argument",
    ),
    (&["size", "crop_size", "img_size", "input_size", "resolution"], "use image_size=N or (height, width)"),
    (&["device_id"], "use device=\"cuda:N\""),
    (&["shard_id", "num_shards", "num_replicas"], "use rank= and world_size="),
    (
        &["random_shuffle", "shuffle_buffer", "buffer_size"],
        "use shuffle=True: it shuffles the whole epoch without a buffer; shuffle=\"blocks\" keeps neighbouring samples \
         together",
    ),
    (&["batch"], "use batch_size=N"),
    (&["order"], "use shuffle=True or shuffle=False"),
    (
        &["shuffle_block_size", "shuffle_algo"],
        "use shuffle=\"blocks\", which keeps neighbouring samples together",
    ),
    (&["channels_last"], "use memory_format=\"nhwc\""),
    (&["os_cache", "local", "cache_limit"], "use cache=foreload.Directory(path, size)"),
    (
        &["tune"],
        "remove it: nothing is tuned while a job runs, because the defaults perform as well; see docs/defaults.md",
    ),
    (&["on_bad_sample", "handler"], "use on_error=\"skip\", \"zero\" or \"raise\""),
];

fn answer(name: &str) -> Option<&'static str> {
    OTHER_KEYWORDS.iter().find(|(names, _)| names.contains(&name)).map(|(_, answer)| *answer)
}

/// Returns the message about a keyword that a loader does not have: "is not a setting of ImageLoader: ...".
pub fn unknown(loader: LoaderKind, name: &str) -> String {
    let of = loader.name();
    if let Some(setting) = super::Setting::named(name) {
        let others = LoaderKind::ALL.into_iter().filter(|other| setting.belongs_to(*other));
        let others: Vec<&str> = others.map(LoaderKind::name).collect();
        return format!("is a setting that a {of} does not have: remove it, or use {}", others.join(" or "));
    }
    if let Some(answer) = answer(name) {
        return format!("is not a setting of {of}: {answer}");
    }
    let known = loader.settings().map(|setting| setting.name).chain(["resources", "path"]);
    match nearest(name, known) {
        Some(near) => format!("is not a setting of {of}; did you mean {near}?"),
        None => format!("is not a setting of {of}; help(foreload.{of}) lists its settings"),
    }
}

impl SettingsObject {
    /// Returns the message about a keyword that the object does not have.
    pub fn unknown(self, name: &str) -> String {
        let of = self.class();
        if let Some(answer) = answer(name).filter(|_| self == Self::Resources) {
            return format!("is not a setting of {of}: {answer}");
        }
        let known: Vec<_> =
            self.members().filter_map(|setting| setting.member).map(|member| member.name).collect();
        match nearest(name, known.iter().copied()) {
            Some(near) => format!("is not a setting of {of}; did you mean {near}?"),
            None => format!("is not a setting of {of}, which has {}", known.join(", ")),
        }
    }
}

fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_ascii_lowercase();
    let (distance, near) = known.map(|known| (distance(&name, known), known)).min()?;
    (distance <= 1 + near.len() / 4).then_some(near)
}

/// Returns the number of characters that must be inserted, removed, changed or swapped with their neighbour to turn one
/// string into the other (the restricted Damerau-Levenshtein distance).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before = vec![0; other.len() + 1];
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for i in 1..=one.len() {
        let mut row = vec![i; other.len() + 1];
        for j in 1..=other.len() {
            let same = one[i - 1] == other[j - 1];
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + usize::from(!same));
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_what_was_meant() {
        for (name, meant) in [
            ("batchsize", "batch_size"),
            ("batch_siez", "batch_size"),
            ("Seed", "seed"),
            ("lastbatch", "last_batch"),
            ("img_sizes", "image_size"),
            ("resource", "resources"),
            ("chache", "cache"),
            ("threds", "threads"),
        ] {
            let said = unknown(LoaderKind::Images, name);
            assert!(said.ends_with(&format!("did you mean {meant}?")), "{name}: {said}");
        }
        assert!(unknown(LoaderKind::Images, "zzzzzzzz").contains("help(foreload.ImageLoader)"));
        assert!(unknown(LoaderKind::Files, "image_size").contains("ImageLoader"));
        assert!(SettingsObject::Resources.unknown("thread").ends_with("did you mean threads?"));
        for said in [SettingsObject::Resources.unknown("tune"), unknown(LoaderKind::Images, "tune")] {
            assert!(said.contains("remove it"), "{said}");
        }
    }

    #[test]
    fn no_setting_is_also_another_loaders() {
        let mut names: Vec<_> = OTHER_KEYWORDS.iter().flat_map(|(names, _)| *names).collect();
        assert!(names.iter().all(|name| super::super::Setting::named(name).is_none()));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "each is answered once");
    }

    #[test]
    fn distances() {
        for (one, other, expected) in
            [("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 1), ("kitten", "sitting", 3), ("ca", "abc", 3)]
        {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }
}
