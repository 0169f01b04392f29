//! Rules for sizes, requests and attributes that depend only on a queue pair's type and sizes.
//!
//! Devices use them to decide; the libibverbs device also uses them to explain an `EINVAL`. Rules that
//! depend on the state of queues or on memory are in the device.
//! Source: IBTA volume 1, 9.8 and 9.9 (operations of each service), 10.8.2 and 11.4.1 (posting).

use adverb_units::Bytes;

use crate::caps::{DeviceCaps, QpCaps};
use crate::completion::WcOpcode;
use crate::error::{CreateError, ModifyQpError, PostErrorCause};
use crate::qp::{QpAttr, QpType};
use crate::work::{Operation, RecvRequest, SendFlags, SendRequest};

impl QpType {
    /// Whether queue pairs of this type carry `operation`: unreliable ones do not carry READ, atomics and SEND with
    /// invalidate, and UD only carries SEND.
    #[inline]
    pub const fn carries(self, operation: &Operation) -> bool {
        match self {
            QpType::Rc | QpType::Dci | QpType::XrcSend => true,
            QpType::Uc => {
                let is_unreliable = !matches!(operation, Operation::SendWithInvalidate(_));
                is_unreliable && !operation.writes_local_memory()
            }
            QpType::Ud => matches!(operation, Operation::Send | Operation::SendWithImm(_)),
            QpType::Dct | QpType::XrcRecv => false,
        }
    }
}

impl Operation {
    /// Bytes of an atomic operation. The address must be a multiple.
    pub const ATOMIC_SIZE: u64 = 8;

    /// Returns the opcode of the completion at the requester.
    #[inline]
    pub const fn completion_opcode(&self) -> WcOpcode {
        match self {
            Operation::Send | Operation::SendWithImm(_) | Operation::SendWithInvalidate(_) => {
                WcOpcode::Send
            }
            Operation::BindWindow(_) => WcOpcode::BindWindow,
            Operation::LocalInvalidate(_) => WcOpcode::LocalInvalidate,
            Operation::RdmaWrite(_) | Operation::RdmaWriteWithImm(..) => WcOpcode::RdmaWrite,
            Operation::RdmaRead(_) => WcOpcode::RdmaRead,
            Operation::FetchAdd(..) => WcOpcode::FetchAdd,
            Operation::CompareSwap(..) => WcOpcode::CompareSwap,
        }
    }

    /// Returns the name in errors, the same for operations that the same queue pairs carry.
    const fn name(&self) -> &'static str {
        match self {
            Operation::Send | Operation::SendWithImm(_) => "SEND",
            Operation::RdmaWrite(_) | Operation::RdmaWriteWithImm(..) => "RDMA WRITE",
            Operation::RdmaRead(_) => "RDMA READ",
            Operation::FetchAdd(..) | Operation::CompareSwap(..) => "atomic operations",
            Operation::SendWithInvalidate(_) => "SEND with invalidate",
            Operation::BindWindow(_) => "binds of memory windows",
            Operation::LocalInvalidate(_) => "local invalidates",
        }
    }
}

impl SendRequest<'_> {
    /// Checks the kind of request: that queue pairs of type `qp_type` carry the operation, with or without
    /// destination and inline.
    ///
    /// # Errors
    /// [`PostErrorCause::Destination`], [`PostErrorCause::Operation`], [`PostErrorCause::InlineRead`].
    #[inline]
    pub fn check_kind(&self, qp_type: QpType) -> Result<(), PostErrorCause> {
        if self.to.is_some() != qp_type.is_addressed() {
            return Err(PostErrorCause::Destination);
        }
        if !qp_type.carries(&self.operation) {
            let operation = self.operation.name();
            return Err(PostErrorCause::Operation { qp_type, operation });
        }
        if self.flags.contains(SendFlags::INLINE) && self.operation.writes_local_memory() {
            return Err(PostErrorCause::InlineRead);
        }
        Ok(())
    }

    /// Checks the request's sizes against the queue pair's. `max_message` is the longest message of
    /// the queue pair: one packet on UD.
    ///
    /// # Errors
    /// [`PostErrorCause::TooManySges`], [`PostErrorCause::InlineTooLong`],
    /// [`PostErrorCause::MessageTooLong`].
    #[inline]
    pub fn check_sizes(&self, caps: &QpCaps, max_message: Bytes) -> Result<(), PostErrorCause> {
        check_sges(self.sges.len(), caps.max_send_sge)?;
        let given = Bytes::new(self.length());
        let max_inline = Bytes::new(caps.max_inline_data.into());
        if self.flags.contains(SendFlags::INLINE) && given > max_inline {
            let max = max_inline;
            return Err(PostErrorCause::InlineTooLong { given, max });
        }
        if given > max_message {
            let max = max_message;
            return Err(PostErrorCause::MessageTooLong { given, max });
        }
        Ok(())
    }
}

impl RecvRequest<'_> {
    /// Checks the number of SGEs against the queue's maximum.
    ///
    /// # Errors
    /// [`PostErrorCause::TooManySges`].
    #[inline]
    pub const fn check(&self, max_sge: u32) -> Result<(), PostErrorCause> {
        check_sges(self.sges.len(), max_sge)
    }
}

#[inline]
const fn check_sges(given: usize, max: u32) -> Result<(), PostErrorCause> {
    if given > max as usize {
        return Err(PostErrorCause::TooManySges { given, max });
    }
    Ok(())
}

impl QpCaps {
    /// Checks the sizes against a device's limits.
    ///
    /// # Errors
    /// [`CreateError::OutOfRange`]: the first size that is larger than the limit.
    pub fn check(&self, limits: &DeviceCaps) -> Result<(), CreateError> {
        let sizes = [
            ("max_send_wr", self.max_send_wr, limits.max_qp_wr),
            ("max_recv_wr", self.max_recv_wr, limits.max_qp_wr),
            ("max_send_sge", self.max_send_sge, limits.max_sge),
            ("max_recv_sge", self.max_recv_sge, limits.max_sge),
            (
                "max_inline_data",
                self.max_inline_data,
                limits.max_inline_data,
            ),
        ];
        match sizes.into_iter().find(|(_, asked, max)| asked > max) {
            None => Ok(()),
            Some((what, value, max)) => Err(CreateError::OutOfRange {
                what,
                value: value.into(),
                min: 0,
                max: max.into(),
            }),
        }
    }
}

/// Limits of a device for the attributes of Modify QP.
#[derive(Clone, Copy, Debug)]
pub struct AttrLimits {
    /// Number of ports.
    pub ports: u8,
    /// Outstanding READs and atomics as the requester.
    pub max_rd_atomic: u8,
    /// Outstanding READs and atomics as the responder.
    pub max_dest_rd_atomic: u8,
}

impl AttrLimits {
    /// Checks the values in `attr`.
    ///
    /// # Errors
    /// [`ModifyQpError::AttributeRange`]: the first that is too large, or port 0.
    pub fn check(&self, attr: &QpAttr) -> Result<(), ModifyQpError> {
        let port = attr.port.or(attr.address.map(|address| address.port));
        let values = [
            ("port", port.map(|port| port.0), 1, self.ports),
            ("max_rd_atomic", attr.max_rd_atomic, 0, self.max_rd_atomic),
            (
                "max_dest_rd_atomic",
                attr.max_dest_rd_atomic,
                0,
                self.max_dest_rd_atomic,
            ),
        ];
        for (attribute, value, min, max) in values {
            if let Some(value) = value.filter(|value| !(min..=max).contains(value)) {
                return Err(ModifyQpError::AttributeRange {
                    attribute,
                    value: value.into(),
                    min: min.into(),
                    max: max.into(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Imm, Lkey, PortNum, Rkey, WrId};
    use crate::work::{AhRef, Comparison, Destination, RemoteAddress, Sge, WindowBinding};
    use crate::{AccessFlags, Qpn};

    const AT: RemoteAddress = RemoteAddress {
        addr: 0,
        rkey: Rkey(0),
    };
    const OPERATIONS: [Operation; 10] = [
        Operation::Send,
        Operation::SendWithImm(Imm(0)),
        Operation::RdmaWrite(AT),
        Operation::RdmaWriteWithImm(AT, Imm(0)),
        Operation::RdmaRead(AT),
        Operation::FetchAdd(AT, 0),
        Operation::CompareSwap(
            AT,
            Comparison {
                expected: 0,
                new: 0,
            },
        ),
        Operation::SendWithInvalidate(Rkey(0)),
        Operation::LocalInvalidate(Rkey(0)),
        Operation::BindWindow(WindowBinding {
            window: Rkey(0),
            rkey: Rkey(0),
            region: Lkey(0),
            addr: 0,
            length: 0,
            access: AccessFlags::empty(),
        }),
    ];

    fn request<'a>(operation: Operation, sges: &'a [Sge<'a>]) -> SendRequest<'a> {
        SendRequest::new(WrId(0), operation, sges)
    }

    #[test]
    fn each_service_carries_its_operations() {
        let carried = |qp_type: QpType| {
            let carries = OPERATIONS.iter().filter(|o| qp_type.carries(o));
            carries.count()
        };
        let types = [QpType::Rc, QpType::Dci, QpType::Uc, QpType::Ud, QpType::Dct];
        assert_eq!(types.map(carried), [10, 10, 6, 2, 0]);
        assert_eq!([QpType::XrcSend, QpType::XrcRecv].map(carried), [10, 0]);
        let refused = request(OPERATIONS[4], &[]).check_kind(QpType::Uc);
        assert_eq!(
            refused.unwrap_err().to_string(),
            "UC queue pairs do not carry RDMA READ; use an RC queue pair"
        );
    }

    #[test]
    #[allow(unsafe_code)]
    fn requests_have_a_destination_where_they_need_one() {
        // SAFETY: it is never posted.
        let ah = unsafe { AhRef::from_raw(0) };
        let (qpn, qkey) = (Qpn::default(), 0);
        let plain = request(Operation::Send, &[]);
        let addressed = plain.to(Destination { ah, qpn, qkey });
        for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
            let is_ud = qp_type == QpType::Ud;
            assert_eq!(plain.check_kind(qp_type).is_ok(), !is_ud);
            assert_eq!(addressed.check_kind(qp_type).is_ok(), is_ud);
        }
    }

    #[test]
    fn operations_that_write_local_memory_cannot_be_inline() {
        for operation in OPERATIONS {
            let inline = request(operation, &[]).with_flags(SendFlags::INLINE);
            let is_refused = inline.check_kind(QpType::Rc) == Err(PostErrorCause::InlineRead);
            assert_eq!(is_refused, operation.writes_local_memory());
        }
    }

    #[test]
    #[allow(unsafe_code)]
    fn sizes_are_taken_up_to_their_limits() {
        let caps = QpCaps {
            max_send_sge: 2,
            max_inline_data: 64,
            ..QpCaps::default()
        };
        let check = |lengths: &[u32], flags| {
            // SAFETY: it is never posted.
            let piece = |length: &u32| unsafe { Sge::from_raw(0, *length, Lkey(0)) };
            let sges: Vec<_> = lengths.iter().map(piece).collect();
            let request = request(Operation::Send, &sges).with_flags(flags);
            let checked = request.check_sizes(&caps, Bytes::new(100));
            checked.map_or_else(|e| e.to_string(), |()| "taken".into())
        };
        let (plain, inline) = (SendFlags::empty(), SendFlags::INLINE);
        assert_eq!(check(&[50, 50], plain), "taken");
        assert_eq!(check(&[64], inline), "taken");
        let too_many = "3 SGEs exceed the queue's maximum of 2";
        assert_eq!(check(&[1; 3], plain), too_many);
        let too_much = "65 B of inline data exceed max_inline_data 64 B";
        assert_eq!(check(&[65], inline), too_much);
        let too_long = "message of 101 B exceeds the maximum of 100 B";
        assert_eq!(check(&[100, 1], plain), too_long);
    }

    #[test]
    fn attributes_are_taken_up_to_their_limits() {
        let limits = AttrLimits {
            ports: 2,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 8,
        };
        let check = |port, own, dest| {
            let attr = QpAttr {
                max_rd_atomic: Some(own),
                max_dest_rd_atomic: Some(dest),
                ..QpAttr::to_init(PortNum(port), AccessFlags::empty())
            };
            let checked = limits.check(&attr);
            checked.map_or_else(|e| e.to_string(), |()| "taken".into())
        };
        assert_eq!(check(2, 16, 8), "taken");
        assert_eq!(check(0, 0, 0), "port 0 is outside its range 1..=2");
        assert_eq!(check(3, 0, 0), "port 3 is outside its range 1..=2");
        let (own, dest) = (check(1, 17, 8), check(1, 16, 9));
        assert_eq!(own, "max_rd_atomic 17 is outside its range 0..=16");
        assert_eq!(dest, "max_dest_rd_atomic 9 is outside its range 0..=8");
    }
}
