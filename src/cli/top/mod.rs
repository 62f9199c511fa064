//! The command `foreload top`, a live view of all loaders of this user on this node.

mod cells;
mod json;
mod rows;
mod screen;
mod table;
#[cfg(test)]
mod tests;
mod view;

use super::{choice, output};
use base::error::{Error, Result};
use base::names::{NamedValue, named};
use base::units::parse_duration;
use engine::status::StatusWatch;
use rows::TopRows;
use screen::{Key, Screen, ScreenEvent};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use view::TopView;

/// The arguments of `foreload top`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Keys: q quits, s changes the sort order, arrows select the loader with details.\n\n\
    Loaders are found in $FORELOAD_RUNTIME_DIR, else in $XDG_RUNTIME_DIR, /run/user/UID or /tmp: set it to the same \
    value for all programs, and set FORELOAD_TOP=0 for a program whose loaders should not be shown.")]
pub(super) struct TopArgs {
    /// Print one table and exit; the default if stdout is not a terminal
    #[arg(long)]
    once: bool,
    /// Print one JSON object per update, one per line, instead of drawing
    #[arg(long)]
    json: bool,
    /// Update interval, e.g. 500ms; rates are measured over one interval
    #[arg(long, default_value = "1s", value_parser = |text: &str| parse_duration("interval", text))]
    interval: Duration,
    /// Sort order: `process` (lowest number first), `rate` (most samples/s first), `waiting` (longest waiting first)
    #[arg(long, value_name = "process|rate|waiting", default_value = "process")]
    #[arg(value_parser = choice::<Sorting>("sort"))]
    sort: Sorting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sorting {
    Process,
    Rate,
    Waiting,
}

named!(Sorting: "process" => Process, "rate" => Rate, "waiting" => Waiting);

impl Sorting {
    fn next(self) -> Self {
        let at = Self::NAMES.iter().position(|(_, sorting)| *sorting == self).unwrap_or(0);
        Self::NAMES[(at + 1) % Self::NAMES.len()].1
    }
}

const INTERVALS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(3600));

const PATIENCE: Duration = Duration::from_millis(500);

/// Runs the command.
///
/// # Errors
/// [`Error::Config`] if the interval is too short or long; [`Error::Unavailable`] if loaders cannot be found;
/// [`Error::Io`] if the terminal fails.
pub(super) fn run(args: &TopArgs) -> Result<()> {
    if !(INTERVALS.0..=INTERVALS.1).contains(&args.interval) {
        let (shortest, longest) = (INTERVALS.0.as_millis(), INTERVALS.1.as_secs());
        let message = format!("is {:?}, must be {shortest}ms to {longest}s", args.interval);
        return Err(Error::config("interval", message));
    }
    let mut watch = StatusWatch::new()?;
    let is_terminal = std::io::stdout().is_terminal();
    if args.once || !is_terminal {
        // A process that does not respond to the first query has until the end of the second query.
        watch.ask_all(PATIENCE.min(args.interval));
        std::thread::sleep(args.interval);
        let seen = watch.ask_all(PATIENCE);
        if args.json {
            return output::print_json(&json::of(&seen));
        }
        let width = is_terminal.then(|| screen::size().0);
        return output::print(&view::once(&TopRows::new(&seen, args.sort), watch.place(), width));
    }
    if args.json {
        loop {
            output::print_json(&json::of(&watch.ask_all(PATIENCE.min(args.interval))))?;
            std::thread::sleep(args.interval);
        }
    }
    let failed = |error| Error::io("draw on", "the terminal", error);
    let screen = Screen::open().map_err(failed)?;
    let ended_by = draw(args, &mut watch, &screen).map_err(failed)?;
    drop(screen);
    // The terminal is restored, so the signal may now have its usual effect.
    ended_by.into_iter().for_each(screen::raise);
    Ok(())
}

/// Draws until the user quits, or until a signal arrives. Returns this signal.
fn draw(args: &TopArgs, watch: &mut StatusWatch, screen: &Screen) -> std::io::Result<Option<i32>> {
    let mut view = TopView::new(args.sort, args.interval);
    loop {
        let next = Instant::now() + args.interval;
        let seen = watch.ask_all(PATIENCE.min(args.interval));
        loop {
            let rows = TopRows::new(&seen, view.sort);
            screen.draw(&view.lines(&rows, watch.place(), screen::size()))?;
            let happened = screen.wait(next)?;
            for happening in &happened {
                match happening {
                    ScreenEvent::Pressed(Key::Quit) => return Ok(None),
                    ScreenEvent::Pressed(Key::Sort) => view.sort = view.sort.next(),
                    ScreenEvent::Pressed(Key::Up) => view.step(&rows, -1),
                    ScreenEvent::Pressed(Key::Down) => view.step(&rows, 1),
                    ScreenEvent::Resized => {}
                    ScreenEvent::Suspended => screen.suspend()?,
                    ScreenEvent::Ended(signal) => return Ok(Some(*signal)),
                }
            }
            // Redraw at once after a key press, unless the next update is due.
            if happened.is_empty() || Instant::now() >= next {
                break;
            }
        }
    }
}
