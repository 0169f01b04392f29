//! Prints packets and frames on one line, like tcpdump.

use std::fmt;
use std::net::IpAddr;

use crate::bth::BthFlags;
use crate::{Aeth, Credits, Extension, Frame, Ip, Packet, PacketHeaders, Syndrome};

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Syndrome::Ack(Credits::NONE) => f.write_str("ack"),
            Syndrome::Ack(credits) => write!(f, "ack credits code {}", credits.code()),
            Syndrome::RnrNak(timer) => write!(f, "rnr-nak {}", timer.span()),
            Syndrome::Nak(code) => write!(f, "nak {code:?}"),
        }
    }
}

impl fmt::Display for Aeth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} msn {}", self.syndrome, self.msn)
    }
}

impl fmt::Display for Extension {
    /// Prints each field after a space; prints nothing without a header.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Extension::None => Ok(()),
            Extension::Imm(imm) => write!(f, " imm {}", imm.imm),
            Extension::Invalidate(ieth) => write!(f, " invalidate {}", ieth.rkey),
            Extension::Rdma(reth) | Extension::RdmaImm(reth, _) => {
                let remote = reth.remote;
                write!(
                    f,
                    " to {:#x} rkey {} dmalen {}",
                    remote.addr, remote.rkey, reth.length
                )?;
                match self {
                    Extension::RdmaImm(_, imm) => write!(f, " imm {}", imm.imm),
                    _ => Ok(()),
                }
            }
            Extension::Atomic(atomic) => {
                let remote = atomic.remote;
                write!(f, " to {:#x} rkey {}", remote.addr, remote.rkey)?;
                write!(
                    f,
                    " data {:#x} compare {:#x}",
                    atomic.swap_or_add, atomic.compare
                )
            }
            Extension::Ack(aeth) => write!(f, " {aeth}"),
            Extension::AtomicAck(aeth, result) => write!(f, " {aeth} was {:#x}", result.original),
            Extension::Datagram(deth) | Extension::DatagramImm(deth, _) => {
                write!(f, " from {} qkey {:#x}", deth.src_qp, deth.qkey)?;
                match self {
                    Extension::DatagramImm(_, imm) => write!(f, " imm {}", imm.imm),
                    _ => Ok(()),
                }
            }
        }
    }
}

impl fmt::Display for PacketHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bth = &self.bth;
        write!(
            f,
            "{}, qp {} psn {}",
            bth.opcode.name(),
            bth.dest_qp,
            bth.psn
        )?;
        let flags = [
            (BthFlags::ACK_REQ, "ackreq"),
            (BthFlags::SOLICITED, "solicited"),
            (BthFlags::FECN, "fecn"),
            (BthFlags::BECN, "becn"),
        ];
        for (flag, name) in flags {
            if bth.flags.contains(flag) {
                write!(f, " {name}")?;
            }
        }
        if let Some(xrc) = &self.xrc {
            write!(f, " srq {}", xrc.srqn)?;
        }
        self.extension.fmt(f)
    }
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, length {}", self.headers, self.payload.len())
    }
}

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.ip.addresses();
        let name = match self.ip {
            Ip::V4(_) => "IP",
            Ip::V6(_) => "IP6",
        };
        write!(f, "{name} ")?;
        end(f, addresses.source(), self.udp.source)?;
        f.write_str(" > ")?;
        end(f, addresses.destination(), self.udp.destination)?;
        write!(f, ": {}", self.packet)
    }
}

/// Prints address and port with a dot between them, like tcpdump.
fn end(f: &mut fmt::Formatter<'_>, address: IpAddr, port: u16) -> fmt::Result {
    write!(f, "{address}.{port}")
}
