//! The conformance suite on the user-space NIC, both ends in one process. A case is a test of its
//! own; what the device lacks is listed here.

use adverb_softnic::SoftDevice;

const LACKING: [&str; 0] = [];

adverb_conformance::conformance_tests!(SoftDevice::new(), lacking: LACKING);
