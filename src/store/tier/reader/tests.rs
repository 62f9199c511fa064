//! Tests which bytes of a copy are read if parts suffice, and what happens if the parts are wrong.

use super::super::cache::{CacheOptions, NoForms, TierOptions};
use super::super::convert::FormChoice;
use super::super::fill::FillChoice;
use super::super::peers::{RankPlace, SharedJob};
use super::super::stats::TierStats;
use super::super::store::Verify;
use super::*;
use crate::io::{Direct, IoChoice, open};
use base::tier_name::TierName;
use base::trace::Trace;
use data::dataset::{Contents, DatasetIndex, FileVersion, IndexOptions};
use data::schedule::Selection;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use pixels::decode::Region;
use pixels::decode::forms::{ConvertedFormat, FormatConverter};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tempfile::TempDir;

struct PackedCopy {
    directory: TempDir,
    file: Vec<u8>,
    packed: Vec<u8>,
    cache: Arc<Cache>,
    slots: SlotPool,
    reader: Box<dyn Reader>,
}

impl PackedCopy {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (mut file, mut packed) = (Vec::new(), Vec::new());
        let pixels: Vec<u8> = (0..3 * 400 * 400u32).map(|at| (at.wrapping_mul(at) / 7 % 90) as u8).collect();
        let mut encoder = Encoder::new(&mut file, 90);
        encoder.set_sampling_factor(SamplingFactor::F_2_2);
        encoder.encode(&pixels, 400, 400, ColorType::Rgb).unwrap();
        FormatConverter::default().make(ConvertedFormat::Packed, &file, &mut packed).unwrap();
        let root = directory.path().join("data");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("0.jpg"), &file).unwrap();
        let options = IndexOptions {
            directory: Some(directory.path().join("index")),
            contents: Contents::Files,
            progress: false,
            ..IndexOptions::default()
        };
        let index = Arc::new(DatasetIndex::open(&root, &options).unwrap());
        let cache = open_cache(&index, &directory.path().join("cache"));
        cache.tier(0).offer(0, 0, FileVersion(5), &packed);
        cache.flush();
        let slots = SlotPool::new(4 << 20).unwrap();
        let source =
            move |slots: &SlotPool, depth, _| open(&index, slots, IoChoice::Pread, Direct::Off, depth);
        let reader = cache.reader(Arc::new(source), &slots).unwrap();
        Self { directory, file, packed, cache, slots, reader }
    }

    fn read(&mut self, parts: WantedBytes, chosen_by: Option<SummarizedBytes>) -> Completion {
        let extent = self.cache.index.extent(0);
        let slot = self.slots.try_take(2 * self.packed.len()).unwrap();
        let request = ReadRequest::new(7, extent, slot);
        self.reader.submit(ReadRequest { parts: Some(parts), chosen_by, ..request });
        let mut arrived = Vec::new();
        while arrived.is_empty() {
            self.reader.wait(&mut arrived).unwrap();
        }
        arrived.pop().unwrap()
    }

    fn damage(&self, at: u32) {
        let own =
            fs::read_dir(self.directory.path().join("cache")).unwrap().map(|entry| entry.unwrap().path());
        let own = own.into_iter().find(|path| path.is_dir()).unwrap();
        let mut files = fs::read_dir(own).unwrap().map(|entry| entry.unwrap().path());
        let segment = files.find(|path| path.extension().is_some_and(|end| end == "seg")).unwrap();
        let file = fs::File::options().read(true).write(true).open(segment).unwrap();
        let (mut byte, written) = ([0], file.metadata().unwrap().modified().unwrap());
        file.read_exact_at(&mut byte, at.into()).unwrap();
        file.write_all_at(&[byte[0] ^ 8], at.into()).unwrap();
        // Restore the time, so that the file system does not show the change.
        file.set_modified(written).unwrap();
    }

    fn stats(&self) -> TierStats {
        self.cache.stats().all()
    }
}

fn open_cache(index: &Arc<DatasetIndex>, path: &Path) -> Arc<Cache> {
    let (name, form) = (TierName::NVME, FormChoice::AsIs);
    let options = CacheOptions {
        tiers: vec![TierOptions::Directory { name, path: path.to_owned(), size: 64 << 20, form }],
        fill: FillChoice::Use,
        stage_bandwidth: None,
        verify: Verify::Never,
        local_world_size: None,
        io: IoChoice::Auto,
        direct: Direct::Off,
        queue_depth: 4,
        peers: None,
        no_forms: None::<NoForms>,
    };
    let selection = Selection::all(index.len());
    let place = RankPlace { rank: 0, world_size: 1 };
    let job = SharedJob { place, selection: &selection, settings: Vec::new() };
    Cache::open(index, options, Trace::off(), &job).unwrap().expect("a cache")
}

fn middle(copy: &PackedCopy) -> (WantedBytes, SummarizedBytes) {
    let known = copy.cache.summary_of_copy(0).expect("an outline");
    assert_eq!(known.length as usize, copy.packed.len());
    assert_eq!(known.header_summary, PackedHeaderSummary::of(&copy.packed).unwrap());
    let region = Region { x: 100, y: 180, width: 100, height: 40 };
    (PackedHeaderSummary::read(&known.header_summary).unwrap().parts(region, known.length).unwrap(), known)
}

#[test]
fn parts_are_read_of_the_copy_that_they_were_chosen_for_alone() {
    let mut copy = PackedCopy::new();
    let (parts, known) = middle(&copy);
    let mut other = known;
    other.header_summary[20] ^= 1;
    let longer = SummarizedBytes { length: known.length + 1, ..known };
    for chosen_by in [None, Some(other), Some(longer)] {
        let arrived = copy.read(parts, chosen_by).result.unwrap();
        assert!(arrived.in_parts() == (&copy.packed, None), "{chosen_by:?}");
    }
    let whole = copy.packed.len() as u64;
    assert_eq!((copy.stats().hits, copy.stats().bytes), (3, 3 * whole));
    let completion = copy.read(parts, Some(known));
    assert_eq!(completion.tier, TierName::NVME);
    let filled = completion.result.unwrap();
    let (bytes, arrived) = filled.in_parts();
    let (rows, arrived) = (parts.start as usize..parts.end as usize, arrived.expect("parts"));
    assert!(arrived.holds(&rows) && bytes[rows.clone()] == copy.packed[rows]);
    let stats = copy.stats();
    assert_eq!((stats.hits, stats.bytes), (4, 3 * whole + u64::from(arrived.bytes())));
    assert!(u64::from(arrived.bytes()) < whole * 3 / 4, "{arrived:?} of {whole}");
    copy.cache.close();
}

#[test]
fn damage_of_parts_that_are_read_is_found_and_other_damage_is_not_looked_for() {
    let mut copy = PackedCopy::new();
    let (parts, known) = middle(&copy);
    copy.damage(parts.end + 3);
    assert!(copy.read(parts, Some(known)).result.unwrap().in_parts().1.is_some());
    assert_eq!((copy.stats().fallbacks, copy.stats().damaged), (0, 0));
    copy.damage(parts.start + 3 + (parts.end - parts.start) / 2);
    let completion = copy.read(parts, Some(known));
    assert!(completion.result.unwrap().in_parts() == (&copy.file, None), "the file itself");
    assert_eq!(completion.tier, TierName::SOURCE);
    assert_eq!((copy.stats().fallbacks, copy.stats().damaged), (1, 1));
    assert!(copy.cache.summary_of_copy(0).is_none(), "the copy is forgotten");
    copy.cache.close();
}
