//! Unreliable datagram (IBTA vol. 1, 9.8.3): messages of one packet, to any queue pair with the right Q_Key. A receive
//! gets 40 bytes of routing header before the payload.

use adverb_verbs::{Imm, PathMtu, Psn, QpState, Qpn, SendFlags, WcFlags, WcStatus};
use adverb_wire::bth::BthFlags;
use adverb_wire::{
    Bth, Deth, Extension, ImmDt, Opcode, Packet, PacketHeaders, Service, UnknownOpcode, grh,
};

use crate::PacketBuffer;
use crate::completion::{Completion, Solicited};
use crate::drops::{Counters, DropReason};
use crate::memory::Memory;
use crate::receive::ReceiveQueue;
use crate::request::{PostError, ReceiveWork, SendWork, Work};
use crate::segment::mtu_bytes;
use crate::sends::{Outgoing, Sends};
use crate::shared::Shared;

/// Returns the Q_Key of a datagram: the one that its request names, or the queue pair's own if the highest bit is set (IBTA
/// vol. 1, 3.5.3).
#[inline]
pub const fn sent_qkey(named: u32, own: u32) -> u32 {
    const CONTROLLED: u32 = 1 << 31;
    match named & CONTROLLED {
        0 => named,
        _ => own,
    }
}

/// Parameters of a UD queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdConfig {
    /// This queue pair.
    pub qpn: Qpn,
    /// Its queue key.
    pub qkey: u32,
    /// Maximum length of a message: the port's MTU.
    pub mtu: PathMtu,
    /// PSN of the first packet sent (`sq_psn`).
    pub first_psn: Psn,
    /// Maximum number of outstanding requests.
    pub max_work: usize,
}

/// The destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdDestination<A> {
    /// The driver's address handle.
    pub address: A,
    /// The queue pair there.
    pub qpn: Qpn,
    /// Its queue key.
    pub qkey: u32,
}

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Its bytes.
    pub payload: &'a [u8],
    /// The queue pair that sent it.
    pub src_qp: Qpn,
    /// Immediate data.
    pub imm: Option<Imm>,
    /// Whether the sender requested a solicited event.
    pub solicited: Solicited,
}

/// A request and its destination.
#[derive(Debug)]
struct Addressed<A> {
    work: SendWork,
    to: UdDestination<A>,
}

impl<A> Outgoing for Addressed<A> {
    fn work(&self) -> &SendWork {
        &self.work
    }
}

/// A datagram queue pair; `A` is how the driver names a port.
#[derive(Debug)]
pub struct UdQp<A> {
    qkey: u32,
    mtu: PathMtu,
    next: Psn,
    sends: Sends<Addressed<A>>,
    receives: ReceiveQueue,
    shared: Shared,
}

impl<A: Copy> UdQp<A> {
    /// Makes a queue pair, with the receive requests that were posted before.
    pub fn new(config: &UdConfig, receives: ReceiveQueue) -> Self {
        UdQp {
            qkey: config.qkey,
            mtu: config.mtu,
            next: config.first_psn,
            sends: Sends::new(config.max_work),
            receives,
            shared: Shared::new(config.qpn, config.max_work),
        }
    }

    /// Returns the state: `Rts`, `Sqe` or `Err`.
    pub fn state(&self) -> QpState {
        self.sends.state()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Sets the PSN of the first packet (RTR to RTS).
    pub fn start_sending(&mut self, first_psn: Psn) {
        self.next = first_psn;
    }

    /// Changes the queue key.
    pub fn set_qkey(&mut self, qkey: u32) {
        self.qkey = qkey;
    }

    /// Posts a send request. In SQE and in the error state it is flushed at once.
    ///
    /// # Errors
    /// The queue is full, or UD has no such request.
    pub fn post_send(&mut self, request: SendWork, to: UdDestination<A>) -> Result<(), PostError> {
        self.sends.has_room()?;
        let (length, most) = (request.payload.length(), mtu_bytes(self.mtu));
        if length > most {
            return Err(PostError::TooLong { length, most });
        }
        match request.work {
            Work::Send | Work::SendWithImm(_) => {}
            other => return Err(PostError::NotOfService(other)),
        }
        let request = Addressed { work: request, to };
        self.sends.post(request, &mut self.shared);
        Ok(())
    }

    /// Posts a receive request. In the error state it is flushed at once.
    ///
    /// # Errors
    /// The queue is full.
    pub fn post_receive(&mut self, request: ReceiveWork) -> Result<(), PostError> {
        self.receives.post(request)?;
        if self.state() == QpState::Err {
            self.flush_receives();
        }
        Ok(())
    }

    /// Handles a packet with the right ICRC. The receive gets `area` before the payload: a GRH, or [`grh::area_of_ipv4`].
    ///
    /// # Errors
    /// The reason for which it was dropped and counted.
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

    /// Handles a packet whose message the driver stores itself, with `place`. Receive requests of this queue pair are not
    /// used.
    ///
    /// # Errors
    /// The reason for which it was dropped, also by `place`, and counted.
    pub fn handle_packet_apart(
        &mut self,
        packet: &Packet<'_>,
        place: impl FnOnce(&Datagram<'_>) -> Result<(), DropReason>,
    ) -> Result<(), DropReason> {
        let taken = self.message(packet).and_then(|datagram| place(&datagram));
        self.shared.counters.count(taken);
        taken
    }

    /// Drops and counts a packet with an unknown opcode and the right ICRC; returns the reason.
    pub fn handle_unknown(&mut self, unknown: &UnknownOpcode) -> DropReason {
        let own = (Service::Ud, self.state());
        self.shared.drop_unknown(own, unknown)
    }

    /// Returns the message in a packet.
    fn message<'p>(&self, packet: &Packet<'p>) -> Result<Datagram<'p>, DropReason> {
        let bth = &packet.headers.bth;
        let own = (Service::Ud, self.state());
        self.shared
            .admit(own, (Some(bth.opcode.service()), bth.dest_qp))?;
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
        let is_solicited = bth.flags.contains(BthFlags::SOLICITED);
        Ok(Datagram {
            payload: packet.payload,
            src_qp: deth.src_qp,
            imm,
            solicited: match is_solicited {
                true => Solicited::Yes,
                false => Solicited::No,
            },
        })
    }

    fn take_packet(
        &mut self,
        packet: &Packet<'_>,
        area: &[u8; grh::LEN],
        memory: &mut impl Memory,
    ) -> Result<(), DropReason> {
        let datagram = self.message(packet)?;
        let receive = self.receives.take().ok_or(DropReason::ReceiverNotReady)?;
        let length = (grh::LEN + datagram.payload.len()) as u64;
        if length > receive.pieces.length() {
            return Err(self.fail(&receive, WcStatus::LocLenErr, DropReason::TooLong));
        }
        let front = receive.pieces.scatter(memory, 0, area);
        let both = front.and_then(|()| {
            let offset = grh::LEN as u64;
            receive.pieces.scatter(memory, offset, datagram.payload)
        });
        if both.is_err() {
            return Err(self.fail(&receive, WcStatus::LocProtErr, DropReason::LocalFault));
        }
        let ended = Completion::of_receive(self.shared.qpn, receive.wr_id, length as u32);
        let mut ended = ended.with_imm(datagram.imm);
        ended.work.src_qp = Some(datagram.src_qp);
        ended.work.flags |= WcFlags::GRH;
        ended.solicited = datagram.solicited;
        self.shared.complete(ended);
        Ok(())
    }

    /// Completes a receive request with an error, which moves the queue pair to the error state (IBTA vol. 1, 11.6.2).
    fn fail(&mut self, receive: &ReceiveWork, status: WcStatus, reason: DropReason) -> DropReason {
        self.shared.fail_receive(receive, status);
        self.enter_error();
        reason
    }

    /// Builds the next packet at the beginning of `out`; returns its length and address handle. `None` if there is nothing
    /// to send. The request completes with it.
    pub fn poll_transmit(
        &mut self,
        memory: &impl Memory,
        out: &mut PacketBuffer,
    ) -> Option<(usize, A)> {
        let Addressed { work: request, to } = self.sends.front()?;
        let address = to.address;
        let deth = Deth {
            qkey: sent_qkey(to.qkey, self.qkey),
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
        let headers = PacketHeaders::new(bth, extension);
        let (length, place) = headers
            .lay_out(request.payload.length() as usize, out)
            .expect("headers fit the opcode, and any packet the buffer");
        if request.payload.gather(memory, 0, place).is_err() {
            self.sends.fail_front(&mut self.shared);
            return None;
        }
        self.next = self.next.advance(1);
        self.sends.complete_front(&mut self.shared);
        self.shared.counters.sent += 1;
        Some((length, address))
    }

    /// Returns the next completion.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.shared.completions.pop_front()
    }

    /// Moves to the error state and flushes all requests.
    pub fn enter_error(&mut self) {
        self.sends.end(&mut self.shared);
        self.flush_receives();
    }

    /// Resumes sending (`Sqe` to `Rts`).
    pub fn resume(&mut self) {
        self.sends.resume();
    }

    fn flush_receives(&mut self) {
        while let Some(receive) = self.receives.take_to_flush() {
            self.shared.fail_receive(&receive, WcStatus::WrFlushErr);
        }
    }
}
