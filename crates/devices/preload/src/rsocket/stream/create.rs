//! Creates and destroys the data path of a connection.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::ptr::null_mut;

use adverb_abi::{IBV_QPT_RC, ibv_comp_channel, ibv_cq, ibv_qp_init_attr, rdma_cm_id};
use adverb_units::Bytes;
use adverb_verbs::{AccessFlags, Context as _, MemoryRegion as _};

use super::super::functions as c;
use super::super::mapping::Iomaps;
use super::super::sizes::{CONTROL, Sizes};
use super::super::wire::{ByteOrder, Iomap, TARGETS, Target};
use super::{PeerLists, SPARE_RECEIVES, Stream};
use crate::activity;
use crate::call::Refusal;
use crate::context::Context;
use crate::pd::Pd;

/// The completion channel and queue of a stream that is being created.
struct Queues(*mut ibv_comp_channel, *mut ibv_cq);

impl Drop for Queues {
    fn drop(&mut self) {
        // SAFETY: they were created below, and nothing uses them any more.
        unsafe {
            if !self.1.is_null() {
                c::ibv_destroy_cq(self.1);
            }
            c::ibv_destroy_comp_channel(self.0);
        }
    }
}

impl Queues {
    /// # Safety
    /// `id` is alive and bound to a device.
    unsafe fn new(id: *mut rdma_cm_id, sizes: &Sizes) -> Result<Self, Refusal> {
        let entries = sizes.send_queue + CONTROL + sizes.recv_queue + SPARE_RECEIVES;
        // SAFETY: the caller's.
        unsafe {
            let channel = c::ibv_create_comp_channel((*id).verbs);
            if channel.is_null() {
                return Err(c::failed("a completion channel"));
            }
            let mut queues = Queues(channel, null_mut());
            let flags = libc::fcntl((*channel).fd, libc::F_GETFL);
            libc::fcntl((*channel).fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
            queues.1 = c::ibv_create_cq((*id).verbs, entries as c_int, id.cast(), channel, 0);
            match queues.1.is_null() {
                true => Err(c::failed("a completion queue")),
                false => Ok(queues),
            }
        }
    }
}

impl Stream {
    /// Creates the data path of an id that is bound to a device, and posts its receives.
    ///
    /// # Safety
    /// `id` is alive, has no queue pair, and outlives the stream.
    pub(in crate::rsocket) unsafe fn new(
        id: *mut rdma_cm_id,
        sizes: &Sizes,
    ) -> Result<Box<Self>, Refusal> {
        let sizes = sizes.of_connection();
        let lists = TARGETS * Target::SIZE + sizes.iomaps as usize * Iomap::SIZE;
        let length = sizes.recv_buffer as usize + sizes.send_buffer as usize + lists;
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        // SAFETY: the caller's; an id that is bound has a context and a protection domain.
        let (memory, queues) = unsafe {
            let (context, pd) = (Context::of((*id).verbs), Pd::of((*id).pd));
            let length = Bytes::new(length as u64);
            let memory = context.soft.alloc_mr(&pd.soft, length, access)?;
            (memory, Queues::new(id, &sizes)?)
        };
        let mut init = ibv_qp_init_attr::zeroed();
        (init.send_cq, init.recv_cq) = (queues.1, queues.1);
        init.qp_type = IBV_QPT_RC;
        init.sq_sig_all = 1;
        init.cap.max_send_wr = sizes.send_queue + CONTROL;
        init.cap.max_recv_wr = sizes.recv_queue + SPARE_RECEIVES;
        init.cap.max_send_sge = 2;
        init.cap.max_recv_sge = 1;
        init.cap.max_inline_data = sizes.inline;
        // SAFETY: the caller's.
        if unsafe { c::rdma_create_qp(id, (*id).pd, &raw mut init) } != 0 {
            return Err(c::failed("a queue pair"));
        }
        activity::registered(length);
        let (channel, cq) = (queues.0, queues.1);
        std::mem::forget(queues);
        let half = sizes.recv_buffer / 2;
        let mut stream = Box::new(Stream {
            id,
            channel,
            cq,
            memory,
            order: ByteOrder::Native,
            peer: PeerLists::default(),
            iomaps: Iomaps::default(),
            sent: 0,
            limit: 0,
            targets: [Target::default(); TARGETS],
            current: 0,
            requests: sizes.send_queue,
            controls: CONTROL,
            free: sizes.send_buffer,
            send_at: 0,
            arrived: VecDeque::with_capacity(sizes.recv_queue as usize),
            taken: 0,
            receive_at: 0,
            read: 0,
            give_at: (sizes.recv_queue / 2) as u16,
            room: half,
            unannounced: half,
            announce_at: half,
            reads: true,
            writes: true,
            has_shut_down: false,
            is_connected: false,
            lost: None,
            is_broken: false,
            sizes,
        });
        stream.post_receives(sizes.recv_queue + SPARE_RECEIVES);
        match stream.lost.take() {
            None => Ok(stream),
            Some(errno) => Err(Refusal::new(errno, "the receives could not be posted")),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the id outlives the stream, and the queue pair is destroyed before its completion queue.
        unsafe { c::rdma_destroy_qp(self.id) };
        drop(Queues(self.channel, self.cq));
        activity::deregistered(self.memory.length().get() as usize);
    }
}
