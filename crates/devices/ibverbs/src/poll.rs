//! Polling a completion queue through either interface.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use adverb_abi as abi;
use adverb_verbs::{Imm, PollError, Qpn, Rkey, WcFlags, WcOpcode, WcStatus, WorkCompletion, WrId};

/// Most completions taken by one call into the driver.
const AT_ONCE: usize = 16;

/// Polls with `ibv_poll_cq`.
#[inline]
pub(crate) fn poll_classic(
    cq: NonNull<abi::ibv_cq>,
    datagrams: &AtomicBool,
    into: &mut [WorkCompletion],
) -> Result<usize, PollError> {
    let raw = cq.as_ptr();
    // SAFETY: the caller holds the queue, so its context is open.
    let poll = unsafe { abi::ops((*raw).context) }.poll_cq;
    let poll = poll.expect("every driver has poll_cq");
    let mut found = 0;
    while found < into.len() {
        let mut entries = [const { MaybeUninit::<abi::ibv_wc>::uninit() }; AT_ONCE];
        let wanted = (into.len() - found).min(AT_ONCE);
        // SAFETY: there is room for `wanted` entries.
        let n = unsafe { poll(raw, wanted as i32, entries.as_mut_ptr().cast()) };
        let Ok(n) = usize::try_from(n) else {
            return if found > 0 {
                Ok(found)
            } else {
                Err(PollError::Device(format!("ibv_poll_cq gave {n}")))
            };
        };
        for (entry, to) in entries[..n].iter().zip(&mut into[found..]) {
            // SAFETY: the driver has initialised `n` entries.
            *to = completion(datagrams, unsafe { entry.assume_init_ref() })?;
        }
        found += n;
        if n < wanted {
            break;
        }
    }
    Ok(found)
}

/// Converts an `ibv_wc`. Except in successes only `wr_id`, `status` and `qp_num` are valid.
#[inline]
fn completion(datagrams: &AtomicBool, wc: &abi::ibv_wc) -> Result<WorkCompletion, PollError> {
    let status = status_of(wc.status);
    let mut to = WorkCompletion {
        wr_id: WrId(wc.wr_id),
        status,
        qp_num: qpn(wc.qp_num),
        ..WorkCompletion::default()
    };
    if status.is_success() {
        to.opcode = opcode(wc.opcode)?;
        to.byte_len = wc.byte_len;
        to.flags = WcFlags::from_bits_truncate(wc.wc_flags);
        to.imm = (wc.wc_flags & abi::IBV_WC_WITH_IMM != 0).then(|| Imm(u32::from_be(wc.imm_data)));
        to.invalidated = (wc.wc_flags & abi::IBV_WC_WITH_INV != 0).then_some(Rkey(wc.imm_data));
        to.src_qp = names_sender(datagrams, wc.opcode).then(|| qpn(wc.src_qp));
    }
    Ok(to)
}

/// Whether a completion has the number of the sender: receives of UD queue pairs do.
fn names_sender(datagrams: &AtomicBool, opcode: u32) -> bool {
    opcode == abi::IBV_WC_RECV && datagrams.load(Ordering::Relaxed)
}

fn qpn(number: u32) -> Qpn {
    Qpn::new(number & 0xff_ffff).expect("24 bits")
}

/// Converts a status, with a short path for success.
#[inline]
fn status_of(code: u32) -> WcStatus {
    if code == abi::IBV_WC_SUCCESS {
        WcStatus::Success
    } else {
        WcStatus::from_code(code)
    }
}

fn opcode(code: u32) -> Result<WcOpcode, PollError> {
    Ok(match code {
        abi::IBV_WC_SEND => WcOpcode::Send,
        abi::IBV_WC_RDMA_WRITE => WcOpcode::RdmaWrite,
        abi::IBV_WC_RDMA_READ => WcOpcode::RdmaRead,
        abi::IBV_WC_COMP_SWAP => WcOpcode::CompareSwap,
        abi::IBV_WC_FETCH_ADD => WcOpcode::FetchAdd,
        abi::IBV_WC_RECV => WcOpcode::Recv,
        abi::IBV_WC_RECV_RDMA_WITH_IMM => WcOpcode::RecvRdmaWithImm,
        other => {
            let words = format!("a completion of opcode {other}, which no request of ours has");
            return Err(PollError::Device(words));
        }
    })
}

type Read<T> = unsafe extern "C" fn(*mut abi::ibv_cq_ex) -> T;
type StartPoll = unsafe extern "C" fn(*mut abi::ibv_cq_ex, *mut abi::ibv_poll_cq_attr) -> i32;

/// How many completions one poll of an extended queue takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// As many as are wanted and available, as ibv_create_cq_ex(3) describes.
    All,
    /// One. In rdma-core's rxe driver a `next_poll` that finds nothing ends the poll by itself, and the
    /// `end_poll` that follows would consume a completion that does not exist.
    One,
}

/// The function table of an extended queue, copied from `ibv_cq_ex` when it was created: the driver
/// sets it once, and its code stays loaded as long as the library ([`crate::library`]).
#[derive(Debug)]
pub(crate) struct ExtendedPoll {
    cq: NonNull<abi::ibv_cq_ex>,
    reach: Reach,
    start: StartPoll,
    next: Read<i32>,
    end: Read<()>,
    opcode: Read<u32>,
    byte_len: Read<u32>,
    imm_data: Read<u32>,
    qp_num: Read<u32>,
    src_qp: Read<u32>,
    wc_flags: Read<u32>,
}

impl ExtendedPoll {
    /// Copies the table of `cq`, a queue just created; `None` if the driver lacks a function.
    pub(crate) fn of(cq: NonNull<abi::ibv_cq_ex>, reach: Reach) -> Option<Self> {
        // SAFETY: the queue was just created.
        let ops = unsafe { cq.as_ref() };
        Some(ExtendedPoll {
            cq,
            reach,
            start: ops.start_poll?,
            next: ops.next_poll?,
            end: ops.end_poll?,
            opcode: ops.read_opcode?,
            byte_len: ops.read_byte_len?,
            imm_data: ops.read_imm_data?,
            qp_num: ops.read_qp_num?,
            src_qp: ops.read_src_qp?,
            wc_flags: ops.read_wc_flags?,
        })
    }

    /// Polls for up to `into.len()` completions.
    #[inline]
    pub(crate) fn poll(
        &self,
        datagrams: &AtomicBool,
        into: &mut [WorkCompletion],
    ) -> Result<usize, PollError> {
        if self.reach == Reach::All {
            return self.poll_once(datagrams, into);
        }
        for found in 0..into.len() {
            if self.poll_once(datagrams, &mut into[found..=found])? == 0 {
                return Ok(found);
            }
        }
        Ok(into.len())
    }

    /// Calls `ibv_start_poll`, then `ibv_next_poll` until `into` is full or the queue is empty, then
    /// `ibv_end_poll`.
    #[inline]
    fn poll_once(
        &self,
        datagrams: &AtomicBool,
        into: &mut [WorkCompletion],
    ) -> Result<usize, PollError> {
        let Some(first) = into.first_mut() else {
            return Ok(0);
        };
        let raw = self.cq.as_ptr();
        let mut attr = abi::ibv_poll_cq_attr { comp_mask: 0 };
        // SAFETY: the caller holds the queue; its current entry may be read between start and end.
        let begun = unsafe { (self.start)(raw, &raw mut attr) };
        match begun {
            0 => {}
            libc::ENOENT => return Ok(0),
            errno => return Err(PollError::Device(format!("ibv_start_poll gave {errno}"))),
        }
        let mut result = self
            .current(datagrams)
            .map(|completion| *first = completion);
        let mut found = 1;
        while result.is_ok() && found < into.len() {
            // SAFETY: the poll was started and not ended.
            if unsafe { (self.next)(raw) } != 0 {
                break;
            }
            result = self
                .current(datagrams)
                .map(|completion| into[found] = completion);
            found += 1;
        }
        // SAFETY: the poll was started and is ended once.
        unsafe { (self.end)(raw) };
        result.map(|()| found)
    }

    /// Reads the current entry.
    #[inline]
    fn current(&self, datagrams: &AtomicBool) -> Result<WorkCompletion, PollError> {
        let raw = self.cq.as_ptr();
        // SAFETY: the caller has started a poll, so there is a current entry.
        unsafe {
            let status = status_of((*raw).status);
            let mut to = WorkCompletion {
                wr_id: WrId((*raw).wr_id),
                status,
                qp_num: qpn((self.qp_num)(raw)),
                ..WorkCompletion::default()
            };
            if status.is_success() {
                let (code, flags) = ((self.opcode)(raw), (self.wc_flags)(raw));
                to.opcode = opcode(code)?;
                to.byte_len = (self.byte_len)(raw);
                to.flags = WcFlags::from_bits_truncate(flags);
                if flags & abi::IBV_WC_WITH_IMM != 0 {
                    to.imm = Some(Imm(u32::from_be((self.imm_data)(raw))));
                }
                if flags & abi::IBV_WC_WITH_INV != 0 {
                    to.invalidated = Some(Rkey((self.imm_data)(raw)));
                }
                to.src_qp = names_sender(datagrams, code).then(|| qpn((self.src_qp)(raw)));
            }
            Ok(to)
        }
    }
}
