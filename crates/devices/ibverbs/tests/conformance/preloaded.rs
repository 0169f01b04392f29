//! The suite on the user-space NIC's C interface, as `adverb run` loads it into a program, through both interfaces of
//! libibverbs.

use std::process::Command;

use adverb_ibverbs::Interface;

use crate::args::{Peer, Subject};

/// Returns whether all is as expected.
pub(crate) fn run() -> bool {
    let me = std::env::current_exe().expect("the running program has a path");
    let library = me.with_file_name("libadverb_preload.so");
    assert!(library.exists(), "{} was not built", library.display());
    let memory = tempfile::tempdir_in("/dev/shm").expect("a directory of shared memory");
    let is_as_expected = |interface| {
        let subject = Subject {
            name: "adverb0".into(),
            interface,
            peer: Peer::Itself,
        };
        let mut suite = Command::new(&me);
        suite
            .args(subject.args())
            .env("LD_PRELOAD", &library)
            .env("ADVERB_SHM", memory.path())
            .env("ADVERB_RUN_ADDRESS", "127.0.0.171");
        let status = suite.status().expect("the suite starts");
        status.success()
    };
    // One after the other, so that the tables do not mix.
    [Interface::Classic, Interface::Extended].map(is_as_expected) == [true; 2]
}
