//! Whether a wait continues after a signal, as the kernel decides it for `read`: by `SA_RESTART` of the signal's handler.

/// Signals that a thread causes by what it executes. No wait is interrupted by one, and the Rust runtime and others handle
/// some of them without `SA_RESTART`.
const SYNCHRONOUS: [libc::c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
];

/// Returns whether each handler of the process has `SA_RESTART`. Otherwise the signal that interrupted a system call may be
/// one whose handler has not.
pub(crate) fn all_handlers_restart() -> bool {
    let mut signals = (1..=libc::SIGRTMAX()).filter(|signal| !SYNCHRONOUS.contains(signal));
    signals.all(|signal| {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: only reads the action of a signal, to `action`; all zeros are a valid value of it. The C library refuses
        // the signals that it uses itself, and installs their handlers with `SA_RESTART`.
        let action = unsafe {
            libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
            action.assume_init()
        };
        let has_handler = !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
        !has_handler || action.sa_flags & libc::SA_RESTART != 0
    })
}
