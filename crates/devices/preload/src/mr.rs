//! Memory regions.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Mutex};

use adverb_abi::{
    self as abi, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_ZERO_BASED, ibv_mr, ibv_pd, ibv_sge,
};
use adverb_softnic::{PrefetchError, SgeError, SoftMr, SoftNullMr};
use adverb_units::Bytes;
use adverb_verbs::{AccessFlags, MemoryRegion as _};

use crate::activity;
use crate::call::{self, Refusal};
use crate::context::Context;
use crate::dm::Allocation;
use crate::object::{Object, lock};
use crate::pd::Pd;
use crate::qp::post::sges;

/// Flags that a device may ignore (`IBV_ACCESS_OPTIONAL_RANGE`).
const OPTIONAL: u32 = 0x3ff0_0000;
/// `IBV_ACCESS_HUGETLB`, which changes nothing here.
const WITHOUT_EFFECT: u32 = 1 << 7;

/// A memory region, behind its `ibv_mr`.
#[derive(Debug)]
pub(crate) struct Mr {
    registered: Registered,
    /// The device memory that the region covers.
    _device_memory: Option<Arc<Allocation>>,
}

/// What a region is.
#[derive(Debug)]
enum Registered {
    /// The registration, and what was registered. Registering again replaces both.
    Memory(Mutex<(SoftMr, Memory)>),
    /// A null region. It is deregistered when it is dropped.
    Null(#[expect(dead_code, reason = "kept for its drop")] SoftNullMr),
}

type MrObject = Object<ibv_mr, Mr>;

/// The memory that a program registers.
///
/// The address is only passed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) addr: *mut c_void,
    /// The address in the `ibv_mr`.
    pub(crate) shown: *mut c_void,
    pub(crate) length: usize,
    /// The address by which requests name the first byte.
    pub(crate) iova: u64,
    pub(crate) access: u32,
}

impl Memory {
    /// Memory of the program.
    fn new((addr, length): (*mut c_void, usize), iova: u64, access: u32) -> Self {
        Memory {
            addr,
            shown: addr,
            length,
            iova,
            access,
        }
    }

    /// Returns the access rights.
    fn rights(&self) -> Result<AccessFlags, Refusal> {
        let flags = self.access & !OPTIONAL & !WITHOUT_EFFECT & !IBV_ACCESS_ZERO_BASED;
        if flags & IBV_ACCESS_ON_DEMAND != 0 {
            return Err(Refusal::unsupported("the device has no on-demand paging"));
        }
        let flags = AccessFlags::from_bits_retain(flags);
        let known = AccessFlags::all() | AccessFlags::WINDOW_BIND;
        match flags.difference(known).is_empty() {
            true => Ok(flags),
            false => Err(Refusal::invalid(format!(
                "invalid access flags {:#x}",
                self.access
            ))),
        }
    }

    /// Whether it is device memory, which the program does not see.
    fn is_device_memory(&self) -> bool {
        self.shown.is_null() && !self.addr.is_null()
    }

    fn register(&self, pd: *mut ibv_pd) -> Result<SoftMr, Refusal> {
        let iova = match self.access & IBV_ACCESS_ZERO_BASED {
            0 => self.iova,
            _ => 0,
        };
        let access = self.rights()?;
        // SAFETY: the program passes a protection domain that it has allocated.
        let (pd, context) = unsafe { (Pd::of(pd), Context::of((*pd).context)) };
        if self.length == 0 && self.is_device_memory() {
            return Ok(pd.soft.register_empty(access)?);
        }
        let length = Bytes::new(self.length as u64);
        // SAFETY: the program asks that peers and this device access this memory while it is registered.
        Ok(unsafe {
            context
                .soft
                .register_iova(&pd.soft, (self.addr.cast(), iova), length, access)
        }?)
    }

    fn create(&self, pd: *mut ibv_pd) -> Result<*mut ibv_mr, Refusal> {
        self.create_in(pd, None)
    }

    /// The same for a part of device memory, which the region keeps alive.
    pub(crate) fn create_in(
        &self,
        pd: *mut ibv_pd,
        device_memory: Option<Arc<Allocation>>,
    ) -> Result<*mut ibv_mr, Refusal> {
        let soft = self.register(pd)?;
        let c = ibv_mr {
            // SAFETY: the program passes a protection domain that it has allocated.
            context: unsafe { (*pd).context },
            pd,
            addr: self.shown,
            length: self.length,
            handle: soft.lkey().0,
            lkey: soft.lkey().0,
            rkey: soft.rkey().0,
        };
        // SAFETY: as above.
        unsafe { Pd::of(pd) }.users.add();
        activity::registered(self.length);
        let own = Mr {
            registered: Registered::Memory(Mutex::new((soft, *self))),
            _device_memory: device_memory,
        };
        Ok(Object::create(c, own))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    forward!(pd => ibv_reg_mr(pd, addr, length, access));
    let memory = Memory::new((addr, length), addr.addr() as u64, access as u32);
    call::pointer("ibv_reg_mr", || memory.create(pd))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    forward!(pd => ibv_reg_mr_iova(pd, addr, length, iova, access));
    let memory = Memory::new((addr, length), iova, access as u32);
    call::pointer("ibv_reg_mr_iova", || memory.create(pd))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    forward!(pd => ibv_reg_mr_iova2(pd, addr, length, iova, access));
    let memory = Memory::new((addr, length), iova, access);
    call::pointer("ibv_reg_mr_iova2", || memory.create(pd))
}

/// `ibv_alloc_null_mr` of the table.
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    call::pointer("ibv_alloc_null_mr", || {
        // SAFETY: the program passes a protection domain that it has allocated.
        let (own, context) = unsafe { (Pd::of(pd), (*pd).context) };
        let soft = own.soft.alloc_null_mr()?;
        let c = ibv_mr {
            context,
            pd,
            addr: std::ptr::null_mut(),
            length: usize::MAX,
            handle: soft.lkey().0,
            lkey: soft.lkey().0,
            rkey: 0,
        };
        own.users.add();
        let own = Mr {
            registered: Registered::Null(soft),
            _device_memory: None,
        };
        Ok(Object::create(c, own))
    })
}

/// Checks that no memory windows are bound to a region.
fn check_free(region: &SoftMr) -> Result<(), Refusal> {
    match region.has_windows() {
        false => Ok(()),
        true => Err(Refusal::new(
            libc::EBUSY,
            "memory windows are bound to the region: invalidate or deallocate them first",
        )),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    forward!(mr => ibv_dereg_mr(mr));
    call::status("ibv_dereg_mr", || {
        // SAFETY: the program passes a region that it has registered.
        if let Registered::Memory(registered) = unsafe { &MrObject::of(mr).own.registered } {
            let registered = lock(registered);
            check_free(&registered.0)?;
            activity::deregistered(registered.1.length);
        }
        // SAFETY: the program deregisters a region once; the domain outlives its regions.
        unsafe {
            let pd = (*mr).pd;
            MrObject::destroy(mr);
            Pd::of(pd).users.remove();
        }
        Ok(())
    })
}

/// `enum ibv_rereg_mr_flags`.
const CHANGE_TRANSLATION: c_int = 1;
const CHANGE_PD: c_int = 2;
const CHANGE_ACCESS: c_int = 4;
/// `enum ibv_rereg_mr_err_code`: the arguments are invalid, and the device refused; the region is as before.
const ERR_INPUT: c_int = -1;
const ERR_CMD: c_int = -4;

/// The arguments of `ibv_rereg_mr`.
struct Change {
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
}

impl Change {
    fn check(&self) -> Result<(), Refusal> {
        let flags = self.flags;
        if flags == 0 || flags & !(CHANGE_TRANSLATION | CHANGE_PD | CHANGE_ACCESS) != 0 {
            return Err(Refusal::invalid(format!("invalid flags {flags:#x}")));
        }
        if flags & CHANGE_TRANSLATION != 0 && (self.addr.is_null() || self.length == 0) {
            return Err(Refusal::invalid(
                "a new translation needs an address and a length",
            ));
        }
        if flags & CHANGE_PD != 0 && self.pd.is_null() {
            return Err(Refusal::invalid("the new protection domain is NULL"));
        }
        Ok(())
    }

    /// Changes the registration; with a new translation it gets other keys.
    ///
    /// # Safety
    /// The region and the protection domain exist.
    unsafe fn apply(&self, mr: *mut ibv_mr) -> Result<(), Refusal> {
        // SAFETY: the caller's.
        let own = unsafe { &MrObject::of(mr).own };
        let Registered::Memory(registered) = &own.registered else {
            return Err(Refusal::invalid("null regions cannot be registered again"));
        };
        let mut registered = lock(registered);
        check_free(&registered.0)?;
        let mut memory = registered.1;
        if self.flags & CHANGE_ACCESS != 0 {
            memory.access = self.access as u32;
        }
        // SAFETY: the caller's.
        let old = unsafe { (*mr).pd };
        let moves = self.flags & CHANGE_PD != 0;
        let pd = if moves { self.pd } else { old };
        if self.flags & CHANGE_TRANSLATION != 0 {
            let before = memory.length;
            memory.addr = self.addr;
            memory.shown = self.addr;
            memory.length = self.length;
            memory.iova = self.addr.addr() as u64;
            *registered = (memory.register(pd)?, memory);
            activity::deregistered(before);
            activity::registered(self.length);
        } else {
            let access = (self.flags & CHANGE_ACCESS != 0)
                .then(|| memory.rights())
                .transpose()?;
            // SAFETY: the caller's.
            let to = moves.then(|| unsafe { &Pd::of(pd).soft });
            registered.0.change(to, access)?;
            registered.1 = memory;
        }
        let (soft, memory) = &*registered;
        // SAFETY: the caller's; a domain outlives its regions.
        unsafe {
            Pd::of(pd).users.add();
            Pd::of(old).users.remove();
            (*mr).pd = pd;
            (*mr).addr = memory.shown;
            (*mr).length = memory.length;
            (*mr).handle = soft.lkey().0;
            (*mr).lkey = soft.lkey().0;
            (*mr).rkey = soft.rkey().0;
        }
        Ok(())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    forward!(mr => ibv_rereg_mr(mr, flags, pd, addr, length, access));
    let change = Change {
        flags,
        pd,
        addr,
        length,
        access,
    };
    if call::status("ibv_rereg_mr", || change.check()) != 0 {
        return ERR_INPUT;
    }
    // SAFETY: the program passes a region, and a protection domain if it is to change.
    match call::status("ibv_rereg_mr", || unsafe { change.apply(mr) }) {
        0 => 0,
        _ => ERR_CMD,
    }
}

/// `ibv_advise_mr` of the table. Registered pages were present when they were registered; advice brings back those that
/// the kernel has taken out of memory since.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: u32,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    call::status("ibv_advise_mr", || {
        let need = match advice {
            abi::IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => AccessFlags::LOCAL_WRITE,
            abi::IBV_ADVISE_MR_ADVICE_PREFETCH | abi::IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => {
                AccessFlags::empty()
            }
            other => return Err(Refusal::unsupported(format!("unknown advice {other}"))),
        };
        if flags & !abi::IBV_ADVISE_MR_FLAG_FLUSH != 0 {
            return Err(Refusal::invalid(format!("invalid flags {flags:#x}")));
        }
        // SAFETY: the program passes a domain that it has allocated, and a list of `count` elements.
        let (pd, sges) = unsafe { (Pd::of(pd), sges(list, count as c_int)?) };
        for sge in sges {
            // Without page faults there is nothing to bring back.
            let done = match advice {
                abi::IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => {
                    pd.soft.check_sge(sge, need).map_err(Into::into)
                }
                _ => pd.soft.prefetch(sge, need),
            };
            done.map_err(|error| refused_advice(&error))?;
        }
        Ok(())
    })
}

/// Returns the refusal of advice, with the errno of ibv_advise_mr(3).
fn refused_advice(error: &PrefetchError) -> Refusal {
    let errno = match error {
        PrefetchError::Sge(SgeError::Domain { .. } | SgeError::Access { .. }) => libc::EPERM,
        _ => libc::EFAULT,
    };
    Refusal::new(errno, error.to_string())
}
