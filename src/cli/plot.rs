//! Plots of simulations as SVG, drawn without fonts or libraries of the system.

use base::error::{Error, Result};
use plotters::prelude::*;
use simulate::PolicyOutcome;
use std::path::{Path, PathBuf};

const SIZE: (u32, u32) = (1100, 480);
const WORK: RGBColor = RGBColor(70, 130, 180);
const STALL: RGBColor = RGBColor(214, 96, 77);
const TEXT: (&str, i32) = ("sans-serif", 14);

pub(super) fn svg_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(extension) if extension == "svg" => Ok(path),
        _ => Err("must end in .svg".into()),
    }
}

/// Draws a bar for each policy: its working time, then its stall. Draws the seconds of each epoch next to the bars.
///
/// # Errors
/// [`Error::Io`], which names the file.
pub(super) fn outcomes(path: &Path, title: &str, outcomes: &[PolicyOutcome]) -> Result<()> {
    let mut text = String::new();
    let failed = |error: String| Error::Internal(format!("drawing a plot: {error}"));
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        draw(&root, title, outcomes).map_err(|error| failed(error.to_string()))?;
        root.present().map_err(|error| failed(error.to_string()))?;
    }
    std::fs::write(path, text).map_err(|error| Error::io("write", path, error))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type DrawResult<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn draw<'a>(root: &Area<'a>, title: &str, outcomes: &[PolicyOutcome]) -> DrawResult<'a> {
    root.fill(&WHITE)?;
    let root = root.titled(title, ("sans-serif", 20))?;
    if outcomes.iter().any(|outcome| outcome.epochs.len() > 1) {
        let (left, right) = root.split_horizontally(SIZE.0 * 3 / 5);
        bars(&left, outcomes)?;
        epochs(&right, outcomes)
    } else {
        bars(&root, outcomes)
    }
}

fn bars<'a>(area: &Area<'a>, outcomes: &[PolicyOutcome]) -> DrawResult<'a> {
    let most = outcomes.iter().map(|outcome| outcome.seconds).fold(0.0, f64::max);
    let count = outcomes.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(110)
        .build_cartesian_2d(0.0..1.18 * most.max(f64::MIN_POSITIVE), 0.0..count)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_desc("seconds (red: waiting for storage)")
        .label_style(TEXT)
        .max_light_lines(0)
        .draw()?;
    for (row, outcome) in outcomes.iter().rev().enumerate() {
        let (low, high) = (row as f64 + 0.15, row as f64 + 0.85);
        let work = outcome.seconds - outcome.stall_seconds;
        chart.draw_series([
            Rectangle::new([(0.0, low), (work, high)], WORK.filled()),
            Rectangle::new([(work, low), (outcome.seconds, high)], STALL.filled()),
        ])?;
        let seconds = format!("{:.1} s", outcome.seconds);
        chart.draw_series([Text::new(seconds, (outcome.seconds + 0.01 * most, row as f64 + 0.6), TEXT)])?;
        let name = outcome.policy.name();
        let (_, y) = chart.backend_coord(&(0.0, row as f64 + 0.6));
        area.draw(&Text::new(name, (12, y - area.get_base_pixel().1), TEXT))?;
    }
    Ok(())
}

fn epochs<'a>(area: &Area<'a>, outcomes: &[PolicyOutcome]) -> DrawResult<'a> {
    let most =
        outcomes.iter().flat_map(|outcome| &outcome.epochs).map(|epoch| epoch.seconds).fold(0.0, f64::max);
    let last = outcomes.iter().map(|outcome| outcome.epochs.len()).max().unwrap_or(1);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(1.0..last as f64, 0.0..1.05 * most.max(f64::MIN_POSITIVE))?;
    chart
        .configure_mesh()
        .x_desc("epoch")
        .y_desc("seconds")
        .x_labels(last.min(10))
        .x_label_formatter(&|epoch| format!("{epoch:.0}"))
        .label_style(TEXT)
        .max_light_lines(0)
        .draw()?;
    for (number, outcome) in outcomes.iter().enumerate() {
        let colour = Palette99::pick(number).stroke_width(2);
        let points =
            outcome.epochs.iter().enumerate().map(|(epoch, cost)| (epoch as f64 + 1.0, cost.seconds));
        chart
            .draw_series(LineSeries::new(points, colour))?
            .label(outcome.policy.name())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()
}
