//! The boundary of a call from C: catches panics, sets errno, and explains refusals.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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

unsafe extern "C-unwind" {
    fn read(fd: c_int, to: *mut c_void, count: usize) -> isize;
    fn pthread_testcancel();
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Keeps the calling thread from being cancelled while it lives: `pthread_cancel` unwinds the stack, which frames of Rust do
/// not allow.
pub(crate) struct NotCancelled(c_int);

impl NotCancelled {
    pub(crate) fn begin() -> Self {
        const PTHREAD_CANCEL_DISABLE: c_int = 1;
        let mut before = 0;
        // SAFETY: a state, and a place for the one before.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        NotCancelled(before)
    }
}

impl Drop for NotCancelled {
    fn drop(&mut self) {
        // SAFETY: the state before, and a place for the present one.
        unsafe { pthread_setcancelstate(self.0, &raw mut self.0) };
    }
}

/// How long a call waits before it looks whether its thread was cancelled, if it does not wait in [`reading`].
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// Runs a call that reads `N` bytes of `fd` by the C library's `read`, so that `O_NONBLOCK`, signals and cancellation have the
/// effect that they have with rdma-core. `body` gets the bytes. If it returns false, there is still nothing for the program.
///
/// # Safety
/// `body` has nothing to drop, because cancellation does not drop it.
pub(crate) unsafe fn reading<const N: usize>(
    call: &str,
    fd: c_int,
    body: impl Fn([u8; N]) -> Result<bool, Refusal>,
) -> c_int {
    loop {
        let mut bytes = [0; N];
        // SAFETY: reads at most `N` bytes. This frame has nothing to drop.
        if unsafe { read(fd, bytes.as_mut_ptr().cast(), N) } < 0 {
            return -1;
        }
        match number(call, || body(bytes).map(c_int::from)) {
            0 => {}
            1 => return 0,
            failed => return failed,
        }
    }
}

/// Runs a call whose `body` waits for at most [`SLICE`], until that returns a result. In between the thread can be cancelled.
///
/// # Safety
/// As for [`reading`].
pub(crate) unsafe fn in_slices(
    call: &str,
    body: impl Fn() -> Result<Option<c_int>, Refusal>,
) -> c_int {
    const WAITS: c_int = c_int::MIN;
    loop {
        match number(call, || Ok(body()?.unwrap_or(WAITS))) {
            // SAFETY: this frame has nothing to drop.
            WAITS => unsafe { pthread_testcancel() },
            done => return done,
        }
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

/// Runs a call as [`status`] does, without [`NotCancelled`], which takes longer than some calls of the data path.
#[inline]
pub(crate) fn quick_status(call: &str, body: impl FnOnce() -> Result<(), Refusal>) -> c_int {
    match caught_quickly(body) {
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

/// Runs a call as [`number`] does, for the reason of [`quick_status`].
#[inline]
pub(crate) fn quick_number(call: &str, body: impl FnOnce() -> Result<c_int, Refusal>) -> c_int {
    caught_quickly(body).unwrap_or_else(|refusal| {
        refuse(call, &refusal);
        -1
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

fn caught<T>(body: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    let _kept = NotCancelled::begin();
    caught_quickly(body)
}

/// Runs `body`. A panic is a bug in this library; the standard library has printed where it happened.
#[inline]
fn caught_quickly<T>(body: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
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
    let _kept = NotCancelled::begin();
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
