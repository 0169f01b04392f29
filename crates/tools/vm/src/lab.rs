//! One or two machines and their configuration.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::thread;

use adverb_units::Bytes;
use tempfile::TempDir;

use crate::error::{Error, io_error};
use crate::kernel::{Kernel, cache};
use crate::machine::Machine;
use crate::needs::missing;
use crate::protocol::{PeerSetup, Setup};
use crate::qemu::{Hardware, Wire};
use crate::{image, unpack};

/// Modules to load, in addition to the RDMA device's. The guest has no modprobe for modules that the kernel
/// requests, so modules that are loaded by alias (`crc32` for Soft-RoCE) are listed, too.
const MODULES: [&str; 10] = [
    "virtio_pci",
    "virtio_console",
    "9pnet_virtio",
    "9p",
    "overlay",
    "crc32_generic",
    "crc32c_generic",
    "virtio_net",
    "ib_uverbs",
    "rdma_ucm",
];
const NET_PREFIX: u32 = 24;
/// The network namespace of [`LabSpec::looped`]'s second card: `ip netns exec peer …`.
pub const PEER_NAMESPACE: &str = "peer";
/// The address of that card.
pub const PEER_ADDRESS: &str = "10.77.0.2";
/// MTU of jumbo frames, in which RoCE's largest path MTU of 4096 B fits.
const DEFAULT_MTU: u16 = 9000;

/// The kernel's RDMA devices in software.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkType {
    /// Soft-RoCE (RoCEv2), device `rxe0`.
    #[default]
    Rxe,
    /// Soft-iWARP, device `siw0`. Debian 12's kernel does not have it.
    Siw,
}

impl LinkType {
    /// The type's name in `rdma link add`.
    pub fn name(self) -> &'static str {
        match self {
            LinkType::Rxe => "rxe",
            LinkType::Siw => "siw",
        }
    }

    /// The device that each machine has.
    pub fn device(self) -> &'static str {
        match self {
            LinkType::Rxe => "rxe0",
            LinkType::Siw => "siw0",
        }
    }

    fn module(self) -> &'static str {
        match self {
            LinkType::Rxe => "rdma_rxe",
            LinkType::Siw => "siw",
        }
    }
}

/// How the machines of a lab are wired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topology {
    One,
    Looped,
    Two,
}

/// A lab to be booted.
#[derive(Clone, Debug)]
pub struct LabSpec {
    topology: Topology,
    link_type: LinkType,
    processors: u32,
    memory: Bytes,
    mtu: u16,
    capture: Option<PathBuf>,
    init: Option<PathBuf>,
}

impl LabSpec {
    /// Returns one machine, with RDMA traffic within its kernel.
    pub fn one() -> Self {
        LabSpec {
            topology: Topology::One,
            link_type: LinkType::default(),
            processors: 2,
            memory: Bytes::mib(1024),
            mtu: DEFAULT_MTU,
            capture: None,
            init: None,
        }
    }

    /// Returns one machine with two connected network cards: one with the RDMA device at 10.77.0.1, and one at
    /// 10.77.0.2 in the network namespace [`PEER_NAMESPACE`]. The namespace's UDP ports are free, because the
    /// kernel's RoCE uses its port only in the machine's own namespace.
    pub fn looped() -> Self {
        LabSpec {
            topology: Topology::Looped,
            ..LabSpec::one()
        }
    }

    /// Returns two machines, 10.77.0.1 and 10.77.0.2, with connected network cards.
    pub fn two() -> Self {
        LabSpec {
            topology: Topology::Two,
            ..LabSpec::one()
        }
    }

    /// Sets the RDMA device of each machine [default: Soft-RoCE].
    #[must_use]
    pub fn link_type(mut self, link_type: LinkType) -> Self {
        self.link_type = link_type;
        self
    }

    /// Sets the processors of each machine [default: 2].
    #[must_use]
    pub fn processors(mut self, processors: u32) -> Self {
        self.processors = processors;
        self
    }

    /// Sets the memory of each machine, in whole MiB [default: 1 GiB].
    #[must_use]
    pub fn memory(mut self, memory: Bytes) -> Self {
        self.memory = memory;
        self
    }

    /// Sets the MTU of each machine's `eth0`, in bytes [default: 9000]. RoCE's path MTU (256 to 4096) is the
    /// largest that fits with its headers: 4096 from 4176 on, 1024 with Ethernet's usual 1500.
    #[must_use]
    pub fn mtu(mut self, mtu: u16) -> Self {
        self.mtu = mtu;
        self
    }

    /// Writes what passes the first machine's `eth0` to this file, as pcap with Ethernet's headers.
    #[must_use]
    pub fn capture(mut self, file: impl Into<PathBuf>) -> Self {
        self.capture = Some(file.into());
        self
    }

    /// Sets the path of the `adverb-vm` program, which is the guest's `/init` [default: next to the running
    /// program or one folder up, where cargo puts it for tests].
    #[must_use]
    pub fn init(mut self, program: impl Into<PathBuf>) -> Self {
        self.init = Some(program.into());
        self
    }

    /// Boots the machines and waits until their RDMA devices are active.
    ///
    /// # Errors
    /// [`Error::Missing`] names what is not installed; other variants what failed.
    pub fn boot(&self) -> Result<Lab, Error> {
        let needs = missing();
        if !needs.is_empty() {
            let names: Vec<_> = needs.iter().map(ToString::to_string).collect();
            return Err(Error::Missing(names.join(", ")));
        }
        let kernel = Kernel::find()?;
        let module = self.link_type.module();
        if !kernel.has(module) {
            return Err(Error::Unsupported(format!(
                "kernel {} has no module {module}; use {}, or a kernel that has it",
                kernel.release(),
                LinkType::default().name()
            )));
        }
        let folder = tempfile::Builder::new()
            .prefix("adverb-vm-")
            .tempdir()
            .map_err(io_error("cannot make a folder in", &std::env::temp_dir()))?;
        let initrd = folder.path().join("initramfs");
        self.write_initramfs(&kernel, &initrd)?;
        let image = unpacked(&kernel, folder.path())?;
        let machines = self.boot_all(&image, &initrd, folder.path())?;
        Ok(Lab {
            machines,
            _folder: folder,
        })
    }

    fn write_initramfs(&self, kernel: &Kernel, path: &Path) -> Result<(), Error> {
        let init = self.init.clone().map_or_else(find_init, Ok)?;
        let names = [&MODULES[..], &[self.link_type.module()]].concat();
        let file = File::create(path).map_err(io_error("cannot create", path))?;
        image::write(&init, &kernel.load_order(&names)?, BufWriter::new(file))
    }

    fn boot_all(&self, image: &Path, initrd: &Path, folder: &Path) -> Result<Vec<Machine>, Error> {
        let wires = match self.topology {
            Topology::One => vec![Wire::Open],
            Topology::Looped => vec![Wire::Looped],
            Topology::Two => {
                let (here, there) = ("one.sock", "two.sock");
                let other = Wire::Joined {
                    here: there,
                    there: here,
                };
                vec![Wire::Joined { here, there }, other]
            }
        };
        let capture = self.capture_file()?;
        thread::scope(|scope| {
            let booting: Vec<_> = (1..)
                .zip(wires)
                .map(|(number, wire)| {
                    let hardware = Hardware {
                        kernel: image.to_owned(),
                        initrd: initrd.to_owned(),
                        processors: self.processors,
                        memory: self.memory,
                        number,
                        mtu: self.mtu,
                        wire,
                        capture: capture.clone().filter(|_| number == 1),
                        folder: folder.to_owned(),
                    };
                    scope.spawn(move || self.boot_one(number, &hardware))
                })
                .collect();
            let joined = booting
                .into_iter()
                .map(|b| b.join().expect("booting does not panic"));
            joined.collect()
        })
    }

    /// Not relative: QEMU has another working folder.
    fn capture_file(&self) -> Result<Option<PathBuf>, Error> {
        let absolute = |file: &PathBuf| {
            std::path::absolute(file).map_err(io_error("cannot write packets to", file))
        };
        self.capture.as_ref().map(absolute).transpose()
    }

    fn boot_one(&self, number: u32, hardware: &Hardware) -> Result<Machine, Error> {
        let name = format!("vm{number}");
        let address = format!("10.77.0.{number}");
        let machine = Machine::start(name.clone(), address.clone(), hardware)?;
        machine.set_up(Setup {
            hostname: name,
            address: format!("{address}/{NET_PREFIX}"),
            device: self.link_type.device().to_owned(),
            link_type: self.link_type.name().to_owned(),
            peer: (self.topology == Topology::Looped).then(|| PeerSetup {
                namespace: PEER_NAMESPACE.to_owned(),
                interface: "eth1".to_owned(),
                address: format!("{PEER_ADDRESS}/{NET_PREFIX}"),
            }),
        })?;
        Ok(machine)
    }
}

/// Machines that run; they end with it.
pub struct Lab {
    machines: Vec<Machine>,
    /// The image and the sockets of the link; dropped after the machines that use them.
    _folder: TempDir,
}

impl Lab {
    /// A machine, from 0.
    ///
    /// # Panics
    /// If the lab has fewer.
    pub fn machine(&self, index: usize) -> &Machine {
        &self.machines[index]
    }

    /// All machines.
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }
}

/// Returns the uncompressed kernel, in the cache, or in the lab's folder if this user has no cache.
fn unpacked(kernel: &Kernel, folder: &Path) -> Result<PathBuf, Error> {
    let cached = cache().map(|cache| unpack::bootable(kernel.image(), &cache.join("unpacked")));
    match cached {
        Some(Ok(image)) => Ok(image),
        Some(Err(_)) | None => unpack::bootable(kernel.image(), folder),
    }
}

/// The `adverb-vm` program near the running one.
fn find_init() -> Result<PathBuf, Error> {
    let program = std::env::current_exe()
        .map_err(io_error("cannot find", Path::new("the running program")))?;
    let folders = program.ancestors().skip(1).take(2);
    let mut near = folders.map(|dir| dir.join("adverb-vm"));
    near.find(|path| path.is_file()).ok_or_else(|| {
        Error::Missing(format!(
            "the program adverb-vm next to {}; `cargo build -p adverb-vm` builds it",
            program.display()
        ))
    })
}
