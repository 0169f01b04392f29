//! RDMA WRITE and READ.

use std::sync::atomic::Ordering;

use adverb_verbs::{AccessFlags, RemoteAddress, SendFlags, Sge, WcStatus};

use super::{Attempt, Connection, Source};
use crate::memory::local_address;
use crate::shm::copy::place;
use crate::shm::ring::Arrival;

impl Connection {
    #[inline]
    pub(super) fn write(&mut self, mut source: Source<'_>, to: RemoteAddress) -> WcStatus {
        if source.left == 0 {
            return WcStatus::Success;
        }
        match self.target(to, source.left, AccessFlags::REMOTE_WRITE) {
            Some(target) => {
                source.copy_to(&self.own.port, target, source.left);
                WcStatus::Success
            }
            None => self.refuse(WcStatus::RemAccessErr),
        }
    }

    pub(super) fn write_with_imm(
        &mut self,
        source: Source<'_>,
        to: RemoteAddress,
        imm: u32,
        flags: SendFlags,
    ) -> Attempt {
        let length = source.left;
        if !self.attached().has_receive() {
            return Attempt::ReceiverNotReady;
        }
        let status = self.write(source, to);
        if status.is_success() {
            // Another requester may have taken it from a shared queue; then the payload is written again at the
            // next attempt.
            if !self.attached().take_receive() {
                return Attempt::ReceiverNotReady;
            }
            let byte_len = length as u32;
            self.arrive(
                Arrival {
                    byte_len,
                    status: 0,
                    imm: Some(imm),
                    is_write: true,
                },
                flags,
            );
        }
        Attempt::Done(status)
    }

    pub(super) fn read(&mut self, into: &[Sge<'_>], from: RemoteAddress) -> WcStatus {
        let length = into.iter().map(|sge| u64::from(sge.length())).sum();
        if self.max_rd_atomic == 0 {
            return WcStatus::LocQpOpErr;
        }
        if length == 0 {
            return WcStatus::Success;
        }
        if !self.responder_has_resources() {
            return self.fail_responder(WcStatus::RemInvReqErr);
        }
        let Some(mut source) = self.target(from, length, AccessFlags::REMOTE_READ) else {
            return self.fail_responder(WcStatus::RemAccessErr);
        };
        for sge in into {
            let target = local_address(&self.own.port, sge);
            // SAFETY: `Source::check` checked key and range of the destination, and `target` checked the peer's memory.
            unsafe {
                place(target, source, sge.length() as usize);
                source = source.add(sge.length() as usize);
            }
        }
        WcStatus::Success
    }

    /// Returns the address of `length` bytes of the peer's memory, if its queue pair and region allow `need`.
    #[inline]
    pub(super) fn target(
        &mut self,
        at: RemoteAddress,
        length: u64,
        need: AccessFlags,
    ) -> Option<*mut u8> {
        // Read each time, because the peer may change it in RTS. It is on the phase's cache line, so this is cheap.
        let access = self.remote().access.load(Ordering::Relaxed);
        if !AccessFlags::from_bits_retain(access).contains(need) {
            return None;
        }
        let pd = self.attached().pd;
        self.cache
            .find(&self.peer, at.rkey.0, pd, need, (at.addr, length))
    }
}
