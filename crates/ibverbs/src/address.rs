//! Addresses: of datagrams (address handles) and of connected queue pairs.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use adverb_abi as abi;
use adverb_verbs::{AddressHandle, AddressVector, AhRef, CreateError, Gid, LinkLayer};

use crate::context::{Handle, PdInner};
use crate::explain::object_error;

/// Routers on the way, as `librdmacm` and UCX have it.
const HOP_LIMIT: u8 = 64;

/// Where packets to a peer leave from.
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

    /// `ibv_ah_attr` of the way to `address`. Packets have a global routing header on RoCE always,
    /// on InfiniBand where the peer is on another subnet (another prefix) or has no LID.
    pub(crate) fn ah_attr(self, address: &AddressVector) -> abi::ibv_ah_attr {
        let same_subnet = address.dgid.0[..8] == self.gid.0[..8] || address.dgid == Gid::default();
        let is_global = match self.layer {
            LinkLayer::InfiniBand => address.dlid.0 == 0 || !same_subnet,
            _ => true,
        };
        let mut attr = abi::ibv_ah_attr {
            dlid: address.dlid.0,
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
                // The table has at most 256 entries that `ibv_global_route` can name.
                sgid_index: self.gid_index as u8,
                hop_limit: HOP_LIMIT,
                traffic_class: 0,
            };
        }
        attr
    }
}

/// An address handle. Dropping it destroys it.
#[derive(Debug)]
pub struct VerbsAh {
    raw: NonNull<abi::ibv_ah>,
    pd: Arc<PdInner>,
}

// SAFETY: verbs are thread-safe, and the pointer is only passed to them.
unsafe impl Send for VerbsAh {}
// SAFETY: as above.
unsafe impl Sync for VerbsAh {}

impl VerbsAh {
    pub(crate) fn new(pd: &Arc<PdInner>, address: &AddressVector) -> Result<Self, CreateError> {
        let mut attr = Source::of(&pd.handle).ah_attr(address);
        // SAFETY: the domain lives, the structure is exclusive.
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
        // SAFETY: requests that name it borrow it, so it is destroyed once, unused.
        unsafe { (self.pd.handle.library().ibv_destroy_ah)(self.raw.as_ptr()) };
    }
}

impl AddressHandle for VerbsAh {
    fn handle(&self) -> AhRef<'_> {
        // SAFETY: the name is the handle's address, which the borrow keeps alive.
        unsafe { AhRef::from_raw(self.raw.as_ptr().expose_provenance() as u64) }
    }
}

#[cfg(test)]
mod tests {
    use adverb_verbs::{Lid, PortNum};

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
        AddressVector {
            dgid: gid(prefix),
            dlid: Lid(lid),
            port: PortNum(1),
        }
    }

    #[test]
    fn roce_is_addressed_by_gid() {
        let attr = source(LinkLayer::Ethernet).ah_attr(&to(1, 0));
        assert_eq!((attr.is_global, attr.grh.sgid_index), (1, 3));
        assert_eq!(attr.grh.hop_limit, HOP_LIMIT);
    }

    #[test]
    fn infiniband_is_addressed_by_lid_within_a_subnet() {
        let within = source(LinkLayer::InfiniBand).ah_attr(&to(1, 7));
        assert_eq!((within.is_global, within.dlid), (0, 7));
        let beyond = source(LinkLayer::InfiniBand).ah_attr(&to(2, 7));
        assert_eq!((beyond.is_global, beyond.dlid), (1, 7));
    }
}
