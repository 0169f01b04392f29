//! The RDMA IP CM service (IBTA annex A11): service IDs made of ports, and addresses in the private data.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::WireError;
use crate::fields::{be16, octets, put, split};

/// Name of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceId(pub u64);

/// Bits of a service ID that are the same for all ports (A11.2).
const PREFIX: u64 = 0x0000_0000_0100_0000;

/// Port space: a set of 65,536 ports. The value is the byte of the service ID: the IP protocol's number for TCP and UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortSpace {
    /// `RDMA_PS_IPOIB`: the IPoIB interface's own.
    Ipoib,
    /// `RDMA_PS_TCP`: connections.
    Tcp,
    /// `RDMA_PS_UDP`: datagrams.
    Udp,
    /// `RDMA_PS_IB`: any transport service.
    Ib,
}

impl PortSpace {
    /// All port spaces.
    pub const ALL: [PortSpace; 4] = [
        PortSpace::Ipoib,
        PortSpace::Tcp,
        PortSpace::Udp,
        PortSpace::Ib,
    ];

    const fn byte(self) -> u8 {
        match self {
            PortSpace::Ipoib => 0x02,
            PortSpace::Tcp => 0x06,
            PortSpace::Udp => 0x11,
            PortSpace::Ib => 0x3f,
        }
    }

    /// Returns the value of `enum rdma_port_space`.
    pub const fn code(self) -> u32 {
        (PREFIX >> 16) as u32 | self.byte() as u32
    }

    /// Returns the port space with a value of `enum rdma_port_space`.
    pub fn from_code(code: u32) -> Option<Self> {
        PortSpace::ALL
            .into_iter()
            .find(|space| space.code() == code)
    }

    /// Returns whether its services carry datagrams.
    pub const fn is_datagram(self) -> bool {
        matches!(self, PortSpace::Udp | PortSpace::Ipoib)
    }
}

impl ServiceId {
    /// Returns the service ID of a port.
    pub const fn of(space: PortSpace, port: u16) -> Self {
        ServiceId((space.code() as u64) << 16 | port as u64)
    }

    /// Returns port space and port. `None` for service IDs outside the IP CM service.
    pub fn port(self) -> Option<(PortSpace, u16)> {
        let code = u32::try_from(self.0 >> 16).ok()?;
        Some((PortSpace::from_code(code)?, self.0 as u16))
    }
}

/// The header before the program's private data in a REQ or SIDR_REQ (A11.3): who connects to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpCmHeader {
    /// Address of the requester.
    pub source: IpAddr,
    /// Port of the requester.
    pub source_port: u16,
    /// Address of the responder, of the same IP version.
    pub destination: IpAddr,
}

impl IpCmHeader {
    /// Length of the header in bytes.
    pub const LEN: usize = 36;

    /// Parses the header at the beginning of private data; returns it and what follows.
    ///
    /// # Errors
    /// Too few bytes, or an unknown version of the header or of IP.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (header, rest) = split::<{ Self::LEN }>("IP CM header", bytes)?;
        if header[0] != 0 {
            return Err(WireError::IpCmVersion(header[0]));
        }
        let version = header[1] >> 4;
        let [source, destination] = match version {
            4 => [16, 32].map(|at| IpAddr::V4(Ipv4Addr::from(octets::<_, 4>(header, at)))),
            6 => [4, 20].map(|at| IpAddr::V6(Ipv6Addr::from(octets::<_, 16>(header, at)))),
            other => return Err(WireError::IpVersion(other)),
        };
        let header = IpCmHeader {
            source,
            source_port: be16(header, 2),
            destination,
        };
        Ok((header, rest))
    }

    /// Returns the header's bytes. If the addresses are of two IP versions, the IPv4 one is mapped to IPv6.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put(&mut out, 2, self.source_port.to_be_bytes());
        if let (IpAddr::V4(source), IpAddr::V4(destination)) = (self.source, self.destination) {
            out[1] = 4 << 4;
            put(&mut out, 16, source.octets());
            put(&mut out, 32, destination.octets());
            return out;
        }
        let six = |ip| match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        out[1] = 6 << 4;
        put(&mut out, 4, six(self.source));
        put(&mut out, 20, six(self.destination));
        out
    }
}
