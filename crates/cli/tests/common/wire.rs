//! Two hosts on this machine.

use std::process::{Command, Stdio};

/// Two network namespaces with a wire between them; gone when dropped.
pub(crate) struct Wire {
    pub(crate) names: [String; 2],
}

impl Wire {
    pub(crate) fn new(test: &str) -> Result<Self, String> {
        let id = format!("{test}-{}", std::process::id());
        let wire = Wire {
            names: [format!("adverb-a-{id}"), format!("adverb-b-{id}")],
        };
        let [a, b] = &wire.names;
        for command in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add va netns {a} type veth peer name vb netns {b}"),
            format!("-n {a} address add 10.77.0.1/24 dev va"),
            format!("-n {b} address add 10.77.0.2/24 dev vb"),
            format!("-n {a} link set va up"),
            format!("-n {b} link set vb up"),
        ] {
            ip(&command)?;
        }
        Ok(wire)
    }

    /// From now on nothing passes.
    pub(crate) fn cut(&self) {
        ip(&format!("-n {} link set va down", self.names[0])).unwrap();
    }

    /// The command, in one of the namespaces.
    pub(crate) fn inside(&self, host: usize, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside
            .args(["netns", "exec", &self.names[host]])
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::null());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }
}

/// Runs `ip`; the error says why it cannot.
pub(crate) fn ip(command: &str) -> Result<(), String> {
    let ran = Command::new("ip").args(command.split(' ')).output();
    let ran = ran.map_err(|e| format!("ip: {e}"))?;
    if ran.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&ran.stderr);
    Err(format!("ip {command}: {}", why.trim()))
}

impl Drop for Wire {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}
