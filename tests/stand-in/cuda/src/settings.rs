//! The settings of the stand-in from the environment, read once.

use std::sync::OnceLock;

/// The action at exit if there are leaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaks {
    Fail,
    Print,
    Ignore,
}

/// The settings; `lib.rs` has the table.
#[derive(Debug)]
pub struct Settings {
    pub seed: u64,
    pub delay_us: u64,
    pub devices: i32,
    pub capability: (i32, i32),
    pub memory: u64,
    pub version: i32,
    pub abort: bool,
    pub leaks: Leaks,
}

/// The settings of this process.
pub fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let text = |name: &str| std::env::var(format!("FORELOAD_STANDIN_{name}")).ok();
        let number =
            |name: &str, otherwise: u64| text(name).and_then(|value| value.parse().ok()).unwrap_or(otherwise);
        let capability = text("CAPABILITY").and_then(|value| {
            let (major, minor) = value.split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        });
        Settings {
            seed: number("SEED", 1),
            delay_us: number("DELAY_US", 300),
            devices: number("DEVICES", 1) as i32,
            capability: capability.unwrap_or((9, 0)),
            memory: number("MEMORY", 1 << 30),
            version: number("VERSION", 13000) as i32,
            abort: text("VIOLATIONS").as_deref() != Some("record"),
            leaks: match text("LEAKS").as_deref() {
                Some("print") => Leaks::Print,
                Some("ignore") => Leaks::Ignore,
                _ => Leaks::Fail,
            },
        }
    })
}
