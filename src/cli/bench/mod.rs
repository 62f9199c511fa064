//! The command `foreload bench`, which runs the whole pipeline at full speed and shows where the time is spent.

mod args;
mod checksum;
mod epochs;
mod place;
mod report;
mod share;
mod stall;
mod text;

pub(super) use args::BenchArgs;

use super::job::FindsJob;
use super::{emulate, output};
use base::error::{Error, Result};
use base::notices::NoticeKind;
use base::trace::Trace;
use data::dataset::{Contents, DatasetIndex};
use data::schedule::{Assignment, LastBatch};
use engine::pipeline::Pipeline;
use epochs::BenchRun;
use place::BenchPlace;
use report::BenchReport;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use store::io::InMemoryDataset;

pub(super) fn run(args: &BenchArgs, finder: Option<&dyn FindsJob>) -> Result<()> {
    let place = args.place(finder)?;
    let log = args.trace(&place)?;
    let options = place.apply_to(args.options());
    let checked = options.validate()?;
    let start = Instant::now();
    let index = Arc::new(DatasetIndex::open(&args.dir, &checked.index_options(Contents::Images))?);
    let index_seconds = start.elapsed().as_secs_f64();
    let mut config = checked.check(&index)?;
    let notices = index.notices().clone();
    let (draws, whole) = (config.selection.draws(), place.world_size * config.batch_size);
    if options.last_batch.is_none() && options.shared.is_none() && draws < u64::from(whole) {
        let message = format!(
            "an epoch has {draws} samples, fewer than a global batch of {whole}: a smaller batch is measured \
             (last_batch=\"partial\")"
        );
        notices.notify(NoticeKind::Information, message);
        config.last_batch = LastBatch::Partial;
    }
    let mut heard = output::print_notices(&notices);
    if args.stall && config.assignment != Assignment::Order {
        let message =
            "does not work with --assignment, because epochs from memory use no cache: remove --assignment";
        return Err(Error::config("stall", message));
    }
    if args.stall {
        InMemoryDataset::check(&index)?;
    }
    let trace = trace(log.as_deref(), &place)?;
    let pipeline =
        Pipeline::with_reader(index, config, emulate::open_reader(args.emulate_pfs)).traced(trace.clone());
    let pipeline = share::shared(pipeline, args, &options, finder)?;
    let (ran, stall) = match args.stall {
        true => stall::measure(args, &place, &pipeline).map(|(ran, stall)| (ran, Some(stall)))?,
        false => (BenchRun::run(args, &place, &pipeline)?, None),
    };
    let mut report = BenchReport { stall, ..BenchReport::new(&pipeline, &place, ran, start, index_seconds) };
    drop(pipeline);
    let written = trace.finish()?;
    if written.dropped > 0 {
        notices.notify(NoticeKind::Warning, text::lost(written));
    }
    heard.append(&mut report.notices);
    heard.extend(output::print_notices(&notices));
    report.notices = heard;
    if args.json {
        return output::print_json(&report);
    }
    output::print(&text::summary(&report))?;
    if let Some(path) = &log {
        output::print(&text::trace(path, written))?;
    }
    Ok(())
}

fn trace(path: Option<&Path>, place: &BenchPlace) -> Result<Trace> {
    let process = format!("foreload bench, rank {} of {}", place.rank, place.world_size);
    path.map_or_else(|| Ok(Trace::off()), |path| Trace::create(path, &process))
}
