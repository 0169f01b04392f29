//! The device list. Devices come from the settings and live as long as the process.

use std::ffi::{c_char, c_int};
use std::net::IpAddr;
use std::sync::OnceLock;

use adverb_abi::{IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_device, ibv_device_ops};
use adverb_softnic::{NamedDevice, SoftDevice};

use crate::call::{self, Refusal};
use crate::object::Object;
use crate::real;
use crate::settings::settings;

/// A device of the list, behind its C structure.
#[derive(Debug)]
pub(crate) struct Device {
    /// Providers recognize their devices by a pointer that follows the C structure. Zeros are nobody's.
    _no_provider: [u64; 8],
    pub(crate) name: &'static str,
    /// The address of its port.
    pub(crate) address: IpAddr,
    /// Its position in the list.
    pub(crate) index: u8,
}

/// A pointer that the device list shares between threads.
struct Entry(*mut ibv_device);

// SAFETY: the device behind the pointer is never changed or freed.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

impl Device {
    /// Returns the device behind a pointer from C.
    ///
    /// # Safety
    /// `device` is from the device list.
    pub(crate) unsafe fn of(device: *const ibv_device) -> &'static Self {
        // SAFETY: the caller's; devices are never freed.
        &unsafe { Object::<ibv_device, Device>::of(device) }.own
    }

    /// Returns the GUID, in network order: locally administered, from the position and the address.
    pub(crate) fn guid(&self) -> u64 {
        let octets = match self.address.to_canonical() {
            IpAddr::V4(v4) => v4.octets(),
            IpAddr::V6(v6) => {
                let [.., a, b, c, d] = v6.octets();
                [a, b, c, d]
            }
        };
        let [a, b, c, d] = octets;
        u64::from_ne_bytes([0x02, 0xad, 0xfe, self.index, a, b, c, d])
    }

    /// Returns the device of the NIC that opening this device opens.
    pub(crate) fn soft(&self) -> Result<SoftDevice, Refusal> {
        let address = self.address;
        Ok(match settings()?.faults {
            None => SoftDevice::at(address),
            Some(faults) => SoftDevice::impaired_at(address, faults),
        })
    }
}

fn entries() -> Result<&'static [Entry], Refusal> {
    static ENTRIES: OnceLock<Vec<Entry>> = OnceLock::new();
    let settings = settings()?;
    let make = |(index, named)| Entry(make(index, named, settings.address));
    Ok(ENTRIES.get_or_init(|| settings.devices.iter().enumerate().map(make).collect()))
}

fn make(index: usize, named: &'static NamedDevice, common: IpAddr) -> *mut ibv_device {
    let name = named.name.as_str();
    let c = ibv_device {
        _ops: ibv_device_ops::zeroed(),
        node_type: IBV_NODE_CA,
        transport_type: IBV_TRANSPORT_IB,
        name: text(name),
        dev_name: text(&uverbs(name)),
        dev_path: text(&format!("/sys/class/infiniband_verbs/{}", uverbs(name))),
        ibdev_path: text(&format!("/sys/class/infiniband/{name}")),
    };
    let own = Device {
        _no_provider: [0; 8],
        name,
        address: named.address.unwrap_or(common),
        index: index as u8,
    };
    Object::create(c, own)
}

/// Returns the name of a device's file in `/dev/infiniband`.
pub(crate) fn uverbs(name: &str) -> String {
    format!("uverbs_{name}")
}

/// Returns the devices.
pub(crate) fn devices() -> impl Iterator<Item = &'static Device> {
    let entries = entries().unwrap_or_default();
    // SAFETY: the pointers are in the device list, whose devices are never freed.
    entries.iter().map(|entry| unsafe { Device::of(entry.0) })
}

/// Returns a text as an array of C, shortened to fit.
pub(crate) fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    let room = N - 1;
    for (to, from) in array[..room].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    array
}

/// Returns our devices, as programs see them.
pub(crate) fn ours() -> impl Iterator<Item = *mut ibv_device> {
    let entries = entries().into_iter().flatten();
    entries.map(|entry| entry.0)
}

/// Whether a device is one of ours.
pub(crate) fn is_ours(device: *mut ibv_device) -> bool {
    ours().any(|ours| ours == device)
}

/// The list has our devices, the real ones, and `NULL`. After that there is the list of the real ones, which is freed with
/// it. Programs such as qperf pass the list to `free`, so it is an allocation of its own.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    // As libibverbs does, because programs look at the number alone after a failure.
    if !count.is_null() {
        // SAFETY: the program passes NULL or the address of a number.
        unsafe { *count = 0 };
    }
    call::pointer("ibv_get_device_list", || {
        let entries = entries()?;
        let (real, number) = real::list();
        let mut all: Vec<*mut ibv_device> = entries.iter().map(|entry| entry.0).collect();
        // SAFETY: the list has `number` devices.
        all.extend((0..number).map(|at| unsafe { *real.add(at) }));
        all.extend([std::ptr::null_mut(), real.cast()]);
        let size = size_of_val(&all[..]);
        // SAFETY: allocates `size` bytes, more than 0.
        let copy: *mut *mut ibv_device = unsafe { libc::malloc(size) }.cast();
        if copy.is_null() {
            return Err(Refusal::new(libc::ENOMEM, "no memory for the device list"));
        }
        if !count.is_null() {
            // SAFETY: the program passes NULL or the address of a number.
            unsafe { *count = (entries.len() + number) as c_int };
        }
        // SAFETY: both have `all.len()` pointers, and the copy is new.
        unsafe { copy.copy_from_nonoverlapping(all.as_ptr(), all.len()) };
        Ok(copy)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    if list.is_null() {
        return;
    }
    // SAFETY: `ibv_get_device_list` allocated the list, with the other one after its end. Our devices stay.
    unsafe {
        let mut end = list;
        while !(*end).is_null() {
            end = end.add(1);
        }
        real::free_list((*end.add(1)).cast());
        libc::free(list.cast());
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the program passes a device of the list.
    unsafe { (&raw const (*device).name).cast() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    forward!(device => ibv_get_device_index(device));
    // SAFETY: the program passes a device of the list.
    unsafe { Device::of(device) }.index.into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    forward!(device => ibv_get_device_guid(device));
    // SAFETY: the program passes a device of the list.
    unsafe { Device::of(device) }.guid()
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}
