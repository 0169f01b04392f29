//! Datagrams to UD queue pairs with a shared receive queue.
//!
//! Senders do not take requests. They put messages, each with its addressee, into one mailbox of the shared
//! queue; so a sender that dies holds a cell, but never a request. The owner matches messages with requests in
//! the order of arrival: when it polls or looks for events, and before it posts more requests, so that no
//! message is matched with a request that was posted after its arrival. A message without a request is dropped
//! (IBTA vol. 1, 9.8.3.1, 10.2.9).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adverb_verbs::{CreateError, WorkCompletion, WrId};
use spin::mutex::SpinMutexGuard;

use super::{SrqInner, State, User};
use crate::datagrams::{Mailbox, fail_receiver};
use crate::port::Port;
use crate::shm::datagram_ring::{Addressee, Cell, GRH_LEN, Holder, Message};
use crate::shm::regions::RegionTable;
use crate::shm::shared_ring::Ticket;
use crate::shm::sync::lock;

/// The ring for datagrams to all queue pairs of a shared receive queue. Each slot accepts a message at any
/// time, whether a request is posted or not.
#[derive(Debug)]
pub(super) struct SharedMailbox {
    mailbox: Mailbox,
    /// Position of the next message, written under the queue's lock.
    next: AtomicU64,
}

impl SharedMailbox {
    fn new(port: &Arc<Port>, pd: u32, slots: usize) -> Result<Self, CreateError> {
        let mailbox = Mailbox::new(port, pd, slots)?;
        let first = mailbox.ring.begin_generation();
        (first..first + slots as u64).for_each(|position| mailbox.ring.post(position));
        Ok(SharedMailbox {
            mailbox,
            next: AtomicU64::new(first),
        })
    }

    fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    fn has_arrivals(&self) -> bool {
        self.mailbox.ring.arrival(self.next()).is_some()
    }

    /// Passes the cells of the messages that have arrived so far to `take`, which empties them.
    fn empty(&self, mut take: impl FnMut(Cell)) {
        let (ring, slots) = (self.mailbox.ring, self.mailbox.slots as u64);
        let first = self.next();
        for position in first..first + slots {
            let Some(cell) = ring.arrival(position) else {
                return;
            };
            take(cell);
            ring.post(position + slots);
            self.next.store(position + 1, Ordering::Relaxed);
        }
    }
}

impl Drop for SharedMailbox {
    fn drop(&mut self) {
        if self.mailbox.is_inherited() {
            return;
        }
        let next = self.next();
        self.mailbox.discard(next..next + self.mailbox.slots as u64);
    }
}

impl SrqInner {
    /// Creates the mailbox for the first UD queue pair.
    pub(crate) fn open_mailbox(&self) -> Result<(), CreateError> {
        if self.mailbox.get().is_some() {
            return Ok(());
        }
        let slots = self.caps.max_wr.next_power_of_two() as usize;
        // If two threads create it, one of the two is freed.
        let _ = (self.mailbox).set(SharedMailbox::new(&self.port, self.pd, slots)?);
        if let Some(SharedMailbox { mailbox, .. }) = self.mailbox.get() {
            let entry = self.port.srq_entry(self.index);
            entry.mailbox.store(mailbox.offset(), Ordering::Relaxed);
            entry.mailbox_slots.store(slots as u32, Ordering::Release);
        }
        Ok(())
    }

    /// As a sender: adds a message that arrived over the network. Returns its position, which is `from` or
    /// later; `None` if no receive is posted.
    pub(crate) fn put_datagram(
        &self,
        from: u64,
        message: (Message, Addressee),
        parts: (&[u8; GRH_LEN], &[u8]),
    ) -> Option<u64> {
        let SharedMailbox { mailbox, .. } = self.mailbox.get()?;
        if !self.ring.has_posted() {
            return None;
        }
        mailbox.put(from, message, parts)
    }

    /// Whether messages wait to be matched.
    #[inline]
    pub(super) fn has_datagrams(&self) -> bool {
        let mailbox = self.mailbox.get();
        mailbox.is_some_and(SharedMailbox::has_arrivals)
    }

    /// Matches datagrams that have arrived with receive requests.
    pub(super) fn take_arrived(&self) {
        if self.has_datagrams() {
            let state = self.up_to_date();
            self.note_busy(&state);
        }
    }

    /// Matches arrived messages with requests; returns the queue's state.
    pub(super) fn up_to_date(&self) -> SpinMutexGuard<'_, State> {
        if !self.has_datagrams() {
            return self.state.lock();
        }
        // While the table of regions is locked, memory is not deregistered and unmapped during the copy. The UDP port's
        // driver also locks it before this state, so the order of locks is the same.
        let regions = lock(&self.port.regions);
        let mut state = self.state.lock();
        if let Some(shared) = self.mailbox.get() {
            let SharedMailbox { mailbox, .. } = shared;
            shared.empty(|cell| {
                let taken = self.hand_out(&mut state, (mailbox, cell), &regions);
                if taken.is_none() {
                    mailbox.ring.free(cell);
                }
            });
        }
        state
    }

    /// Delivers the message in `cell` to the next request, and frees the cell. `None` if it has no addressee
    /// any more, or no request is posted.
    fn hand_out(
        &self,
        state: &mut State,
        (mailbox, cell): (&Mailbox, Cell),
        regions: &RegionTable,
    ) -> Option<()> {
        let addressee = mailbox.ring.addressee(cell);
        let user = state.user_of(addressee).copied()?;
        let index = addressee.index();
        let ticket = self.ring.take(index as u16)?;
        self.collect(state);
        state.held.retain(|held| held.ticket != ticket);
        let completion = self.deliver(mailbox, cell, (ticket, regions));
        let wr_id = WrId(state.wr_ids[usize::from(ticket.slot)]);
        state.free.push(ticket.slot);
        if !completion.status.is_success() {
            if let Some(user) = state.user_of(addressee) {
                user.is_over = true;
            }
            fail_receiver(&self.port, index);
        }
        state.ready_for(user.recv_cq).push_back(WorkCompletion {
            wr_id,
            qp_num: user.qpn,
            ..completion
        });
        Some(())
    }

    fn deliver(
        &self,
        mailbox: &Mailbox,
        cell: Cell,
        (ticket, regions): (Ticket, &RegionTable),
    ) -> WorkCompletion {
        let requests = &self.requests;
        let position = ticket.request(requests.slots);
        mailbox.deliver(cell, (requests.ring, position), regions)
    }

    /// Reclaims the cells of dead senders. Returns whether messages wait, for which an event may not have been
    /// raised.
    pub(crate) fn reclaim(&self, is_dead: impl Fn(Holder) -> bool) -> bool {
        // While this lock is held, no messages are taken.
        let _state = self.state.lock();
        let shared = self.mailbox.get();
        shared.is_some_and(|shared| shared.mailbox.reclaim(shared.next(), is_dead))
    }
}

impl State {
    /// Returns the queue pair that is addressed, if it was not reset since.
    fn user_of(&mut self, addressee: Addressee) -> Option<&mut User> {
        let user = self.users.get_mut(addressee.index() as usize)?.as_mut()?;
        (user.addressee == addressee && !user.is_over).then_some(user)
    }
}
