//! Posting: the checks and the CPU's work.

use adverb_units::Bytes;
use adverb_verbs::{
    AtomicCap, Destination, MAX_MESSAGE, PostError, PostErrorCause, QpState, QpType, RecvRequest,
    SendFlags, SendRequest, WcStatus,
};

use crate::host::memory::{LocalSge, SgList};
use crate::host::pcie::LINE;
use crate::ids::{MachineId, QpIndex};
use crate::machine::machine_of;
use crate::nic::port::Target;
use crate::nic::queue_pair::Qp;
use crate::nic::receive_queue::Receive;
use crate::nic::wqe::{Wqe, WqeLocation};
use crate::preset::Driver;
use crate::trace::StepKind;
use crate::world::fabric::{Event, EventQueue, Fabric, Path};

/// Sizes of WQE segments in bytes (rdma-core, providers/mlx4 and mlx5).
mod segment {
    pub(super) const CONTROL: u64 = 16;
    pub(super) const REMOTE_ADDRESS: u64 = 16;
    pub(super) const ATOMIC: u64 = 16;
    pub(super) const DATA: u64 = 16;
    pub(super) const INLINE_HEADER: u64 = 4;
    pub(super) const DATAGRAM: u64 = 48;
}

/// The size of a request's WQE in bytes.
#[inline]
fn wqe_bytes(request: &SendRequest<'_>, length: u64, driver: Driver) -> u64 {
    use adverb_verbs::Operation as Op;
    let operation = match request.operation {
        Op::Send | Op::SendWithImm(_) => 0,
        Op::FetchAdd(..) | Op::CompareSwap(..) => segment::REMOTE_ADDRESS + segment::ATOMIC,
        _ => segment::REMOTE_ADDRESS,
    };
    let datagram = if request.to.is_some() {
        segment::DATAGRAM
    } else {
        0
    };
    let before = segment::CONTROL + operation + datagram;
    let data = if !request.flags.contains(SendFlags::INLINE) {
        segment::DATA * request.sges.len() as u64
    } else {
        inline_bytes(before, length, driver)
    };
    before + data
}

/// Returns the size of inline data and their headers after `before` bytes. On mlx4 an inline segment ends with its
/// line of 64 B, so the data of each line have a header of their own.
fn inline_bytes(before: u64, length: u64, driver: Driver) -> u64 {
    if length == 0 {
        return 0;
    }
    let headers = match driver {
        Driver::Mlx4Upstream | Driver::Mlx4Mlnx => {
            let first = LINE - before % LINE - segment::INLINE_HEADER;
            1 + length
                .saturating_sub(first)
                .div_ceil(LINE - segment::INLINE_HEADER)
        }
        Driver::Mlx5 | Driver::Doorbell => 1,
    };
    segment::INLINE_HEADER * headers + length
}

fn check(qp: &Qp, request: &SendRequest<'_>, atomics: AtomicCap) -> Result<(), PostErrorCause> {
    if qp.sq.is_full(qp.caps.max_send_wr) {
        return Err(PostErrorCause::QueueFull {
            queue: "send",
            depth: qp.caps.max_send_wr,
        });
    }
    use adverb_verbs::Operation as Op;
    request.check_kind(qp.qp_type)?;
    let consumes_receive = matches!(
        request.operation,
        Op::Send | Op::SendWithImm(_) | Op::RdmaWriteWithImm(..)
    );
    if qp.qp_type == QpType::Dci && consumes_receive {
        return Err(unsupported(
            "DC requests that consume receives, which need a shared receive queue",
        ));
    }
    if request.operation.is_atomic() && atomics == AtomicCap::None {
        return Err(unsupported("atomic operations"));
    }
    if request.operation.is_local() || matches!(request.operation, Op::SendWithInvalidate(_)) {
        return Err(unsupported("memory windows"));
    }
    let max_message = match qp.qp_type {
        QpType::Ud => Bytes::new(qp.mtu),
        _ => MAX_MESSAGE,
    };
    request.check_sizes(&qp.caps, max_message)
}

fn unsupported(feature: &'static str) -> PostErrorCause {
    PostErrorCause::Unsupported(adverb_verbs::Unsupported {
        feature,
        device: "model".into(),
    })
}

impl Fabric {
    /// Posts send requests at the time of the running role's clock.
    pub(crate) fn post_send(
        &mut self,
        index: QpIndex,
        requests: &[SendRequest<'_>],
        events: &mut EventQueue,
    ) -> Result<(), PostError> {
        let mut accepted = 0;
        let posted = post_each(requests, |request| {
            self.accept(index, request, events)?;
            accepted += 1;
            Ok(())
        });
        if accepted > 0 {
            self.doorbell_for(index, accepted, events);
        }
        posted
    }

    fn accept(
        &mut self,
        index: QpIndex,
        request: &SendRequest<'_>,
        events: &mut EventQueue,
    ) -> Result<(), PostErrorCause> {
        let qp = &self.qps[index];
        if !matches!(
            qp.state,
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err
        ) {
            return Err(PostErrorCause::State {
                state: qp.state,
                needed: QpState::Rts,
            });
        }
        check(qp, request, self.machines[qp.machine].caps.atomics)?;
        let is_broken = matches!(qp.state, QpState::Sqe | QpState::Err);
        let machine = qp.machine;
        let target = self.target(machine, request.to);
        let inline = self.inline(machine, request);
        let host = &mut self.machines[machine];
        let length = request.length();
        let bytes = wqe_bytes(request, length, host.preset.driver);
        let lines = bytes.div_ceil(LINE);
        host.nic.counts.posted_requests += 1;
        // The driver copies inline data byte by byte, without padding its line (set_data_inl_seg of libmlx5).
        let further = host.cpu.wqe_line_ns * bytes.saturating_sub(LINE) / LINE;
        let span = host.cpu.wqe_build_ns + further;
        host.work(StepKind::BuildWqe, span, &mut events.clock);
        let wqe = Wqe {
            arrived: 0,
            wr_id: request.wr_id,
            operation: request.operation,
            flags: request.flags,
            sg_list: sg_list(request.sges),
            length,
            inline,
            target,
            lines,
            ready: events.clock.now(),
            location: WqeLocation::InMemory,
            doorbell: 0,
            status: is_broken.then_some(WcStatus::WrFlushErr),
            completed: events.clock.now(),
        };
        let qp = &mut self.qps[index];
        qp.sq.post(wqe);
        if is_broken {
            qp.sq.give_up();
            self.retire(index, events);
        }
        Ok(())
    }

    fn target(&self, machine: MachineId, to: Option<Destination<'_>>) -> Option<Target> {
        let to = to?;
        let handles = &self.machines[machine].handles;
        let gid = handles.get(usize::try_from(to.ah.name()).ok()?)?;
        let group = gid.is_multicast().then_some(*gid);
        Some(Target {
            machine: match group {
                Some(_) => machine,
                None => machine_of(*gid, self.machines.len())?,
            },
            number: to.qpn,
            qkey: to.qkey,
            group,
        })
    }

    /// Copies the payload of an inline request. Its keys are not checked.
    fn inline(&mut self, machine: MachineId, request: &SendRequest<'_>) -> Option<Vec<u8>> {
        if !request.flags.contains(SendFlags::INLINE) {
            return None;
        }
        let mut buffer = self.messages.buffer();
        let memory = &mut self.machines[machine].memory;
        for sge in request.sges {
            memory.append(local_sge(sge), &mut buffer);
        }
        Some(buffer)
    }

    /// Rings the doorbell for the last `count` requests.
    fn doorbell_for(&mut self, index: QpIndex, count: u32, events: &mut EventQueue) {
        let qp = &self.qps[index];
        if !matches!(qp.state, QpState::Rts | QpState::Sqd) {
            return;
        }
        let machine_index = qp.machine;
        let machine = &self.machines[machine_index];
        let last = qp.sq.last();
        let (lines, by_mmio) = last.map_or((1, false), |wqe| (wqe.lines, machine.by_mmio(wqe)));
        let (cost, path) = if count == 1 && by_mmio {
            (machine.cpu.mmio_line_ns * lines, Path::Mmio)
        } else if machine.preset.driver == Driver::Mlx5 && by_mmio {
            let bell = (lines * LINE) as u16;
            (machine.cpu.mmio_line_ns * lines, Path::Fetch { bell })
        } else {
            (machine.cpu.doorbell_ns, Path::Fetch { bell: 8 })
        };
        let register = qp.shared_register;
        let qp = qp.reference();
        let began = events.clock.now();
        if let Some((context, thread)) = register {
            // A shared register is used under its lock, which is taken by an atomic instruction.
            let machine = &mut self.machines[machine_index];
            let transfer = machine.preset.params.memory.hand_over();
            let locked = machine.cpu.atomic_ns + cost;
            let registers = &mut machine.registers[context as usize];
            let end = registers.write(thread, began, locked, transfer);
            events.clock.busy_until(end);
        } else {
            events.clock.busy(cost);
        }
        let kind = match path {
            Path::Mmio => StepKind::WriteMmio(lines * LINE),
            Path::Fetch { bell } if bell >= 64 => StepKind::WriteMmio(bell.into()),
            Path::Fetch { .. } => StepKind::RingDoorbell,
        };
        let host = &mut self.machines[machine_index];
        let written = events.clock.now();
        host.rang += written - began;
        host.worked += written - began;
        let at = written + host.pcie.way();
        host.trace.note(kind, began, written);
        host.pcie.trace.note(StepKind::MmioWay, written, at);
        events.schedule(at, Event::Doorbell { qp, count, path });
    }

    pub(crate) fn post_recv(
        &mut self,
        index: QpIndex,
        requests: &[RecvRequest<'_>],
        events: &mut EventQueue,
    ) -> Result<(), PostError> {
        post_each(requests, |request| {
            self.accept_receive(index, request, events)
        })
    }

    fn accept_receive(
        &mut self,
        index: QpIndex,
        request: &RecvRequest<'_>,
        events: &mut EventQueue,
    ) -> Result<(), PostErrorCause> {
        let qp = &mut self.qps[index];
        if qp.rq.shared().is_some() {
            return Err(PostErrorCause::HasSharedReceiveQueue);
        }
        if qp.rq.is_full(qp.caps.max_recv_wr) {
            return Err(PostErrorCause::QueueFull {
                queue: "receive",
                depth: qp.caps.max_recv_wr,
            });
        }
        if matches!(qp.qp_type, QpType::Dci | QpType::Dct) {
            return Err(unsupported(
                "receives on DC queue pairs, which take them from a shared receive queue",
            ));
        }
        request.check(qp.caps.max_recv_sge)?;
        if qp.state == QpState::Reset {
            return Err(PostErrorCause::State {
                state: QpState::Reset,
                needed: QpState::Init,
            });
        }
        let host = &mut self.machines[qp.machine];
        host.work(
            StepKind::BuildReceive,
            host.cpu.recv_build_ns,
            &mut events.clock,
        );
        let has_failed = qp.state == QpState::Err;
        let status = has_failed.then_some(WcStatus::WrFlushErr);
        qp.rq.post(receive(request), status);
        if has_failed {
            let qp = qp.reference();
            self.fail_receives(qp, events);
        }
        Ok(())
    }
}

/// Posts requests up to the first one that is refused.
pub(super) fn post_each<R>(
    requests: &[R],
    mut accept: impl FnMut(&R) -> Result<(), PostErrorCause>,
) -> Result<(), PostError> {
    let mut all = requests.iter().enumerate();
    all.try_for_each(|(index, request)| accept(request).map_err(|cause| PostError { index, cause }))
}

pub(super) fn receive(request: &RecvRequest<'_>) -> Receive {
    Receive {
        wr_id: request.wr_id,
        sg_list: sg_list(request.sges),
    }
}

fn sg_list(sges: &[adverb_verbs::Sge<'_>]) -> SgList {
    match sges {
        [sge] => SgList::from_buf([local_sge(sge)]),
        _ => sges.iter().map(local_sge).collect(),
    }
}

fn local_sge(sge: &adverb_verbs::Sge<'_>) -> LocalSge {
    LocalSge {
        addr: sge.addr(),
        length: sge.length(),
        key: sge.lkey().0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest inline payload after `before` bytes of a WQE that fits a BlueFlame buffer of 256 B.
    fn longest(before: u64, driver: Driver) -> u64 {
        let fits = |length: &u64| before + inline_bytes(before, *length, driver) <= 256;
        (0..256).take_while(fits).last().unwrap()
    }

    #[test]
    fn blueflame_fits_as_much_inline_payload_as_each_driver_packs() {
        let (send, write, datagram) = (16, 32, 64);
        // parameters.csv, from providers/mlx4/qp.c of rdma-core.
        assert_eq!(longest(send, Driver::Mlx4Upstream), 224);
        assert_eq!(longest(write, Driver::Mlx4Mlnx), 208);
        assert_eq!(longest(datagram, Driver::Mlx4Mlnx), 180);
        // perftest's defaults for mlx5.
        assert_eq!(longest(send, Driver::Mlx5), 236);
        assert_eq!(longest(write, Driver::Mlx5), 220);
        assert_eq!(longest(datagram, Driver::Mlx5), 188);
    }
}
