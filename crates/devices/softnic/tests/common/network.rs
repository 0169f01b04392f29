//! Two hosts with UDP ports: network namespaces with a wire between them, or two addresses of the
//! loopback; and connections between them.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use adverb_softnic::{Fault, SoftDevice, SoftQp};
use adverb_units::Bytes;
use adverb_verbs::{
    AckTimeout, AddressVector, Device, Gid, Impairment, Lid, ModifyQpError, PathMtu, PortNum, Psn,
    QpAttr, QpState, QpType, Qpn, QueuePair, RetryCount,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{End, Random, to_init};

/// Two hosts, 0 and 1.
pub struct Network {
    ips: [IpAddr; 2],
    /// None: both are on the loopback.
    namespaces: Option<[String; 2]>,
    /// What its ports do to the packets that they send.
    impairment: Option<Impairment>,
}

impl Network {
    /// One address for both.
    pub fn one_address(net: u8) -> Self {
        let ip = IpAddr::V4(Ipv4Addr::new(127, 9, net, 1));
        Network {
            ips: [ip, ip],
            namespaces: None,
            impairment: None,
        }
    }

    /// Addresses `127.9.net.1` and `.2`.
    pub fn loopback(net: u8) -> Self {
        Network {
            ips: [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(127, 9, net, host))),
            namespaces: None,
            impairment: None,
        }
    }

    /// Makes two namespaces joined by a wire; the error is the reason if that is not possible.
    pub fn wire(test: &str) -> Result<Self, String> {
        let ips = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(10, 78, 0, host)));
        Self::wire_between(test, ips, "/24")
    }

    /// The same with IPv6 addresses.
    pub fn wire_of_ipv6(test: &str) -> Result<Self, String> {
        let ips = [1, 2].map(|host| Ipv6Addr::new(0xfd00, 78, 0, 0, 0, 0, 0, host).into());
        // An address that is not yet known to be nobody else's cannot be bound to.
        let network = Self::wire_between(test, ips, "/64 nodad")?;
        // Multicast from before the link-local addresses count does not arrive.
        network.wait_for("-6 address show scope link -tentative", "inet6 fe80:")?;
        Ok(network)
    }

    /// Waits until `ip` on both hosts shows the interface of the wire with `state` when it is asked for `what`.
    ///
    /// The kernel notices a wire some time after both of its ends are up.
    fn wait_for(&self, what: &str, state: &str) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(60);
        for (namespace, device) in self.namespaces.iter().flatten().zip(["v0", "v1"]) {
            while !run("ip", &format!("-n {namespace} {what} dev {device}"))?.contains(state) {
                if Instant::now() > deadline {
                    return Err(format!("{namespace}: {device} stays without '{state}'"));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    fn wire_between(test: &str, ips: [IpAddr; 2], prefix: &str) -> Result<Self, String> {
        let id = std::process::id();
        let network = Network {
            ips,
            namespaces: Some([
                format!("adverb-{test}-a-{id}"),
                format!("adverb-{test}-b-{id}"),
            ]),
            impairment: None,
        };
        let [a, b] = network.namespaces.as_ref().expect("just made");
        for command in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add v0 netns {a} type veth peer name v1 netns {b}"),
            format!("-n {a} address add {}{prefix} dev v0", ips[0]),
            format!("-n {b} address add {}{prefix} dev v1", ips[1]),
            format!("-n {a} link set v0 up"),
            format!("-n {b} link set v1 up"),
        ] {
            run("ip", &command)?;
        }
        network.wait_for("link show", "state UP")?;
        Ok(network)
    }

    /// The same, with ports that impair what they send.
    pub fn impaired(mut self, how: Impairment) -> Self {
        self.impairment = Some(how);
        self
    }

    pub fn ip(&self, host: usize) -> IpAddr {
        self.ips[host]
    }

    pub fn gid(&self, host: usize) -> Gid {
        gid_of(self.ips[host])
    }

    /// The way to a host's port.
    pub fn address(&self, host: usize) -> AddressVector {
        AddressVector::new(self.gid(host), Lid(0), PortNum::ONE)
    }

    /// Does something on a host, on a separate thread.
    pub fn on<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> T {
        let Some(namespaces) = &self.namespaces else {
            return work();
        };
        let file = File::open(format!("/run/netns/{}", namespaces[host])).unwrap();
        let inside = || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(inside).join().unwrap())
    }

    /// Opens the device on a host.
    pub fn end(&self, host: usize, memory: Bytes) -> End {
        let ip = self.ips[host];
        let device = match self.impairment {
            None => SoftDevice::at(ip),
            Some(how) => {
                let seed = how.seed + host as u64;
                SoftDevice::impaired_at(ip, Impairment { seed, ..how })
            }
        };
        self.on(host, || End::of(device, memory))
    }

    /// Removes what killed processes left.
    pub fn tidy(&self) {
        for host in [0, 1] {
            let device = SoftDevice::at(self.ips[host]);
            self.on(host, || drop(device.open().unwrap()));
        }
    }

    /// Takes the wire down or up.
    pub fn set_wire(&self, state: &str) {
        let a = &self.namespaces.as_ref().expect("there is a wire")[0];
        run("ip", &format!("-n {a} link set v0 {state}")).unwrap();
    }

    /// Limits the send rate of host 0, which queues packets; the error is the reason if that is not possible.
    pub fn slow_down(&self, rate: &str) -> Result<(), String> {
        let a = &self.namespaces.as_ref().expect("there is a wire")[0];
        let rule = format!("-n {a} qdisc add dev v0 root tbf rate {rate} burst 64k limit 64m");
        run("tc", &rule).map(drop)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in self.namespaces.iter().flatten() {
            let _ = run("ip", &format!("netns delete {name}"));
        }
    }
}

/// The GID of an address.
pub fn gid_of(ip: IpAddr) -> Gid {
    match ip {
        IpAddr::V4(ip) => Gid::from_ipv4(ip),
        IpAddr::V6(ip) => Gid(ip.octets()),
    }
}

/// Returns the error of a queue pair at `end` that connects to an unreachable address.
pub fn connect_error(end: &End, qp_type: QpType, dgid: Gid) -> String {
    let qp = end.in_init(qp_type);
    let address = AddressVector {
        dgid,
        ..end.local_address()
    };
    let mut rtr = QpAttr::to_rtr(address, Qpn::new(77).unwrap(), Psn::new(0), PathMtu::B256);
    if qp_type == QpType::Uc {
        (rtr.max_dest_rd_atomic, rtr.min_rnr_timer) = (None, None);
    }
    let error = qp.modify(&rtr).expect_err("it cannot be reached");
    assert!(
        matches!(error, ModifyQpError::Unreachable { .. }),
        "{error}"
    );
    error.to_string()
}

/// Runs a tool; returns its output.
fn run(tool: &str, arguments: &str) -> Result<String, String> {
    let ran = Command::new(tool).args(arguments.split(' ')).output();
    let ran = ran.map_err(|e| format!("{tool}: {e}"))?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&ran.stderr);
    Err(format!("{tool} {arguments}: {}", why.trim()))
}

/// What a network does to packets, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lost: u64,
    pub repeated: u64,
    pub delayed: u64,
    pub damaged: u64,
}

impl Faults {
    /// Which packet meets which, from a seed.
    pub fn rule(self, seed: u64) -> impl FnMut(&[u8]) -> Option<Fault> + Send + 'static {
        let mut random = Random(seed);
        move |_| {
            let mut at = random.below(1000);
            let faults = [
                (self.lost, Fault::Loss),
                (self.repeated, Fault::Duplicate),
                (self.delayed, Fault::Reorder(random.within(1..6))),
                (self.damaged, Fault::Corrupt(random.next())),
            ];
            for (share, fault) in faults {
                if at < share {
                    return Some(fault);
                }
                at -= share;
            }
            None
        }
    }
}

/// How a connection is made.
#[derive(Clone, Copy)]
pub struct How {
    pub mtu: PathMtu,
    /// 4.096 µs × 2^timeout. The device waits four times as long.
    pub timeout: u8,
    pub retries: u8,
}

/// The first packet of every connection.
pub const FIRST_PSN: Psn = Psn::new(0xff_fff0);

/// Brings a queue pair to RTS.
pub fn connect_to(qp: &SoftQp, address: AddressVector, dest: Qpn, how: How) {
    to_init(qp);
    let mut rtr = QpAttr::to_rtr(address, dest, FIRST_PSN, how.mtu);
    rtr.max_dest_rd_atomic = Some(4);
    qp.modify(&rtr).unwrap();
    let mut rts = QpAttr::to_rts(FIRST_PSN);
    rts.timeout = AckTimeout::new(how.timeout);
    rts.retry_cnt = RetryCount::new(how.retries);
    rts.rnr_retry = Some(RetryCount::MAX);
    rts.max_rd_atomic = Some(4);
    qp.modify(&rts).unwrap();
    assert_eq!(qp.state(), QpState::Rts);
}
