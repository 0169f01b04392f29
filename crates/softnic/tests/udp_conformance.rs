//! The conformance suite with the two ends at different addresses. Each case has a network of its
//! own, as packets of one that ended might be taken for those of the next.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU8, Ordering};

use adverb_softnic::{SoftContext, SoftDevice};
use adverb_verbs::{Device, DeviceName, OpenError};

/// Opens at one address of its network and the other in turn.
#[derive(Debug)]
struct InTurn {
    net: u8,
    opened: AtomicU8,
}

impl InTurn {
    fn new() -> Self {
        static NETS: AtomicU8 = AtomicU8::new(0);
        InTurn {
            net: NETS.fetch_add(1, Ordering::Relaxed),
            opened: AtomicU8::new(0),
        }
    }
}

impl Device for InTurn {
    type Context = SoftContext;

    fn name(&self) -> DeviceName {
        SoftDevice::new().name()
    }

    fn open(&self) -> Result<SoftContext, OpenError> {
        let host = 1 + self.opened.fetch_add(1, Ordering::Relaxed) % 2;
        SoftDevice::at(IpAddr::V4(Ipv4Addr::new(127, 8, self.net, host))).open()
    }
}

macro_rules! tests {
    ($($module:ident: $cases:tt;)*) => { $(module!($module $cases);)* };
}

macro_rules! module {
    ($module:ident [$($case:ident,)*]) => {
        mod $module {
            $(
                #[test]
                fn $case() {
                    let verdict = adverb_conformance::$module::$case(&super::InTurn::new());
                    assert_eq!(verdict, Ok(()));
                }
            )*
        }
    };
}

adverb_conformance::for_each_case!([tests]);
