//! The checks, and the finding that each of them returns.

use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

macro_rules! checks {
    ($($(#[$doc:meta])* $name:ident, $id:literal, $why:literal;)*) => {
        /// The checks. Their names are stable: scripts may choose findings by them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Check {
            $($(#[$doc])* $name,)*
        }

        impl Check {
            /// All checks in the order of a report.
            pub const ALL: &[Check] = &[$(Check::$name,)*];

            /// Returns the stable name.
            pub fn id(self) -> &'static str {
                match self { $(Check::$name => $id,)* }
            }

            /// Returns why the check matters.
            pub fn why(self) -> &'static str {
                match self { $(Check::$name => $why,)* }
            }
        }
    };
}

checks! {
    /// The limit on locked memory.
    MemoryLock, "memory-lock", "registered memory is locked: beyond the limit, registering fails";
    /// `libibverbs.so.1`.
    Libibverbs, "libibverbs", "programs reach RDMA devices through libibverbs.so.1";
    /// `librdmacm.so.1`.
    Librdmacm, "librdmacm", "connecting by IP address needs librdmacm.so.1; iWARP has no other way";
    /// The kernel's `ib_uverbs`.
    VerbsModule, "verbs-module", "without ib_uverbs no program can open a device";
    /// The kernel's `rdma_ucm`.
    ConnectionManager, "connection-manager", "connecting by IP address needs /dev/infiniband/rdma_cm";
    /// Huge pages.
    HugePages, "huge-pages", "large buffers in huge pages need fewer translations in the device";
    /// Transparent huge pages.
    TransparentHugePages, "transparent-huge-pages", "the kernel uses them for large buffers without reserving any";
    /// The governor of the CPUs' frequency.
    CpuGovernor, "cpu-governor", "a governor that changes the CPU frequency makes latencies vary";
    /// The presence of an RDMA device.
    RdmaDevices, "rdma-devices", "verbs need an RDMA device; --device soft needs none";
    /// Space for the user-space device.
    SharedMemory, "shared-memory", "the user-space device stores its ports and memory regions there";
    /// `membarrier` for the user-space device.
    Membarrier, "membarrier", "the user-space device needs it to reset and destroy queue pairs";
    /// `pidfd_open` for the user-space device.
    Pidfd, "pidfd", "the user-space device needs pidfd_open to notice that a peer has ended";
    /// Files of the user-space device whose processes have ended.
    Leftovers, "leftovers", "memory of processes that have ended is used until its files are removed";
    /// The library of a device's driver.
    Provider, "provider", "libibverbs does not list a device whose provider library is missing";
    /// The device's character device.
    DeviceFile, "device-file", "programs open the device by opening this file for reading and writing";
    /// Whether the device is implemented by the kernel.
    SoftwareDevice, "software-device", "the kernel sends the packets: results differ from RDMA hardware";
    /// The PCI Express link.
    PcieLink, "pcie-link", "a slow or narrow link limits throughput and adds latency";
    /// Whether the IOMMU translates the device's addresses.
    Iommu, "iommu", "translating the device's addresses costs throughput with many buffers";
    /// Whether the process runs on the device's NUMA node.
    NumaNode, "numa-node", "reaching the device from another node adds latency to every access";
    /// The state of the port.
    PortState, "port-state", "only an ACTIVE port carries data";
    /// The addresses of the port.
    Gid, "gid", "peers address a RoCE port by a GID, usually of RoCE v2 with an IP address";
    /// The network interface's MTU.
    Mtu, "mtu", "the interface's MTU limits the path MTU, and small packets cost throughput";
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Informational; could be improved.
    Note,
    /// It works, but results suffer or some programs fail.
    Warning,
    /// It does not work.
    Broken,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Warning => "warning",
            Verdict::Broken => "broken",
        })
    }
}

/// What a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Subject {
    /// The machine and this process.
    Machine,
    /// The user-space device.
    Soft,
    /// An RDMA device.
    Device {
        /// Its name.
        device: String,
    },
    /// A port of it.
    Port {
        /// The device's name.
        device: String,
        /// The port's number.
        port: u8,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Machine => f.write_str("machine"),
            Subject::Soft => f.write_str("soft (user-space device)"),
            Subject::Device { device } => write!(f, "verbs:{device}"),
            Subject::Port { device, port } => write!(f, "verbs:{device} port {port}"),
        }
    }
}

/// The distribution that a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum System {
    /// Debian, Ubuntu.
    Debian,
    /// RHEL, Rocky, Fedora.
    #[serde(rename = "RHEL")]
    Rhel,
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            System::Debian => "Debian",
            System::Rhel => "RHEL",
        })
    }
}

/// A remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Remedy {
    /// A command to copy.
    Run {
        /// The command.
        command: String,
        /// The only distribution that it is for; `None` if it is for all.
        #[serde(skip_serializing_if = "Option::is_none")]
        system: Option<System>,
    },
    /// Advice that is not a command.
    Advice(String),
}

/// The result of a check of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The check.
    pub check: Check,
    /// What was checked.
    pub subject: Subject,
    /// The severity.
    pub verdict: Verdict,
    /// What was found, with its value.
    pub found: String,
    /// Remedies in the order to apply them; empty if nothing is wrong.
    pub remedies: Vec<Remedy>,
}

impl Finding {
    /// A finding without remedies.
    pub(crate) fn new(
        check: Check,
        subject: Subject,
        verdict: Verdict,
        found: impl Into<String>,
    ) -> Self {
        Finding {
            check,
            subject,
            verdict,
            found: found.into(),
            remedies: Vec::new(),
        }
    }

    /// Adds a command.
    pub(crate) fn run(mut self, command: impl Into<String>) -> Self {
        self.remedies.push(Remedy::Run {
            command: command.into(),
            system: None,
        });
        self
    }

    /// Adds a command for one system.
    pub(crate) fn run_on(mut self, system: System, command: impl Into<String>) -> Self {
        self.remedies.push(Remedy::Run {
            command: command.into(),
            system: Some(system),
        });
        self
    }

    /// Adds advice.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.remedies.push(Remedy::Advice(advice.into()));
        self
    }

    /// Limits the severity to `worst`.
    pub(crate) fn at_most(mut self, worst: Verdict) -> Self {
        self.verdict = self.verdict.min(worst);
        self
    }
}

impl Serialize for Finding {
    /// Includes `why`, so that a reader needs no table of the checks.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Finding", 6)?;
        fields.serialize_field("id", &self.check)?;
        fields.serialize_field("subject", &self.subject)?;
        fields.serialize_field("verdict", &self.verdict)?;
        fields.serialize_field("found", &self.found)?;
        fields.serialize_field("why", self.check.why())?;
        fields.serialize_field("remedies", &self.remedies)?;
        fields.end()
    }
}
