//! A port: its state, addresses and packets.

use std::net::{IpAddr, Ipv6Addr};

use adverb_sysfs::{Driver, GidEntry, Netdev, PhysState, Port, PortState};
use adverb_units::Bytes;
use adverb_verbs::{Gid, GidType, LinkLayer, PathMtu};

use crate::finding::{Check, Finding, Subject, System, Verdict};
use crate::machine::{DeviceFacts, Machine};

/// A port and its environment.
struct Context<'m> {
    facts: &'m DeviceFacts,
    port: &'m Port,
    netdev: Option<&'m Netdev>,
    sudo: &'static str,
}

pub(super) fn any_active(facts: &DeviceFacts) -> bool {
    facts.rdma.ports.iter().any(is_active)
}

fn is_active(port: &Port) -> bool {
    port.state.is(PortState::Active) || port.state.is(PortState::ActiveDefer)
}

/// Checks all ports; `lame` is the verdict for a port that carries no data.
pub(super) fn checks(machine: &Machine, facts: &DeviceFacts, lame: Verdict) -> Vec<Finding> {
    let contexts = facts.rdma.ports.iter().map(|port| Context {
        facts,
        port,
        netdev: facts.netdevs.get(&port.number),
        sudo: machine.process.sudo(),
    });
    contexts
        .flat_map(|context| [Some(context.state(lame)), context.gid(lame), context.mtu()])
        .flatten()
        .collect()
}

impl Context<'_> {
    fn finding(&self, check: Check, verdict: Verdict, found: impl Into<String>) -> Finding {
        let subject = Subject::Port {
            device: self.facts.rdma.name.clone(),
            port: self.port.number.0,
        };
        Finding::new(check, subject, verdict, found)
    }

    fn is(&self, layer: LinkLayer) -> bool {
        self.port.link_layer.is(layer)
    }

    fn state(&self, lame: Verdict) -> Finding {
        let port = self.port;
        let state = format!("{}, {}", port.state, port.link_layer);
        if is_active(port) {
            let rate = port
                .rate
                .as_ref()
                .map_or(String::new(), |rate| format!(", {rate}"));
            return self.finding(Check::PortState, Verdict::Ok, state + &rate);
        }
        if self.is(LinkLayer::InfiniBand) {
            self.infiniband_down(lame)
        } else {
            self.ethernet_down(lame, state)
        }
    }

    fn ethernet_down(&self, lame: Verdict, state: String) -> Finding {
        let sudo = self.sudo;
        let finding = |found: String| self.finding(Check::PortState, lame, found);
        let Some(netdev) = self.netdev else {
            return finding(state).advise(
                "its network interface is not known here; it may be in another network namespace",
            );
        };
        let name = &netdev.name;
        if !netdev.is_up {
            return finding(format!("{state}: {name} is switched off"))
                .run(format!("{sudo}ip link set {name} up"));
        }
        if netdev.carrier == Some(false) {
            return finding(format!("{state}: {name} has no carrier"))
                .advise("check the cable, the transceiver and the switch's port");
        }
        finding(format!("{state}, though {name} is {}", netdev.operstate)).run(format!(
            "{sudo}ip link set {name} down && {sudo}ip link set {name} up"
        ))
    }

    fn infiniband_down(&self, lame: Verdict) -> Finding {
        let (device, port, sudo) = (&self.facts.rdma.name, self.port.number, self.sudo);
        let physical = self.port.phys_state.as_ref();
        let words = physical.map_or(String::new(), |state| format!(", physically {state}"));
        let found = format!("{}, InfiniBand{words}", self.port.state);
        let finding = self.finding(Check::PortState, lame, found);
        match physical.and_then(adverb_sysfs::Open::known) {
            Some(PhysState::LinkUp) => finding
                .advise("no subnet manager has configured it: start one on a switch or a host")
                .run_on(System::Debian, format!("{sudo}apt install opensm"))
                .run_on(
                    System::Rhel,
                    format!("{sudo}dnf install opensm && {sudo}systemctl enable --now opensm"),
                ),
            Some(PhysState::Disabled) => finding.run(format!(
                "{sudo}ibportstate -C {device} -P {port} -D 0 {port} enable"
            )),
            _ => finding.advise("check the cable and the switch's port"),
        }
    }

    /// Checks the GID; not for iWARP, which uses IP addresses.
    fn gid(&self, lame: Verdict) -> Option<Finding> {
        if self.is(LinkLayer::Ethernet) {
            return Some(self.roce_gid(lame));
        }
        if !self.is(LinkLayer::InfiniBand) {
            return None;
        }
        let first = self.port.gids.first().map(|entry| {
            let found = format!("index {}, {}", entry.index, entry.gid);
            self.finding(Check::Gid, Verdict::Ok, found)
        });
        first.or_else(|| Some(self.no_gid(lame)))
    }

    /// Returns the finding that no peer can address the port.
    fn no_gid(&self, lame: Verdict) -> Finding {
        let verdict = if is_active(self.port) {
            Verdict::Broken
        } else {
            lame
        };
        self.finding(Check::Gid, verdict, "none in the table")
    }

    fn roce_gid(&self, lame: Verdict) -> Finding {
        let gids = &self.port.gids;
        let of = |kind| gids.iter().filter(move |entry| is_kind(entry, kind));
        if let Some(entry) = of(GidType::RoceV2).find(|entry| is_routable(entry.gid)) {
            let found = format!("index {}, RoCE v2, {}", entry.index, address(entry.gid));
            return self.finding(Check::Gid, Verdict::Ok, found);
        }
        let finding = |verdict, found: &str| self.finding(Check::Gid, verdict, found);
        if of(GidType::RoceV1).any(|entry| is_routable(entry.gid)) {
            return finding(
                Verdict::Warning,
                "RoCE v1 only, which routers do not forward",
            )
            .advise("the device or its settings have no RoCE v2; see its vendor's manual");
        }
        if gids.is_empty() {
            return self.with_address(self.no_gid(lame));
        }
        self.with_address(finding(
            Verdict::Warning,
            "link-local only: no IP address on the interface",
        ))
    }

    /// Adds the command that assigns an address to the interface.
    fn with_address(&self, finding: Finding) -> Finding {
        let sudo = self.sudo;
        match self.port.netdev.as_deref() {
            Some(name) => finding
                .run(format!("{sudo}ip address add 192.168.90.1/24 dev {name}"))
                .advise("any address that is free in your network; 192.168.90.2 on the peer"),
            None => finding.advise(
                "its network interface is not known here; it may be in another network namespace",
            ),
        }
    }

    fn mtu(&self) -> Option<Finding> {
        if !self.is(LinkLayer::Ethernet) {
            return None;
        }
        let netdev = self.netdev?;
        let (name, mtu) = (&netdev.name, netdev.mtu);
        let Some(path) = path_mtu(mtu, headers(self.facts.rdma.driver.as_ref())) else {
            let found = format!("{} B on {name}: no path MTU fits", mtu.get());
            let finding = self.finding(Check::Mtu, Verdict::Broken, found);
            return Some(finding.run(format!("{}ip link set {name} mtu 1500", self.sudo)));
        };
        let found = format!(
            "{} B on {name}: path MTU {} B",
            mtu.get(),
            path.bytes().get()
        );
        if path == PathMtu::B4096 {
            return Some(self.finding(Check::Mtu, Verdict::Ok, found));
        }
        let finding = self.finding(Check::Mtu, Verdict::Note, found);
        Some(
            finding
                .run(format!(
                    "{}ip link set {name} mtu {}",
                    self.sudo,
                    JUMBO.get()
                ))
                .advise("on both ends; the switches between must carry such frames, too"),
        )
    }
}

fn is_kind(entry: &GidEntry, kind: GidType) -> bool {
    entry.gid_type.as_ref().is_some_and(|known| known.is(kind))
}

fn is_routable(gid: Gid) -> bool {
    !Ipv6Addr::from(gid.0).is_unicast_link_local()
}

/// Returns the IP address in a GID.
fn address(gid: Gid) -> IpAddr {
    Ipv6Addr::from(gid.0).to_canonical()
}

/// An interface MTU that is large enough for the largest path MTU.
const JUMBO: Bytes = Bytes::new(4200);

/// Returns the bytes that the kernel subtracts from an interface's MTU for headers: `iboe_get_mtu` IPv6 (or
/// GRH), UDP, BTH, XRC, atomic header and ICRC; Soft-RoCE its own `RXE_MAX_HDR_LENGTH`.
fn headers(driver: Option<&Driver>) -> u64 {
    match driver {
        Some(Driver::Rxe) => 80,
        _ => 40 + 8 + 12 + 4 + 28 + 4,
    }
}

/// Returns the largest path MTU that fits an interface's MTU with `headers` bytes of headers.
fn path_mtu(netdev: Bytes, headers: u64) -> Option<PathMtu> {
    PathMtu::up_to(Bytes::new(netdev.get().checked_sub(headers)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_mtu_is_what_fits_beside_the_headers() {
        let mlx5 = Driver::Hardware("mlx5_core".to_owned());
        let of = |mtu| path_mtu(Bytes::new(mtu), headers(Some(&mlx5)));
        assert_eq!(of(1500), Some(PathMtu::B1024));
        assert_eq!(of(4191), Some(PathMtu::B2048));
        assert_eq!(of(4192), Some(PathMtu::B4096));
        assert_eq!(of(300), None);
        assert_eq!(of(50), None);
        let of = |mtu| path_mtu(Bytes::new(mtu), headers(Some(&Driver::Rxe)));
        assert_eq!(of(4175), Some(PathMtu::B2048));
        assert_eq!(of(4176), Some(PathMtu::B4096));
    }
}
