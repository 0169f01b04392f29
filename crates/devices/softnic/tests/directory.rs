//! Another user exchanges the device's directory for a directory or a symbolic link while the device
//! is opened and used.

mod common;

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use adverb_softnic::SoftDevice;
use adverb_units::Bytes;
use adverb_verbs::{Context, Device};
use common::{NOBODY, Random, all_access, device_dir, isolated};
use rustix::fs::{CWD, Gid, RenameFlags, Uid, chown, renameat_with};
use rustix::process::geteuid;

/// Enough to meet the moments between a check of the path and its use.
const STARTS: usize = 200;
/// Bounds the attempts: of those most are refused while the decoy is in the directory's place.
const ATTEMPTS: usize = 1000 * STARTS;

/// Longest time from one exchange to the next, about as long as a start takes.
const LONGEST_MICROS: u64 = 200;

/// A file in each directory that nobody removes.
const KEPT: &str = "kept.txt";

/// What the other user puts in the place of the device's directory.
#[derive(Clone, Copy)]
enum Decoy {
    Directory,
    SymbolicLink,
}

#[test]
fn no_file_of_ours_gets_into_a_directory_that_another_user_swaps_in() {
    const TEST: &str = "no_file_of_ours_gets_into_a_directory_that_another_user_swaps_in";
    isolated(TEST, || start_while_swapped(Decoy::Directory));
}

#[test]
fn no_file_of_ours_gets_through_a_symbolic_link_that_another_user_swaps_in() {
    const TEST: &str = "no_file_of_ours_gets_through_a_symbolic_link_that_another_user_swaps_in";
    isolated(TEST, || start_while_swapped(Decoy::SymbolicLink));
}

fn start_while_swapped(decoy: Decoy) {
    let ours = device_dir();
    fs::create_dir(&ours).unwrap();
    fs::set_permissions(&ours, Permissions::from_mode(0o700)).unwrap();
    let (theirs, link) = (ours.with_file_name("theirs"), ours.with_file_name("link"));
    fs::create_dir(&theirs).unwrap();
    fs::set_permissions(&theirs, Permissions::from_mode(0o777)).unwrap();
    // The device removes its directory when it is empty.
    fs::write(ours.join(KEPT), "").unwrap();
    fs::write(theirs.join(KEPT), "").unwrap();
    if geteuid().is_root() {
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        chown(&theirs, Some(user), Some(group)).unwrap();
    }
    let swapped_in = match decoy {
        Decoy::Directory => &theirs,
        Decoy::SymbolicLink => {
            std::os::unix::fs::symlink(&theirs, &link).unwrap();
            &link
        }
    };
    let opened = File::open(&theirs).unwrap();
    let done = AtomicBool::new(false);
    let (started, found) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::from_env("start_while_swapped");
            while !done.load(Ordering::Relaxed) {
                // Twice, so that all is in its place in the end.
                for _ in 0..2 {
                    exchange(&ours, swapped_in);
                    std::thread::sleep(Duration::from_micros(random.below(LONGEST_MICROS)));
                }
            }
        });
        let (mut started, mut found) = (0, names(&opened));
        for _ in 0..ATTEMPTS {
            started += usize::from(start().is_some());
            found = names(&opened);
            if started == STARTS || found != [KEPT] {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        (started, found)
    });
    assert_eq!(found, [KEPT], "files in another user's directory");
    assert_eq!(started, STARTS);
    fs::remove_dir_all(&ours).unwrap();
    fs::remove_dir_all(&theirs).unwrap();
    let _ = fs::remove_file(&link);
}

/// Names of the files in an open directory, wherever it was moved.
fn names(opened: &File) -> Vec<OsString> {
    let entries = fs::read_dir(format!("/proc/self/fd/{}", opened.as_raw_fd())).unwrap();
    entries.map(|entry| entry.unwrap().file_name()).collect()
}

fn exchange(a: &Path, b: &Path) {
    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
}

/// Opens the device, makes each kind of file, and closes it; `None` if any of that failed.
fn start() -> Option<()> {
    let context = SoftDevice::new().open().ok()?;
    let pd = context.alloc_pd().ok()?;
    let _mr = context.alloc_mr(&pd, Bytes::kib(4), all_access()).ok()?;
    let _channel = context.create_channel().ok()?;
    Some(())
}
