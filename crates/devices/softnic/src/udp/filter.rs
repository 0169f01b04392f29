//! Socket filters: classic BPF programs that the kernel runs on each datagram before it is queued in the receive
//! buffer. Attaching one requires no capability.
//!
//! A filter sees the datagram from its UDP header on, and the IP header at `SKF_NET_OFF`. Of a GRO buffer it sees
//! the first datagram and decides for all.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

use adverb_wire::{DEFAULT_PKEY, bth, udp};
use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_JEQ, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_RET,
    BPF_RSH, BPF_W,
};

use crate::shm::layout::{MAX_QP, qpn_of};

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

/// Attaches a filter that accepts only RC, UC and UD packets of the default partition to queue pair numbers of this
/// slot. Others, for example congestion notifications, which the port ignores, then use neither buffer nor time.
/// Unknown opcodes of these services are accepted, because RC has to answer them with a NAK.
pub(super) fn admit(socket: &UdpSocket, slot: u32) -> io::Result<()> {
    const PACKET: u32 = udp::LEN as u32;
    const PARTITION: u32 = 0x7fff;
    const ABOVE_INDEX: u32 = 0xff_ffff & !(MAX_QP - 1);
    let load = |size, offset| statement(BPF_LD | size | BPF_ABS, PACKET + offset);
    let and = |mask| statement(BPF_ALU | BPF_AND | BPF_K, mask);
    // The last statement drops the datagram; so does a load beyond its end.
    let unless = |test, k, over| jump(BPF_JMP | test | BPF_K, k, 0, over);
    let mut program = [
        // The shortest packet ends here, with its ICRC.
        load(BPF_W, bth::LEN as u32),
        // The upper bits of the opcode are the transport service.
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
