//! A packet with its IP and UDP headers and its ICRC, as captures and raw sockets have it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::fields::{be16, split};
use crate::icrc::{self, Icrc};
use crate::ipv4::{self, Ipv4, Unseen};
use crate::ipv6::{self, Ipv6};
use crate::udp::{self, Udp};
use crate::{Packet, ROCE_PORT, WireError};

/// Length of an Ethernet II header (IEEE 802.3) without VLAN tag: two addresses and the EtherType.
const ETHERNET: usize = 14;
const ETHER_TYPES: [u16; 2] = [0x0800, 0x86dd];

/// Source and destination address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// IPv4.
    V4(Ipv4Addr, Ipv4Addr),
    /// IPv6.
    V6(Ipv6Addr, Ipv6Addr),
}

impl Addresses {
    /// Returns the pair. `None` if the addresses are of two IP versions.
    pub const fn of(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Some(Addresses::V4(source, destination))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Some(Addresses::V6(source, destination))
            }
            _ => None,
        }
    }

    /// Returns the source.
    pub const fn source(&self) -> IpAddr {
        match *self {
            Addresses::V4(source, _) => IpAddr::V4(source),
            Addresses::V6(source, _) => IpAddr::V6(source),
        }
    }

    /// Returns the destination.
    pub const fn destination(&self) -> IpAddr {
        match *self {
            Addresses::V4(_, destination) => IpAddr::V4(destination),
            Addresses::V6(_, destination) => IpAddr::V6(destination),
        }
    }
}

/// Addresses and ports of a datagram, as a UDP socket knows them; the ICRC covers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Source and destination address.
    pub addresses: Addresses,
    /// Source port, which the sender chooses; routers use it as entropy for ECMP.
    pub source_port: u16,
    /// Destination port: [`ROCE_PORT`].
    pub destination_port: u16,
}

/// An IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    /// Version 4.
    V4(Ipv4),
    /// Version 6.
    V6(Ipv6),
}

impl Ip {
    /// Returns source and destination address.
    pub const fn addresses(&self) -> Addresses {
        match self {
            Ip::V4(ip) => Addresses::V4(ip.source, ip.destination),
            Ip::V6(ip) => Addresses::V6(ip.source, ip.destination),
        }
    }

    /// Returns the fields that a socket does not see, but the ICRC covers.
    pub const fn unseen(&self) -> Unseen {
        match self {
            Ip::V4(ip) => ip.unseen,
            Ip::V6(_) => Unseen {
                identification: 0,
                fragmentation: ipv4::Fragmentation::Forbidden,
            },
        }
    }

    /// Returns the header's length in bytes.
    pub const fn length(&self) -> usize {
        match self {
            Ip::V4(_) => ipv4::LEN,
            Ip::V6(_) => ipv6::LEN,
        }
    }

    /// Parses the header at the beginning of `bytes`; returns it and its payload, without padding of Ethernet that may
    /// follow.
    fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let first = bytes.first().map_or(0, |byte| byte >> 4);
        match first {
            4 => {
                let (ip, rest) = Ipv4::parse(bytes)?;
                let says = usize::from(ip.total_length);
                let rest = says.checked_sub(ipv4::LEN).and_then(|n| rest.get(..n));
                let have = bytes.len();
                let wrong = WireError::Length {
                    header: "IPv4",
                    says,
                    have,
                };
                Ok((Ip::V4(ip), rest.ok_or(wrong)?))
            }
            6 => {
                let (ip, rest) = Ipv6::parse(bytes)?;
                let says = usize::from(ip.payload_length);
                let have = rest.len();
                let wrong = WireError::Length {
                    header: "IPv6",
                    says,
                    have,
                };
                Ok((Ip::V6(ip), rest.get(..says).ok_or(wrong)?))
            }
            other => Err(WireError::IpVersion(other)),
        }
    }
}

/// A packet with its IP and UDP headers and its ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// IP header.
    pub ip: Ip,
    /// UDP header.
    pub udp: Udp,
    /// The packet.
    pub packet: Packet<'a>,
    /// Its ICRC; a parsed frame has the right one.
    pub icrc: Icrc,
}

impl<'a> Frame<'a> {
    /// Parses an IP datagram.
    ///
    /// # Errors
    /// Headers, lengths, port, ICRC or packet are invalid.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (ip, rest) = Ip::parse(bytes)?;
        let (udp, datagram) = Udp::parse(rest)?;
        if udp.destination != ROCE_PORT {
            return Err(WireError::UdpPort(udp.destination));
        }
        if usize::from(udp.length) != rest.len() {
            return Err(WireError::Length {
                header: "UDP",
                says: udp.length.into(),
                have: rest.len(),
            });
        }
        let flow = Flow {
            addresses: ip.addresses(),
            source_port: udp.source,
            destination_port: udp.destination,
        };
        let packet = icrc::check(&flow, ip.unseen(), datagram)?;
        let (_, icrc) = icrc::split(datagram)?;
        Ok(Frame {
            ip,
            udp,
            packet: Packet::parse(packet)?,
            icrc,
        })
    }

    /// Parses the payload of an Ethernet frame.
    ///
    /// # Errors
    /// As [`Frame::parse`], or the EtherType is not IP's.
    pub fn parse_ethernet(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (header, rest) = split::<ETHERNET>("Ethernet", bytes)?;
        match be16(header, 12) {
            ether_type if ETHER_TYPES.contains(&ether_type) => Frame::parse(rest),
            other => Err(WireError::EtherType(other)),
        }
    }
}

/// Writes a packet with IP header, UDP header and ICRC to the beginning of `out`; returns the length. Sets the lengths
/// in `ip`.
///
/// # Errors
/// As [`Packet::emit`].
pub fn emit(
    ip: &Ip,
    source_port: u16,
    packet: &Packet<'_>,
    out: &mut [u8],
) -> Result<usize, WireError> {
    let have = out.len();
    let front = ip.length() + udp::LEN;
    let too_short = WireError::NoSpace { need: front, have };
    let (headers, body) = out.split_at_mut_checked(front).ok_or(too_short)?;
    let flow = Flow {
        addresses: ip.addresses(),
        source_port,
        destination_port: ROCE_PORT,
    };
    let length = packet.emit(body)?;
    let length = icrc::seal(&flow, ip.unseen(), body, length)?;
    put_headers(ip, (source_port, ROCE_PORT), length, headers);
    Ok(front + length)
}

/// Returns a datagram with IP and UDP header, the latter with these source and destination ports. Sets the lengths in
/// `ip`.
pub fn datagram(ip: &Ip, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ip.length() + udp::LEN];
    put_headers(ip, ports, payload.len(), &mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// Writes the headers before a payload of `length` bytes; `out` has their length.
fn put_headers(ip: &Ip, (source, destination): (u16, u16), length: usize, out: &mut [u8]) {
    let udp = Udp {
        source,
        destination,
        length: (udp::LEN + length) as u16,
        checksum: 0,
    };
    let total_length = (out.len() + length) as u16;
    let (at_ip, at_udp) = out.split_at_mut(ip.length());
    at_udp.copy_from_slice(&udp.to_bytes());
    match *ip {
        Ip::V4(ip) => at_ip.copy_from_slice(&Ipv4 { total_length, ..ip }.to_bytes()),
        Ip::V6(ip) => at_ip.copy_from_slice(
            &Ipv6 {
                payload_length: udp.length,
                ..ip
            }
            .to_bytes(),
        ),
    }
}
