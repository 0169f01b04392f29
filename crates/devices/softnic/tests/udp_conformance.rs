//! The conformance suite with the two ends at different addresses. Each case has a network of its
//! own, because late packets of one case could reach the next.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU8, Ordering};

use adverb_conformance::case;
use adverb_conformance::threads::Subject;
use adverb_softnic::{PrivateReach, SoftDevice};
use adverb_verbs::Device;

/// Opens at one address of the case's network and the other in turn; stations are at a third.
fn run_on(device: fn(IpAddr) -> SoftDevice, name: &str) {
    static NETS: AtomicU8 = AtomicU8::new(0);
    let net = NETS.fetch_add(1, Ordering::Relaxed);
    let at = |host| device(IpAddr::V4(Ipv4Addr::new(127, 8, net, host))).open();
    let opened = AtomicU8::new(0);
    let subject = Subject {
        open: &|| at(1 + opened.fetch_add(1, Ordering::Relaxed) % 2),
        station: &|| at(3),
    };
    assert_eq!(subject.run(&case(name)), Ok(()));
}

fn run(name: &str) {
    run_on(SoftDevice::at, name);
}

adverb_conformance::conformance_tests!(super::run);

/// With regions in private memory, as programs register it.
mod private_memory {
    use super::{PrivateReach, SoftDevice, run_on};

    fn run(name: &str) {
        run_on(
            |ip| SoftDevice::at(ip).with_private_memory(PrivateReach::Directly),
            name,
        );
    }

    adverb_conformance::conformance_tests!(super::run);
}
