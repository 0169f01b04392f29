//! Whether only the calling thread can write this process's memory.

use std::fs::{File, read_dir, read_link, read_to_string};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{FileType, fstat};

use super::NotShared;
use super::threads;

/// Major numbers of the character devices that access memory only during system calls: `mem` (null, zero, random),
/// terminals and pseudo-terminals.
const HARMLESS_DEVICES: [u32; 11] = [1, 4, 5, 136, 137, 138, 139, 140, 141, 142, 143];

/// Descriptors without a file that access memory only during system calls.
const HARMLESS_INODES: [&str; 7] = [
    "anon_inode:[eventfd]",
    "anon_inode:[eventpoll]",
    "anon_inode:[timerfd]",
    "anon_inode:[signalfd]",
    "anon_inode:[pidfd]",
    "anon_inode:inotify",
    "anon_inode:[fanotify]",
];

/// `AF_XDP`: such a socket's buffers are pages of the program.
const AF_XDP: i32 = 44;

/// Checks that nothing but the calling thread can write to private memory of this process: no other thread of the program,
/// no process with the same memory, no debugger, and no device or kernel service that has pinned pages.
pub(super) fn check() -> Result<(), NotShared> {
    check_threads()?;
    let status = read_to_string("/proc/self/status").map_err(|_| NotShared::Unknown)?;
    check_status(&status)?;
    check_descriptors()?;
    check_children()
}

/// Returns the numbers that a directory of `/proc` has as names.
fn numbers(of: &Path) -> Result<Vec<i32>, NotShared> {
    let number =
        |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let entries = read_dir(of).map_err(|_| NotShared::Unknown)?;
    Ok(entries.filter_map(number).collect())
}

fn check_threads() -> Result<(), NotShared> {
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    let tasks = numbers(Path::new("/proc/self/task"))?;
    let is_known = |id: &i32| *id == own || threads::is_own(*id);
    if tasks.contains(&own) && tasks.iter().all(is_known) {
        Ok(())
    } else {
        Err(NotShared::OtherThreads)
    }
}

/// Checks that nobody traces the process, and that no page is locked or pinned.
fn check_status(status: &str) -> Result<(), NotShared> {
    let is_zero = |field: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(field));
        value.and_then(|value| value.split_ascii_whitespace().next()) == Some("0")
    };
    if !is_zero("TracerPid:") {
        Err(NotShared::Traced)
    } else if !is_zero("VmLck:") || !is_zero("VmPin:") {
        Err(NotShared::Locked)
    } else {
        Ok(())
    }
}

fn check_descriptors() -> Result<(), NotShared> {
    let dir = Path::new("/proc/self/fd");
    for number in numbers(dir)? {
        // SAFETY: the descriptor is open, or was when the directory was read; the kernel checks the number.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let Ok(stat) = fstat(fd) else { continue };
        let is_harmless = match FileType::from_raw_mode(stat.st_mode) {
            FileType::CharacterDevice => {
                HARMLESS_DEVICES.contains(&rustix::fs::major(stat.st_rdev))
            }
            FileType::Socket => domain(number) != Some(AF_XDP),
            FileType::Unknown => {
                let target = read_link(dir.join(number.to_string())).unwrap_or_default();
                let target = target.to_string_lossy();
                HARMLESS_INODES.iter().any(|harmless| *harmless == target)
            }
            _ => true,
        };
        if !is_harmless {
            return Err(NotShared::Device);
        }
    }
    Ok(())
}

fn domain(socket: i32) -> Option<i32> {
    let mut domain = 0;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `domain`.
    let asked = unsafe {
        let into = (&raw mut domain).cast();
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_DOMAIN,
            into,
            &raw mut length,
        )
    };
    (asked == 0).then_some(domain)
}

/// Checks that no child shares this process's memory (`CLONE_VM` without `CLONE_THREAD`).
fn check_children() -> Result<(), NotShared> {
    const KCMP_VM: i32 = 1;
    let own = std::process::id();
    for task in numbers(Path::new("/proc/self/task"))? {
        let path = format!("/proc/self/task/{task}/children");
        let children = io::read_to_string(File::open(path).map_err(|_| NotShared::Unknown)?)
            .map_err(|_| NotShared::Unknown)?;
        for child in children.split_ascii_whitespace() {
            let child: i32 = child.parse().map_err(|_| NotShared::Unknown)?;
            // SAFETY: compares two processes. It returns 0 if they share their memory.
            let compared = unsafe { libc::syscall(libc::SYS_kcmp, own, child, KCMP_VM, 0, 0) };
            if compared <= 0 {
                return Err(NotShared::Children);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_pages_and_tracers_are_read_from_the_status() {
        let status = |tracer: u32, locked: u32, pinned: u32| {
            format!(
                "Name:\tx\nTracerPid:\t{tracer}\nVmLck:\t       {locked} kB\nVmPin:\t {pinned} kB\n"
            )
        };
        assert_eq!(check_status(&status(0, 0, 0)), Ok(()));
        assert_eq!(check_status(&status(7, 0, 0)), Err(NotShared::Traced));
        assert_eq!(check_status(&status(0, 4, 0)), Err(NotShared::Locked));
        assert_eq!(check_status(&status(0, 0, 4)), Err(NotShared::Locked));
        assert_eq!(check_status("TracerPid:\t0\n"), Err(NotShared::Locked));
    }

    #[test]
    #[cfg_attr(miri, ignore = "no /proc")]
    fn this_process_has_other_threads() {
        let other = std::thread::spawn(std::thread::park);
        assert_eq!(check_threads(), Err(NotShared::OtherThreads));
        other.thread().unpark();
        other.join().unwrap();
    }
}
