//! Explains errors of the driver: the cause and the remedy behind an errno.

use std::io;

use adverb_units::Bytes;
use adverb_verbs::{CreateError, LinkLayer, QpState};
use rustix::process::{Resource, getrlimit};

/// Returns the error that `action` failed in the system.
pub(crate) fn object_error(action: &str, source: io::Error) -> CreateError {
    CreateError::System {
        action: action.to_owned(),
        remedy: memlock_remedy(&source, Bytes::kib(64)),
        source,
    }
}

/// Returns the remedy for an error that may be caused by the limit of locked memory, beginning with
/// `; `; otherwise an empty string.
pub(crate) fn memlock_remedy(error: &io::Error, needed: Bytes) -> String {
    let about_memory = matches!(
        error.raw_os_error(),
        Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM)
    );
    if !about_memory {
        return String::new();
    }
    memlock_words(getrlimit(Resource::Memlock).current.map(Bytes::new), needed)
}

fn memlock_words(limit: Option<Bytes>, needed: Bytes) -> String {
    match limit {
        Some(limit) => format!(
            "; memory of devices is locked: this needs about {needed}, and the memlock limit is \
             {limit}: raise it with `ulimit -l unlimited` or in /etc/security/limits.conf"
        ),
        None => "; the memlock limit is not the cause, there is none: free some memory".into(),
    }
}

/// Returns the remedy for a refused Modify QP whose cause is known, beginning with `; `; otherwise an
/// empty string.
pub(crate) fn modify_remedy(errno: i32, to: QpState, layer: LinkLayer) -> &'static str {
    match (errno, layer) {
        (libc::ENETUNREACH | libc::EHOSTUNREACH, _) => {
            "; no route to the peer's GID: see that both ports have addresses of one network \
             (`ip route get ADDRESS`)"
        }
        (libc::ETIMEDOUT, _) => {
            "; the peer's address did not resolve: see whether `ping` of its address answers over \
             this port's network interface"
        }
        (libc::EINVAL, LinkLayer::Ethernet) if to == QpState::Rtr => {
            "; on RoCE the usual cause is the GID (another type or address family than the peer's) or \
             the path MTU (larger than the port's active one)"
        }
        (libc::ENOMEM, _) => {
            "; free some memory, or raise the memlock limit (`ulimit -l unlimited`)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memlock_limit_is_named_with_the_command() {
        let words = memlock_words(Some(Bytes::kib(64)), Bytes::mib(8));
        assert_eq!(
            words,
            "; memory of devices is locked: this needs about 8 MiB, and the memlock limit is \
             64 KiB: raise it with `ulimit -l unlimited` or in /etc/security/limits.conf"
        );
        let error = io::Error::from_raw_os_error(libc::EINVAL);
        assert_eq!(memlock_remedy(&error, Bytes::mib(8)), "");
    }

    #[test]
    fn known_causes_of_a_refused_modify_have_a_remedy() {
        let remedy = |errno, to| modify_remedy(errno, to, LinkLayer::Ethernet);
        assert!(remedy(libc::ENETUNREACH, QpState::Rtr).contains("no route"));
        assert!(remedy(libc::ETIMEDOUT, QpState::Rtr).contains("did not resolve"));
        assert!(remedy(libc::EINVAL, QpState::Rtr).contains("path MTU"));
        assert_eq!(remedy(libc::EINVAL, QpState::Rts), "");
        assert_eq!(
            modify_remedy(libc::EINVAL, QpState::Rtr, LinkLayer::InfiniBand),
            ""
        );
    }
}
