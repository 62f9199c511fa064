//! The report of the measurements as a table.

use super::CalibrateReport;
use crate::output::{bytes, seconds};
use store::tier::TierRates;
use store::tier::measure::{MeasuredTier, Reads};

pub(super) fn table(report: &CalibrateReport) -> String {
    let mut lines = Vec::new();
    if let Some(source) = &report.source {
        lines.push(format!(
            "source  {} ({}), {}",
            source.path.display(),
            source.file_system,
            source.measured.io
        ));
        lines.extend(reads(&source.measured));
        lines.push(rates(&source.measured.rates));
    }
    if let Some(nvme) = &report.nvme {
        lines.push(format!("nvme    {} ({}), {}", nvme.path.display(), nvme.file_system, nvme.measured.io));
        if !nvme.direct {
            lines.push("  without O_DIRECT: results may include the page cache".into());
        }
        lines.push(format!(
            "  {:<24} {:>9} in {:>7}: {}/s",
            "written",
            bytes(nvme.written_bytes),
            seconds(nvme.write_seconds),
            bytes((nvme.written_bytes as f64 / nvme.write_seconds) as u64)
        ));
        lines.extend(reads(&nvme.measured));
        lines.push(rates(&nvme.measured.rates));
    }
    if let Some(decoded) = &report.decode {
        lines.push(format!("decode  {} threads, {}", decoded.threads, decoded.device));
        lines.push(format!(
            "  {} images, {} in {}: {:.0} images/s, {}/s",
            decoded.images,
            bytes(decoded.bytes),
            seconds(decoded.seconds),
            decoded.images as f64 / decoded.seconds,
            bytes(decoded.bandwidth() as u64)
        ));
    }
    lines.join("\n")
}

fn reads(measured: &MeasuredTier) -> Vec<String> {
    let kinds = [
        ("first of a shard", measured.opened.as_ref()),
        ("one at a time", Some(&measured.one)),
        ("at once", Some(&measured.full)),
        ("large reads at once", measured.large.as_ref()),
    ];
    kinds.into_iter().filter_map(|(kind, reads)| Some(line(kind, reads?))).collect()
}

fn line(kind: &str, reads: &Reads) -> String {
    let kind = match reads.in_flight {
        1 => kind.to_owned(),
        many => format!("{many} {kind}"),
    };
    format!(
        "  {kind:<24} {:>9} in {:>7}: {}/s, {:.0} reads/s of {}, {} each",
        bytes(reads.bytes),
        seconds(reads.seconds),
        bytes(reads.bandwidth() as u64),
        reads.per_second(),
        bytes(reads.bytes / reads.reads.max(1)),
        seconds(reads.median_seconds),
    )
}

fn rates(rates: &TierRates) -> String {
    let TierRates { open_seconds, read_seconds, concurrency, read_bandwidth, .. } = rates;
    format!(
        "  rates: open {}, read {}, {concurrency:.1} concurrent reads, {}/s",
        seconds(*open_seconds),
        seconds(*read_seconds),
        bytes(*read_bandwidth as u64)
    )
}
