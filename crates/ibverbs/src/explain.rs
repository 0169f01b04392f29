//! What a refusal means: an errno, looked at beside what was asked for.

use std::io;

use adverb_units::Bytes;
use adverb_verbs::{CreateError, LinkLayer, QpState};
use rustix::process::{Resource, getrlimit};

/// Why an object could not be made, for want of something of the system.
pub(crate) fn object_error(action: &str, source: io::Error) -> CreateError {
    CreateError::System {
        action: action.to_owned(),
        remedy: memlock_remedy(&source, Bytes::kib(64)),
        source,
    }
}

/// What to do about `error`, where it may be the limit of locked memory; else empty. Begins with
/// `; `.
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

/// What to do about a Modify QP that the driver refused, where the cause is known; else empty.
/// Begins with `; `.
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
            "; on RoCE that is mostly the GID (another type or address family than the peer's) or \
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
