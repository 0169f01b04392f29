//! A process that dies while it sends to a UD queue pair that others send to as well: the queue pair
//! keeps receiving, every message is whole, no wake-up is lost, and every cell is reclaimed. The same
//! with a shared receive queue.
//!
//! As in `kill.rs`, the *victim* is a child process, stepped to any instruction of one send, or
//! killed under load in all its threads. A *bystander* sends to the same queue pair.
//! `ADVERB_KILL_ALL=1` tries every instruction.
#![allow(unsafe_code)]

mod common;

use std::time::{Duration, Instant};

use adverb_softnic::{SoftAh, SoftCq, SoftQp, SoftSrq};
use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AddressHandle, CompletionChannel, CompletionQueue, Context, Destination, MemoryRegion,
    NotifyOn, Operation, QpCaps, QpState, Qpn, QueuePair, RecvRequest, SendFlags, SendRequest, Sge,
    SharedReceiveQueue, SrqCaps, WcStatus, WorkCompletion, WrId,
};
use common::victim::{Killing, Victim, hear, kill_all_along, mark, stay_on_this_cpu, tell};
use common::{
    End, QKEY, Random, device_files, is_gone, isolated_with, not_run, slot_of, wait_at_most,
    wait_until,
};

/// Receives of the queue pair that all send to.
const RECEIVES: u64 = 16;
/// The same under load: enough that senders nearly always find one.
const LOAD_RECEIVES: u64 = 512;
/// Room of a receive, with the header.
const ROOM: u64 = 4096;
/// Additional bytes of messages under load: a sender that copies longer is killed there more often.
const LOAD_LENGTH: u64 = 3600;
const LOAD_SENDERS: u64 = 100;
const GRH: u64 = 40;
/// The senders that are not victims.
const BYSTANDER: u64 = 2;
/// Threads of a victim under load: most are stopped anywhere in a send at any time.
const THREADS: u64 = 24;

fn caps(receives: u64) -> QpCaps {
    QpCaps {
        max_recv_wr: receives as u32,
        max_inline_data: 256,
        ..QpCaps::default()
    }
}

/// Message `n` of sender `who`.
fn message(who: u64, n: u64) -> Vec<u8> {
    let more = if who < LOAD_SENDERS { 0 } else { LOAD_LENGTH };
    let length = 16 + (who * 31 + n * 7) % 180 + more;
    let mut bytes = [who.to_ne_bytes(), n.to_ne_bytes()].concat();
    bytes.extend((16..length).map(|i| (who * 13 + n * 5 + i) as u8));
    bytes
}

/// A sender of datagrams.
struct Client<'e> {
    end: &'e End,
    cq: SoftCq,
    qp: SoftQp,
    ah: SoftAh,
    who: u64,
    sent: u64,
}

impl<'e> Client<'e> {
    fn new(end: &'e End, who: u64) -> Self {
        let cq = end.context.create_cq(64, None).unwrap();
        Client {
            qp: end.datagram_qp(&cq, caps(1)),
            ah: end.ah(),
            end,
            cq,
            who,
            sent: 0,
        }
    }

    /// Builds the next message.
    fn prepare(&mut self) -> [Sge<'e>; 1] {
        let message = message(self.who, self.sent);
        self.sent += 1;
        let at = self.who % THREADS * ROOM;
        self.end.mr.write(at, &message).unwrap();
        [self.end.mr.sge(at, message.len() as u32).unwrap()]
    }

    fn request<'a>(&'a self, sges: &'a [Sge<'a>], to: Qpn) -> SendRequest<'a> {
        let is_small = self.who < LOAD_SENDERS;
        let inline = if is_small {
            SendFlags::INLINE
        } else {
            SendFlags::empty()
        };
        let flags = SendFlags::SIGNALED | inline;
        let request = SendRequest::new(WrId(self.sent), Operation::Send, sges);
        request.with_flags(flags).to(Destination {
            ah: self.ah.handle(),
            qpn: to,
            qkey: QKEY,
        })
    }

    fn send(&mut self, to: Qpn) {
        let sges = self.prepare();
        self.qp.post_send(&[self.request(&sges, to)]).unwrap();
        let mut done = [WorkCompletion::default(); 2];
        assert_eq!(self.cq.poll(&mut done), Ok(1));
        assert_eq!(done[0].status, WcStatus::Success);
    }
}

/// What child processes do.
fn play(role: &str) {
    match role {
        "blast" => blasting_victim(),
        role => stepped_victim(role == "warm"),
    }
}

fn number(line: &str) -> Qpn {
    Qpn::new(line.trim().parse().unwrap()).unwrap()
}

fn stepped_victim(is_warm: bool) {
    let end = End::new(Bytes::kib(64));
    let mut client = Client::new(&end, 1);
    // SAFETY: gettid has no preconditions.
    let thread = unsafe { libc::gettid() };
    tell(&format!("{} {thread}", client.qp.qpn().get()));
    let to = number(&hear());
    if is_warm {
        client.send(to);
    }
    tell("ready");
    hear();
    let sges = client.prepare();
    let request = client.request(&sges, to);
    mark();
    let _ = client.qp.post_send(&[request]);
    mark();
    loop {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn blasting_victim() {
    let end = End::new(Bytes::new(THREADS * ROOM));
    tell("ready");
    let to = number(&hear());
    std::thread::scope(|scope| {
        for who in 0..THREADS {
            let mut client = Client::new(&end, LOAD_SENDERS + who);
            scope.spawn(move || {
                // The same message again and again: hardly any time passes outside of sending.
                let sges = client.prepare();
                let request = client.request(&sges, to);
                let list = [request; 32];
                let mut done = [WorkCompletion::default(); 32];
                loop {
                    client.qp.post_send(&list).unwrap();
                    assert_eq!(client.cq.poll(&mut done), Ok(list.len()));
                }
            });
        }
    });
}

/// Where the queue pair that all send to has its receives from.
#[derive(Clone, Copy, Debug)]
enum From {
    Own,
    /// Its own, with many other queue pairs on the completion queue.
    OwnMarked,
    Shared,
}

/// The queue pair that all send to.
struct Server<'e> {
    end: &'e End,
    qp: SoftQp,
    /// Its shared receive queue, if it has one.
    srq: Option<SoftSrq>,
    receives: u64,
    posted: u64,
    taken: u64,
    /// For each sender its last message.
    last: std::collections::HashMap<(Qpn, u64), u64>,
}

impl<'e> Server<'e> {
    fn new(end: &'e End, receives: u64, from: From) -> Self {
        let srq = match from {
            From::Own | From::OwnMarked => None,
            From::Shared => {
                let caps = SrqCaps {
                    max_wr: receives as u32,
                    max_sge: 1,
                };
                Some(end.context.create_srq(&end.pd, &caps).unwrap())
            }
        };
        let qp = match &srq {
            None => end.datagram_qp(&end.cq, caps(receives)),
            Some(srq) => end.datagram_qp_with_srq(&end.cq, caps(0), srq),
        };
        Server {
            qp,
            srq,
            receives,
            end,
            posted: 0,
            taken: 0,
            last: Default::default(),
        }
    }

    fn post(&mut self) {
        while self.posted < self.taken + self.receives {
            let at = self.posted % self.receives * ROOM;
            let sges = [self.end.mr.sge(at, ROOM as u32).unwrap()];
            let request = RecvRequest::new(WrId(self.posted), &sges);
            match &self.srq {
                None => self.qp.post_recv(&[request]).unwrap(),
                Some(srq) => srq.post_recv(&[request]).unwrap(),
            }
            self.posted += 1;
        }
    }

    /// A new victim counts its messages from 0.
    fn forget_victims(&mut self) {
        self.last.retain(|(_, who), _| *who == BYSTANDER);
    }

    /// Takes and checks the messages that have arrived; returns their senders.
    fn take(&mut self) -> Vec<u64> {
        let all = self.end.poll();
        all.iter()
            .map(|completion| self.check(completion))
            .collect()
    }

    fn check(&mut self, completion: &WorkCompletion) -> u64 {
        assert_eq!(completion.status, WcStatus::Success);
        assert_eq!(completion.wr_id, WrId(self.taken), "receives in order");
        let at = self.taken % self.receives * ROOM + GRH;
        self.taken += 1;
        let mut bytes = vec![0; (u64::from(completion.byte_len) - GRH) as usize];
        self.end.mr.read(at, &mut bytes).unwrap();
        let word = |i: usize| u64::from_ne_bytes(bytes[i..i + 8].try_into().unwrap());
        let (who, n) = (word(0), word(8));
        assert!(bytes == message(who, n), "message {n} of {who} is torn");
        let source = (completion.src_qp.unwrap(), who);
        if let Some(last) = self.last.insert(source, n) {
            let is_repeated = who >= LOAD_SENDERS;
            assert!(n > last || is_repeated, "message {n} of {who} after {last}");
        }
        who
    }

    /// All receives get a message of `client` before any is taken: the cells are enough.
    fn fill(&mut self, client: &mut Client<'_>) {
        self.take();
        self.post();
        for _ in 0..self.receives {
            client.send(self.qp.qpn());
        }
        let came = self.take();
        assert_eq!(came, vec![client.who; self.receives as usize]);
        assert_eq!(self.qp.state(), QpState::Rts);
    }
}

fn kill_after(
    server: &mut Server<'_>,
    bystander: &mut Client<'_>,
    role: &str,
    most: Option<u64>,
) -> Result<Killing, String> {
    let mut victim = Victim::start(role);
    let hello = victim.hear();
    let traced = victim.trace(&hello)?;
    let slot = slot_of(number(hello.split(' ').next().unwrap()));
    server.take();
    server.forget_victims();
    server.post();
    // The warm-up is to open the way to this channel.
    server.end.cq.req_notify(NotifyOn::Any).unwrap();
    victim.tell(&server.qp.qpn().get().to_string());
    assert_eq!(victim.hear(), "ready");
    server.take();
    let channel = &server.end.channel;
    while channel.get_event(Span::ZERO).unwrap().is_some() {}
    server.end.cq.req_notify(NotifyOn::Any).unwrap();
    victim.tell("go");
    let length = victim.kill_after(traced, most);
    if role == "warm" {
        assert!(wait_until(|| is_gone(slot)));
    } else if !wait_at_most(Duration::from_millis(100), || is_gone(slot)) {
        // Nobody had heard of it yet: the next one to open the device removes what it left.
        drop(End::new(Bytes::new(4096)));
        assert!(is_gone(slot));
    }
    let came = server.take();
    assert!(came.is_empty() || came == [1], "{came:?}");
    if !came.is_empty() {
        let event = channel.get_event(Span::from_secs(2)).unwrap();
        assert!(
            event.is_some(),
            "{role} at {most:?}: a message nobody is woken for"
        );
    }
    server.fill(bystander);
    Ok(Killing {
        length,
        arrived: came.len(),
    })
}

#[test]
fn killed_in_the_middle_of_a_datagram() {
    const TEST: &str = "killed_in_the_middle_of_a_datagram";
    isolated_with(TEST, play, || {
        let mut random = Random::from_env(TEST);
        for from in [From::Own, From::OwnMarked, From::Shared] {
            for role in ["warm", "cold"] {
                let here = End::new(Bytes::new(RECEIVES * ROOM));
                let _crowd = here.crowd(if let From::OwnMarked = from { 8 } else { 0 });
                let other = End::new(Bytes::kib(64));
                let mut server = Server::new(&here, RECEIVES, from);
                let mut bystander = Client::new(&other, BYSTANDER);
                stay_on_this_cpu(); // not the engines, which run already
                server.fill(&mut bystander);
                let budget = (Duration::from_millis(1500), &mut random);
                kill_all_along(
                    &format!("a datagram, {role}, {from:?}"),
                    1,
                    budget,
                    |most| kill_after(&mut server, &mut bystander, role, most),
                );
            }
        }
    });
}

/// More than the queue pair has cells to spare.
const HOLDERS: usize = 40;
/// Instructions before a message is published, where its cell certainly is claimed.
const BEFORE: u64 = 10;

#[test]
fn cells_of_the_dead_come_back() {
    const TEST: &str = "cells_of_the_dead_come_back";
    isolated_with(TEST, play, || {
        let here = End::new(Bytes::new(RECEIVES * ROOM));
        let other = End::new(Bytes::kib(64));
        let mut server = Server::new(&here, RECEIVES, From::Own);
        let mut bystander = Client::new(&other, BYSTANDER);
        stay_on_this_cpu();
        server.fill(&mut bystander);
        let mut kill = |k| kill_after(&mut server, &mut bystander, "warm", k);
        let length = match kill(None) {
            Ok(whole) => whole.length.expect("stepped to the end"),
            Err(why) => return not_run(&format!("cells of the dead: {why}")),
        };
        let (mut before, mut after) = (0, length);
        while after - before > 1 {
            let k = before.midpoint(after);
            match kill(Some(k)).unwrap().arrived {
                0 => before = k,
                _ => after = k,
            }
        }
        for _ in 0..HOLDERS {
            assert_eq!(kill(Some(before - BEFORE)).unwrap().arrived, 0);
        }
        println!("{length} instructions, published by number {after}");
    });
}

/// Messages of a victim before it is killed, at most.
const LOAD: u64 = 1_500;

/// Serves the bystander and the victim until `is_enough` messages of the victim have arrived; returns
/// their number.
fn under_load(
    server: &mut Server<'_>,
    bystander: &mut Client<'_>,
    mut is_enough: impl FnMut(usize) -> bool,
) -> usize {
    let mut of_victim = 0;
    let timeout = Instant::now() + Duration::from_secs(30);
    while !is_enough(of_victim) {
        assert!(Instant::now() < timeout, "the victim sent {of_victim}");
        server.post();
        bystander.send(server.qp.qpn());
        let came = server.take();
        of_victim += came.iter().filter(|who| **who != bystander.who).count();
    }
    of_victim
}

fn kill_under_load(test: &str, from: From) {
    isolated_with(test, play, || {
        let mut random = Random::from_env(test);
        let here = End::new(Bytes::new(LOAD_RECEIVES * ROOM));
        let other = End::new(Bytes::kib(64));
        let mut server = Server::new(&here, LOAD_RECEIVES, from);
        let mut bystander = Client::new(&other, BYSTANDER);
        let living = device_files().len();
        let mut of_victims = 0;
        for _ in 0..20 {
            server.forget_victims();
            let mut victim = Victim::start("blast");
            assert_eq!(victim.hear(), "ready");
            victim.tell(&server.qp.qpn().get().to_string());
            // Under load by count, at any instant by time: a slow machine only takes longer.
            let load = random.within(1..LOAD) as usize;
            of_victims += under_load(&mut server, &mut bystander, |came| came >= load);
            let end = Instant::now() + Duration::from_micros(random.within(0..5_000));
            of_victims += under_load(&mut server, &mut bystander, |_| Instant::now() > end);
            victim.kill();
            let is_gone = || device_files().len() == living;
            assert!(wait_until(is_gone));
            server.fill(&mut bystander);
        }
        println!("{of_victims} messages of victims");
    });
}

#[test]
fn many_threads_killed_under_load_leave_a_queue_pair_that_works() {
    kill_under_load(
        "many_threads_killed_under_load_leave_a_queue_pair_that_works",
        From::Own,
    );
}

#[test]
fn many_threads_killed_under_load_leave_a_shared_receive_queue_that_works() {
    kill_under_load(
        "many_threads_killed_under_load_leave_a_shared_receive_queue_that_works",
        From::Shared,
    );
}
