//! Requirements, by Debian package.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::image::LDD;
use crate::kernel::Kernel;

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
    (LDD, "libc-bin", "the shared libraries of the guest's init"),
    ("ip", "iproute2", "the guest's network"),
    ("rdma", "iproute2", "the guest's RDMA link"),
];
/// The emulator.
pub(crate) const QEMU: &str = "qemu-system-x86_64";
/// Where libibverbs learns of Soft-RoCE's driver, which is in the same package.
const DRIVER_CONFIG: &str = "/etc/libibverbs.d/rxe.driver";

/// What is not installed of what every machine needs; empty if a lab can be booted.
///
/// The machines are x86-64, and run programs of their host: on a host of another architecture that
/// is what is missing.
pub fn missing() -> Vec<Need> {
    if cfg!(not(target_arch = "x86_64")) {
        return vec![Need {
            package: "a host of architecture x86-64",
            purpose: "the machines run programs of this host, which has another architecture",
        }];
    }
    let mut needs: Vec<Need> = PROGRAMS
        .iter()
        .filter(|(program, ..)| find_program(program).is_none())
        .map(|(_, package, purpose)| Need { package, purpose })
        .collect();
    needs.dedup_by_key(|need| need.package);
    if !Path::new(DRIVER_CONFIG).is_file() {
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
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}
