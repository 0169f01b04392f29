//! What has to be installed, by Debian package.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::kernel::Kernel;
use crate::libraries::LDCONFIG;

/// Something that is not installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The Debian package that has it.
    pub package: &'static str,
    /// What it is for.
    pub purpose: &'static str,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.package, self.purpose)
    }
}

/// Programs that every machine has or needs: program, package, purpose.
const PROGRAMS: [(&str, &str, &str); 5] = [
    (QEMU, "qemu-system-x86", "the machines"),
    ("setpriv", "util-linux", "ending a machine with its harness"),
    (LDCONFIG, "libc-bin", "the shared libraries of programs"),
    ("ip", "iproute2", "the guest's network"),
    ("rdma", "iproute2", "the guest's RDMA link"),
];
/// The emulator.
pub(crate) const QEMU: &str = "qemu-system-x86_64";
/// The folder in which libibverbs looks for drivers' configuration.
pub(crate) const DRIVER_CONFIGS: &str = "/etc/libibverbs.d";

/// What is not installed of what every machine needs; empty if a lab can be booted.
///
/// The machines are x86-64, and run programs of their host: on a host of another architecture that
/// is what is missing.
pub fn missing() -> Vec<Need> {
    if cfg!(not(target_arch = "x86_64")) {
        return vec![Need {
            package: "a host of architecture x86-64",
            purpose: "whose programs the machines run; this one is of another",
        }];
    }
    let mut needs: Vec<Need> = PROGRAMS
        .iter()
        .filter(|(program, ..)| find_program(program).is_none())
        .map(|(_, package, purpose)| Need { package, purpose })
        .collect();
    needs.dedup_by_key(|need| need.package);
    if providers().is_empty() {
        needs.push(Need {
            package: "ibverbs-providers",
            purpose: "libibverbs and its Soft-RoCE driver",
        });
    }
    if Kernel::find().is_err() {
        needs.push(Need {
            package: "linux-image-amd64",
            purpose: "the guest's kernel; scripts/test-deps unpacks it without installing it",
        });
    }
    needs
}

/// The program of this name on `PATH` or where administrators' programs are.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// The libraries of the drivers for software devices, with their configuration; empty if the
/// driver of Soft-RoCE is not there.
pub(crate) fn providers() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for driver in ["rxe", "siw"] {
        let config = Path::new(DRIVER_CONFIGS).join(format!("{driver}.driver"));
        let library = library_folders().find_map(|dir| driver_in(&dir, driver));
        if let (true, Some(library)) = (config.is_file(), library) {
            found.extend([config, library]);
        } else if driver == "rxe" {
            return Vec::new();
        }
    }
    found
}

/// `libibverbs` folders of this host: `/usr/lib/libibverbs` and `/usr/lib/<machine>/libibverbs`.
fn library_folders() -> impl Iterator<Item = PathBuf> {
    let machines = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    machines
        .map(|entry| entry.path().join("libibverbs"))
        .chain(["/usr/lib/libibverbs", "/usr/lib64/libibverbs"].map(PathBuf::from))
        .filter(|dir| dir.is_dir())
}

fn driver_in(folder: &Path, driver: &str) -> Option<PathBuf> {
    let prefix = format!("lib{driver}-rdmav");
    fs::read_dir(folder).ok()?.flatten().find_map(|entry| {
        let name = entry.file_name();
        let name = name.to_str()?;
        (name.starts_with(&prefix) && name.ends_with(".so")).then(|| entry.path())
    })
}
