//! Extended queries of the device: `ibv_query_device_ex`, `ibv_query_rt_values_ex`.

use std::ffi::c_int;

use adverb_abi::{
    IBV_VALUES_MASK_RAW_CLOCK, ibv_context, ibv_device_attr, ibv_device_attr_ex,
    ibv_query_device_ex_input, ibv_values_ex,
};

use crate::call::{self, Refusal};
use crate::context::Context;
use crate::convert::check_mask;
use crate::cq_ex::nanoseconds;
use crate::dm;
use crate::port::copy_out;

/// Frequency of the completion timestamps in kHz: they are nanoseconds.
const CLOCK_KHZ: u64 = 1_000_000;

impl Context {
    fn extended_attributes(&self) -> ibv_device_attr_ex {
        ibv_device_attr_ex {
            orig_attr: self.attributes(),
            completion_timestamp_mask: u64::MAX,
            hca_core_clock: CLOCK_KHZ,
            phys_port_cnt_ex: 1,
            max_dm_size: dm::MAX as u64,
            ..ibv_device_attr_ex::zeroed()
        }
    }
}

/// `ibv_query_device_ex` of the table. Features that the device does not have are 0.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    call::status("ibv_query_device_ex", || {
        // SAFETY: the program passes `NULL` or an input.
        if !input.is_null() && unsafe { (*input).comp_mask } != 0 {
            return Err(Refusal::invalid("comp_mask of the input is not 0"));
        }
        let least = size_of::<ibv_device_attr>();
        if size < least {
            let reason = format!("the attributes have {size} B: expected at least {least} B");
            return Err(Refusal::invalid(reason));
        }
        // SAFETY: the program passes an open context and attributes of `size` bytes.
        unsafe {
            copy_out(
                &Context::of(context).extended_attributes(),
                attr.cast(),
                size,
            );
        }
        Ok(())
    })
}

/// `ibv_query_rt_values_ex` of the table. The raw clock has the unit and the origin of completion timestamps:
/// nanoseconds, as one number.
pub(crate) unsafe extern "C" fn query_rt_values(
    _: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    call::status("ibv_query_rt_values_ex", || {
        // SAFETY: the program passes the address of the values.
        let values = unsafe { &mut *values };
        check_mask(values.comp_mask, IBV_VALUES_MASK_RAW_CLOCK)?;
        if values.comp_mask != 0 {
            values.raw_clock.tv_sec = 0;
            values.raw_clock.tv_nsec = nanoseconds(libc::CLOCK_MONOTONIC) as i64;
        }
        Ok(())
    })
}
