//! Clients of RDMA: queue pairs whose requests threads answer, with the items that clients of TCP have. Each queue pair is
//! one thread's.
//!
//! A client attaches by a command over TCP, and its queue pair ends with that connection: also when the client is
//! killed. The queue pair is destroyed before what it holds is released, so that no READ of the client finds other bytes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use adverb_patterns::store::attach::{ACCESS, Hello, caps};
use adverb_patterns::store::cache::Cache;
use adverb_patterns::store::session::{Ends, Session, Turn};
use adverb_units::{Bytes, Span};
use adverb_verbs::{
    CompletionChannel, CompletionQueue, Connection, Context, CreateError, Endpoint, MemoryRegion,
    NotifyOn, PathOptions, PortCaps, QpAttr, QpInit, QpType, Qpn, QueuePair, WorkCompletion,
};

use crate::shared::Shared;

/// Completions that are taken at once.
const BATCH: usize = 32;
/// Polls that find nothing before the thread sleeps.
const POLLS: u32 = 20_000;
/// Longest sleep until the thread sees that it is to end.
const SLEEP: Span = Span::from_ms(100);

/// The queue pairs of a server.
pub struct Rdma<C: Context> {
    context: C,
    pd: C::Pd,
    port: PortCaps,
    secret: u64,
    inline: u32,
    /// Offset of the buffers in the region of the values.
    buffers: u64,
    threads: Vec<Thread<C>>,
    is_stopping: AtomicBool,
}

/// What a thread answers.
struct Thread<C: Context> {
    cq: C::Cq,
    channel: C::Channel,
    clients: Mutex<Vec<Option<Client<C>>>>,
}

impl<C: Context> Thread<C> {
    fn clients(&self) -> MutexGuard<'_, Vec<Option<Client<C>>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Client<C: Context> {
    qp: C::Qp,
    session: Session,
}

impl<C: Context> Client<C> {
    /// Destroys the queue pair, then releases what the client held.
    fn end(self, cache: &mut Cache) {
        drop(self.qp);
        self.session.end(cache);
    }
}

/// Identifies a client: its thread and its place there, and its queue pair, because places are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attachment(usize, usize, Qpn);

impl<C: Context> Rdma<C> {
    /// Returns a server for up to `most` clients, which `threads` answer. Their buffers follow `memory` for values; `secret`
    /// is a number that no client can predict.
    ///
    /// # Errors
    /// The device refuses.
    pub fn new(
        context: C,
        pd: C::Pd,
        (memory, most, threads): (Bytes, u32, u32),
        secret: u64,
    ) -> Result<Self, CreateError> {
        let threads = threads.clamp(1, most.max(1));
        let thread = |number| -> Result<_, CreateError> {
            let clients = (number..most).step_by(threads as usize).map(|_| None);
            let clients: Vec<_> = clients.collect();
            let channel = context.create_channel()?;
            let entries = clients.len() as u32 * caps(0).max_send_wr;
            let entries = entries.clamp(1, context.caps().max_cqe);
            Ok(Thread {
                cq: context.create_cq(entries, Some(&channel))?,
                channel,
                clients: Mutex::new(clients),
            })
        };
        Ok(Rdma {
            threads: (0..threads).map(thread).collect::<Result<_, _>>()?,
            port: context.port(context.port_num())?,
            inline: context.caps().max_inline_data.min(64),
            context,
            pd,
            secret,
            buffers: memory.get(),
            is_stopping: AtomicBool::new(false),
        })
    }

    /// Returns the memory of a region for values and for the buffers of clients.
    pub fn region(memory: Bytes, clients: u32) -> Bytes {
        Bytes::new(memory.get() + u64::from(clients) * Session::BUFFERS)
    }

    /// Returns the numbers of its threads.
    pub(crate) fn threads(&self) -> std::ops::Range<usize> {
        0..self.threads.len()
    }

    /// Connects a client's queue pair, for the thread that has the fewest.
    pub(crate) fn attach(
        &self,
        shared: &Shared<C>,
        hello: &Hello,
    ) -> Result<(Attachment, Hello), String> {
        let used = |thread: &usize| {
            let clients = self.threads[*thread].clients();
            let used = clients.iter().flatten().count();
            (used == clients.len(), used)
        };
        let thread = self.threads().min_by_key(used).unwrap_or_default();
        let mut clients = self.threads[thread].clients();
        let free = clients.iter().position(Option::is_none);
        let place = free.ok_or("all queue pairs are in use")?;
        let client = self.connect(shared, (thread, place), hello);
        let (client, endpoint) = client.map_err(|error| error.to_string())?;
        let attachment = Attachment(thread, place, client.qp.qpn());
        clients[place] = Some(client);
        let region = shared.memory().remote(0);
        Ok((attachment, Hello { endpoint, region }))
    }

    fn connect(
        &self,
        shared: &Shared<C>,
        (thread, place): (usize, usize),
        hello: &Hello,
    ) -> Result<(Client<C>, Endpoint), Box<dyn std::error::Error>> {
        let init = QpInit::new(QpType::Rc, &self.threads[thread].cq, caps(self.inline));
        let qp = self.context.create_qp(&self.pd, &init)?;
        let port = self.context.port_num();
        qp.modify(&QpAttr::to_init(port, ACCESS))?;
        let number = place * self.threads.len() + thread;
        let buffers = self.buffers + number as u64 * Session::BUFFERS;
        let session = Session::new(place as u32, buffers, &self.ends(shared, &qp))?;
        let local = Endpoint::new(qp.qpn(), self.secret, (port, &self.port));
        let most = self.context.caps().max_qp_rd_atom;
        qp.connect(&Connection {
            local,
            remote: hello.endpoint,
            path_mtu: self.port.active_mtu,
            max_rd_atomic: 1.min(most),
            max_dest_rd_atomic: most,
            options: PathOptions::default(),
        })?;
        Ok((Client { qp, session }, local))
    }

    fn ends<'a>(&self, shared: &'a Shared<C>, qp: &'a C::Qp) -> Ends<'a, C> {
        Ends {
            qp,
            mr: shared.memory(),
            inline: self.inline,
        }
    }

    /// Ends a client's connection.
    pub(crate) fn detach(&self, shared: &Shared<C>, Attachment(thread, place, qpn): Attachment) {
        let place = &mut self.threads[thread].clients()[place];
        if let Some(client) = place.take_if(|client| client.qp.qpn() == qpn) {
            client.end(&mut shared.items().cache);
        }
    }

    /// Ends the threads.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Answers requests of one thread's clients until it is stopped.
    pub(crate) fn run(&self, thread: usize, shared: &Shared<C>) {
        let thread = &self.threads[thread];
        let mut completions = [WorkCompletion::default(); BATCH];
        let (mut fruitless, mut unacknowledged) = (0, 0);
        while !self.is_stopping.load(Ordering::Relaxed) {
            let Ok(n) = thread.cq.poll(&mut completions) else {
                // The queue has room for all completions: the device has failed.
                break;
            };
            for wc in &completions[..n] {
                self.completed(thread, shared, wc);
            }
            fruitless = if n == 0 { fruitless + 1 } else { 0 };
            // Poll, arm, poll again, sleep: completions before arming raise no event (ibv_get_cq_event(3)).
            match fruitless {
                POLLS => drop(thread.cq.req_notify(NotifyOn::Any)),
                _ if fruitless > POLLS => {
                    if let Ok(Some(_)) = thread.channel.get_event(SLEEP) {
                        (fruitless, unacknowledged) = (0, unacknowledged + 1);
                    }
                }
                _ => {}
            }
        }
        thread.cq.ack_events(unacknowledged);
    }

    fn completed(&self, thread: &Thread<C>, shared: &Shared<C>, wc: &WorkCompletion) {
        let number = Session::number(wc);
        let mut clients = thread.clients();
        let client = clients.get_mut(number as usize).and_then(Option::as_mut);
        // Completions of a queue pair that is gone may be left.
        let Some(client) = client.filter(|client| client.qp.qpn() == wc.qp_num) else {
            return;
        };
        let now = shared.now();
        let ends = self.ends(shared, &client.qp);
        let cache = &mut shared.items().cache;
        let is_answered = wc.status.is_success()
            && matches!(
                client.session.completed(wc, &ends, (cache, now)),
                Ok(Turn::Answered | Turn::Nothing)
            );
        if !is_answered && let Some(client) = clients[number as usize].take() {
            client.end(cache);
        }
    }
}
