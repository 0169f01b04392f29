//! Parameters of a connection, as the program passes them.

use std::ffi::c_void;

use adverb_abi::{rdma_cm_id, rdma_conn_param};
use adverb_verbs::Qpn;
use adverb_wire::cm::IpCmHeader;

use crate::call::Refusal;

/// `RDMA_MAX_RESP_RES` and `RDMA_MAX_INIT_DEPTH`: the most that the device and the peer allow.
const MAX_DEPTH: u8 = 0xff;

/// The program's parameters of a connection.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) private_data: Vec<u8>,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) has_flow_control: bool,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) has_srq: bool,
    pub(super) qpn: Qpn,
}

impl Wanted {
    /// Reads the parameters, with at most `most` bytes of private data. Without parameters `defaults` are taken: what
    /// this side serves and has outstanding at a time.
    ///
    /// # Safety
    /// `param` is NULL or points to parameters with valid private data; `id` is alive.
    pub(super) unsafe fn read(
        id: *mut rdma_cm_id,
        param: *const rdma_conn_param,
        (most, limit, defaults): (usize, u8, (u8, u8)),
    ) -> Result<Self, Refusal> {
        // SAFETY: the caller's.
        unsafe {
            let own = (*id).qp.as_ref();
            let param = param.as_ref();
            let private_data = match param {
                Some(param) if !param.private_data.is_null() => {
                    private(param.private_data, param.private_data_len, most)?
                }
                _ => Vec::new(),
            };
            let depth = |wanted: Option<u8>, default: u8, what: &str| match wanted {
                None | Some(MAX_DEPTH) => Ok(default.min(limit)),
                Some(wanted) if wanted <= limit => Ok(wanted),
                Some(wanted) => Err(Refusal::invalid(format!(
                    "{what} {wanted} exceeds the device's maximum of {limit}"
                ))),
            };
            let qpn = own.map(|qp| qp.qp_num).or(param.map(|param| param.qp_num));
            Ok(Wanted {
                private_data,
                responder_resources: depth(
                    param.map(|p| p.responder_resources),
                    defaults.0,
                    "responder_resources",
                )?,
                initiator_depth: depth(
                    param.map(|p| p.initiator_depth),
                    defaults.1,
                    "initiator_depth",
                )?,
                has_flow_control: param.is_some_and(|p| p.flow_control != 0),
                retry_count: param.map_or(7, |p| p.retry_count.min(7)),
                rnr_retry_count: param.map_or(7, |p| p.rnr_retry_count.min(7)),
                has_srq: match own {
                    Some(qp) => !qp.srq.is_null(),
                    None => param.is_some_and(|p| p.srq != 0),
                },
                qpn: Qpn::new(qpn.unwrap_or(0) & 0xff_ffff).expect("24 bits"),
            })
        }
    }
}

/// Reads private data.
///
/// # Safety
/// `data` has `length` bytes.
pub(super) unsafe fn private(
    data: *const c_void,
    length: u8,
    most: usize,
) -> Result<Vec<u8>, Refusal> {
    let length = usize::from(length);
    if length > most {
        return Err(Refusal::invalid(format!(
            "{length} B of private data exceed the maximum of {most} B"
        )));
    }
    Ok(match length {
        0 => Vec::new(),
        // SAFETY: the caller's.
        _ => unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) }.to_vec(),
    })
}

/// Returns private data behind the header of the IP CM service.
pub(super) fn with_header<const N: usize>(header: &IpCmHeader, data: &[u8]) -> [u8; N] {
    padded(&[&header.to_bytes()[..], data].concat())
}

/// Returns data, followed by zeros.
pub(super) fn padded<const N: usize>(data: &[u8]) -> [u8; N] {
    std::array::from_fn(|index| data.get(index).copied().unwrap_or(0))
}
