//! Options of the path between two queue pairs, and which of them a port supports.

use std::fmt;
use std::str::FromStr;

use adverb_units::Span;
use serde::{Deserialize, Serialize};

use crate::caps::{LinkLayer, PacketMarking, PathMtu, PortCaps};
use crate::impairment::Impairment;
use crate::priority::{ServiceLevel, TrafficClass};
use crate::qp::{AckTimeout, AddressVector, RetryCount, RetryParams};
use crate::rate::LinkRate;

/// Linux's `TCP_RTO_MIN`.
const TCP_TIMEOUT: Span = Span::from_ms(200);

/// Which of libibverbs' two interfaces requests are posted through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PostApi {
    /// `ibv_post_send`: a request is a structure.
    Post,
    /// `ibv_wr_start` to `ibv_wr_complete`: a request is a sequence of calls into the driver.
    Wr,
}

/// The text is not a posting interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid posting interface '{0}': expected post (ibv_post_send) or wr (ibv_wr_*)")]
pub struct ParsePostApiError(String);

impl FromStr for PostApi {
    type Err = ParsePostApiError;

    fn from_str(text: &str) -> Result<Self, ParsePostApiError> {
        let all = [PostApi::Post, PostApi::Wr];
        let found = all.into_iter().find(|api| api.to_string() == text);
        found.ok_or_else(|| ParsePostApiError(text.to_owned()))
    }
}

impl fmt::Display for PostApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PostApi::Post => "post",
            PostApi::Wr => "wr",
        })
    }
}

/// Options of queue pairs and of the path between them: what `--mtu`, `--timeout`, `--retries`,
/// `--traffic-class`, `--service-level`, `--api`, `--loss` and its relatives set. `None` leaves the choice to
/// the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PathOptions {
    /// Path MTU.
    #[serde(alias = "mtu")]
    pub path_mtu: Option<PathMtu>,
    /// Local ACK timeout (RC).
    #[serde(alias = "timeout")]
    pub ack_timeout: Option<AckTimeout>,
    /// Retransmissions before a request fails (RC).
    pub retries: Option<RetryCount>,
    /// Retries after receiver-not-ready before a request fails (RC).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rnr_retries: Option<RetryCount>,
    /// Traffic class of the packets.
    pub traffic_class: Option<TrafficClass>,
    /// Service level of the packets.
    pub service_level: Option<ServiceLevel>,
    /// Rate of the packets (`ibv_ah_attr.static_rate`); of a model, rate of its link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<LinkRate>,
    /// Posting interface of the queue pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<PostApi>,
    /// Faults that the ports inject into the packets that they send; `Some` has packets sent over UDP even
    /// if all probabilities are 0.
    pub impairment: Option<Impairment>,
    /// Whether a router between the hosts injects these faults instead of the ports.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub routed: bool,
}

impl PathOptions {
    /// Returns these options; absent ones are taken from `other`.
    #[must_use]
    pub fn or(self, other: PathOptions) -> Self {
        PathOptions {
            path_mtu: self.path_mtu.or(other.path_mtu),
            ack_timeout: self.ack_timeout.or(other.ack_timeout),
            retries: self.retries.or(other.retries),
            rnr_retries: self.rnr_retries.or(other.rnr_retries),
            traffic_class: self.traffic_class.or(other.traffic_class),
            service_level: self.service_level.or(other.service_level),
            rate: self.rate.or(other.rate),
            api: self.api.or(other.api),
            impairment: self.impairment.or(other.impairment),
            routed: self.routed || other.routed,
        }
    }

    /// Returns the faults that the ports inject.
    pub fn injected(&self) -> Option<Impairment> {
        self.impairment.filter(|_| !self.routed)
    }

    /// Whether packets are lost.
    pub fn loses(&self) -> bool {
        self.impairment.is_some_and(|faults| faults.loses())
    }

    /// Returns the retransmission parameters: the given ones, and the usual ones for the others.
    pub fn retry_params(&self) -> RetryParams {
        let usual = RetryParams::default();
        RetryParams {
            timeout: self.ack_timeout.unwrap_or(usual.timeout),
            retry_cnt: self.retries.unwrap_or(usual.retry_cnt),
            rnr_retry: self.rnr_retries.unwrap_or(usual.rnr_retry),
        }
    }

    /// Returns the time after which a lost packet is sent again at the latest, over TCP if `is_stream`; `None` if none is
    /// lost. Devices wait for one to four timeouts (IBTA vol. 1, 9.7.6.1.3).
    pub fn longest_wait(&self, is_stream: bool) -> Option<Span> {
        self.impairment.filter(Impairment::loses)?;
        match is_stream {
            true => Some(TCP_TIMEOUT),
            false => Some(self.retry_params().timeout.span()? * 4),
        }
    }

    /// Returns the given path MTU, otherwise `max`, the largest one of the path or of a port.
    ///
    /// # Errors
    /// The given one is larger.
    pub fn path_mtu_up_to(&self, max: PathMtu) -> Result<PathMtu, PathOptionError> {
        match self.path_mtu {
            Some(path_mtu) if path_mtu > max => Err(PathOptionError::PathMtu { path_mtu, max }),
            given => Ok(given.unwrap_or(max)),
        }
    }

    /// Checks that `port` supports each given option.
    ///
    /// # Errors
    /// The first option that it does not support, or whose value is beyond the port's limit.
    pub fn check(&self, port: &PortCaps) -> Result<(), PathOptionError> {
        let link_layer = port.link_layer;
        if !link_layer.has_ack_timeout() {
            let timers = "retransmits with its own timers";
            refuse("timeout", self.ack_timeout, (link_layer, timers))?;
            refuse("retries", self.retries, (link_layer, timers))?;
            refuse("RNR retries", self.rnr_retries, (link_layer, timers))?;
        }
        if !link_layer.has_path_mtu() {
            let uncut = "does not split messages into packets";
            refuse("path MTU", self.path_mtu, (link_layer, uncut))?;
        }
        self.path_mtu_up_to(port.active_mtu)?;
        match (self.rate, port.max_rate_mbps) {
            (Some(_), None) => {
                let unlimited = "has no InfiniBand rates to choose from";
                refuse("rate", self.rate, (link_layer, unlimited))?;
            }
            (Some(rate), Some(max_mbps)) if rate.signalled_mbps() > max_mbps => {
                return Err(PathOptionError::Rate { rate, max_mbps });
            }
            _ => {}
        }
        self.check_marking(link_layer, port.marking)
    }

    /// Checks that packets with this marking carry the traffic class and the service level.
    fn check_marking(
        &self,
        link_layer: LinkLayer,
        marking: PacketMarking,
    ) -> Result<(), PathOptionError> {
        let reason = match (marking, link_layer) {
            (PacketMarking::Full, _) => "",
            (PacketMarking::TrafficClass, _) => {
                "sends through UDP sockets, which have no service level"
            }
            (PacketMarking::None, LinkLayer::SharedMemory) => "sends no packets",
            (PacketMarking::None, LinkLayer::Iwarp) => "leaves this to the adapter's TCP",
            (PacketMarking::None, LinkLayer::KernelTcp) => "leaves this to the kernel's TCP",
            (PacketMarking::None, _) => "models packets of a single class",
        };
        if marking == PacketMarking::None {
            refuse("traffic class", self.traffic_class, (link_layer, reason))?;
        }
        if marking != PacketMarking::Full {
            refuse("service level", self.service_level, (link_layer, reason))?;
        }
        let max = ServiceLevel::MAX_ETHERNET;
        let is_beyond = |level: &ServiceLevel| link_layer == LinkLayer::Ethernet && *level > max;
        match self.service_level.filter(is_beyond) {
            Some(service_level) => Err(PathOptionError::ServiceLevel { service_level, max }),
            None => Ok(()),
        }
    }
}

impl AddressVector {
    /// Checks that packets with this marking carry its traffic class and service level. 0 is always
    /// possible: it is what unmarked packets have.
    ///
    /// # Errors
    /// The packets do not carry them.
    pub fn check_marking(
        &self,
        link_layer: LinkLayer,
        marking: PacketMarking,
    ) -> Result<(), PathOptionError> {
        let (traffic_class, service_level) = (self.traffic_class, self.service_level);
        let options = PathOptions {
            traffic_class: (traffic_class != TrafficClass::default()).then_some(traffic_class),
            service_level: (service_level != ServiceLevel::default()).then_some(service_level),
            ..PathOptions::default()
        };
        options.check_marking(link_layer, marking)
    }
}

fn refuse<T: fmt::Display>(
    name: &str,
    value: Option<T>,
    (link_layer, reason): (LinkLayer, &'static str),
) -> Result<(), PathOptionError> {
    value.map_or(Ok(()), |value| {
        Err(PathOptionError::Unsupported {
            option: format!("{name} {value}"),
            link_layer,
            reason,
        })
    })
}

/// A port does not support an option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathOptionError {
    /// The path MTU exceeds the port's active MTU.
    #[error(
        "path MTU {path_mtu}: this device's port carries packets of at most {max}; choose a smaller one"
    )]
    PathMtu {
        /// The given path MTU.
        path_mtu: PathMtu,
        /// The port's largest.
        max: PathMtu,
    },
    /// A service level beyond the priorities of a VLAN tag.
    #[error(
        "service level {service_level}: this device's port (Ethernet) has the priorities 0 to {max}; choose one of these"
    )]
    ServiceLevel {
        /// The given service level.
        service_level: ServiceLevel,
        /// The highest.
        max: ServiceLevel,
    },
    /// The rate exceeds the link's.
    #[error(
        "rate {rate} ({} Mb/s): this device's link signals {max_mbps} Mb/s; choose a lower rate, or a model",
        rate.signalled_mbps()
    )]
    Rate {
        /// The given rate.
        rate: LinkRate,
        /// The link's.
        max_mbps: u32,
    },
    /// The option has no meaning for the port.
    #[error("{option}: this device's port ({link_layer}) {reason}; leave it out")]
    Unsupported {
        /// The option and its value.
        option: String,
        /// Link layer of the port.
        link_layer: LinkLayer,
        /// What the port does instead.
        reason: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use adverb_units::Bytes;

    use super::*;
    use crate::ids::{Gid, Lid};

    fn port(link_layer: LinkLayer, marking: PacketMarking) -> PortCaps {
        PortCaps {
            link_layer,
            active_mtu: PathMtu::B1024,
            max_msg_sz: Bytes::mib(1),
            lid: Lid(0),
            gid: Gid::default(),
            gid_index: 0,
            gid_type: None,
            marking,
            max_rate_mbps: (link_layer == LinkLayer::InfiniBand).then_some(40_000),
        }
    }

    #[test]
    fn unsupported_path_options_are_refused_with_value_and_link_layer() {
        use LinkLayer::{Ethernet, InfiniBand, Iwarp, SharedMemory};
        use PacketMarking::{Full, None as Unmarked, TrafficClass as ClassOnly};
        let level = |n| PathOptions {
            service_level: ServiceLevel::new(n),
            ..PathOptions::default()
        };
        let class = PathOptions {
            traffic_class: Some(TrafficClass(8)),
            ..PathOptions::default()
        };
        let mtu = |path_mtu| PathOptions {
            path_mtu: Some(path_mtu),
            ..PathOptions::default()
        };
        let timeout = PathOptions {
            ack_timeout: AckTimeout::new(14),
            ..PathOptions::default()
        };
        let retries = PathOptions {
            retries: RetryCount::new(3),
            ..PathOptions::default()
        };
        for (options, port) in [
            (PathOptions::default(), port(SharedMemory, Unmarked)),
            (mtu(PathMtu::B1024), port(Ethernet, Unmarked)),
            (timeout, port(SharedMemory, Unmarked)),
            (class, port(Ethernet, ClassOnly)),
            (level(7), port(Ethernet, Full)),
            (level(15), port(InfiniBand, Full)),
        ] {
            assert_eq!(options.check(&port), Ok(()));
        }
        for (options, port, refusal) in [
            (
                mtu(PathMtu::B2048),
                port(Ethernet, Full),
                "path MTU 2 KiB: this device's port carries packets of at most 1 KiB; choose a smaller one",
            ),
            (
                mtu(PathMtu::B256),
                port(SharedMemory, Unmarked),
                "path MTU 256 B: this device's port (shared memory) does not split messages into packets; leave it out",
            ),
            (
                timeout,
                port(Iwarp, Unmarked),
                "timeout 67.1 ms (4.096 µs × 2^14): this device's port (iWARP) retransmits with its own timers; leave it out",
            ),
            (
                retries,
                port(Iwarp, Unmarked),
                "retries 3: this device's port (iWARP) retransmits with its own timers; leave it out",
            ),
            (
                class,
                port(SharedMemory, Unmarked),
                "traffic class 8: this device's port (shared memory) sends no packets; leave it out",
            ),
            (
                class,
                port(Iwarp, Unmarked),
                "traffic class 8: this device's port (iWARP) leaves this to the adapter's TCP; leave it out",
            ),
            (
                level(3),
                port(Ethernet, ClassOnly),
                "service level 3: this device's port (Ethernet) sends through UDP sockets, which have no service level; leave it out",
            ),
            (
                level(3),
                port(InfiniBand, Unmarked),
                "service level 3: this device's port (InfiniBand) models packets of a single class; leave it out",
            ),
            (
                level(8),
                port(Ethernet, Full),
                "service level 8: this device's port (Ethernet) has the priorities 0 to 7; choose one of these",
            ),
        ] {
            assert_eq!(options.check(&port).unwrap_err().to_string(), refusal);
        }
    }

    #[test]
    fn a_rate_is_one_of_infiniband_and_not_above_the_links() {
        let check = |rate, link_layer| {
            let options = PathOptions {
                rate: Some(rate),
                ..PathOptions::default()
            };
            let checked = options.check(&port(link_layer, PacketMarking::Full));
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(check(LinkRate::Qdr, LinkLayer::InfiniBand), Ok(()));
        assert_eq!(
            check(LinkRate::Fdr, LinkLayer::InfiniBand).unwrap_err(),
            "rate fdr (56250 Mb/s): this device's link signals 40000 Mb/s; choose a lower rate, or a model"
        );
        assert_eq!(
            check(LinkRate::Sdr, LinkLayer::SharedMemory).unwrap_err(),
            "rate sdr: this device's port (shared memory) has no InfiniBand rates to choose from; leave it out"
        );
    }
}
