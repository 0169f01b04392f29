//! What a check says.

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
            /// All of them, in the order of a report.
            pub const ALL: &[Check] = &[$(Check::$name,)*];

            /// The stable name.
            pub fn id(self) -> &'static str {
                match self { $(Check::$name => $id,)* }
            }

            /// Why it matters.
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
    TransparentHugePages, "transparent-huge-pages", "they give large buffers huge pages without reserving any";
    /// The governor of the CPUs' frequency.
    CpuGovernor, "cpu-governor", "a clock that follows the load makes latencies wander";
    /// Whether there is any RDMA device.
    RdmaDevices, "rdma-devices", "verbs need an RDMA device; --device soft needs none";
    /// Room for the user-space device.
    SharedMemory, "shared-memory", "the user-space device keeps its ports and memory regions there";
    /// `membarrier` for the user-space device.
    Membarrier, "membarrier", "the user-space device resets and destroys queue pairs with it";
    /// The library of a device's driver.
    Provider, "provider", "libibverbs does not list a device whose provider library is missing";
    /// The device's character device.
    DeviceFile, "device-file", "opening the device is opening this file for reading and writing";
    /// Whether the kernel makes the packets.
    SoftwareDevice, "software-device", "the kernel makes the packets: figures are not those of RDMA hardware";
    /// The PCI Express link.
    PcieLink, "pcie-link", "a slow or narrow link bounds throughput and adds latency";
    /// What the IOMMU does to the device.
    Iommu, "iommu", "translating the device's addresses once more costs throughput with many buffers";
    /// Where the process runs.
    NumaNode, "numa-node", "reaching the device from another node adds latency to every access";
    /// Whether the port carries data.
    PortState, "port-state", "only an ACTIVE port carries data";
    /// The addresses of the port.
    Gid, "gid", "peers address a RoCE port by a GID; RoCE v2 with an IP address is routed and usual";
    /// The network interface's MTU.
    Mtu, "mtu", "the interface's MTU bounds the path MTU: small packets cost throughput";
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Good to know; to be had better in some cases.
    Note,
    /// It works, but figures suffer or some programs fail.
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

/// Where a command is right.
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

/// What mends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Remedy {
    /// A command to copy.
    Run {
        /// The command.
        command: String,
        /// The only system where it is right; none where it is on all.
        #[serde(skip_serializing_if = "Option::is_none")]
        system: Option<System>,
    },
    /// What no command does.
    Advice(String),
}

/// What a check says of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which check.
    pub check: Check,
    /// Of what.
    pub subject: Subject,
    /// How bad it is.
    pub verdict: Verdict,
    /// What is there, with its value.
    pub found: String,
    /// What mends it, first things first; empty where all is well.
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

    /// Adds what no command does.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.remedies.push(Remedy::Advice(advice.into()));
        self
    }

    /// The same, no worse than `worst`.
    pub(crate) fn at_most(mut self, worst: Verdict) -> Self {
        self.verdict = self.verdict.min(worst);
        self
    }
}

impl Serialize for Finding {
    /// With `why` in it, so that a reader needs no table of the checks.
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
