//! Socket filters: classic BPF programs that the kernel runs on each datagram before it is queued in the receive
//! buffer. Attaching one requires no capability.
//!
//! A filter sees the datagram from its UDP header on, and the IP header at `SKF_NET_OFF`. In a GRO buffer it sees
//! the first datagram, and its verdict applies to all.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

use adverb_wire::{Opcode, bth, icrc, udp};
use libc::{BPF_ABS, BPF_B, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LEN, BPF_RET, BPF_W};

/// Length of the zeros that a congestion notification consists of (A17.9.3).
const RESERVED: u32 = 16;

/// Returns a BPF statement.
const fn statement(code: u32, k: u32) -> libc::sock_filter {
    jump(code, k, 0, 0)
}

/// Returns a BPF jump: skips `holds` statements if the condition holds, else `fails`.
const fn jump(code: u32, k: u32, holds: u8, fails: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: holds,
        jf: fails,
        k,
    }
}

/// Attaches a filter to `socket`.
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

/// Attaches a filter that drops congestion notifications, which the port ignores, before they use buffer and time.
///
/// It drops nothing else: the kernel may have joined a longer packet with packets of other senders, and the filter decides
/// for all of them. A datagram of this length with these zeros is one packet.
pub(super) fn refuse_notifications(socket: &UdpSocket) -> io::Result<()> {
    const PACKET: u32 = udp::LEN as u32;
    const NOTIFICATION: u32 = PACKET + bth::LEN as u32 + RESERVED + icrc::LEN as u32;
    let load = |size, offset| statement(BPF_LD | size | BPF_ABS, PACKET + offset);
    let unless = |k, over| jump(BPF_JMP | BPF_JEQ | BPF_K, k, 0, over);
    let mut program = [
        statement(BPF_LD | BPF_W | BPF_LEN, 0),
        unless(NOTIFICATION, 5),
        load(BPF_B, 0),
        unless(Opcode::Cnp.code().into(), 3),
        // A second packet of this length, an empty SEND, would begin here.
        load(BPF_W, bth::LEN as u32 + icrc::LEN as u32),
        unless(0, 1),
        statement(BPF_RET | BPF_K, 0),
        statement(BPF_RET | BPF_K, u32::MAX),
    ];
    attach(socket, &mut program)
}
