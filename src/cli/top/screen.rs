//! The terminal: drawing, keys and signals. The terminal is restored no matter how the program ends.

use super::view::{LineStyle, ViewLine};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::time::Instant;

/// The signals that are caught, so that no signal ends the program before the terminal is restored.
const SIGNALS: [i32; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP, libc::SIGWINCH];

/// Escape sequences that enter and leave the alternate screen, without a cursor and without line wrapping.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Sort,
    Up,
    Down,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScreenEvent {
    Pressed(Key),
    Resized,
    Suspended,
    Ended(i32),
}

pub(super) struct Screen {
    signals: OwnedFd,
    mask: libc::sigset_t,
    keys: Option<Termios>,
}

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        let stdin = io::stdin();
        let keys = if stdin.is_terminal() { Some(rustix::termios::tcgetattr(&stdin)?) } else { None };
        let (signals, mask) = block()?;
        let screen = Self { signals, mask, keys };
        screen.enter()?;
        Ok(screen)
    }

    fn enter(&self) -> io::Result<()> {
        if let Some(before) = &self.keys {
            let mut raw = before.clone();
            // Read keys one by one without echo. Ctrl-C still sends a signal.
            raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            raw.special_codes[SpecialCodeIndex::VMIN] = 1;
            raw.special_codes[SpecialCodeIndex::VTIME] = 0;
            rustix::termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        }
        write(ENTER)
    }

    fn leave(&self) {
        // If this fails, the terminal no longer exists.
        let _ = write(LEAVE);
        if let Some(before) = &self.keys {
            let _ = rustix::termios::tcsetattr(io::stdin(), OptionalActions::Flush, before);
        }
    }

    /// Restores the terminal and stops the program until the shell continues it.
    pub(super) fn suspend(&self) -> io::Result<()> {
        self.leave();
        set_mask(&self.mask);
        raise(libc::SIGTSTP);
        set_mask(&all());
        self.enter()
    }

    /// Draws `lines` over the lines on the screen, in one write.
    pub(super) fn draw(&self, lines: &[ViewLine]) -> io::Result<()> {
        let mut text = String::from("\x1b[H");
        for (number, (style, line)) in lines.iter().enumerate() {
            let style = match style {
                LineStyle::Plain => "",
                LineStyle::Title => "\x1b[1m",
                LineStyle::Chosen => "\x1b[7m",
                LineStyle::Faint => "\x1b[2m",
            };
            let next = if number == 0 { "" } else { "\r\n" };
            let _ = write!(text, "{next}{style}{line}\x1b[0m\x1b[K");
        }
        text += "\x1b[J";
        write(&text)
    }

    pub(super) fn wait(&self, deadline: Instant) -> io::Result<Vec<ScreenEvent>> {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
        let stdin = io::stdin();
        let mut polled = vec![PollFd::new(&self.signals, PollFlags::IN)];
        polled.extend(self.keys.as_ref().map(|_| PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)));
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut happened = Vec::new();
        if !polled[0].revents().is_empty() {
            happened.extend(self.signal()?);
        }
        if polled.get(1).is_some_and(|keys| !keys.revents().is_empty()) {
            let mut bytes = [0; 64];
            match rustix::io::read(stdin.as_fd(), &mut bytes) {
                Ok(0) | Err(rustix::io::Errno::IO) => happened.push(ScreenEvent::Ended(libc::SIGHUP)),
                Ok(length) => {
                    happened.extend(pressed(&bytes[..length]).into_iter().map(ScreenEvent::Pressed));
                }
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(happened)
    }

    fn signal(&self) -> io::Result<Option<ScreenEvent>> {
        let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.signals, &mut bytes) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let signal = i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Ok(Some(match signal {
            libc::SIGWINCH => ScreenEvent::Resized,
            libc::SIGTSTP => ScreenEvent::Suspended,
            signal => ScreenEvent::Ended(signal),
        }))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
        set_mask(&self.mask);
    }
}

pub(super) fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

/// Sends a signal to this process. It has its default effect, for example it ends the process.
pub(super) fn raise(signal: i32) {
    // SAFETY: `raise` takes a number and accesses no memory, and this program installs no signal handler.
    unsafe { libc::raise(signal) };
}

fn pressed(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut left = bytes;
    while let Some((&first, rest)) = left.split_first() {
        left = rest;
        match first {
            b'q' | b'Q' => keys.push(Key::Quit),
            b's' | b'S' => keys.push(Key::Sort),
            b'k' => keys.push(Key::Up),
            b'j' => keys.push(Key::Down),
            0x1b => {
                // A key with an escape sequence: parameters, then a letter.
                let Some(rest) = rest.strip_prefix(b"[").or(rest.strip_prefix(b"O")) else { continue };
                let parameters = rest.iter().take_while(|byte| !(0x40..=0x7e).contains(*byte)).count();
                match rest.get(parameters) {
                    Some(b'A') if parameters == 0 => keys.push(Key::Up),
                    Some(b'B') if parameters == 0 => keys.push(Key::Down),
                    _ => {}
                }
                left = rest.get(parameters + 1..).unwrap_or_default();
            }
            _ => {}
        }
    }
    keys
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn all() -> libc::sigset_t {
    // SAFETY: a signal set consists of integers, for which zero is a valid value, and `sigemptyset` initialises it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in SIGNALS {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

/// Blocks the caught signals. Returns the descriptor that delivers them, and the former signal mask.
fn block() -> io::Result<(OwnedFd, libc::sigset_t)> {
    let set = all();
    // SAFETY: both sets are valid for the calls, and nothing else owns the returned descriptor.
    unsafe {
        let descriptor = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut before = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
        Ok((OwnedFd::from_raw_fd(descriptor), before))
    }
}

fn set_mask(mask: &libc::sigset_t) {
    // SAFETY: the set is valid, and a null pointer means that the former mask is not returned.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_among_others() {
        assert_eq!(pressed(b"xsj\x1b[Ak"), [Key::Sort, Key::Down, Key::Up, Key::Up]);
        assert_eq!(pressed(b"\x1b[1;5A\x1b[Bq"), [Key::Down, Key::Quit], "with Ctrl an arrow is another key");
        assert_eq!(pressed(b"\x1bOA\x1b"), [Key::Up]);
        assert_eq!(pressed(b"\x1b[200~\x1b["), []);
    }
}
