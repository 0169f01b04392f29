//! The requests of a stream: receives, RDMA WRITEs, and messages without data.

use std::ffi::c_int;
use std::ptr::null_mut;

use adverb_abi::{
    IBV_SEND_INLINE, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, ibv_recv_wr, ibv_send_wr,
    ibv_send_wr_rdma, ibv_send_wr_wr, ibv_sge,
};

use super::super::wire::Message;
use super::{BATCH, CONTROL_MESSAGE, RECEIVE, Stream};
use crate::qp::post;

impl Stream {
    /// Posts receives, which have no memory: each takes a message.
    pub(super) fn post_receives(&mut self, mut count: u32) {
        while count > 0 {
            let now = (count as usize).min(BATCH);
            let mut chain = [ibv_recv_wr::zeroed(); BATCH];
            for index in (0..now).rev() {
                chain[index].wr_id = RECEIVE;
                chain[index].next = match index + 1 {
                    next if next < now => &raw mut chain[next],
                    _ => null_mut(),
                };
            }
            let mut bad = null_mut();
            // SAFETY: the queue pair is the id's; the requests live during the call.
            let status = unsafe { post::post_recv((*self.id).qp, &raw mut chain[0], &raw mut bad) };
            if status != 0 {
                self.lose(status);
                return;
            }
            count -= now as u32;
        }
    }

    pub(super) fn post_send(&mut self, mut wr: ibv_send_wr, pieces: &mut [ibv_sge]) {
        if !pieces.is_empty() {
            wr.sg_list = pieces.as_mut_ptr();
            wr.num_sge = pieces.len() as c_int;
        }
        let mut bad = null_mut();
        // SAFETY: the queue pair is the id's; the request and its pieces live during the call.
        let status = unsafe { post::post_send((*self.id).qp, &raw mut wr, &raw mut bad) };
        if status != 0 {
            self.lose(status);
        }
    }

    /// Returns an RDMA WRITE, with immediate data if there is a message.
    pub(super) fn write(wr_id: u64, to: (u64, u32), message: Option<Message>) -> ibv_send_wr {
        let mut wr = ibv_send_wr::zeroed();
        wr.wr_id = wr_id;
        wr.opcode = IBV_WR_RDMA_WRITE;
        if let Some(message) = message {
            wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
            wr.imm_data = message.to_imm().to_be();
        }
        wr.wr = ibv_send_wr_wr {
            rdma: ibv_send_wr_rdma {
                remote_addr: to.0,
                rkey: to.1,
            },
        };
        wr
    }

    /// Sends a message without data, with an entry for a list of the peer. The caller has checked that there is room.
    pub(super) fn send_control(&mut self, message: Message, entry: Option<(&[u8], u64)>) {
        self.controls -= 1;
        let Some((bytes, at)) = entry else {
            self.post_send(Self::write(CONTROL_MESSAGE, (0, 0), Some(message)), &mut []);
            return;
        };
        let to = (
            self.peer.targets.addr.wrapping_add(at),
            self.peer.targets.key,
        );
        let mut wr = Self::write(CONTROL_MESSAGE, to, Some(message));
        wr.send_flags = IBV_SEND_INLINE;
        let mut piece = [inline_piece(bytes.as_ptr(), bytes.len())];
        self.post_send(wr, &mut piece);
    }
}

pub(super) fn inline_piece(bytes: *const u8, length: usize) -> ibv_sge {
    ibv_sge {
        addr: bytes.expose_provenance() as u64,
        length: length as u32,
        lkey: 0,
    }
}
