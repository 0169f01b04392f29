//! Opens and closes devices. When the program exits, the counters of `--stats` and `--record` are written, and the files
//! of contexts that it left open are removed.
//!
//! Files of a process that was killed are removed by the next process that opens the device.

use std::ffi::c_int;
use std::os::fd::AsRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use adverb_abi::{VERBS_ABI_IS_EXTENDED, ibv_context, ibv_device, verbs_context};
use adverb_verbs::Device as _;

use crate::activity;
use crate::activity::counts::QpsByNumber;
use crate::call::{self, Refusal};
use crate::context::{self, Context, ContextObject, outer};
use crate::device::Device;
use crate::object::Object;
use crate::tables;

fn open(device: *mut ibv_device) -> Result<*mut ibv_context, Refusal> {
    // SAFETY: the program passes a device of the list.
    let own = unsafe { Device::of(device) };
    let soft = own.soft()?.open()?;
    let mut c = verbs_context::zeroed();
    tables::fill(&mut c);
    c.sz = size_of::<verbs_context>();
    c.context.device = device;
    c.context.abi_compat = std::ptr::without_provenance_mut(VERBS_ABI_IS_EXTENDED);
    c.context.num_comp_vectors = 1;
    let async_events = soft.open_async_events()?;
    c.context.async_fd = async_events.as_raw_fd();
    // There are no commands, but programs duplicate the descriptor.
    c.context.cmd_fd = c.context.async_fd;
    let context = Context {
        device: own,
        soft,
        async_events,
        cqs: Mutex::default(),
        qps: Mutex::default(),
        srqs: Mutex::default(),
        xrcds: Mutex::default(),
        counts: QpsByNumber::default(),
    };
    let object = Object::create(c, context);
    context::remember(object);
    activity::opened();
    // SAFETY: the object is new.
    Ok(unsafe { &raw mut (*object).context })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    forward!(device => ibv_open_device(device));
    call::pointer("ibv_open_device", || open(device))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    forward!(context => ibv_close_device(context));
    call::number("ibv_close_device", || {
        // SAFETY: the program closes a context that it has opened, once.
        unsafe {
            let object = outer(context).cast_mut();
            context::forget(object);
            activity::closing(Context::of(context));
            ContextObject::destroy(object);
        }
        Ok(0)
    })
}

/// The loader calls it when the process exits, after the program's own handlers.
extern "C" fn at_exit() {
    let _ = catch_unwind(activity::at_exit);
    Context::each_open(|context| {
        let _ = catch_unwind(AssertUnwindSafe(|| context.soft.remove_files()));
    });
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
