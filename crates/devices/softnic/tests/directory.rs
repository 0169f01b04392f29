//! Another user puts something else in the place of the device's directory, before the device is opened and while it
//! is opened and used.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use adverb_softnic::SoftDevice;
use adverb_units::Bytes;
use adverb_verbs::{Context, Device};
use common::{NOBODY, all_access, child, device_dir, with_another_user};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};

/// How often the device is opened while the other user exchanges the directory and something else. The race was lost
/// within a few hundred times.
const STARTS: usize = 3000;

/// Files of a private directory that have the names of a port's files, and one that has not.
const PRIVATE: [&str; 6] = ["000.m0", "000.port", "000.wake", "001.c0", "001.port", "x"];

/// A file that keeps a directory from being removed.
const KEPT: &str = "kept.txt";

/// A file that ends the exchanges.
const STOP: &str = "stop";

/// What another user puts in the place of the device's directory.
const DECOYS: [&str; 6] = [
    "a link to a private directory",
    "a link to a directory of the other user",
    "a directory for all",
    "a private directory of the other user",
    "a file",
    "a pipe",
];

/// A place where everybody may exchange everything, and in it a private directory of this user.
struct Scene {
    place: PathBuf,
    private: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let place = device_dir().parent().unwrap().to_owned();
        fs::set_permissions(&place, Permissions::from_mode(0o777)).unwrap();
        let private = place.join("private");
        fs::create_dir(&private).unwrap();
        fs::set_permissions(&private, Permissions::from_mode(0o700)).unwrap();
        for name in PRIVATE {
            fs::write(private.join(name), "").unwrap();
        }
        Scene { place, private }
    }

    /// Plays the other user to the end.
    fn other_user(&self, act: &str) {
        let mut other = self.spawn(act);
        let status = other.wait().unwrap();
        assert!(status.success(), "{act}: {status}");
    }

    fn spawn(&self, act: &str) -> std::process::Child {
        use std::os::unix::process::CommandExt;
        let mut other = child(act);
        other.uid(NOBODY).gid(NOBODY);
        other.env("VICTIM", device_dir());
        other.spawn().unwrap()
    }

    /// Neither lost the private directory a file, nor has the other user's directory one more.
    fn check(&self, what: &str) {
        assert_eq!(names(&self.private), PRIVATE, "{what}: private files");
        for theirs in ["theirs", "decoy"].map(|name| self.place.join(name)) {
            if fs::symlink_metadata(&theirs).is_ok_and(|entry| entry.is_dir()) {
                assert_eq!(
                    names(&theirs),
                    [KEPT],
                    "{what}: files in another user's directory"
                );
            }
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for entry in fs::read_dir(&self.place).unwrap() {
            let path = entry.unwrap().path();
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
    }
}

/// The part of the other user.
fn play(act: &str) {
    let victim = PathBuf::from(std::env::var_os("VICTIM").unwrap());
    let place = victim.parent().unwrap();
    let theirs = place.join("theirs");
    let decoy = place.join("decoy");
    match act.split_once(' ').unwrap_or((act, "")) {
        ("prepare", _) => {
            fs::create_dir(&theirs).unwrap();
            fs::set_permissions(&theirs, Permissions::from_mode(0o777)).unwrap();
            fs::write(theirs.join(KEPT), "").unwrap();
        }
        ("make", what) => make(what.parse().unwrap(), &decoy),
        ("place", _) => fs::rename(&decoy, &victim).unwrap(),
        ("take", _) => fs::rename(&victim, &decoy).unwrap(),
        ("exchange", _) => {
            // An even number of times, so that all is in its place in the end.
            while !place.join(STOP).exists() {
                for _ in 0..16 {
                    renameat_with(CWD, &victim, CWD, &decoy, RenameFlags::EXCHANGE).unwrap();
                }
            }
        }
        ("remove", _) => fs::remove_file(&decoy)
            .or_else(|_| fs::remove_dir_all(&decoy))
            .unwrap(),
        _ => panic!("no act {act}"),
    }
}

/// Makes the decoy of this index in [`DECOYS`].
fn make(what: usize, decoy: &Path) {
    let place = decoy.parent().unwrap();
    let mode = match what {
        0 => return symlink(place.join("private"), decoy).unwrap(),
        1 => return symlink(place.join("theirs"), decoy).unwrap(),
        2 => 0o777,
        3 => 0o700,
        4 => return fs::write(decoy, "").unwrap(),
        _ => return mknodat(CWD, decoy, FileType::Fifo, Mode::RUSR, 0).unwrap(),
    };
    fs::create_dir(decoy).unwrap();
    fs::set_permissions(decoy, Permissions::from_mode(mode)).unwrap();
    fs::write(decoy.join(KEPT), "").unwrap();
}

#[test]
fn what_another_user_put_in_the_place_of_the_directory_is_refused() {
    const TEST: &str = "what_another_user_put_in_the_place_of_the_directory_is_refused";
    with_another_user(TEST, play, || {
        let scene = Scene::new();
        scene.other_user("prepare");
        for (number, what) in DECOYS.iter().enumerate() {
            scene.other_user(&format!("make {number}"));
            scene.other_user("place");
            let error = SoftDevice::new().open().map(drop).unwrap_err().to_string();
            assert!(error.contains("ADVERB_SHM"), "{what}: {error}");
            scene.other_user("take");
            scene.check(what);
            scene.other_user("remove");
            start().unwrap();
        }
    });
}

#[test]
fn nothing_is_lost_or_left_while_another_user_exchanges_the_directory() {
    const TEST: &str = "nothing_is_lost_or_left_while_another_user_exchanges_the_directory";
    with_another_user(TEST, play, || {
        for (number, what) in DECOYS.iter().enumerate() {
            let scene = Scene::new();
            scene.other_user("prepare");
            scene.other_user(&format!("make {number}"));
            // The device removes its directory when it is empty.
            fs::create_dir(device_dir()).unwrap();
            fs::set_permissions(device_dir(), Permissions::from_mode(0o700)).unwrap();
            fs::write(device_dir().join(KEPT), "").unwrap();
            let mut other = scene.spawn("exchange");
            for _ in 0..STARTS {
                let _ = start();
            }
            fs::write(scene.place.join(STOP), "").unwrap();
            assert!(other.wait().unwrap().success(), "{what}");
            scene.check(what);
            start().unwrap();
            assert_eq!(
                names(&device_dir()),
                [KEPT],
                "{what}: files of a closed device"
            );
        }
    });
}

/// Names of the files in a directory, in order.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// Opens the device, makes each kind of file, and closes it; `None` if any of that failed.
fn start() -> Option<()> {
    let context = SoftDevice::new().open().ok()?;
    let pd = context.alloc_pd().ok()?;
    let _mr = context.alloc_mr(&pd, Bytes::kib(4), all_access()).ok()?;
    let _channel = context.create_channel().ok()?;
    Some(())
}
