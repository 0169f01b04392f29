//! Two network namespaces with a wire between them.

use std::process::Command;
use std::time::{Duration, Instant};

/// Network namespaces joined by a pair of virtual interfaces; deleted when dropped.
pub(crate) struct Wire {
    pub(crate) names: [String; 2],
}

impl Wire {
    pub(crate) const ADDRESSES: [&str; 2] = ["10.79.0.1", "10.79.0.2"];

    /// Makes the namespaces; the error is the reason if that is not possible.
    pub(crate) fn new(test: &str) -> Result<Self, String> {
        let id = std::process::id();
        let wire = Wire {
            names: [0, 1].map(|host| format!("adverb-{test}-{host}-{id}")),
        };
        let [a, b] = &wire.names;
        for command in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add v0 netns {a} type veth peer name v1 netns {b}"),
            format!("-n {a} address add {}/24 dev v0", Self::ADDRESSES[0]),
            format!("-n {b} address add {}/24 dev v1", Self::ADDRESSES[1]),
            format!("-n {a} link set v0 up"),
            format!("-n {b} link set v1 up"),
            format!("-n {a} link set lo up"),
            format!("-n {b} link set lo up"),
        ] {
            ip(&command)?;
        }
        for (name, device) in wire.names.iter().zip(["v0", "v1"]) {
            wait_for_carrier(name, device)?;
        }
        Ok(wire)
    }
}

/// Waits until an interface is up: the kernel notices the carrier some time after both ends are up.
fn wait_for_carrier(namespace: &str, device: &str) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let shown = ip(&format!("-n {namespace} -o link show dev {device}"))?;
        if shown.contains(" state UP ") {
            return Ok(());
        }
        assert!(
            Instant::now() < deadline,
            "{device} in {namespace} has no carrier after a minute: {shown}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs `ip`; returns what it prints.
fn ip(command: &str) -> Result<String, String> {
    let output = Command::new("ip").args(command.split(' ')).output();
    let output = output.map_err(|error| format!("ip: {error} (package iproute2)"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {command}: {}", errors.trim()))
}

impl Drop for Wire {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}
