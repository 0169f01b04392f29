//! Direct placement: `riomap`, `riounmap` and `riowrite`.
//!
//! A side offers its peer room for a number of entries (`RDMA_IOMAPSIZE`). The peer maps its buffers to these, and writes
//! the entries before the next data that it sends. Then this side writes directly to the buffers.

use std::ffi::{c_int, c_void};

use adverb_units::Bytes;
use adverb_verbs::AccessFlags;
use libc::{off_t, size_t};

use super::mapping::Mapping;
use super::pieces::Pieces;
use super::socket::{Socket, State};
use super::wire::Target;
use super::{io, table};
use crate::activity;
use crate::call::{self, Refusal};
use crate::context::Context;
use crate::pd::Pd;

fn not_connected() -> Refusal {
    Refusal::new(libc::ENOTCONN, "the rsocket is not connected")
}

/// Maps a buffer; returns its offset.
///
/// # Safety
/// While it is mapped, the peer may write it.
unsafe fn map(
    state: &mut State,
    (buf, length): (*mut c_void, usize),
    prot: c_int,
    offset: off_t,
) -> Result<off_t, Refusal> {
    let id = state.id;
    let stream = state.stream.as_mut().ok_or_else(not_connected)?;
    let is_remote = prot & libc::PROT_WRITE != 0;
    if prot & !libc::PROT_WRITE != 0 {
        return Err(Refusal::invalid(format!(
            "invalid prot {prot:#x}: expected PROT_WRITE or PROT_NONE"
        )));
    }
    if u32::try_from(length).is_err() {
        return Err(Refusal::invalid(format!(
            "a buffer of {length} B exceeds the maximum of 4 GiB"
        )));
    }
    let most = stream.max_iomaps();
    let index = match is_remote {
        false => None,
        true => Some(stream.iomaps.free_index(most).ok_or_else(|| {
            Refusal::new(
                libc::ENOMEM,
                format!("the peer takes {most} mappings (its option RDMA_IOMAPSIZE)"),
            )
        })?),
    };
    let mut access = AccessFlags::LOCAL_WRITE;
    access.set(AccessFlags::REMOTE_WRITE, is_remote);
    // SAFETY: the id is bound to a device; the program asks that its peer accesses the buffer while it is mapped.
    let memory = unsafe {
        let (context, pd) = (Context::of((*id).verbs), Pd::of((*id).pd));
        let length = Bytes::new(length as u64);
        (context.soft).register(&pd.soft, buf.cast(), length, access)?
    };
    activity::registered(length);
    let addr = buf.addr() as u64;
    let offset = match offset {
        -1 => addr as off_t,
        offset => offset,
    };
    stream.iomaps.0.push(Mapping {
        addr,
        length,
        offset: offset as u64,
        index,
        is_announced: !is_remote,
        memory,
    });
    Ok(offset)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn riomap(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    prot: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    call::number("riomap", || {
        let socket = table::get(socket)?;
        let mut state = socket.lock();
        // SAFETY: the program maps a buffer of this length.
        unsafe { map(&mut state, (buf, len), prot, offset) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn riounmap(socket: c_int, buf: *mut c_void, len: size_t) -> c_int {
    call::number("riounmap", || {
        let socket = table::get(socket)?;
        let mut state = socket.lock();
        let stream = state.stream.as_mut().ok_or_else(not_connected)?;
        let is_it = |m: &Mapping| m.addr == buf.addr() as u64 && m.length == len;
        let found = stream.iomaps.0.iter().position(is_it);
        let found = found.ok_or_else(|| {
            Refusal::invalid(format!("no buffer of {len} B is mapped at {buf:p}"))
        })?;
        stream.iomaps.0.remove(found);
        Ok(0)
    })
}

/// Returns the buffer of the peer that is mapped to an offset, from there on.
fn find(state: &State, offset: u64) -> Option<Target> {
    let mut mapped = state.stream.as_ref()?.mapped();
    mapped.find_map(|map| map.from(offset))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn riowrite(
    socket: c_int,
    buf: *const c_void,
    count: size_t,
    offset: off_t,
    flags: c_int,
) -> size_t {
    let written = call::number("riowrite", || {
        let socket = table::get(socket)?;
        let piece = [io::piece(buf, count)];
        // SAFETY: the program passes `count` bytes.
        let mut from = unsafe { Pieces::new(&piece) };
        write(&socket, &mut from, (offset as u64, flags))
    });
    written as size_t
}

fn write(
    socket: &Socket,
    from: &mut Pieces<'_>,
    (offset, flags): (u64, c_int),
) -> Result<isize, Refusal> {
    let total = from.left();
    io::send_all(socket, from, flags, |state, from| {
        let at = offset + (total - from.left()) as u64;
        let Some(mut target) = find(state, at) else {
            return Err(Refusal::invalid(format!(
                "the peer has mapped no buffer at offset {at:#x}"
            )));
        };
        if let Some(stream) = &mut state.stream {
            stream.write_mapped(from, &mut target);
        }
        Ok(())
    })
}
