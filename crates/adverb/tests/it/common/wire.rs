//! Two hosts on this machine.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

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
        wait_until_up(a, "va")?;
        wait_until_up(b, "vb")?;
        Ok(wire)
    }

    /// From now on nothing passes.
    pub(crate) fn cut(&self) {
        ip(&format!("-n {} link set va down", self.names[0])).unwrap();
    }

    /// The command, in one of the namespaces.
    pub(crate) fn inside(&self, host: usize, command: &Command) -> Command {
        inside(&self.names[host], command)
    }
}

/// The command, in a namespace.
fn inside(namespace: &str, command: &Command) -> Command {
    let mut inside = Command::new("ip");
    inside
        .args(["netns", "exec", namespace])
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

/// Network namespaces at one switch, at 10.78.0.1 and up; gone when dropped.
pub(crate) struct Lan {
    names: Vec<String>,
}

impl Lan {
    pub(crate) fn new(test: &str, hosts: usize) -> Result<Self, String> {
        let id = format!("{test}-{}", std::process::id());
        let name = |host| format!("adverb-{host}-{id}");
        // The last one is the switch.
        let lan = Lan {
            names: (0..=hosts).map(name).collect(),
        };
        let (switch, hosts) = lan.names.split_last().expect("there is a switch");
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link add bridge type bridge"))?;
        ip(&format!("-n {switch} link set bridge up"))?;
        for (host, name) in (1..).zip(hosts) {
            for command in [
                format!("netns add {name}"),
                format!("link add port{host} netns {switch} type veth peer name eth0 netns {name}"),
                format!("-n {switch} link set port{host} master bridge"),
                format!("-n {switch} link set port{host} up"),
                format!("-n {name} address add 10.78.0.{host}/24 dev eth0"),
                format!("-n {name} link set eth0 up"),
                format!("-n {name} link set lo up"),
            ] {
                ip(&command)?;
            }
        }
        for (host, name) in (1..).zip(hosts) {
            wait_until_up(switch, &format!("port{host}"))?;
            wait_until_up(name, "eth0")?;
        }
        wait_until_up(switch, "bridge")?;
        Ok(lan)
    }

    /// The namespace of a host.
    pub(crate) fn name(&self, host: usize) -> &str {
        &self.names[host]
    }

    /// The command, on one of the hosts.
    pub(crate) fn inside(&self, host: usize, command: &Command) -> Command {
        inside(&self.names[host], command)
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

/// Waits until an interface is up and has a carrier. The kernel notices a carrier some time after both ends are up, and
/// drops what is sent before.
fn wait_until_up(namespace: &str, device: &str) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let seen = ip_output(&format!("-n {namespace} -o link show dev {device}"))?;
        if seen.contains(" state UP ") {
            return Ok(());
        }
        if Instant::now() > deadline {
            // Not a reason to leave the test out.
            panic!("{device} in {namespace} has no carrier after a minute: {seen}");
        }
        sleep(Duration::from_millis(10));
    }
}

/// Runs `ip`; the error is the reason of a failure.
pub(crate) fn ip(command: &str) -> Result<(), String> {
    ip_output(command).map(drop)
}

fn ip_output(command: &str) -> Result<String, String> {
    let ran = Command::new("ip").args(command.split(' ')).output();
    let ran = ran.map_err(|e| format!("ip: {e}"))?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
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
