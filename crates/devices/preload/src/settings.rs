//! The settings of the process, which `adverb run` passes in the environment.

use std::io::Write as _;
use std::sync::OnceLock;

use adverb_softnic::{Settings, SettingsError};

/// Returns the settings of this process, which are read at the first call and do not change afterwards.
pub(crate) fn settings() -> Result<&'static Settings, &'static SettingsError> {
    static SETTINGS: OnceLock<Result<Settings, SettingsError>> = OnceLock::new();
    let read = SETTINGS.get_or_init(|| {
        let read = Settings::read(|name| std::env::var(name).ok());
        if let Err(error) = &read {
            print(&error.to_string());
        }
        read
    });
    read.as_ref()
}

/// Prints a line to stderr. It is lost if stderr is closed.
pub(crate) fn print(line: &str) {
    let _ = std::io::stderr().write_all(format!("adverb: {line}\n").as_bytes());
}
