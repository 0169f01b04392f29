//! Device memory: `ibv_alloc_dm`, `ibv_reg_dm_mr`. A device in software has no other memory than the host's, so this is
//! memory of the process, which programs reach by the functions of `ibv_dm` and by requests.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use adverb_abi::{IBV_ACCESS_ZERO_BASED, ibv_alloc_dm_attr, ibv_context, ibv_dm, ibv_mr, ibv_pd};

use crate::call::{self, Refusal};
use crate::convert::check_mask;
use crate::mr::Memory;
use crate::object::Object;

/// Most bytes of an allocation.
pub(crate) const MAX: usize = 1 << 20;
/// Smallest alignment of copies.
const WORD: usize = 4;
/// Alignment of allocations, unless the program asks for a larger one.
const PAGE: usize = 4096;

/// Device memory, behind its `ibv_dm`.
#[derive(Debug)]
struct Dm {
    /// Its regions have it, too.
    memory: Arc<Allocation>,
}

/// Zeroed memory that is freed when it is dropped.
#[derive(Debug)]
pub(crate) struct Allocation {
    first: *mut u8,
    layout: std::alloc::Layout,
    /// Without padding.
    length: usize,
}

impl Allocation {
    fn new(length: usize, alignment: usize) -> Result<Self, Refusal> {
        let layout = std::alloc::Layout::from_size_align(length.next_multiple_of(PAGE), alignment);
        let layout = layout.map_err(|_| {
            Refusal::invalid(format!(
                "invalid alignment of {alignment} B of device memory"
            ))
        })?;
        // SAFETY: the layout is not empty.
        let first = unsafe { std::alloc::alloc_zeroed(layout) };
        match first.is_null() {
            true => Err(Refusal::new(libc::ENOMEM, "no memory for device memory")),
            false => Ok(Allocation {
                first,
                layout,
                length,
            }),
        }
    }

    /// Returns the address of a range, whose ends are multiples of `alignment`.
    fn range(&self, offset: u64, length: usize, alignment: usize) -> Result<*mut u8, Refusal> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = offset.checked_add(length);
        if end.is_none_or(|end| end > self.length) {
            return Err(Refusal::invalid(format!(
                "{length} B at offset {offset} are outside the device memory of {} B",
                self.length
            )));
        }
        if !offset.is_multiple_of(alignment) || !length.is_multiple_of(alignment) {
            return Err(Refusal::invalid(format!(
                "offset {offset} and length {length} in device memory must be multiples of {alignment}"
            )));
        }
        Ok(self.first.wrapping_add(offset))
    }
}

// SAFETY: the memory belongs to the allocation, and is only accessed by raw pointers.
unsafe impl Send for Allocation {}
// SAFETY: as above; programs copy to it at their own risk, as to any memory that is registered.
unsafe impl Sync for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it with this layout.
        unsafe { std::alloc::dealloc(self.first, self.layout) };
    }
}

type DmObject = Object<ibv_dm, Dm>;

/// Returns the device memory behind a pointer from C.
///
/// # Safety
/// `dm` is from `ibv_alloc_dm`, and not freed within `'a`.
unsafe fn of<'a>(dm: *const ibv_dm) -> &'a Dm {
    // SAFETY: the caller's.
    &unsafe { DmObject::of(dm) }.own
}

/// `ibv_alloc_dm` of the table.
pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    call::pointer("ibv_alloc_dm", || {
        // SAFETY: the program passes attributes.
        let attr = unsafe { &*attr };
        check_mask(attr.comp_mask, 0)?;
        if attr.length == 0 || attr.length > MAX {
            let length = attr.length;
            return Err(Refusal::new(
                libc::ENOMEM,
                format!("{length} B of device memory: expected 1 to {MAX} B"),
            ));
        }
        let alignment = 1_usize
            .checked_shl(attr.log_align_req)
            .unwrap_or(usize::MAX);
        let memory = Allocation::new(attr.length, alignment.max(PAGE))?;
        let c = ibv_dm {
            context,
            memcpy_to_dm: Some(copy_to),
            memcpy_from_dm: Some(copy_from),
            ..ibv_dm::zeroed()
        };
        let memory = Arc::new(memory);
        Ok(Object::create(c, Dm { memory }))
    })
}

/// `ibv_free_dm` of the table.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    call::status("ibv_free_dm", || {
        // SAFETY: the program passes device memory that it has allocated.
        if Arc::strong_count(&unsafe { of(dm) }.memory) > 1 {
            return Err(Refusal::new(
                libc::EBUSY,
                "the device memory has regions: deregister them first",
            ));
        }
        // SAFETY: the program frees it once, and no region uses it.
        unsafe { DmObject::destroy(dm) };
        Ok(())
    })
}

unsafe extern "C" fn copy_to(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    call::status("ibv_memcpy_to_dm", || {
        // SAFETY: the program passes device memory, and `length` readable bytes.
        unsafe {
            let to = of(dm).memory.range(offset, length, WORD)?;
            std::ptr::copy(from.cast(), to, length);
        }
        Ok(())
    })
}

unsafe extern "C" fn copy_from(
    to: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    call::status("ibv_memcpy_from_dm", || {
        // SAFETY: the program passes device memory, and room for `length` bytes.
        unsafe {
            let from = of(dm).memory.range(offset, length, WORD)?;
            std::ptr::copy(from, to.cast(), length);
        }
        Ok(())
    })
}

/// `ibv_reg_dm_mr` of the table. Requests name the bytes of the region by their offset in it.
pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: u32,
) -> *mut ibv_mr {
    call::pointer("ibv_reg_dm_mr", || {
        if access & IBV_ACCESS_ZERO_BASED == 0 {
            return Err(Refusal::invalid(
                "regions of device memory need IBV_ACCESS_ZERO_BASED",
            ));
        }
        // SAFETY: the program passes device memory.
        let own = unsafe { of(dm) };
        let memory = Memory {
            addr: own.memory.range(offset, length, 1)?.cast(),
            // Programs have no pointer to device memory.
            shown: std::ptr::null_mut(),
            length,
            iova: 0,
            access,
        };
        memory.create_in(pd, Some(own.memory.clone()))
    })
}
