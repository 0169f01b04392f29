//! Which connection or session gives way to a newcomer when all places are taken.
//!
//! Nothing distinguishes an attacker from a slow client, except its network and how long it does nothing: the
//! network with the most places gives up the one that has been idle for longest, and a newcomer from the network
//! with the fewest places is next.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Instant;

/// Maximum number of sessions; more callers wait until one ends or gives way.
pub(super) const MAX_SESSIONS: usize = 64;

/// One sender: an IPv4 address, or the IPv6 network of a host, which can use all of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sender(IpAddr);

impl From<SocketAddr> for Sender {
    fn from(from: SocketAddr) -> Self {
        Sender(match from.ip().to_canonical() {
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            v4 => v4,
        })
    }
}

/// A place that is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub(super) sender: Sender,
    /// When it can give way to a newcomer; `None` while it is in use.
    pub(super) yields_at: Option<Instant>,
}

/// Returns the number of places that each sender has.
pub(super) fn counts(holders: &[Holder]) -> HashMap<Sender, usize> {
    let mut counts = HashMap::new();
    for holder in holders {
        *counts.entry(holder.sender).or_default() += 1;
    }
    counts
}

/// Returns the index of the place that is given to a newcomer at `now`: of the sender that has most, the one that
/// yields first. `None` if none yields yet.
pub(super) fn first_out(holders: &[Holder], now: Instant) -> Option<usize> {
    let counts = counts(holders);
    let yielding = holders.iter().enumerate().filter_map(|(at, holder)| {
        let yields_at = holder.yields_at.filter(|yields_at| *yields_at <= now)?;
        let others = usize::MAX - counts[&holder.sender];
        Some((others, yields_at, at))
    });
    yielding.min().map(|(.., at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn holder(from: &str, yields_at: Option<Instant>) -> Holder {
        let sender = SocketAddr::new(from.parse().unwrap(), 7).into();
        Holder { sender, yields_at }
    }

    #[test]
    fn the_oldest_of_the_sender_with_most_places_yields_first() {
        let now = Instant::now() + Duration::from_secs(1000);
        let idle = |seconds| Some(now - Duration::from_secs(seconds));
        let client = holder("10.0.0.1", idle(900));
        let attacker = [holder("10.0.0.2", idle(1)), holder("10.0.0.2", idle(3))];
        let busy = holder("10.0.0.2", None);
        let all = [client, attacker[0], attacker[1], busy];
        assert_eq!(first_out(&all, now), Some(2));
        assert_eq!(first_out(&[client, attacker[0]], now), Some(0));
        assert_eq!(first_out(&[busy, busy], now), None);
        let later = holder("10.0.0.2", Some(now + Duration::from_secs(1)));
        assert_eq!(first_out(&[later, busy], now), None);
        assert_eq!(first_out(&[], now), None);
    }

    #[test]
    fn all_addresses_of_an_ipv6_host_are_one_sender() {
        let sender = |from| holder(from, None).sender;
        assert_eq!(sender("2001:db8::1"), sender("2001:db8::ffff:1"));
        assert_ne!(sender("2001:db8::1"), sender("2001:db8:0:1::1"));
        assert_eq!(sender("::ffff:10.0.0.1"), sender("10.0.0.1"));
        assert_ne!(sender("10.0.0.1"), sender("10.0.0.2"));
    }
}
