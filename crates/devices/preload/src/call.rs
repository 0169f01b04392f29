//! The boundary of a call from C: catches panics, sets errno, and explains refusals.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use adverb_softnic::SettingsError;
use adverb_verbs::{
    CreateError, McastError, ModifyQpError, ModifySrqError, OpenError, PollError, PostErrorCause,
    RegisterError,
};

use crate::settings::{print, settings};

/// Number of different lines that are remembered, so that each is printed once. After that all are printed.
const REMEMBERED: usize = 1000;

/// A refused call: the errno for the program, and the reason for the user.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) errno: c_int,
    reason: Cow<'static, str>,
}

impl Refusal {
    pub(crate) fn new(errno: c_int, reason: impl Into<Cow<'static, str>>) -> Self {
        let reason = reason.into();
        Refusal { errno, reason }
    }

    /// Returns `EINVAL` with its reason.
    pub(crate) fn invalid(reason: impl Into<Cow<'static, str>>) -> Self {
        Refusal::new(libc::EINVAL, reason)
    }

    /// Returns `EOPNOTSUPP` with its reason.
    pub(crate) fn unsupported(reason: impl Into<Cow<'static, str>>) -> Self {
        Refusal::new(libc::EOPNOTSUPP, reason)
    }

    /// Returns an errno that is part of normal operation (`EAGAIN`), which is not explained.
    pub(crate) const fn expected(errno: c_int) -> Self {
        let reason = Cow::Borrowed("");
        Refusal { errno, reason }
    }

    /// Returns the reason.
    #[cfg(test)]
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    fn of(error: &impl std::fmt::Display, errno: c_int) -> Self {
        Refusal::new(errno, error.to_string())
    }
}

fn errno_of(source: &std::io::Error) -> c_int {
    source.raw_os_error().unwrap_or(libc::EIO)
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Refusal::of(&error, errno_of(&error))
    }
}

impl From<&SettingsError> for Refusal {
    fn from(error: &SettingsError) -> Self {
        Refusal::of(error, libc::EINVAL)
    }
}

impl From<OpenError> for Refusal {
    fn from(error: OpenError) -> Self {
        let errno = match &error {
            OpenError::System { source, .. } => errno_of(source),
            _ => libc::ENODEV,
        };
        Refusal::of(&error, errno)
    }
}

impl From<CreateError> for Refusal {
    fn from(error: CreateError) -> Self {
        let errno = match &error {
            CreateError::Exhausted { .. } => libc::ENOMEM,
            CreateError::Unsupported(_) => libc::EOPNOTSUPP,
            CreateError::System { source, .. } => errno_of(source),
            _ => libc::EINVAL,
        };
        Refusal::of(&error, errno)
    }
}

impl From<RegisterError> for Refusal {
    fn from(error: RegisterError) -> Self {
        let errno = match &error {
            RegisterError::Exhausted { .. } => libc::ENOMEM,
            RegisterError::Unsupported(_) => libc::EOPNOTSUPP,
            RegisterError::Memory { source, .. } | RegisterError::Fault { source, .. } => {
                errno_of(source)
            }
            _ => libc::EINVAL,
        };
        Refusal::of(&error, errno)
    }
}

impl From<ModifyQpError> for Refusal {
    fn from(error: ModifyQpError) -> Self {
        let errno = match &error {
            ModifyQpError::Unreachable { .. } => libc::EHOSTUNREACH,
            ModifyQpError::Busy { .. } => libc::EBUSY,
            _ => libc::EINVAL,
        };
        Refusal::of(&error, errno)
    }
}

impl From<ModifySrqError> for Refusal {
    fn from(error: ModifySrqError) -> Self {
        Refusal::of(&error, libc::EINVAL)
    }
}

impl From<McastError> for Refusal {
    fn from(error: McastError) -> Self {
        let errno = match &error {
            McastError::Unsupported(_) => libc::EOPNOTSUPP,
            McastError::System { source, .. } => errno_of(source),
            _ => libc::EINVAL,
        };
        Refusal::of(&error, errno)
    }
}

impl From<PollError> for Refusal {
    fn from(error: PollError) -> Self {
        Refusal::of(&error, libc::EIO)
    }
}

impl From<PostErrorCause> for Refusal {
    fn from(error: PostErrorCause) -> Self {
        let errno = match &error {
            // Programs may post until the queue is full.
            PostErrorCause::QueueFull { .. } => libc::ENOMEM,
            PostErrorCause::Unsupported(_) => libc::EOPNOTSUPP,
            PostErrorCause::Errno(errno) => *errno,
            _ => libc::EINVAL,
        };
        Refusal::of(&error, errno)
    }
}

/// Runs a call that returns 0 or an errno, which it sets, too.
#[inline]
pub(crate) fn status(call: &str, body: impl FnOnce() -> Result<(), Refusal>) -> c_int {
    match caught(body) {
        Ok(()) => 0,
        Err(refusal) => refuse(call, &refusal),
    }
}

/// Runs a call that returns a number, or -1 and sets errno.
#[inline]
pub(crate) fn number<T: From<i8>>(call: &str, body: impl FnOnce() -> Result<T, Refusal>) -> T {
    caught(body).unwrap_or_else(|refusal| {
        refuse(call, &refusal);
        T::from(-1)
    })
}

/// Runs a call that returns an object, or `NULL` and sets errno.
#[inline]
pub(crate) fn pointer<T>(call: &str, body: impl FnOnce() -> Result<*mut T, Refusal>) -> *mut T {
    caught(body).unwrap_or_else(|refusal| {
        refuse(call, &refusal);
        std::ptr::null_mut()
    })
}

/// Runs `body`. A panic is a bug in this library; the standard library has printed where it happened.
#[inline]
fn caught<T>(body: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(Refusal::new(libc::EIO, "a bug in Adverb (panic)")))
}

/// Sets errno, explains the refusal, and returns its errno.
#[cold]
pub(crate) fn refuse(call: &str, refusal: &Refusal) -> c_int {
    explain(call, refusal);
    // SAFETY: the location belongs to the calling thread.
    unsafe { *libc::__errno_location() = refusal.errno };
    refusal.errno
}

/// Whether the user wants to know why calls are refused.
#[inline]
pub(crate) fn explains() -> bool {
    settings().is_ok_and(|settings| settings.explain)
}

/// Prints why a call is refused, if the user wants to know.
fn explain(call: &str, refusal: &Refusal) {
    if refusal.reason.is_empty() || !explains() {
        return;
    }
    let error = std::io::Error::from_raw_os_error(refusal.errno);
    note(call, &format!("{} [{error}]", refusal.reason));
}

/// Prints an explanation of a call, each line once.
pub(crate) fn note(call: &str, text: &str) {
    static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let line = format!("{call}: {text}");
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    if printed.contains(&line) {
        return;
    }
    print(&line);
    if printed.len() < REMEMBERED {
        printed.insert(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_the_call_and_does_not_unwind_into_c() {
        fn fails<T>() -> Result<T, Refusal> {
            panic!("a panic that the test expects")
        }
        // SAFETY: the location belongs to the calling thread.
        let errno = || unsafe { *libc::__errno_location() };
        assert_eq!(status("test", fails::<()>), libc::EIO);
        assert_eq!(number("test", fails::<c_int>), -1);
        assert!(pointer("test", fails::<*mut u8>).is_null());
        assert_eq!(errno(), libc::EIO);
    }
}
