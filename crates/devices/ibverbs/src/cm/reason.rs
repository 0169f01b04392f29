//! Texts for the reject reasons and errors of the connection manager.

use std::io;

/// Describes the reason of a rejection (IBTA vol. 1, 12.6.7.2); on iWARP it is a negative errno.
pub(super) fn rejection(status: i32) -> String {
    let words = match status {
        ..=0 => return errno_words(status),
        1 => "no queue pair available",
        3 => "no resources available",
        4 => "timeout",
        5 => "unsupported request",
        6 => "invalid communication ID",
        8 => "invalid service ID: nothing listens there",
        9 => "invalid transport service type",
        10 => "stale connection: its queue pair was connected a moment ago; try again",
        12 => "invalid GID",
        13 => "invalid LID",
        14 => "invalid service level",
        15 => "invalid traffic class",
        16 => "invalid hop limit",
        17 => "invalid packet rate",
        24 | 25 => "redirected",
        26 => "invalid path MTU",
        27 => "insufficient responder resources",
        28 => "rejected by its program",
        29 => "invalid RNR retry count",
        _ => "see the reason in IBTA vol. 1, 12.6.7.2",
    };
    format!("{words} (reason {status})")
}

/// Describes a status that is a negative errno.
pub(super) fn errno_words(status: i32) -> String {
    match status {
        0 => "without a reason".to_owned(),
        status => io::Error::from_raw_os_error(status.saturating_abs()).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_words_and_their_number() {
        let refused = rejection(8);
        assert_eq!(
            refused,
            "invalid service ID: nothing listens there (reason 8)"
        );
        assert!(rejection(99).contains("(reason 99)"));
        assert!(rejection(-libc::ECONNREFUSED).contains("refused"));
    }
}
