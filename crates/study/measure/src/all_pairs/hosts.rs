//! The hosts of all pairs: their names and numbers.

use adverb_launch::{DeviceChoice, DeviceInfo, Launcher};
use adverb_results::{DeviceRef, Site};

/// A host, as records and tables name it.
pub struct Host {
    /// Unique among the hosts.
    pub name: String,
    /// Its device.
    pub device: DeviceRef,
    /// Its machine, with details of the device.
    pub site: Site,
}

/// All hosts: this one, with each device that was named, then the peers.
pub struct Hosts(Vec<Host>);

impl Hosts {
    /// Returns the hosts of a launcher.
    ///
    /// # Errors
    /// A device of this host cannot be opened.
    pub fn of(launcher: &Launcher, devices: &[DeviceChoice]) -> anyhow::Result<Self> {
        let mut hosts = Vec::new();
        for (number, device) in devices.iter().enumerate() {
            let first = launcher.device();
            let device = if number == 0 { &first } else { device };
            let info = DeviceInfo::query(device)?;
            hosts.push((info.reference, info.site));
        }
        for peer in launcher.peers() {
            let welcome = peer.welcome();
            hosts.push((welcome.device.clone(), welcome.site.clone()));
        }
        let names = names(&hosts);
        let hosts = hosts.into_iter().zip(names);
        let hosts = hosts.map(|((device, site), name)| Host { name, device, site });
        Ok(Hosts(hosts.collect()))
    }

    /// A host by its number.
    pub fn get(&self, number: u32) -> &Host {
        &self.0[number as usize]
    }

    /// Returns the hosts in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Host> {
        self.0.iter()
    }

    /// The numbers of every two hosts, each two once, the lower number first.
    pub fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let hosts = self.0.len() as u32;
        (0..hosts).flat_map(move |from| (from + 1..hosts).map(move |to| (from, to)))
    }
}

/// Returns unique names: the host's name, with the device if that is not unique, and with a number if that is
/// not unique either.
fn names(hosts: &[(DeviceRef, Site)]) -> Vec<String> {
    let by_host: Vec<String> = hosts.iter().map(|(_, site)| site.host.clone()).collect();
    if differ(&by_host) {
        return by_host;
    }
    let with_device = |(device, site): &(DeviceRef, Site)| format!("{}:{device}", site.host);
    let by_device: Vec<String> = hosts.iter().map(with_device).collect();
    if differ(&by_device) {
        return by_device;
    }
    let numbered = by_device.iter().enumerate();
    numbered.map(|(n, name)| format!("{name}#{n}")).collect()
}

fn differ(names: &[String]) -> bool {
    let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
    distinct.len() == names.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use adverb_results::DeviceKind;

    #[test]
    fn names_of_hosts_differ() {
        let host = |host: &str, device: &str| {
            let device = DeviceRef {
                kind: DeviceKind::Soft,
                name: device.to_owned(),
            };
            let site = Site {
                host: host.to_owned(),
                kernel: String::new(),
                cpu: String::new(),
                cores: 2,
                device: Default::default(),
            };
            (device, site)
        };
        assert_eq!(names(&[host("a", "x"), host("b", "x")]), ["a", "b"]);
        assert_eq!(names(&[host("a", "x"), host("a", "y")]), ["a:x", "a:y"]);
        assert_eq!(names(&[host("a", "x"), host("a", "x")]), ["a:x#0", "a:x#1"]);
    }
}
