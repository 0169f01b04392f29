//! Sending and receiving: `rsend`, `rrecv` and their relatives.

use std::ffi::{c_int, c_void};

use libc::{iovec, msghdr, sockaddr, socklen_t};

use super::pieces::Pieces;
use super::socket::{Phase, Socket, State};
use super::stream::Stream;
use super::{put_address, table};
use crate::call::{self, Refusal};

/// Returns the memory of a call as a piece.
pub(super) fn piece(buf: *const c_void, len: usize) -> iovec {
    iovec {
        iov_base: buf.cast_mut(),
        iov_len: len,
    }
}

/// Returns the stream of an rsocket that was connected; `None` while it is connecting.
fn stream(state: &mut State) -> Option<Result<&mut Stream, Refusal>> {
    match state.phase {
        Phase::Connecting => None,
        Phase::Connected => state.stream.as_deref_mut().map(Ok),
        Phase::Closed => Some(Err(Refusal::expected(libc::EBADF))),
        Phase::New | Phase::Bound | Phase::Listening | Phase::Failed => {
            Some(Err(Refusal::expected(libc::ENOTCONN)))
        }
    }
}

/// Checks whether data can be sent; `None` if the call has to wait.
fn writable(state: &mut State) -> Option<Result<(), Refusal>> {
    if let Some(refusal) = state.take_error() {
        return Some(Err(refusal));
    }
    match stream(state)? {
        Err(refusal) => Some(Err(refusal)),
        Ok(stream) if stream.has_shut_down => Some(Err(Refusal::expected(libc::EPIPE))),
        Ok(stream) if !stream.writes => Some(Err(Refusal::expected(libc::ECONNRESET))),
        Ok(stream) => (stream.announce_iomaps() && stream.can_send()).then_some(Ok(())),
    }
}

/// Sends all bytes by `step`, which sends as many as there is room for; those that do not wait send a part.
pub(super) fn send_all(
    socket: &Socket,
    from: &mut Pieces<'_>,
    flags: c_int,
    mut step: impl FnMut(&mut State, &mut Pieces<'_>) -> Result<(), Refusal>,
) -> Result<isize, Refusal> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Refusal::unsupported("rsockets have no urgent data"));
    }
    let total = from.left();
    let blocks = socket.blocks(flags);
    loop {
        let done = socket.wait(blocks, |state| match writable(state)? {
            Err(refusal) => Some(Err(refusal)),
            Ok(()) => Some(step(state, from)),
        });
        let sent = total - from.left();
        match done.and_then(|result| result) {
            Err(refusal) if sent == 0 => return Err(refusal),
            Ok(()) if blocks && from.left() > 0 => {}
            _ => return Ok(sent as isize),
        }
    }
}

fn send(socket: c_int, pieces: &[iovec], flags: c_int) -> Result<isize, Refusal> {
    let socket = table::get(socket)?;
    // SAFETY: the program passes memory that is readable during the call.
    let mut from = unsafe { Pieces::new(pieces) };
    send_all(&socket, &mut from, flags, |state, from| {
        if let Some(stream) = &mut state.stream {
            stream.send(from);
        }
        Ok(())
    })
}

/// Copies bytes that have arrived; `None` if the call has to wait. At the end of the data it copies none.
fn take(state: &mut State, into: &mut Pieces<'_>, flags: c_int) -> Option<Result<usize, Refusal>> {
    match stream(state)? {
        Err(refusal) => return Some(Err(refusal)),
        Ok(stream) if stream.has_data() => {
            return Some(Ok(match flags & libc::MSG_PEEK {
                0 => stream.receive(into),
                _ => stream.peek(into),
            }));
        }
        Ok(_) => {}
    }
    if let Some(refusal) = state.take_error() {
        return Some(Err(refusal));
    }
    let is_over = state.stream.as_ref().is_none_or(|stream| !stream.reads);
    is_over.then_some(Ok(0))
}

fn receive(socket: &Socket, pieces: &[iovec], flags: c_int) -> Result<isize, Refusal> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Refusal::invalid("rsockets have no urgent data"));
    }
    // SAFETY: the program passes memory that is writable during the call.
    let mut into = unsafe { Pieces::new(pieces) };
    let total = into.left();
    let blocks = socket.blocks(flags);
    let waits_for_all = blocks && flags & libc::MSG_WAITALL != 0 && flags & libc::MSG_PEEK == 0;
    loop {
        if total == 0 {
            return Ok(0);
        }
        let done = socket.wait(blocks, |state| take(state, &mut into, flags));
        let received = total - into.left();
        match done.and_then(|result| result) {
            Err(refusal) if received == 0 => return Err(refusal),
            Ok(1..) if waits_for_all && into.left() > 0 => {}
            _ => return Ok(received as isize),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rsend(socket: c_int, buf: *const c_void, len: usize, flags: c_int) -> isize {
    call::number("rsend", || send(socket, &[piece(buf, len)], flags))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rwrite(socket: c_int, buf: *const c_void, count: usize) -> isize {
    call::number("rwrite", || send(socket, &[piece(buf, count)], 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rsendto(
    socket: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
    dest_addr: *const sockaddr,
    addrlen: socklen_t,
) -> isize {
    call::number("rsendto", || {
        if !dest_addr.is_null() || addrlen != 0 {
            return Err(Refusal::new(
                libc::EISCONN,
                "the peer of a stream is the one that it is connected to",
            ));
        }
        send(socket, &[piece(buf, len)], flags)
    })
}

/// Returns the pieces of a call.
///
/// # Safety
/// `iov` is an array of `count` pieces.
unsafe fn pieces<'a>(iov: *const iovec, count: usize) -> Result<&'a [iovec], Refusal> {
    match count {
        0 => Ok(&[]),
        1..=1024 if !iov.is_null() => {
            // SAFETY: the caller's.
            Ok(unsafe { std::slice::from_raw_parts(iov, count) })
        }
        _ => Err(Refusal::invalid(format!(
            "invalid number of pieces {count}: expected 0 to 1024"
        ))),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rwritev(socket: c_int, iov: *const iovec, iovcnt: c_int) -> isize {
    call::number("rwritev", || {
        // SAFETY: the program passes `iovcnt` pieces.
        send(socket, unsafe { pieces(iov, iovcnt as usize) }?, 0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> isize {
    call::number("rsendmsg", || {
        // SAFETY: the program passes NULL or a message.
        let msg = unsafe { msg.as_ref() };
        let msg = msg.ok_or_else(|| Refusal::new(libc::EFAULT, "the message is NULL"))?;
        if msg.msg_controllen != 0 {
            return Err(Refusal::unsupported("rsockets pass no control messages"));
        }
        // SAFETY: as above.
        send(
            socket,
            unsafe { pieces(msg.msg_iov, msg.msg_iovlen as _) }?,
            flags,
        )
    })
}

fn receive_at(socket: c_int, pieces: &[iovec], flags: c_int) -> Result<isize, Refusal> {
    receive(&*table::get(socket)?, pieces, flags)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rrecv(socket: c_int, buf: *mut c_void, len: usize, flags: c_int) -> isize {
    call::number("rrecv", || receive_at(socket, &[piece(buf, len)], flags))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rread(socket: c_int, buf: *mut c_void, count: usize) -> isize {
    call::number("rread", || receive_at(socket, &[piece(buf, count)], 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rreadv(socket: c_int, iov: *const iovec, iovcnt: c_int) -> isize {
    call::number("rreadv", || {
        // SAFETY: the program passes `iovcnt` pieces.
        receive_at(socket, unsafe { pieces(iov, iovcnt as usize) }?, 0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rrecvfrom(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
    src_addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> isize {
    call::number("rrecvfrom", || {
        let socket = table::get(socket)?;
        let received = receive(&socket, &[piece(buf, len)], flags)?;
        if let Some(peer) = socket.address(true).filter(|_| !src_addr.is_null()) {
            // SAFETY: the program passes room for an address, and its size.
            unsafe { put_address(peer, src_addr, addrlen) }?;
        }
        Ok(received)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> isize {
    call::number("rrecvmsg", || {
        // SAFETY: the program passes NULL or a message.
        let msg = unsafe { msg.as_mut() };
        let msg = msg.ok_or_else(|| Refusal::new(libc::EFAULT, "the message is NULL"))?;
        // SAFETY: as above.
        let received = receive_at(
            socket,
            unsafe { pieces(msg.msg_iov, msg.msg_iovlen as _) }?,
            flags,
        )?;
        msg.msg_namelen = 0;
        msg.msg_controllen = 0;
        msg.msg_flags = 0;
        Ok(received)
    })
}
