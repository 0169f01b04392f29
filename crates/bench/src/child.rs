//! Processes that measurements start.

use std::net::TcpListener;
use std::process::Child;

use anyhow::{Context as _, Result};

/// A process that ends with its measurement.
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a program is installed.
pub(crate) fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// A TCP port that nobody listens at.
pub(crate) fn free_port() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no free TCP port")?;
    Ok(listener.local_addr()?.port().to_string())
}
