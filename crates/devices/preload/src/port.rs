//! Queries of the port: attributes, GIDs, partition keys.

use std::ffi::{c_int, c_uint};
use std::net::IpAddr;

use adverb_abi::{
    IBV_GID_TYPE_ROCE_V2, IBV_LINK_LAYER_ETHERNET, IBV_MTU_4096, IBV_PORT_ACTIVE, ibv_context,
    ibv_gid, ibv_gid_entry, ibv_port_attr,
};
use adverb_softnic::interface_index;
use adverb_verbs::{Context as _, Gid, PathMtu, PortCaps, PortNum};

use crate::call::{self, Refusal};
use crate::context::Context;
use crate::convert::mtu_code;
use crate::settings::settings;

/// Number of entries of the GID table. All are the GID of the port, because programs have indexes of their own: 0, 1
/// (the first IPv4 address of Soft-RoCE) and 3 (of a ConnectX).
pub(crate) const GIDS: u32 = 4;
/// The only partition key: the default partition, full member.
const PKEY: u16 = 0xffff;
/// `IBV_PORT_CM_SUP` and `IBV_PORT_IP_BASED_GIDS`.
pub(crate) const CAP_FLAGS: u32 = 1 << 16 | 1 << 26;
/// Four lanes of 25 Gb/s. The processor determines the real speed.
const WIDTH_4X: u8 = 2;
const SPEED_EDR: u8 = 32;
const LINK_UP: u8 = 5;
/// `IBV_QPF_GRH_REQUIRED`.
const GRH_REQUIRED: u8 = 1;
/// `enum ibv_gid_type_sysfs`.
const SYSFS_ROCE_V2: c_uint = 1;

impl Context {
    /// Returns the properties of port `number`.
    fn port(&self, number: u32) -> Result<PortCaps, Refusal> {
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        Ok(self.soft.port(PortNum(number))?)
    }

    /// Returns the GID at `index` of the table of port `number`.
    pub(crate) fn gid(&self, number: u32, index: u32) -> Result<Gid, Refusal> {
        let port = self.port(number)?;
        if index < GIDS {
            return Ok(port.gid);
        }
        Err(Refusal::invalid(format!(
            "GID index {index} is outside the table of {GIDS}"
        )))
    }

    /// Returns the path MTU of the port: what the interface supports, unless the settings limit it.
    pub(crate) fn mtu(&self, port: &PortCaps) -> Result<PathMtu, Refusal> {
        let limit = settings()?.mtu.unwrap_or(PathMtu::B4096);
        Ok(port.active_mtu.min(limit))
    }

    fn port_attributes(&self, number: u8) -> Result<ibv_port_attr, Refusal> {
        let port = self.port(number.into())?;
        Ok(ibv_port_attr {
            state: IBV_PORT_ACTIVE,
            max_mtu: IBV_MTU_4096,
            active_mtu: mtu_code(self.mtu(&port)?),
            gid_tbl_len: GIDS as c_int,
            port_cap_flags: CAP_FLAGS,
            max_msg_sz: u32::try_from(port.max_msg_sz.get()).unwrap_or(u32::MAX),
            pkey_tbl_len: 1,
            lid: lid_of(port.gid).unwrap_or(0),
            max_vl_num: 1,
            active_width: WIDTH_4X,
            active_speed: SPEED_EDR,
            phys_state: LINK_UP,
            link_layer: IBV_LINK_LAYER_ETHERNET,
            flags: GRH_REQUIRED,
            ..ibv_port_attr::zeroed()
        })
    }

    fn gid_entry(&self, number: u32, index: u32) -> Result<ibv_gid_entry, Refusal> {
        let gid = self.gid(number, index)?;
        Ok(ibv_gid_entry {
            gid: ibv_gid { raw: gid.0 },
            gid_index: index,
            port_num: number,
            gid_type: IBV_GID_TYPE_ROCE_V2,
            ndev_ifindex: interface_index(self.device.address)?,
        })
    }
}

/// Returns the LID of the port with a GID: the last two bytes of an IPv4 address. Programs that only address by LID
/// reach the ports whose addresses have the same first two bytes ([`gid_at_lid`]).
fn lid_of(gid: Gid) -> Option<u16> {
    match ip_of(gid) {
        IpAddr::V4(ip) => {
            let [_, _, c, d] = ip.octets();
            Some(u16::from_be_bytes([c, d]))
        }
        IpAddr::V6(_) => None,
    }
}

/// Returns the GID of the port with `lid`, as the port with GID `own` reaches it; `None` if `own` has no LID, or
/// `lid` is 0, which no port has.
pub(crate) fn gid_at_lid(own: Gid, lid: u16) -> Option<Gid> {
    match ip_of(own) {
        IpAddr::V4(ip) if lid != 0 => {
            let [a, b, ..] = ip.octets();
            let [c, d] = lid.to_be_bytes();
            Some(Gid::from_ipv4([a, b, c, d].into()))
        }
        _ => None,
    }
}

/// Returns the IP address of a RoCE v2 GID.
pub(crate) fn ip_of(gid: Gid) -> IpAddr {
    IpAddr::from(gid.0).to_canonical()
}

/// `ibv_query_port` of the tables and the exported function, which older programs call without size.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    call::status("ibv_query_port", || {
        // SAFETY: the program passes an open context.
        let attributes = unsafe { Context::of(context) }.port_attributes(port)?;
        // SAFETY: the program's structure has `size` bytes; later versions of the headers may add members.
        unsafe { copy_out(&attributes, attr.cast(), size) };
        Ok(())
    })
}

/// Copies a structure to the program's, which has `size` bytes. Bytes beyond the end of ours become zero.
///
/// # Safety
/// `to..to + size` is writable.
pub(crate) unsafe fn copy_out<T: Copy>(from: &T, to: *mut u8, size: usize) {
    let length = size.min(size_of::<T>());
    // SAFETY: the caller's, and `from` has at least `length` bytes.
    unsafe {
        to.copy_from_nonoverlapping(std::ptr::from_ref(from).cast(), length);
        to.add(length).write_bytes(0, size - length);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    forward!(context => ibv_query_port(context, port, attr));
    // The structure of programs that call this function ends before `port_cap_flags2`, which was padding.
    let size = std::mem::offset_of!(ibv_port_attr, port_cap_flags2);
    // SAFETY: as in the program's call.
    unsafe { query_port(context, port, attr, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    forward!(context => ibv_query_gid(context, port, index, gid));
    call::number("ibv_query_gid", || {
        // SAFETY: the program passes an open context.
        let found = unsafe { Context::of(context) }.gid(port.into(), index as u32)?;
        // SAFETY: the program passes the address of a GID.
        unsafe { gid.write(ibv_gid { raw: found.0 }) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: c_uint,
    gid_type: *mut c_uint,
) -> c_int {
    forward!(context => ibv_query_gid_type(context, port, index, gid_type));
    call::number("ibv_query_gid_type", || {
        // SAFETY: the program passes an open context.
        unsafe { Context::of(context) }.gid(port.into(), index)?;
        // SAFETY: the program passes the address of a number.
        unsafe { gid_type.write(SYSFS_ROCE_V2) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    forward!(context => _ibv_query_gid_ex(context, port, index, entry, flags, size));
    call::status("ibv_query_gid_ex", || {
        check_flags(flags)?;
        // SAFETY: the program passes an open context.
        let found = unsafe { Context::of(context) }.gid_entry(port, index)?;
        // SAFETY: the program's entry has `size` bytes.
        unsafe { copy_out(&found, entry.cast(), size) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    size: usize,
) -> isize {
    forward!(context => _ibv_query_gid_table(context, entries, max_entries, flags, size));
    let mut count = 0;
    let status = call::status("ibv_query_gid_table", || {
        check_flags(flags)?;
        if max_entries < GIDS as usize {
            return Err(Refusal::invalid(format!(
                "the table has {GIDS} entries, the given array {max_entries}"
            )));
        }
        for index in 0..GIDS {
            // SAFETY: the program passes an open context.
            let found = unsafe { Context::of(context) }.gid_entry(1, index)?;
            // SAFETY: the program's array has `max_entries` entries of `size` bytes.
            unsafe {
                copy_out(
                    &found,
                    entries.cast::<u8>().add(index as usize * size),
                    size,
                );
            }
            count += 1;
        }
        Ok(())
    });
    if status == 0 {
        count
    } else {
        -(status as isize)
    }
}

fn check_flags(flags: u32) -> Result<(), Refusal> {
    match flags {
        0 => Ok(()),
        _ => Err(Refusal::invalid(format!(
            "invalid flags {flags:#x}: there are none"
        ))),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    forward!(context => ibv_query_pkey(context, port, index, pkey));
    call::number("ibv_query_pkey", || {
        // SAFETY: the program passes an open context.
        unsafe { Context::of(context) }.port(port.into())?;
        if index != 0 {
            return Err(Refusal::invalid(format!(
                "partition key index {index} is outside the table of 1"
            )));
        }
        // SAFETY: the program passes the address of a key.
        unsafe { pkey.write(PKEY.to_be()) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_pkey_index(context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
    forward!(context => ibv_get_pkey_index(context, port, pkey));
    call::number("ibv_get_pkey_index", || {
        // SAFETY: the program passes an open context.
        unsafe { Context::of(context) }.port(port.into())?;
        if u16::from_be(pkey) != PKEY {
            let key = u16::from_be(pkey);
            return Err(Refusal::invalid(format!(
                "no partition key {key:#06x}: the table has {PKEY:#06x}"
            )));
        }
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lid_names_the_addresses_with_the_same_first_half() {
        let gid = |ip: [u8; 4]| Gid::from_ipv4(ip.into());
        assert_eq!(lid_of(gid([127, 0, 0, 1])), Some(1));
        let peer = gid([10, 9, 200, 7]);
        assert_eq!(
            gid_at_lid(gid([10, 9, 1, 2]), lid_of(peer).unwrap()),
            Some(peer)
        );
        assert_eq!(gid_at_lid(Gid([0xfe; 16]), 1), None);
    }
}
