//! Filters of sockets: programs that the kernel runs on each datagram before it takes room in the socket's
//! buffer (classic BPF, for which no capability is needed).
//!
//! A filter sees a datagram from its UDP header on, and the IP header at an offset of its own. Of datagrams
//! that the kernel has joined it sees the first one, and decides for all.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

use adverb_wire::{DEFAULT_PKEY, bth, udp};
use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_JEQ, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_RET,
    BPF_RSH, BPF_W,
};

use crate::layout::{MAX_QP, qpn_of};

/// A statement of a filter.
pub(super) const fn statement(code: u32, k: u32) -> libc::sock_filter {
    jump(code, k, 0, 0)
}

/// A jump over so many statements if the condition holds, or if it does not.
const fn jump(code: u32, k: u32, holds: u8, fails: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: holds,
        jf: fails,
        k,
    }
}

/// From now on what arrives at `socket` passes this filter.
pub(super) fn attach(socket: &UdpSocket, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the option's value is a program, whose statements live until the kernel has copied them.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// From now on `socket` takes only what may be for the port of this slot: packets of RC, UC and UD in the
/// default partition to queue pair numbers of the slot. Others, such as congestion notifications, which the
/// port ignores, do not use up its buffer and its time. An unknown opcode of these services passes, because
/// RC refuses it.
pub(super) fn admit(socket: &UdpSocket, slot: u32) -> io::Result<()> {
    const PACKET: u32 = udp::LEN as u32;
    const PARTITION: u32 = 0x7fff;
    const ABOVE_INDEX: u32 = 0xff_ffff & !(MAX_QP - 1);
    let load = |size, offset| statement(BPF_LD | size | BPF_ABS, PACKET + offset);
    let and = |mask| statement(BPF_ALU | BPF_AND | BPF_K, mask);
    // The last statement drops; so does a load beyond the end.
    let unless = |test, k, over| jump(BPF_JMP | test | BPF_K, k, 0, over);
    let mut program = [
        // The ICRC of the shortest packet.
        load(BPF_W, bth::LEN as u32),
        // The upper bits of the opcode: the service.
        load(BPF_B, 0),
        statement(BPF_ALU | BPF_RSH | BPF_K, 5),
        jump(BPF_JMP | BPF_JEQ | BPF_K, 2, 8, 0),
        jump(BPF_JMP | BPF_JGT | BPF_K, 3, 7, 0),
        load(BPF_H, 2),
        and(PARTITION),
        unless(BPF_JEQ, u32::from(DEFAULT_PKEY) & PARTITION, 4),
        load(BPF_W, 4),
        and(ABOVE_INDEX),
        unless(BPF_JEQ, qpn_of(slot, 0).get(), 1),
        statement(BPF_RET | BPF_K, u32::MAX),
        statement(BPF_RET | BPF_K, 0),
    ];
    attach(socket, &mut program)
}
