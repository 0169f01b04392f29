//! `rsetsockopt`, `rgetsockopt` and `rfcntl`.
//!
//! Supported are the options of rsocket(7), and options of TCP whose value can be kept without effect. Others are refused
//! with `ENOPROTOOPT`, as the kernel does.

use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::Ordering;

use libc::{linger, socklen_t};

use super::sizes::{clamp_buffer, clamp_inline, clamp_queue};
use super::socket::{Phase, Socket, State};
use super::wire::rounded_iomaps;
use super::{functions as c, keepalive, table};
use crate::call::{self, Refusal};

/// `SOL_RDMA` and its options.
const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;
const RDMA_ROUTE: c_int = 4;

/// `RDMA_OPTION_ID` and `RDMA_OPTION_ID_TOS`.
const OPTION_ID: c_int = 0;
const OPTION_TOS: c_int = 0;

/// Value of `TCP_MAXSEG`, as librdmacm's without a path: the segments of a stream are not visible.
const MAX_SEGMENT: c_int = 2048;
/// Options whose value is kept but has no effect. rsockets send without delay, and addresses are reusable once no rsocket
/// listens there.
const KEPT: &[(c_int, c_int)] = &[
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_MAXSEG),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
];

fn unknown(level: c_int, name: c_int) -> Refusal {
    Refusal::new(
        libc::ENOPROTOOPT,
        format!("option {name} of level {level} is not supported"),
    )
}

/// Reads a number: the kernel takes a byte for some options.
///
/// # Safety
/// `value` has `length` bytes.
unsafe fn number(value: *const c_void, length: socklen_t) -> Result<c_int, Refusal> {
    // SAFETY: the caller's.
    unsafe {
        match length {
            4.. if !value.is_null() => Ok(value.cast::<c_int>().read_unaligned()),
            2 if !value.is_null() => Ok(value.cast::<u16>().read_unaligned().into()),
            1 if !value.is_null() => Ok(value.cast::<u8>().read().into()),
            _ => Err(Refusal::invalid(format!(
                "a value of {length} B does not fit the option"
            ))),
        }
    }
}

/// Sets a size, which a connection keeps.
fn set_size(state: &mut State, (level, name): (c_int, c_int), value: c_int) -> Result<(), Refusal> {
    if !matches!(state.phase, Phase::New | Phase::Bound | Phase::Listening) {
        // Programs set buffer sizes at any time; the others belong to the queue pair.
        return match level {
            libc::SOL_SOCKET => Ok(()),
            _ => Err(Refusal::invalid(
                "the rsocket has connected: set sizes before",
            )),
        };
    }
    let value = u32::try_from(value)
        .map_err(|_| Refusal::invalid(format!("invalid size {value}: expected 0 or more")))?;
    let sizes = &mut state.options.sizes;
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => sizes.send_buffer = clamp_buffer(value),
        (libc::SOL_SOCKET, _) => sizes.recv_buffer = clamp_buffer(value),
        (_, RDMA_SQSIZE) => sizes.send_queue = clamp_queue(value),
        (_, RDMA_RQSIZE) => sizes.recv_queue = clamp_queue(value),
        (_, RDMA_INLINE) => sizes.inline = clamp_inline(value),
        _ => sizes.iomaps = rounded_iomaps(value.try_into().unwrap_or(u16::MAX)),
    }
    Ok(())
}

/// # Safety
/// `value` has `length` bytes.
unsafe fn set(
    socket: &Socket,
    option: (c_int, c_int),
    (value, length): (*const c_void, socklen_t),
) -> Result<(), Refusal> {
    let mut state = socket.lock();
    if option == (libc::SOL_SOCKET, libc::SO_LINGER) {
        if value.is_null() || (length as usize) < size_of::<linger>() {
            return Err(Refusal::invalid("SO_LINGER takes a struct linger"));
        }
        // SAFETY: the caller's.
        state.options.linger = unsafe { value.cast::<linger>().read_unaligned() };
        return Ok(());
    }
    // SAFETY: the caller's.
    let value = unsafe { number(value, length) };
    match option {
        (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_RCVBUF)
        | (SOL_RDMA, RDMA_SQSIZE..=RDMA_IOMAPSIZE) => set_size(&mut state, option, value?),
        (SOL_RDMA, RDMA_ROUTE) => Err(Refusal::unsupported(
            "the kernel's IP stack resolves the routes of peers",
        )),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => {
            state.options.keeps_alive = value? != 0;
            Ok(keepalive::start()?)
        }
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => match value? {
            seconds @ 1..=32767 => {
                state.options.keep_idle = seconds;
                Ok(())
            }
            other => Err(Refusal::invalid(format!(
                "invalid TCP_KEEPIDLE {other}: expected 1 to 32767"
            ))),
        },
        (libc::IPPROTO_IP, libc::IP_TOS) => {
            let value = value?;
            let mut tos = value as u8;
            let place = (&raw mut tos).cast();
            // SAFETY: the id is alive while the state is locked; the value is a byte.
            unsafe { c::rdma_set_option(state.id, OPTION_ID, OPTION_TOS, place, 1) };
            state.options.keep(option, value);
            Ok(())
        }
        option if KEPT.contains(&option) => {
            state.options.keep(option, value?);
            Ok(())
        }
        (level, name) => Err(unknown(level, name)),
    }
}

/// Returns the value of an option that is a number.
fn get(socket: &Socket, (level, name): (c_int, c_int)) -> Result<c_int, Refusal> {
    let mut state = socket.lock();
    let sizes = state.options.sizes;
    Ok(match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            state.progress();
            if let Some(stream) = &mut state.stream {
                stream.lost = None;
            }
            std::mem::take(&mut state.error)
        }
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => sizes.send_buffer as c_int,
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => sizes.recv_buffer as c_int,
        (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => socket.family,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => (state.phase == Phase::Listening).into(),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => state.options.keeps_alive.into(),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => state.options.keep_idle,
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => match state.options.kept((level, name)) {
            0 => MAX_SEGMENT,
            set => set,
        },
        (libc::IPPROTO_IP, libc::IP_TOS) => state.options.kept((level, name)),
        (SOL_RDMA, RDMA_SQSIZE) => sizes.send_queue as c_int,
        (SOL_RDMA, RDMA_RQSIZE) => sizes.recv_queue as c_int,
        (SOL_RDMA, RDMA_INLINE) => sizes.inline as c_int,
        (SOL_RDMA, RDMA_IOMAPSIZE) => sizes.iomaps as c_int,
        option if KEPT.contains(&option) => state.options.kept(option),
        _ => return Err(unknown(level, name)),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rsetsockopt(
    socket: c_int,
    level: c_int,
    optname: c_int,
    optval: *const c_void,
    optlen: socklen_t,
) -> c_int {
    call::number("rsetsockopt", || {
        let socket = table::get(socket)?;
        // SAFETY: the program passes a value of this length.
        unsafe { set(&socket, (level, optname), (optval, optlen)) }?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rgetsockopt(
    socket: c_int,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: *mut socklen_t,
) -> c_int {
    call::number("rgetsockopt", || {
        let socket = table::get(socket)?;
        if optval.is_null() || optlen.is_null() {
            return Err(Refusal::new(
                libc::EFAULT,
                "the value or its length is NULL",
            ));
        }
        let number;
        let set_linger;
        let (from, size) = if (level, optname) == (libc::SOL_SOCKET, libc::SO_LINGER) {
            set_linger = socket.lock().options.linger;
            ((&raw const set_linger).cast::<u8>(), size_of::<linger>())
        } else {
            number = get(&socket, (level, optname))?;
            ((&raw const number).cast::<u8>(), size_of::<c_int>())
        };
        // SAFETY: the program passes room for a value of `optlen` bytes; a longer value is cut off, as the kernel does.
        unsafe {
            let length = size.min(*optlen as usize);
            std::ptr::copy_nonoverlapping(from, optval.cast::<u8>(), length);
            *optlen = length as socklen_t;
        }
        Ok(0)
    })
}

/// `rfcntl`. The C function is variadic, but passes the argument in the same register.
#[unsafe(no_mangle)]
extern "C" fn rfcntl(socket: c_int, cmd: c_int, arg: c_long) -> c_int {
    call::number("rfcntl", || {
        let rsocket = table::get(socket)?;
        match cmd {
            libc::F_GETFL => Ok(match rsocket.is_nonblocking.load(Ordering::Relaxed) {
                true => libc::O_RDWR | libc::O_NONBLOCK,
                false => libc::O_RDWR,
            }),
            libc::F_SETFL => {
                let is_nonblocking = arg as c_int & libc::O_NONBLOCK != 0;
                (rsocket.is_nonblocking).store(is_nonblocking, Ordering::Relaxed);
                Ok(0)
            }
            libc::F_GETFD | libc::F_SETFD => {
                // SAFETY: the descriptor is the rsocket's.
                match unsafe { libc::fcntl(socket, cmd, arg as c_int) } {
                    -1 => Err(Refusal::expected(c::errno())),
                    flags => Ok(flags),
                }
            }
            _ => Err(Refusal::invalid(format!(
                "command {cmd} is not supported: only F_GETFL, F_SETFL, F_GETFD and F_SETFD"
            ))),
        }
    })
}
