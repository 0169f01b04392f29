//! Address handles, and the addresses of datagrams that arrived.

use std::ffi::c_int;
use std::net::Ipv4Addr;

use adverb_abi::{
    IBV_WC_GRH, ibv_ah, ibv_ah_attr, ibv_context, ibv_gid, ibv_global_route, ibv_pd, ibv_wc,
};
use adverb_softnic::SoftAh;
use adverb_verbs::{AddressVector, Context as _, Gid, Lid, PortNum, TrafficClass};

use crate::call::{self, Refusal};
use crate::context::Context;
use crate::object::Object;
use crate::pd::Pd;
use crate::port::gid_at_lid;
use crate::settings::settings;

/// Bytes of a global routing header. In RoCE v2 over IPv4 the IP header is in its second half.
const GRH_LENGTH: usize = 40;
const IPV4_LENGTH: usize = 20;

/// An address handle, behind its `ibv_ah`.
#[derive(Debug)]
pub(crate) struct Ah {
    pub(crate) soft: SoftAh,
}

type AhObject = Object<ibv_ah, Ah>;

impl Ah {
    /// Returns the address handle behind a pointer from C.
    ///
    /// # Safety
    /// `ah` is from `ibv_create_ah`, and not destroyed within `'a`.
    #[inline]
    pub(crate) unsafe fn of<'a>(ah: *const ibv_ah) -> &'a Self {
        // SAFETY: the caller's.
        &unsafe { AhObject::of(ah) }.own
    }

    /// Creates an address handle.
    ///
    /// # Safety
    /// `pd` is an allocated protection domain.
    unsafe fn create(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah, Refusal> {
        // SAFETY: the caller's.
        let (own, context) = unsafe { (Pd::of(pd), (*pd).context) };
        // SAFETY: a protection domain has an open context.
        let open = unsafe { Context::of(context) };
        let soft = open
            .soft
            .create_ah(&own.soft, &address_vector(open, attr)?)?;
        own.users.add();
        let c = ibv_ah {
            context,
            pd,
            handle: 0,
        };
        Ok(Object::create(c, Ah { soft }))
    }
}

/// A global routing header: its parts in network order.
fn address_in(grh: &[u8; GRH_LENGTH]) -> Option<(Gid, Gid, ibv_global_route)> {
    let route = ibv_global_route::zeroed();
    let (first, second) = grh.split_at(IPV4_LENGTH);
    // The first half is not used with IPv4.
    if first[0] >> 4 != 6 && second[0] >> 4 == 4 {
        let gid = |at: usize| {
            let octets: [u8; 4] = second[at..at + 4].try_into().ok()?;
            Some(Gid::from_ipv4(Ipv4Addr::from(octets)))
        };
        let route = ibv_global_route {
            hop_limit: second[8],
            traffic_class: second[1],
            ..route
        };
        return Some((gid(12)?, gid(16)?, route));
    }
    if first[0] >> 4 != 6 {
        return None;
    }
    let gid = |at: usize| Some(Gid(grh[at..at + 16].try_into().ok()?));
    let words = u32::from_be_bytes(grh[..4].try_into().ok()?);
    let route = ibv_global_route {
        flow_label: words & 0xf_ffff,
        hop_limit: 0xff,
        traffic_class: (words >> 20) as u8,
        ..route
    };
    Some((gid(8)?, gid(24)?, route))
}

/// Returns the attributes of the address that a datagram came from.
fn reply_to(
    context: &Context,
    port: u8,
    wc: &ibv_wc,
    grh: *const u8,
) -> Result<ibv_ah_attr, Refusal> {
    let attr = ibv_ah_attr {
        dlid: wc.slid,
        sl: 0,
        src_path_bits: wc.dlid_path_bits,
        port_num: port,
        ..ibv_ah_attr::zeroed()
    };
    if wc.wc_flags & IBV_WC_GRH == 0 {
        return Ok(attr);
    }
    // SAFETY: the program passes the header that the completion reports.
    let grh = unsafe { grh.cast::<[u8; GRH_LENGTH]>().read_unaligned() };
    let (from, to, route) = address_in(&grh)
        .ok_or_else(|| Refusal::invalid("the global routing header is neither IPv4 nor IPv6"))?;
    let own = context.gid(port.into(), 0)?;
    if own != to && !to.is_multicast() {
        return Err(Refusal::invalid(format!(
            "the datagram was sent to {to}, the port has {own}"
        )));
    }
    let grh = ibv_global_route {
        dgid: ibv_gid { raw: from.0 },
        sgid_index: 0,
        ..route
    };
    Ok(ibv_ah_attr {
        grh,
        is_global: 1,
        ..attr
    })
}

/// Converts the address of a peer. The service level and the static rate have no effect: the first is the priority in
/// VLAN tags, and the processor sends at its own rate.
pub(crate) fn address_vector(
    context: &Context,
    attr: &ibv_ah_attr,
) -> Result<AddressVector, Refusal> {
    let port = PortNum(attr.port_num);
    let sgid_index = match attr.is_global {
        0 => 0,
        _ => attr.grh.sgid_index,
    };
    let own = context.gid(attr.port_num.into(), sgid_index.into())?;
    let (dgid, traffic_class) = if attr.is_global == 0 {
        let dgid = gid_at_lid(own, attr.dlid).ok_or_else(|| {
            Refusal::invalid(
                "without is_global a LID is needed, other than 0, which only IPv4 ports have",
            )
        })?;
        (dgid, 0)
    } else {
        // SAFETY: all bytes are a GID.
        (Gid(unsafe { attr.grh.dgid.raw }), attr.grh.traffic_class)
    };
    let address = AddressVector::new(dgid, Lid(0), port);
    // To its own address a port copies messages, as hardware does, instead of sending packets with a class.
    let is_copied = dgid == own && settings()?.faults.is_none();
    Ok(AddressVector {
        traffic_class: TrafficClass(if is_copied { 0 } else { traffic_class }),
        ..address
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    forward!(pd => ibv_create_ah(pd, attr));
    // SAFETY: the program passes a protection domain and attributes.
    call::pointer("ibv_create_ah", || unsafe { Ah::create(pd, &*attr) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut u8,
    attr: *mut ibv_ah_attr,
) -> c_int {
    forward!(context => ibv_init_ah_from_wc(context, port, wc, grh, attr));
    call::number("ibv_init_ah_from_wc", || {
        // SAFETY: the program passes an open context, a completion, its header, and room for the attributes.
        unsafe { attr.write(reply_to(Context::of(context), port, &*wc, grh)?) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut u8,
    port: u8,
) -> *mut ibv_ah {
    forward!(pd => ibv_create_ah_from_wc(pd, wc, grh, port));
    call::pointer("ibv_create_ah_from_wc", || {
        // SAFETY: the program passes a protection domain, a completion and its header.
        unsafe {
            let attr = reply_to(Context::of((*pd).context), port, &*wc, grh)?;
            Ah::create(pd, &attr)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    forward!(ah => ibv_destroy_ah(ah));
    call::status("ibv_destroy_ah", || {
        // SAFETY: the program destroys a handle that it has created, once; the domain outlives its handles.
        unsafe {
            Pd::of((*ah).pd).users.remove();
            AhObject::destroy(ah);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_of_a_datagram_is_in_either_ip_header() {
        let mut v4 = [0; GRH_LENGTH];
        v4[20] = 0x45;
        v4[21] = 7;
        v4[32..36].copy_from_slice(&[10, 0, 0, 1]);
        v4[36..40].copy_from_slice(&[10, 0, 0, 2]);
        let (from, to, route) = address_in(&v4).unwrap();
        assert_eq!(
            [from, to].map(|gid| gid.to_string()),
            ["::ffff:10.0.0.1", "::ffff:10.0.0.2"]
        );
        assert_eq!(route.traffic_class, 7);

        let mut v6 = [0; GRH_LENGTH];
        v6[0] = 0x60 | 1;
        v6[1] = 0x20;
        v6[8] = 0xfe;
        v6[24] = 0xfd;
        let (from, to, route) = address_in(&v6).unwrap();
        assert_eq!([from, to].map(|gid| gid.to_string()), ["fe00::", "fd00::"]);
        assert_eq!(route.traffic_class, 0x12);

        assert!(address_in(&[0; GRH_LENGTH]).is_none());
    }
}
