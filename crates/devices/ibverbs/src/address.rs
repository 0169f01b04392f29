//! Paths to peers: address handles for datagrams, and `ibv_ah_attr` of connected queue pairs.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use adverb_abi as abi;
use adverb_verbs::{
    AddressHandle, AddressVector, AhRef, CreateError, Gid, LinkLayer, LinkRate, PacketMarking,
    PathOptions, TrafficClass,
};

use crate::explain::object_error;
use crate::handle::{Handle, PdInner};

/// The hop limit of packets with a GRH, the same as in `librdmacm` and UCX.
const HOP_LIMIT: u8 = 64;

/// Returns which fields of an address vector the packets of a port carry. iWARP connections are TCP
/// connections of the adapter and use no address vector.
pub(crate) const fn marking_of(layer: LinkLayer) -> PacketMarking {
    match layer {
        LinkLayer::Iwarp => PacketMarking::None,
        _ => PacketMarking::Full,
    }
}

/// The local end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) layer: LinkLayer,
    pub(crate) gid: Gid,
    pub(crate) gid_index: u32,
}

impl Source {
    pub(crate) fn of(handle: &Handle) -> Self {
        Source {
            layer: handle.layer,
            gid: handle.gid.gid,
            gid_index: handle.gid.index,
        }
    }

    /// Returns the `ibv_ah_attr` of the path to `address`. Packets have a global routing header (GRH) on
    /// RoCE; on InfiniBand only if the peer is on another subnet (another GID prefix) or has no LID, or
    /// to carry a traffic class.
    pub(crate) fn ah_attr(self, address: &AddressVector) -> abi::ibv_ah_attr {
        let same_subnet = address.dgid.0[..8] == self.gid.0[..8] || address.dgid == Gid::default();
        let is_global = match self.layer {
            LinkLayer::InfiniBand => {
                address.dlid.0 == 0 || !same_subnet || address.traffic_class != TrafficClass(0)
            }
            _ => true,
        };
        let mut attr = abi::ibv_ah_attr {
            dlid: address.dlid.0,
            sl: address.service_level.get(),
            static_rate: address.static_rate.map_or(0, rate_code),
            is_global: is_global.into(),
            port_num: address.port.0,
            ..abi::ibv_ah_attr::zeroed()
        };
        if is_global {
            attr.grh = abi::ibv_global_route {
                dgid: abi::ibv_gid {
                    raw: address.dgid.0,
                },
                flow_label: 0,
                // `ibv_global_route` cannot address more than 256 entries of the GID table.
                sgid_index: self.gid_index as u8,
                hop_limit: HOP_LIMIT,
                traffic_class: address.traffic_class.0,
            };
        }
        attr
    }

    /// Overrides the traffic class, service level and rate that the connection manager chose with those in
    /// `options`. Without them the system's default applies on RoCE (`default_roce_tos`), and the subnet
    /// manager's service level on InfiniBand.
    pub(crate) fn choose(
        self,
        attr: &mut abi::ibv_ah_attr,
        (address, options): (&AddressVector, &PathOptions),
    ) {
        let own = self.ah_attr(address);
        if let Some(class) = options.traffic_class {
            if attr.is_global == 0 {
                (attr.is_global, attr.grh) = (own.is_global, own.grh);
            }
            attr.grh.traffic_class = class.0;
        }
        if options.service_level.is_some() {
            attr.sl = own.sl;
        }
        if options.rate.is_some() {
            attr.static_rate = own.static_rate;
        }
    }
}

/// Returns the number of a rate in `enum ibv_rate`, which counts four lanes.
const fn rate_code(rate: LinkRate) -> u8 {
    match rate {
        LinkRate::Sdr => 3,
        LinkRate::Ddr => 6,
        LinkRate::Qdr => 7,
        LinkRate::Fdr => 12,
        LinkRate::Edr => 16,
        LinkRate::Hdr => 17,
        LinkRate::Ndr => 21,
        LinkRate::Xdr => 23,
    }
}

/// Returns the signalled rate of a port: the number of lanes (`active_width`) times their speed
/// (`active_speed`), as `ibstat` decodes them. 0, so that all rates are refused, if it is unknown.
pub(crate) const fn signalled_mbps(attr: &abi::ibv_port_attr) -> u32 {
    let lanes = match attr.active_width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    };
    // In quarters of Mb/s: the speeds of FDR and EDR lanes are no whole numbers.
    let quarters = match attr.active_speed {
        1 => 10_000,
        2 => 20_000,
        4 => 40_000,
        8 => 41_250,
        16 => 56_250,
        32 => 103_125,
        64 => 212_500,
        128 => 425_000,
        _ => 0,
    };
    lanes * quarters / 4
}

/// An address handle. Dropping it destroys it.
#[derive(Debug)]
pub struct VerbsAh {
    raw: NonNull<abi::ibv_ah>,
    pd: Arc<PdInner>,
}

// SAFETY: libibverbs locks its objects, so any thread may call it; the pointer is only passed to it.
unsafe impl Send for VerbsAh {}
// SAFETY: as for `Send`.
unsafe impl Sync for VerbsAh {}

impl VerbsAh {
    pub(crate) fn new(pd: &Arc<PdInner>, address: &AddressVector) -> Result<Self, CreateError> {
        let source = Source::of(&pd.handle);
        address.check_marking(source.layer, marking_of(source.layer))?;
        let mut attr = source.ah_attr(address);
        // SAFETY: the domain is not deallocated yet, and the structure is exclusive.
        let raw = unsafe { (pd.handle.library().ibv_create_ah)(pd.raw.as_ptr(), &raw mut attr) };
        let raw = NonNull::new(raw).ok_or_else(|| {
            let action = format!("create an address handle to {}", address.dgid);
            object_error(&action, io::Error::last_os_error())
        })?;
        Ok(VerbsAh {
            raw,
            pd: pd.clone(),
        })
    }
}

impl Drop for VerbsAh {
    fn drop(&mut self) {
        // SAFETY: requests borrow the handle, so none that names it can be posted any more; it is
        // destroyed once.
        unsafe { (self.pd.handle.library().ibv_destroy_ah)(self.raw.as_ptr()) };
    }
}

impl AddressHandle for VerbsAh {
    fn handle(&self) -> AhRef<'_> {
        // SAFETY: the value is the address of the `ibv_ah`, which `self` keeps until it is dropped.
        unsafe { AhRef::from_raw(self.raw.as_ptr().expose_provenance() as u64) }
    }
}

#[cfg(test)]
mod tests {
    use adverb_verbs::{Lid, PortNum, ServiceLevel};

    use super::*;

    fn gid(prefix: u8) -> Gid {
        let mut bytes = [0; 16];
        (bytes[0], bytes[15]) = (prefix, 9);
        Gid(bytes)
    }

    fn source(layer: LinkLayer) -> Source {
        Source {
            layer,
            gid: gid(1),
            gid_index: 3,
        }
    }

    fn to(prefix: u8, lid: u16) -> AddressVector {
        AddressVector::new(gid(prefix), Lid(lid), PortNum(1))
    }

    #[test]
    fn roce_is_addressed_by_gid() {
        let attr = source(LinkLayer::Ethernet).ah_attr(&to(1, 0));
        assert_eq!((attr.is_global, attr.grh.sgid_index), (1, 3));
        assert_eq!(attr.grh.hop_limit, HOP_LIMIT);
    }

    /// Traffic class 40, service level 5.
    fn marked(address: AddressVector) -> AddressVector {
        AddressVector {
            traffic_class: TrafficClass(40),
            service_level: ServiceLevel::new(5).expect("4 bits"),
            ..address
        }
    }

    #[test]
    fn traffic_class_and_service_level_are_set_and_make_a_global_route() {
        for layer in [LinkLayer::Ethernet, LinkLayer::InfiniBand] {
            let attr = source(layer).ah_attr(&marked(to(1, 7)));
            assert_eq!((attr.is_global, attr.grh.sgid_index), (1, 3), "{layer}");
            assert_eq!((attr.grh.traffic_class, attr.sl), (40, 5), "{layer}");
        }
    }

    #[test]
    fn a_static_rate_has_the_number_that_libibverbs_gives_it() {
        let limited = |rate| AddressVector {
            static_rate: rate,
            ..to(1, 7)
        };
        let code = |rate| {
            source(LinkLayer::InfiniBand)
                .ah_attr(&limited(rate))
                .static_rate
        };
        assert_eq!(code(None), 0);
        let codes = LinkRate::ALL.map(|rate| code(Some(rate)));
        assert_eq!(codes, [3, 6, 7, 12, 16, 17, 21, 23]);
    }

    #[test]
    fn the_rate_of_a_port_is_that_of_all_its_lanes() {
        let port = |active_width, active_speed| abi::ibv_port_attr {
            active_width,
            active_speed,
            ..abi::ibv_port_attr::zeroed()
        };
        assert_eq!(signalled_mbps(&port(2, 4)), 40_000, "4x QDR");
        assert_eq!(signalled_mbps(&port(2, 32)), 103_125, "4x EDR");
        assert_eq!(signalled_mbps(&port(1, 1)), 2_500, "1x SDR");
        assert_eq!(signalled_mbps(&port(0, 0)), 0);
    }

    #[test]
    fn the_connection_manager_chooses_options_that_are_left_out() {
        let (source, address) = (source(LinkLayer::InfiniBand), marked(to(1, 7)));
        let managed = abi::ibv_ah_attr {
            sl: 2,
            ..source.ah_attr(&to(1, 7))
        };
        let chosen = |options| {
            let mut attr = managed;
            source.choose(&mut attr, (&address, &options));
            (attr.is_global, attr.grh.traffic_class, attr.sl)
        };
        let (class, level) = (address.traffic_class, address.service_level);
        let mut options = PathOptions::default();
        assert_eq!(chosen(options), (0, 0, 2));
        options.service_level = Some(level);
        assert_eq!(chosen(options), (0, 0, 5));
        options.traffic_class = Some(class);
        assert_eq!(chosen(options), (1, 40, 5));
    }

    #[test]
    fn infiniband_is_addressed_by_lid_within_a_subnet() {
        let within = source(LinkLayer::InfiniBand).ah_attr(&to(1, 7));
        assert_eq!((within.is_global, within.dlid), (0, 7));
        let beyond = source(LinkLayer::InfiniBand).ah_attr(&to(2, 7));
        assert_eq!((beyond.is_global, beyond.dlid), (1, 7));
    }
}
