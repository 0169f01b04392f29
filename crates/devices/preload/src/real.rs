//! Real devices, which the machine's own libibverbs serves, next to ours.
//!
//! If the kernel has RDMA devices, the library that this one replaces is loaded when the program first asks for the
//! device list, and its devices follow ours. Their contexts, and the objects made with them, belong to that library. A
//! program calls most of their operations through tables that it filled itself, without passing here. The exported
//! functions begin with `forward!`, which passes the call on if its object is not one of ours.
//!
//! The functions of librdmacm serve our devices only.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use adverb_abi::{
    ibv_ah, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_mr, ibv_pd, ibv_qp, ibv_srq,
    rdma_cm_id,
};

use crate::call::{self, Refusal};
use crate::device;
use crate::files::listing::kernel_has_entries;
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
use crate::loading::next_dlopen;
use crate::settings::settings;
#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
use libc::dlopen as next_dlopen;

/// Where the kernel lists its RDMA devices.
const DEVICES: &CStr = c"/sys/class/infiniband";

/// Passes a call of an exported function on if `object`, its first argument, belongs to a real device.
macro_rules! forward {
    ($object:expr => $function:ident($($argument:expr),*)) => {
        forward!($object => "C" $function($($argument),*));
    };
    ($object:expr => $abi:literal $function:ident($($argument:expr),*)) => {
        // SAFETY: the program passes an object that it has created and not destroyed.
        if unsafe { $crate::real::Owned::owned_by_real($object) } {
            static THEIRS: $crate::real::Function = $crate::real::Function::new();
            let ours: unsafe extern $abi fn($(forward!(@infer $argument)),*) -> _ = $function;
            return match THEIRS.get(ours, stringify!($function)) {
                // SAFETY: it is the same function of the object's own library.
                Ok(theirs) => unsafe { theirs($($argument),*) },
                Err(refusal) => $crate::real::Failed::failed(stringify!($function), &refusal),
            };
        }
    };
    (@infer $argument:expr) => { _ };
}

/// The library; `None` if the kernel has no devices, or the user does not want them.
fn library() -> Option<NonNull<c_void>> {
    LIBRARY
        .get_or_init(|| load().map(Handle))
        .as_ref()
        .map(|handle| handle.0)
}

/// A handle of `dlopen`.
struct Handle(NonNull<c_void>);

// SAFETY: any thread may use the handle, and the library stays loaded.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

static LIBRARY: OnceLock<Option<Handle>> = OnceLock::new();

fn load() -> Option<NonNull<c_void>> {
    let is_wanted = settings().is_ok_and(|settings| !settings.only_adverb);
    if !is_wanted || !kernel_has_entries(DEVICES) {
        return None;
    }
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL;
    // SAFETY: the name is a C string; the initialisation of libibverbs is harmless at any time.
    let handle = unsafe { next_dlopen(c"libibverbs.so.1".as_ptr(), flags) };
    NonNull::new(handle)
}

/// A function of the library, found at its first call.
pub(crate) struct Function(AtomicPtr<c_void>);

impl Function {
    pub(crate) const fn new() -> Self {
        Function(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the function called `name`, which has the type of `_ours`, a function pointer.
    pub(crate) fn get<F: Copy>(&self, _ours: F, name: &str) -> Result<F, Refusal> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut function = self.0.load(Ordering::Relaxed);
        if function.is_null() {
            function = find(name)?;
            self.0.store(function, Ordering::Relaxed);
        }
        // SAFETY: the caller uses pointers of functions only, and both libraries declare `name` in the same way.
        Ok(unsafe { std::mem::transmute_copy(&function) })
    }
}

fn find(name: &str) -> Result<*mut c_void, Refusal> {
    let missing = || Refusal::unsupported(format!("the machine's libibverbs has no {name}"));
    let library = library().ok_or_else(missing)?;
    let text = CString::new(name).map_err(|_| missing())?;
    // SAFETY: the handle is open, and the name is a C string.
    let found = unsafe { libc::dlsym(library.as_ptr(), text.as_ptr()) };
    if found.is_null() {
        return Err(missing());
    }
    Ok(found)
}

/// The first argument of an exported function.
pub(crate) trait Owned {
    /// Whether the call is for the machine's libibverbs.
    ///
    /// # Safety
    /// An object is alive.
    unsafe fn owned_by_real(self) -> bool;
}

fn is_loaded() -> bool {
    matches!(LIBRARY.get(), Some(Some(_)))
}

/// Whether a device is one of the machine's libibverbs. Before that is loaded there are none.
fn is_real_device(device: impl FnOnce() -> *mut ibv_device) -> bool {
    is_loaded() && !device::is_ours(device())
}

impl Owned for *mut ibv_device {
    unsafe fn owned_by_real(self) -> bool {
        is_real_device(|| self)
    }
}

impl Owned for *mut ibv_context {
    unsafe fn owned_by_real(self) -> bool {
        // SAFETY: the caller's.
        is_real_device(|| unsafe { (*self).device })
    }
}

/// Objects that begin with their context.
macro_rules! of_a_context {
    ($($object:ty),*) => {$(
        impl Owned for *mut $object {
            unsafe fn owned_by_real(self) -> bool {
                // SAFETY: the caller's; an object's context is open.
                is_real_device(|| unsafe { (*(*self).context).device })
            }
        }
    )*};
}

of_a_context!(
    ibv_pd,
    ibv_mr,
    ibv_comp_channel,
    ibv_cq,
    ibv_srq,
    ibv_qp,
    ibv_ah
);

/// Objects that our devices do not have.
impl Owned for *mut c_void {
    unsafe fn owned_by_real(self) -> bool {
        is_loaded()
    }
}

/// A descriptor for commands, which our devices do not have.
impl Owned for c_int {
    unsafe fn owned_by_real(self) -> bool {
        is_loaded()
    }
}

impl Owned for *mut rdma_cm_id {
    unsafe fn owned_by_real(self) -> bool {
        false
    }
}

/// Any real device, for functions without an object.
pub(crate) struct Any;

impl Owned for Any {
    unsafe fn owned_by_real(self) -> bool {
        library().is_some()
    }
}

/// What a function returns that cannot be passed on.
pub(crate) trait Failed {
    fn failed(call: &str, refusal: &Refusal) -> Self;
}

impl Failed for () {
    fn failed(call: &str, refusal: &Refusal) {
        call::refuse(call, refusal);
    }
}

impl Failed for c_int {
    fn failed(call: &str, refusal: &Refusal) -> Self {
        call::refuse(call, refusal)
    }
}

impl Failed for isize {
    fn failed(call: &str, refusal: &Refusal) -> Self {
        -(call::refuse(call, refusal) as isize)
    }
}

impl Failed for u64 {
    fn failed(call: &str, refusal: &Refusal) -> Self {
        call::refuse(call, refusal);
        0
    }
}

impl<T> Failed for *mut T {
    fn failed(call: &str, refusal: &Refusal) -> Self {
        call::refuse(call, refusal);
        ptr::null_mut()
    }
}

/// A device list of the machine's libibverbs.
pub(crate) type List = *mut *mut ibv_device;

/// Returns a list of the real devices, and their number; `NULL` if there are none.
pub(crate) fn list() -> (List, usize) {
    static GET: Function = Function::new();
    let ours: unsafe extern "C" fn(*mut c_int) -> List = device::ibv_get_device_list;
    let mut count = 0;
    let list = match library().map(|_| GET.get(ours, "ibv_get_device_list")) {
        // SAFETY: the address of a number.
        Some(Ok(get)) => unsafe { get(&raw mut count) },
        _ => ptr::null_mut(),
    };
    (list, count as usize)
}

/// Frees a list of real devices.
///
/// # Safety
/// `list` is from [`list`], and is not used afterwards.
pub(crate) unsafe fn free_list(list: List) {
    static FREE: Function = Function::new();
    let ours: unsafe extern "C" fn(List) = device::ibv_free_device_list;
    if !list.is_null()
        && let Ok(free) = FREE.get(ours, "ibv_free_device_list")
    {
        // SAFETY: the caller's.
        unsafe { free(list) };
    }
}
