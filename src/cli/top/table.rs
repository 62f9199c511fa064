//! The table: which columns fit, and the width of each.

use super::cells;
use super::rows::TopRow;
use crate::output::{self, escaped_for_terminal};
use engine::status::{LoaderRates, LoaderSnapshot};

struct TopColumn {
    title: &'static str,
    side: CellSide,
    /// If not all columns fit, the columns with the lowest `priority` are dropped first.
    priority: u32,
    cell: CellText,
}

/// The alignment of a column, and which end of a long text is kept.
#[derive(Clone, Copy, PartialEq)]
enum CellSide {
    Right,
    /// A left-aligned text of at most this many cells. Its beginning is kept.
    Left(usize),
    /// A left-aligned text of at most this many cells. Its end is kept.
    LeftEnd(usize),
}

type CellText = fn(&TopRow<'_>, &LoaderSnapshot, &LoaderRates) -> String;

const fn column(title: &'static str, side: CellSide, priority: u32, cell: CellText) -> TopColumn {
    TopColumn { title, side, priority, cell }
}

const COLUMNS: [TopColumn; 16] = [
    column("PID", CellSide::Right, 99, |row, _, _| row.process.pid.to_string()),
    column("PROGRAM", CellSide::Left(20), 97, |row, _, _| escaped_for_terminal(&row.process.program)),
    column("DATASET", CellSide::LeftEnd(40), 90, |_, loader, _| escaped_for_terminal(&loader.dataset)),
    column("RANK", CellSide::Right, 80, |_, loader, _| format!("{}/{}", loader.rank, loader.world_size)),
    column("DEVICE", CellSide::Left(8), 30, |_, loader, _| escaped_for_terminal(&loader.device)),
    column("EPOCH", CellSide::Right, 60, |_, loader, _| epoch(loader)),
    column("STEP", CellSide::Right, 70, |_, loader, _| match loader.steps {
        Some(steps) => format!("{}/{steps}", loader.step),
        None => loader.step.to_string(),
    }),
    column("SAMPLES/S", CellSide::Right, 98, |_, _, rates| format!("{:.0}", rates.samples_per_second)),
    column("BYTES/S", CellSide::Right, 50, |_, _, rates| output::bytes(rates.bytes_per_second as u64)),
    column("LIMIT", CellSide::Left(16), 96, |_, loader, rates| match (&rates.limit, loader.running) {
        (Some(limit), _) => escaped_for_terminal(limit),
        (None, true) => "-".into(),
        (None, false) => "idle".into(),
    }),
    column("WAIT", CellSide::Right, 95, |_, _, rates| percent(rates.waiting)),
    column("P50/P99 STALL", CellSide::Right, 55, |_, loader, _| {
        let stalls = &loader.stalls;
        format!("{}/{}", output::seconds(stalls.p50), output::seconds(stalls.p99))
    }),
    column("FROM", CellSide::Left(34), 40, |_, _, rates| from(rates)),
    column("THREADS", CellSide::Right, 20, |_, loader, _| loader.stages.threads.to_string()),
    column("READS", CellSide::Right, 15, |_, loader, _| {
        format!("{}/{}", loader.queue.in_flight, loader.queue.depth)
    }),
    column("READY", CellSide::Right, 25, |_, loader, _| {
        format!("{}/{}", loader.queue.ready, loader.queue.prefetch)
    }),
];

const MIN_TEXT_WIDTH: usize = 10;

const SEPARATOR: &str = "  ";

/// The number of columns that identify the process. They are filled whether or not the process answers.
const PROCESS_COLUMNS: usize = 2;

pub(super) fn lines(rows: &[TopRow<'_>], width: Option<usize>) -> Vec<String> {
    let (nothing, no_rates) = (LoaderSnapshot::default(), LoaderRates::default());
    let cells = |row: &TopRow<'_>| {
        let (loader, rates) = row.loader.unwrap_or((&nothing, &no_rates));
        let shown = if row.loader.is_some() { COLUMNS.len() } else { PROCESS_COLUMNS };
        let cell = |(number, column): (usize, &TopColumn)| {
            if number < shown { (column.cell)(row, loader, rates) } else { String::new() }
        };
        COLUMNS.iter().enumerate().map(cell).collect()
    };
    let mut table: Vec<Vec<String>> = vec![COLUMNS.iter().map(|column| column.title.into()).collect()];
    table.extend(rows.iter().map(cells));
    let widths = widths(&table, width.unwrap_or(usize::MAX));
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&COLUMNS).zip(&widths);
        let cells = cells.filter_map(|((cell, column), width)| Some(fitted(cell, column.side, (*width)?)));
        cells.collect::<Vec<_>>().join(SEPARATOR)
    };
    let mut lines = vec![line(&table[0])];
    lines.extend(rows.iter().zip(&table[1..]).map(|(row, cells)| match row.problem() {
        None => line(cells),
        Some(problem) => {
            format!("{}{SEPARATOR}{}", line(&cells[..PROCESS_COLUMNS]), escaped_for_terminal(&problem))
        }
    }));
    for line in &mut lines {
        line.truncate(line.trim_end().len());
        if let Some(width) = width {
            *line = fitted(line, CellSide::Left(width), cells::width(line).min(width));
        }
    }
    lines
}

fn widths(table: &[Vec<String>], most: usize) -> Vec<Option<usize>> {
    let natural = |(number, column): (usize, &TopColumn)| {
        let longest = table.iter().map(|row| cells::width(&row[number])).max().unwrap_or(0);
        match column.side {
            CellSide::Right => Some(longest),
            CellSide::Left(most) | CellSide::LeftEnd(most) => Some(longest.min(most).max(column.title.len())),
        }
    };
    let mut widths: Vec<Option<usize>> = COLUMNS.iter().enumerate().map(natural).collect();
    loop {
        let shown = widths.iter().flatten().count();
        let total = widths.iter().flatten().sum::<usize>() + SEPARATOR.len() * shown.saturating_sub(1);
        if total <= most || shown <= 1 {
            return widths;
        }
        let mut over = total - most;
        let texts = COLUMNS.iter().zip(&mut widths).filter(|(column, _)| column.side != CellSide::Right);
        let could: usize =
            texts.map(|(_, width)| width.map_or(0, |width| width.saturating_sub(MIN_TEXT_WIDTH))).sum();
        if could >= over {
            while over > 0 {
                let texts =
                    COLUMNS.iter().zip(&mut widths).filter(|(column, _)| column.side != CellSide::Right);
                let Some(longest) = texts.filter_map(|(_, width)| width.as_mut()).max_by_key(|width| **width)
                else {
                    break;
                };
                *longest -= 1;
                over -= 1;
            }
            return widths;
        }
        let least =
            (0..COLUMNS.len()).filter(|at| widths[*at].is_some()).min_by_key(|at| COLUMNS[*at].priority);
        if let Some(least) = least {
            widths[least] = None;
        }
    }
}

fn fitted(text: &str, side: CellSide, width: usize) -> String {
    let kept = width.max(1) - 1;
    let cut = match side {
        CellSide::Right => return format!("{text:>width$}"),
        _ if cells::width(text) <= width => text.to_owned(),
        CellSide::LeftEnd(_) => format!("…{}", cells::end(text, kept)),
        CellSide::Left(_) => format!("{}…", cells::beginning(text, kept)),
    };
    cells::padded(&cut, width)
}

fn epoch(loader: &LoaderSnapshot) -> String {
    // A stream has no epochs.
    loader.steps.map_or_else(|| "-".into(), |_| loader.epoch.to_string())
}

fn from(rates: &LoaderRates) -> String {
    let tiers: Vec<_> = rates
        .tiers
        .iter()
        .map(|(name, share)| format!("{} {}", escaped_for_terminal(name), percent(*share)))
        .collect();
    if tiers.is_empty() { "-".into() } else { tiers.join(" ") }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}
