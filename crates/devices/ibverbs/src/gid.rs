//! Chooses an entry of a port's GID table. Does no I/O.

use std::net::{IpAddr, Ipv6Addr};

use adverb_verbs::{Gid, GidType, LinkLayer};

use crate::choice::GidChoice;

/// An entry of a port's GID table (`ibv_gid_entry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidTableEntry {
    /// Index in the table.
    pub index: u32,
    /// The GID.
    pub gid: Gid,
    /// RoCE version or InfiniBand; `None` if neither the library nor the kernel reports it.
    pub gid_type: Option<GidType>,
}

/// The port lacks the requested GID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GidError {
    /// The table is empty.
    #[error("the port has no GID")]
    Empty,
    /// There is no such entry.
    #[error("the port has no GID of index {index}; it has {}", indices(there))]
    Index {
        /// The requested one.
        index: u32,
        /// Indices in the table.
        there: Vec<u32>,
    },
    /// No entry has this address.
    #[error(
        "the port has no GID of address {address}; it has {}",
        addresses(there)
    )]
    Address {
        /// The requested one.
        address: IpAddr,
        /// GIDs in the table.
        there: Vec<Gid>,
    },
}

fn indices(there: &[u32]) -> String {
    join(there.iter().map(u32::to_string))
}

fn addresses(there: &[Gid]) -> String {
    join(there.iter().map(Gid::to_string))
}

fn join(words: impl Iterator<Item = String>) -> String {
    let words: Vec<_> = words.collect();
    if words.is_empty() {
        "none".into()
    } else {
        words.join(", ")
    }
}

/// Chooses one of `entries`, which are sorted by index.
///
/// # Errors
/// The requested entry does not exist, or the table is empty.
pub fn choose(
    entries: &[GidTableEntry],
    layer: LinkLayer,
    choice: GidChoice,
) -> Result<GidTableEntry, GidError> {
    let of_address = |address| {
        entries
            .iter()
            .filter(|entry| ip_of(entry.gid) == canonical(address))
            .min_by_key(|entry| preference(entry))
    };
    let automatic = || match layer {
        LinkLayer::InfiniBand => entries.first(),
        _ => entries.iter().min_by_key(|entry| preference(entry)),
    };
    let found = match choice {
        GidChoice::Index(index) => entries.iter().find(|entry| entry.index == index),
        GidChoice::Address(address) => of_address(address),
        GidChoice::Nearest(address) => of_address(address).or_else(automatic),
        GidChoice::Automatic => automatic(),
    };
    found.copied().ok_or_else(|| match choice {
        GidChoice::Automatic | GidChoice::Nearest(_) => GidError::Empty,
        GidChoice::Index(index) => GidError::Index {
            index,
            there: entries.iter().map(|entry| entry.index).collect(),
        },
        GidChoice::Address(address) => GidError::Address {
            address,
            there: entries.iter().map(|entry| entry.gid).collect(),
        },
    })
}

/// Returns the rank of an entry; the lowest is chosen, and the first of equals.
fn preference(entry: &GidTableEntry) -> u32 {
    let address = Ipv6Addr::from(entry.gid.0);
    match entry.gid_type {
        Some(GidType::RoceV2) if address.to_ipv4_mapped().is_some() => 0,
        Some(GidType::RoceV2) if !address.is_unicast_link_local() => 1,
        Some(GidType::RoceV2) => 2,
        Some(_) => 3,
        None => 4,
    }
}

pub(crate) fn ip_of(gid: Gid) -> IpAddr {
    canonical(Ipv6Addr::from(gid.0).into())
}

fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn entry(index: u32, address: &str, gid_type: GidType) -> GidTableEntry {
        let address: Ipv6Addr = address.parse().expect("an address");
        GidTableEntry {
            index,
            gid: Gid(address.octets()),
            gid_type: Some(gid_type),
        }
    }

    /// As a mlx5 port has them: each address by both versions, link-local first.
    fn roce() -> Vec<GidTableEntry> {
        use GidType::{RoceV1, RoceV2};
        vec![
            entry(0, "fe80::1", RoceV1),
            entry(1, "fe80::1", RoceV2),
            entry(2, "2001:db8::1", RoceV1),
            entry(3, "2001:db8::1", RoceV2),
            entry(4, "::ffff:192.0.2.7", RoceV1),
            entry(6, "::ffff:192.0.2.7", RoceV2),
        ]
    }

    fn automatic(entries: &[GidTableEntry]) -> Option<u32> {
        let chosen = choose(entries, LinkLayer::Ethernet, GidChoice::Automatic);
        chosen.ok().map(|entry| entry.index)
    }

    #[test]
    fn the_nearest_address_is_taken_where_it_is_there() {
        let nearest = |address: &str| {
            let address = address.parse().expect("an address");
            let chosen = choose(&roce(), LinkLayer::Ethernet, GidChoice::Nearest(address));
            chosen.map(|entry| entry.index)
        };
        assert_eq!(nearest("2001:db8::1"), Ok(3));
        assert_eq!(nearest("127.0.0.1"), Ok(6));
    }

    #[test]
    fn roce_prefers_version_2_over_ipv4_then_global_then_link_local_then_version_1() {
        let mut entries = roce();
        let mut order = Vec::new();
        while let Some(index) = automatic(&entries) {
            order.push(index);
            entries.retain(|entry| entry.index != index);
        }
        assert_eq!(order, [6, 3, 1, 0, 2, 4]);
    }

    #[test]
    fn infiniband_takes_its_first() {
        let entries = [
            entry(0, "fe80::2:c903:1:2", GidType::InfiniBand),
            entry(1, "fe80::9", GidType::InfiniBand),
        ];
        let chosen = choose(&entries, LinkLayer::InfiniBand, GidChoice::Automatic);
        assert_eq!(chosen.map(|entry| entry.index), Ok(0));
    }

    #[test]
    fn an_address_finds_its_entry_of_version_2() {
        let of = |address: IpAddr| {
            let choice = GidChoice::Address(address);
            choose(&roce(), LinkLayer::Ethernet, choice).map(|entry| entry.index)
        };
        assert_eq!(of(Ipv4Addr::new(192, 0, 2, 7).into()), Ok(6));
        assert_eq!(of("2001:db8::1".parse().unwrap()), Ok(3));
        let refused = of(Ipv4Addr::new(192, 0, 2, 8).into()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the port has no GID of address 192.0.2.8; it has fe80::1, fe80::1, 2001:db8::1, \
             2001:db8::1, ::ffff:192.0.2.7, ::ffff:192.0.2.7"
        );
    }

    #[test]
    fn an_index_that_is_empty_is_refused_by_name() {
        let refused = choose(&roce(), LinkLayer::Ethernet, GidChoice::Index(5)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the port has no GID of index 5; it has 0, 1, 2, 3, 4, 6"
        );
    }
}
