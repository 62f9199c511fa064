//! The report as an HTML page, with each stage's activity over the epoch, and the consumer's waiting time.

use super::peers;
use super::text::{bandwidth, facts, percent};
use crate::output;
use base::trace::{EpochSummary, StageSummary, TraceSummary};
use std::fmt::Write;

/// The height of the curve of a fully busy stage, in pixels.
const HEIGHT: f64 = 34.0;

const UNFOLDED: usize = 4;

const STYLE: &str = include_str!("page.css");

pub(super) fn html(summary: &TraceSummary) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Where the time goes</title>\n<style>\n{STYLE}</style>\n<main>\n<h1>Where the time goes</h1>\n"
    );
    page += &overview(summary);
    for (number, epoch) in summary.epochs.iter().enumerate() {
        page += &section(epoch, number < UNFOLDED);
    }
    page.extend(summary.peers.iter().map(peers::html));
    page += &legend();
    page += "</main>\n</html>\n";
    page
}

/// Draws a bar for each epoch: its length, and the shares in which the consumer trained and waited.
fn overview(summary: &TraceSummary) -> String {
    let longest = summary.epochs.iter().map(|epoch| epoch.seconds).fold(f64::MIN_POSITIVE, f64::max);
    let mut html = String::new();
    if !summary.complete {
        html += "<p class=\"notice\">The run ended early: its last moments are missing.</p>\n";
    }
    html += "<div class=\"bars\">\n";
    for epoch in &summary.epochs {
        let width = 100.0 * epoch.seconds / longest;
        let waiting = 100.0 * epoch.waiting.min(1.0);
        let _ = writeln!(
            html,
            "<div class=\"name\">epoch {}</div>\
             <div class=\"bar\"><div class=\"whole\" style=\"width:{width:.2}%\" title=\"{}\">\
             <i class=\"wait\" style=\"width:{waiting:.2}%\"></i><i class=\"train\" style=\"flex:1\"></i></div></div>\
             <div class=\"number\">{}</div><div class=\"number\">{} waiting</div>",
            epoch.epoch,
            escaped(&facts(epoch)),
            output::seconds(epoch.seconds),
            percent(epoch.waiting),
        );
    }
    html += "</div>\n";
    html
}

fn section(epoch: &EpochSummary, unfolded: bool) -> String {
    let open = if unfolded { " open" } else { "" };
    let mut html = format!(
        "<details{open}>\n<summary>Epoch {} <small>{}</small></summary>\n<p>{}{}</p>\n<table>\n",
        epoch.epoch,
        escaped(&epoch.process),
        escaped(&facts(epoch)),
        epoch.limit.as_ref().map_or_else(String::new, |limit| format!("; busiest stage: <b>{limit}</b>")),
    );
    html += "<tr><th>stage<th>how busy over time<th>load<th><th>merged<th>bytes<th>bandwidth\n";
    for stage in &epoch.stages {
        html += &row(stage, epoch);
    }
    let _ = writeln!(
        html,
        "<tr class=\"axis\"><td><td>{}<td colspan=\"5\">\n</table>\n</details>",
        axis(epoch.seconds)
    );
    html
}

fn row(stage: &StageSummary, epoch: &EpochSummary) -> String {
    let (name, class) = (&stage.stage, class(&stage.stage));
    let threads =
        if stage.threads > 1 { format!(" <small>× {}</small>", stage.threads) } else { String::new() };
    let load = 100.0 * stage.load.min(1.0);
    let title = format!(
        "{name}: at least one of {} threads busy for {} of {}",
        stage.threads,
        output::seconds(stage.merged_seconds),
        output::seconds(epoch.seconds)
    );
    let bytes = if stage.bytes > 0 { output::bytes(stage.bytes) } else { String::new() };
    format!(
        "<tr><th class=\"stage {class}\">{name}{threads}<td class=\"course {class}\">{}\
         <td class=\"number\">{}<td class=\"share\"><i class=\"{class}\" style=\"width:{load:.1}%\"></i>\
         <td class=\"number\">{}<td class=\"number\">{bytes}<td class=\"number\">{}\n",
        activity(stage, &title),
        percent(stage.load),
        output::seconds(stage.merged_seconds),
        bandwidth(stage),
    )
}

fn activity(stage: &StageSummary, title: &str) -> String {
    let width = stage.course.len();
    let mut path = format!("M0 {HEIGHT}");
    let mut last = f64::NAN;
    for (at, busy) in stage.course.iter().enumerate() {
        let top = (HEIGHT * (1.0 - busy.clamp(0.0, 1.0)) * 10.0).round() / 10.0;
        if top != last {
            // Draw the horizontal segment first: up to this point the curve has its former height.
            let _ = write!(path, "H{at}V{top}");
            last = top;
        }
    }
    format!(
        "<svg viewBox=\"0 0 {width} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\"><title>{}</title>\
         <path d=\"{path}H{width}V{HEIGHT}Z\"/></svg>",
        escaped(title)
    )
}

fn axis(seconds: f64) -> String {
    let step = round_step(seconds / 6.0);
    let mut html = String::from("<div class=\"ticks\">");
    let mut tick = 0.0;
    while seconds > 0.0 && tick <= seconds * 0.97 {
        let _ = write!(
            html,
            "<span style=\"left:{:.2}%\">{}</span>",
            100.0 * tick / seconds,
            if tick == 0.0 { "0".into() } else { output::seconds(tick) }
        );
        tick += step;
    }
    html + "</div>"
}

/// The smallest of 1, 2, 5, 10, … that is not below `least`.
fn round_step(least: f64) -> f64 {
    let least = least.max(1e-6);
    let ten = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|digit| digit * ten).find(|step| *step >= least).unwrap_or(10.0 * ten)
}

fn legend() -> String {
    "<footer>The height of a curve is the share of the stage's threads that were busy; for reads, whether any was in \
     flight. <b>Load</b> is the mean height. <b>Merged</b> is the time in which at least one thread was busy; \
     overlapping intervals count once. <b>Bandwidth</b> is bytes per merged time.</footer>\n"
        .into()
}

/// The CSS classes of a stage: `read read-nvme`. A tier without a rule in the style sheet uses the rule of `read` or
/// `write`.
fn class(stage: &str) -> String {
    match stage.split_once(' ') {
        Some((kind @ ("read" | "write"), _)) => format!("{kind} {}", stage.replace(' ', "-")),
        _ => stage.replace(' ', "-"),
    }
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        for (least, step) in
            [(0.9, 1.0), (1.0, 1.0), (1.1, 2.0), (3.0, 5.0), (7.0, 10.0), (0.012, 0.02), (0.0, 1e-6)]
        {
            assert!((round_step(least) / step - 1.0).abs() < 1e-9, "{least}: {}", round_step(least));
        }
        assert_eq!(axis(0.0), "<div class=\"ticks\"></div>");
        assert_eq!(axis(4.3).matches("<span").count(), 5);
    }

    #[test]
    fn a_course_is_drawn_in_steps() {
        let stage = StageSummary {
            stage: "decode".into(),
            threads: 1,
            intervals: 1,
            merged_seconds: 1.0,
            thread_seconds: 1.0,
            share: 1.0,
            load: 1.0,
            samples: 1,
            bytes: 0,
            bandwidth: 0.0,
            course: vec![0.0, 1.0, 1.0, 0.5],
        };
        assert!(activity(&stage, "a < b").contains("a &lt; b"));
        assert!(activity(&stage, "").contains("d=\"M0 34H0V34H1V0H3V17H4V34Z\""), "{}", activity(&stage, ""));
    }
}
