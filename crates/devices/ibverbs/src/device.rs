//! Lists and opens devices, and explains why that failed.

use std::io;
use std::path::Path;
use std::ptr::NonNull;

use adverb_abi as abi;
use adverb_verbs::{Device, DeviceName, LinkLayer, OpenError, PortNum};

use crate::choice::VerbsDevice;
use crate::context::VerbsContext;
use crate::gid::{GidError, GidTableEntry, choose};
use crate::library::{Library, LibraryError};
use crate::raw::{RawContext, text};

/// The devices could not be listed, or there are none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}; {remedy}")]
pub struct ListError {
    /// The problem.
    pub reason: String,
    /// The remedy.
    pub remedy: String,
}

impl ListError {
    fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        ListError {
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }
}

impl From<LibraryError> for ListError {
    fn from(error: LibraryError) -> Self {
        ListError::new(error.to_string(), error.remedy())
    }
}

/// Returns the devices that `libibverbs` finds, at least one.
///
/// # Errors
/// The library or the drivers are missing, or there is no device.
pub fn devices() -> Result<Vec<VerbsDevice>, ListError> {
    let list = DeviceList::get()?;
    let devices: Vec<_> = list.names().map(VerbsDevice::new).collect();
    if devices.is_empty() {
        return Err(none_found());
    }
    Ok(devices)
}

/// Explains why the library finds no device.
fn none_found() -> ListError {
    const SOFT: &str = "`rdma link add rxe0 type rxe netdev eth0` makes one of Soft-RoCE";
    let kernel_has_some = std::fs::read_dir("/sys/class/infiniband")
        .is_ok_and(|mut devices| devices.next().is_some());
    if !kernel_has_some {
        return ListError::new(
            "this machine has no RDMA device",
            format!("load its driver (mlx5_ib, irdma, bnxt_re ...); {SOFT}"),
        );
    }
    if !Path::new("/sys/class/infiniband_verbs").exists() {
        return ListError::new(
            "the kernel has RDMA devices, but does not offer them to programs",
            "load the kernel module ib_uverbs",
        );
    }
    ListError::new(
        "the kernel has RDMA devices, but libibverbs has no driver for them",
        "install the package ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL)",
    )
}

/// The result of `ibv_get_device_list`, freed when dropped.
struct DeviceList {
    library: &'static Library,
    list: NonNull<*mut abi::ibv_device>,
    count: usize,
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the library returned the list; it is freed once.
        unsafe { (self.library.ibv_free_device_list)(self.list.as_ptr()) };
    }
}

impl DeviceList {
    fn get() -> Result<Self, ListError> {
        let library = Library::get()?;
        let mut count = 0;
        // SAFETY: the count is exclusive.
        let list = unsafe { (library.ibv_get_device_list)(&raw mut count) };
        let list = NonNull::new(list).ok_or_else(|| match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOSYS) => none_found(),
            error => ListError::new(
                format!("libibverbs cannot list the devices: {error}"),
                "look at `ibv_devices`",
            ),
        })?;
        Ok(DeviceList {
            library,
            list,
            count: usize::try_from(count).unwrap_or(0),
        })
    }

    fn devices(&self) -> impl Iterator<Item = *mut abi::ibv_device> {
        // SAFETY: the list holds as many devices as the library said.
        unsafe { std::slice::from_raw_parts(self.list.as_ptr(), self.count) }
            .iter()
            .copied()
    }

    fn names(&self) -> impl Iterator<Item = String> {
        // SAFETY: the devices live as long as the list.
        self.devices()
            .map(|device| text(unsafe { &(*device).name }))
    }

    fn find(&self, name: &str) -> Option<*mut abi::ibv_device> {
        let at = self.names().position(|there| there == name)?;
        self.devices().nth(at)
    }
}

impl Device for VerbsDevice {
    type Context = VerbsContext;

    fn name(&self) -> DeviceName {
        DeviceName(format!("{}:{self}", self.kind()))
    }

    fn open(&self) -> Result<VerbsContext, OpenError> {
        let list = DeviceList::get().map_err(|e| self.unavailable(e.reason, e.remedy))?;
        let device = list.find(&self.name).ok_or_else(|| self.absent(&list))?;
        // SAFETY: the device is in the list, which is not freed yet.
        let context = unsafe { (list.library.ibv_open_device)(device) };
        let context = NonNull::new(context)
            .ok_or_else(|| self.not_opened(device, &io::Error::last_os_error()))?;
        VerbsContext::new(self, RawContext::new(list.library, context))
    }
}

impl VerbsDevice {
    pub(crate) fn unavailable(
        &self,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> OpenError {
        OpenError::Unavailable {
            device: self.name().0,
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }

    pub(crate) fn system(&self, action: &str, source: io::Error) -> OpenError {
        OpenError::System {
            device: self.name().0,
            action: action.into(),
            source,
        }
    }

    fn absent(&self, list: &DeviceList) -> OpenError {
        let there: Vec<_> = list.names().collect();
        if there.is_empty() {
            let none = none_found();
            return self.unavailable(none.reason, none.remedy);
        }
        let remedy = format!("there is {}", there.join(", "));
        self.unavailable(
            format!("libibverbs knows no device '{}'", self.name),
            remedy,
        )
    }

    fn not_opened(&self, device: *mut abi::ibv_device, error: &io::Error) -> OpenError {
        // SAFETY: the device is in a list that the caller holds.
        let node = text(unsafe { &(*device).dev_name });
        let path = format!("/dev/infiniband/{node}");
        let remedy = match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                "run as root or as a member of the group that the file belongs to".to_owned()
            }
            Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => {
                "load the kernel module ib_uverbs; in a container, give it /dev/infiniband".into()
            }
            _ => format!("see whether `ibv_devinfo -d {}` can open it", self.name),
        };
        self.unavailable(format!("{path}: {error}"), remedy)
    }

    /// Returns the requested port, which must be active, or else the first active one.
    pub(crate) fn find_port(&self, raw: &RawContext, count: u8) -> Result<PortNum, OpenError> {
        if let Some(port) = self.port.filter(|port| port.0 > count) {
            let remedy = format!("it has ports 1 to {count}");
            return Err(self.unavailable(format!("it has no port {port}"), remedy));
        }
        let candidates = match self.port {
            Some(port) => vec![port],
            None => (1..=count).map(PortNum).collect(),
        };
        let mut down = Vec::new();
        for port in candidates {
            let attr = raw.query_port(port);
            let attr = attr.map_err(|e| self.system(&format!("query port {port}"), e))?;
            if attr.state == abi::IBV_PORT_ACTIVE {
                return Ok(port);
            }
            down.push((port, attr));
        }
        Err(self.port_down(raw, &down))
    }

    fn port_down(&self, raw: &RawContext, ports: &[(PortNum, abi::ibv_port_attr)]) -> OpenError {
        let states: Vec<_> = ports
            .iter()
            .map(|(port, attr)| format!("port {port} is {}", port_state(attr.state)))
            .collect();
        let ethernet = ports
            .iter()
            .any(|(_, attr)| raw.link_layer(attr) != LinkLayer::InfiniBand);
        let remedy = if ethernet {
            "plug its cable and set its network interface up (`ip link set dev NETDEV up`)"
        } else {
            "plug its cable, and run a subnet manager (opensm) on the network"
        };
        self.unavailable(states.join(", "), remedy)
    }

    /// Returns the GID by which peers reach `port`.
    pub(crate) fn find_gid(
        &self,
        raw: &RawContext,
        (port, layer): (PortNum, LinkLayer),
    ) -> Result<GidTableEntry, OpenError> {
        let entries = raw.gids(port, layer);
        let entries = entries.map_err(|e| self.system("read the table of GIDs", e))?;
        choose(&entries, layer, self.gid).map_err(|error| {
            let remedy = match error {
                GidError::Empty => "give its network interface an IP address",
                _ => "choose one of these, or none (then the best is taken)",
            };
            self.unavailable(format!("port {port}: {error}"), remedy)
        })
    }
}

fn port_state(state: u32) -> String {
    match state {
        abi::IBV_PORT_DOWN => "DOWN".into(),
        abi::IBV_PORT_INIT => "INIT (no subnet manager has set it up)".into(),
        abi::IBV_PORT_ARMED => "ARMED".into(),
        other => format!("in state {other}"),
    }
}
