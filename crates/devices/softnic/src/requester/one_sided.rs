//! RDMA WRITE and READ.

use std::sync::atomic::Ordering;

use adverb_verbs::{AccessFlags, RemoteAddress, SendFlags, Sge, WcStatus};

use super::{Attempt, Connection, Source};
use crate::memory::local_address;
use crate::owner_requests;
use crate::shm::copy::{last_piece, place};
use crate::shm::peer::{FarPlace, NoAccess, Reached};
use crate::shm::process::{CopyFailure, Direction, Pieces};
use crate::shm::ring::{Arrival, Extra};

impl Connection {
    #[inline]
    pub(super) fn write(&mut self, mut source: Source<'_>, to: RemoteAddress) -> Attempt {
        let length = source.left;
        if length == 0 {
            return Attempt::Done(WcStatus::Success);
        }
        match self.target(to, length, AccessFlags::REMOTE_WRITE) {
            Ok(target) => {
                let copied = self.put(&mut source, target, length);
                self.ended(copied)
            }
            Err(NoAccess::Refused) => Attempt::Done(self.refuse(WcStatus::RemAccessErr)),
            Err(NoAccess::NoResources) => Attempt::Done(WcStatus::LocQpOpErr),
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
        let written = self.write(source, to);
        if written == Attempt::Done(WcStatus::Success) {
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
                    extra: Extra::Imm(imm),
                    is_write: true,
                },
                flags,
            );
        }
        written
    }

    pub(super) fn read(&mut self, into: &[Sge<'_>], from: RemoteAddress) -> Attempt {
        let length = into.iter().map(|sge| u64::from(sge.length())).sum();
        if self.max_rd_atomic == 0 {
            return Attempt::Done(WcStatus::LocQpOpErr);
        }
        if length == 0 {
            return Attempt::Done(WcStatus::Success);
        }
        if !self.responder_has_resources() {
            return Attempt::Done(self.fail_responder(WcStatus::RemInvReqErr));
        }
        match self.target(from, length, AccessFlags::REMOTE_READ) {
            Err(NoAccess::Refused) => Attempt::Done(self.fail_responder(WcStatus::RemAccessErr)),
            Err(NoAccess::NoResources) => Attempt::Done(WcStatus::LocQpOpErr),
            Ok(Reached::Here(source)) => {
                self.get(into, source);
                Attempt::Done(WcStatus::Success)
            }
            Ok(Reached::Far(place)) => {
                let mut pieces = Pieces::new();
                for sge in into.iter().filter(|sge| sge.length() != 0) {
                    let start = local_address(&self.own.port, sge);
                    pieces.push(start, sge.length() as usize);
                }
                let copied = self.exchange(Direction::FromOwner, &mut pieces, place);
                self.ended(copied)
            }
        }
    }

    /// Copies bytes at `source`, which `target` checked, to SGEs, which `Source::check` checked.
    #[inline]
    fn get(&self, into: &[Sge<'_>], mut source: *mut u8) {
        for sge in into {
            let target = local_address(&self.own.port, sge);
            // SAFETY: both sides were checked; key, range and rights.
            unsafe {
                place(target, source, sge.length() as usize);
                source = source.add(sge.length() as usize);
            }
        }
    }

    /// Copies `length` bytes of payload to a checked place.
    #[inline]
    pub(super) fn put(
        &self,
        source: &mut Source<'_>,
        target: Reached,
        length: u64,
    ) -> Result<(), CopyFailure> {
        match target {
            Reached::Here(target) => {
                source.copy_to(&self.own.port, target, length);
                Ok(())
            }
            Reached::Far(place) => {
                let mut pieces = source.gather(&self.own.port, length);
                pieces.split_last(last_piece(place.addr as usize, length as usize));
                self.exchange(Direction::ToOwner, &mut pieces, place)
            }
        }
    }

    /// Copies all pieces to or from the memory of the peer's program.
    #[inline(never)] // keeps the copies within shared memory small
    fn exchange(
        &self,
        direction: Direction,
        pieces: &mut Pieces,
        mut place: FarPlace,
    ) -> Result<(), CopyFailure> {
        match self.peer.copy(direction, pieces, place) {
            Err(CopyFailure::Refused) => {
                place.addr += pieces.copied;
                owner_requests::copy(&self.own.port, &self.peer, direction, (pieces, place))
            }
            copied => copied,
        }
    }

    /// Returns the outcome of a request after its copy.
    #[inline]
    pub(super) fn ended(&mut self, copied: Result<(), CopyFailure>) -> Attempt {
        match copied {
            Ok(()) => Attempt::Done(WcStatus::Success),
            Err(failure) => self.copy_failed(failure),
        }
    }

    #[cold]
    fn copy_failed(&mut self, failure: CopyFailure) -> Attempt {
        Attempt::Done(match failure {
            CopyFailure::Local => WcStatus::LocProtErr,
            CopyFailure::Remote | CopyFailure::Refused => self.refuse(WcStatus::RemAccessErr),
            CopyFailure::TimedOut => WcStatus::RetryExcErr,
            CopyFailure::NoResources => WcStatus::LocQpOpErr,
            CopyFailure::Gone => return Attempt::Unreachable,
        })
    }

    /// Returns the place of `length` bytes of the peer's memory, if its queue pair and region allow `need`.
    #[inline]
    pub(super) fn target(
        &mut self,
        at: RemoteAddress,
        length: u64,
        need: AccessFlags,
    ) -> Result<Reached, NoAccess> {
        // Read each time, because the peer may change it in RTS. It is on the phase's cache line, so this is cheap.
        let access = self.remote().access.load(Ordering::Relaxed);
        if !AccessFlags::from_bits_retain(access).contains(need) {
            return Err(NoAccess::Refused);
        }
        if self.peer.mr_entry(at.rkey.0).is_window() {
            return self.through_window(at, length, need);
        }
        let pd = self.attached().pd;
        self.cache
            .find(&self.peer, at.rkey.0, pd, need, (at.addr, length))
    }

    #[inline(never)] // keeps the access to regions small
    fn through_window(
        &mut self,
        at: RemoteAddress,
        length: u64,
        need: AccessFlags,
    ) -> Result<Reached, NoAccess> {
        let pd = self.attached().pd;
        let entry = self.peer.mr_entry(at.rkey.0);
        let remote = (self.remote_qpn, pd);
        let (region, addr) = entry
            .through_window(at.rkey.0, remote, need, (at.addr, length))
            .ok_or(NoAccess::Refused)?;
        // The window alone determines the rights.
        let need = AccessFlags::empty();
        self.cache
            .find(&self.peer, region, pd, need, (addr, length))
    }
}
