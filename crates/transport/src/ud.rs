//! Unreliable datagram (IBTA vol. 1, 9.8.3): messages of one packet, to any queue pair that has the
//! same queue key. A receive gets 40 bytes of routing header before the payload.

use std::collections::VecDeque;

use adverb_verbs::{PathMtu, Psn, QpState, Qpn, SendFlags, WcFlags, WcStatus};
use adverb_wire::bth::BthFlags;
use adverb_wire::{Bth, Deth, Extension, ImmDt, Opcode, Packet, PacketHeaders, Service, grh};

use crate::PacketBuffer;
use crate::completion::{Completion, Solicited};
use crate::drops::{Counters, DropReason};
use crate::memory::Memory;
use crate::receive::ReceiveQueue;
use crate::request::{PostError, ReceiveWork, SendWork, Work};
use crate::segment::mtu_bytes;
use crate::shared::Shared;

/// A queue key with this bit is a privileged one: a sender's own takes its place (IBTA vol. 1,
/// 10.2.5).
const CONTROLLED: u32 = 1 << 31;

/// What a datagram queue pair is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdConfig {
    /// This queue pair.
    pub qpn: Qpn,
    /// Its queue key.
    pub qkey: u32,
    /// The longest message: the port's MTU.
    pub mtu: PathMtu,
    /// The number of the first packet sent (`sq_psn`).
    pub first_psn: Psn,
    /// Requests that may be outstanding.
    pub max_work: usize,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdDestination<A> {
    /// The port: what the driver's address handle says.
    pub address: A,
    /// The queue pair there.
    pub qpn: Qpn,
    /// Its queue key.
    pub qkey: u32,
}

/// A datagram queue pair; `A` is how the driver names a port.
#[derive(Debug)]
pub struct UdQp<A> {
    state: QpState,
    qkey: u32,
    mtu: PathMtu,
    next: Psn,
    sends: VecDeque<(SendWork, UdDestination<A>)>,
    max_work: usize,
    receives: ReceiveQueue,
    shared: Shared,
}

impl<A: Copy> UdQp<A> {
    /// A queue pair, with the receive requests that were posted before.
    pub fn new(config: &UdConfig, receives: ReceiveQueue) -> Self {
        UdQp {
            state: QpState::Rts,
            qkey: config.qkey,
            mtu: config.mtu,
            next: config.first_psn,
            sends: VecDeque::with_capacity(config.max_work),
            max_work: config.max_work,
            receives,
            shared: Shared::new(config.qpn, config.max_work),
        }
    }

    /// Ready (`Rts`), with a send queue in error (`Sqe`), or in error (`Err`).
    pub fn state(&self) -> QpState {
        self.state
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Posts a send request. If the send queue is in error it completes at once, flushed.
    ///
    /// # Errors
    /// The queue is full, or the request is none that UD has.
    pub fn post_send(&mut self, request: SendWork, to: UdDestination<A>) -> Result<(), PostError> {
        if self.sends.len() == self.max_work {
            return Err(PostError::Full(self.max_work));
        }
        let (length, most) = (request.payload.length(), mtu_bytes(self.mtu));
        if length > most {
            return Err(PostError::TooLong { length, most });
        }
        match request.work {
            Work::Send | Work::SendWithImm(_) => {}
            other => return Err(PostError::NotOfService(other)),
        }
        self.sends.push_back((request, to));
        if self.state != QpState::Rts {
            self.flush_sends();
        }
        Ok(())
    }

    /// Posts a receive request. In the error state it completes at once, flushed.
    ///
    /// # Errors
    /// The queue is full.
    pub fn post_receive(&mut self, request: ReceiveWork) -> Result<(), PostError> {
        self.receives.post(request)?;
        if self.state == QpState::Err {
            self.flush_receives();
        }
        Ok(())
    }

    /// Takes a packet of the network's, whose ICRC was right. `area` is what the receive gets before
    /// the payload: a GRH, or [`grh::area_of_ipv4`].
    ///
    /// # Errors
    /// Why it was dropped; it is counted, too.
    pub fn handle_packet(
        &mut self,
        packet: &Packet<'_>,
        area: &[u8; grh::LEN],
        memory: &mut impl Memory,
    ) -> Result<(), DropReason> {
        let taken = self.take_packet(packet, area, memory);
        self.shared.counters.count(taken);
        taken
    }

    fn take_packet(
        &mut self,
        packet: &Packet<'_>,
        area: &[u8; grh::LEN],
        memory: &mut impl Memory,
    ) -> Result<(), DropReason> {
        let bth = &packet.headers.bth;
        if bth.opcode.service() != Service::Ud {
            return Err(DropReason::WrongService);
        }
        if bth.dest_qp != self.shared.qpn {
            return Err(DropReason::WrongQueuePair);
        }
        if self.state == QpState::Err {
            return Err(DropReason::QueuePairInError);
        }
        let (deth, imm) = match packet.headers.extension {
            Extension::Datagram(deth) => (deth, None),
            Extension::DatagramImm(deth, imm) => (deth, Some(imm.imm)),
            _ => return Err(DropReason::InvalidRequest),
        };
        if deth.qkey != self.qkey {
            return Err(DropReason::WrongQkey);
        }
        if packet.payload.len() as u64 > mtu_bytes(self.mtu) {
            return Err(DropReason::InvalidRequest);
        }
        let receive = self.receives.take().ok_or(DropReason::ReceiverNotReady)?;
        let length = (grh::LEN + packet.payload.len()) as u64;
        if length > receive.pieces.length() {
            return Err(self.fail(&receive, WcStatus::LocLenErr, DropReason::TooLong));
        }
        let front = receive.pieces.scatter(memory, 0, area);
        let both = front.and_then(|()| {
            let offset = grh::LEN as u64;
            receive.pieces.scatter(memory, offset, packet.payload)
        });
        if both.is_err() {
            return Err(self.fail(&receive, WcStatus::LocProtErr, DropReason::LocalFault));
        }
        let ended = Completion::of_receive(self.shared.qpn, receive.wr_id, length as u32);
        let mut ended = ended.with_imm(imm);
        ended.work.src_qp = Some(deth.src_qp);
        ended.work.flags |= WcFlags::GRH;
        if bth.flags.contains(BthFlags::SOLICITED) {
            ended.solicited = Solicited::Yes;
        }
        self.shared.complete(ended);
        Ok(())
    }

    /// A receive request ends so, and the queue pair with it (IBTA vol. 1, 11.6.2).
    fn fail(&mut self, receive: &ReceiveWork, status: WcStatus, reason: DropReason) -> DropReason {
        self.shared.fail_receive(receive, status);
        self.enter_error();
        reason
    }

    /// Builds the next packet at the beginning of `out` and gives its length and where it goes; none
    /// if there is nothing to send. The request completes with it.
    pub fn poll_transmit(
        &mut self,
        memory: &impl Memory,
        out: &mut PacketBuffer,
    ) -> Option<(usize, A)> {
        let (request, to) = self.sends.front()?;
        let qkey = match to.qkey & CONTROLLED {
            0 => to.qkey,
            _ => self.qkey,
        };
        let deth = Deth {
            qkey,
            src_qp: self.shared.qpn,
        };
        let (opcode, extension) = match request.work {
            Work::SendWithImm(imm) => {
                let imm = ImmDt { imm };
                (Opcode::UdSendOnlyImm, Extension::DatagramImm(deth, imm))
            }
            _ => (Opcode::UdSendOnly, Extension::Datagram(deth)),
        };
        let mut bth = Bth::new(opcode, to.qpn, self.next);
        if request.flags.contains(SendFlags::SOLICITED) {
            bth = bth.with(BthFlags::SOLICITED);
        }
        let headers = PacketHeaders { bth, extension };
        let (length, place) = headers
            .lay_out(request.payload.length() as usize, out)
            .expect("headers fit the opcode, and any packet the buffer");
        if request.payload.gather(memory, 0, place).is_err() {
            self.fail_front();
            return None;
        }
        self.next = self.next.advance(1);
        let (request, to) = self.sends.pop_front().expect("it was sent");
        self.shared.complete_send(&request);
        self.shared.counters.sent += 1;
        Some((length, to.address))
    }

    /// The next completion.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.shared.completions.pop_front()
    }

    /// Goes to the error state: all requests complete, flushed.
    pub fn enter_error(&mut self) {
        self.state = QpState::Err;
        self.flush_sends();
        self.flush_receives();
    }

    /// From a send queue in error back to sending (`Sqe` to `Rts`).
    pub fn resume(&mut self) {
        if self.state == QpState::Sqe {
            self.state = QpState::Rts;
        }
    }

    /// The first send request's memory is wrong: the send queue is in error, receiving goes on (IBTA
    /// vol. 1, 10.3.1.6).
    fn fail_front(&mut self) {
        if let Some((request, _)) = self.sends.pop_front() {
            self.shared.fail_send(&request, WcStatus::LocProtErr);
        }
        self.state = QpState::Sqe;
        self.flush_sends();
    }

    fn flush_sends(&mut self) {
        while let Some((request, _)) = self.sends.pop_front() {
            self.shared.fail_send(&request, WcStatus::WrFlushErr);
        }
    }

    fn flush_receives(&mut self) {
        while let Some(receive) = self.receives.take() {
            self.shared.fail_receive(&receive, WcStatus::WrFlushErr);
        }
    }
}
