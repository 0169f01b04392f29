//! A process that dies while it sends to a queue pair which takes its receives from a shared queue:
//! the other queue pairs of the queue keep receiving, and no receive is lost.
//!
//! As in `kill.rs`, the *victim* is a child process, stepped to any instruction of one send, and a
//! *bystander* sends to another queue pair of the same queue. RC: the receive that the victim held
//! is flushed. UC: it waits for another message. `ADVERB_KILL_ALL=1` tries every instruction.
#![allow(unsafe_code)]

mod common;

use std::collections::HashSet;
use std::time::Duration;

use adverb_softnic::{SoftQp, SoftSrq};
use adverb_units::Bytes;
use adverb_verbs::{
    AsyncEvent, Context, MemoryRegion, Operation, PathMtu, Psn, QpCaps, QpInit, QpState, QpType,
    Qpn, QueuePair, RecvRequest, SendFlags, SendRequest, SharedReceiveQueue, SrqCaps, WcStatus,
    WorkCompletion, WrId,
};
use common::victim::{Killing, Victim, hear, kill_all_along, mark, stay_on_this_cpu, tell};
use common::{Address, End, Random, connect, connect_uc, is_gone, isolated_with, wait_until};

/// Receives of the shared queue.
const RECEIVES: u64 = 16;
/// Room of a receive; messages fill it.
const ROOM: u32 = 64;

fn message(who: u8) -> [u8; ROOM as usize] {
    std::array::from_fn(|i| who.wrapping_mul(31).wrapping_add(i as u8) | 1)
}

fn service(role: &str) -> QpType {
    match role {
        "rc" => QpType::Rc,
        "uc" => QpType::Uc,
        other => panic!("no role {other}"),
    }
}

fn make(end: &End, service: QpType, srq: Option<&SoftSrq>) -> SoftQp {
    let init = QpInit::new(service, &end.cq, QpCaps::default());
    let made = match srq {
        None => end.context.create_qp(&end.pd, &init),
        Some(srq) => end.context.create_qp_with_srq(&end.pd, &init, srq),
    };
    made.unwrap()
}

fn connect_as(service: QpType, end: &End, qp: &SoftQp, dest: Qpn) {
    if service == QpType::Rc {
        return connect(end, qp, dest);
    }
    let to = (end.local_address(), dest);
    connect_uc(qp, to, Psn::new(0), PathMtu::B4096);
}

fn stepped_victim(role: &str) {
    let service = service(role);
    let end = End::new(Bytes::kib(4));
    let qp = make(&end, service, None);
    // SAFETY: gettid has no preconditions.
    let thread = unsafe { libc::gettid() };
    tell(&format!("{} {thread}", end.address(&qp).to_line()));
    connect_as(service, &end, &qp, Address::from_line(&hear()).qpn);
    end.mr.write(0, &message(1)).unwrap();
    send(&end, &qp); // opens the way
    tell("ready");
    hear();
    let sges = [end.mr.sge(0, ROOM).unwrap()];
    let request = SendRequest::new(WrId(1), Operation::Send, &sges);
    mark();
    let _ = qp.post_send(&[request]);
    mark();
    loop {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn send(end: &End, qp: &SoftQp) {
    let sges = [end.mr.sge(0, ROOM).unwrap()];
    let request = SendRequest::new(WrId(0), Operation::Send, &sges);
    qp.post_send(&[request.with_flags(SendFlags::SIGNALED)])
        .unwrap();
    assert_eq!(end.poll_one("a send").status, WcStatus::Success);
}

/// The shared queue and the receives that it should hold.
struct Server<'e> {
    end: &'e End,
    srq: SoftSrq,
    /// Connected to the bystander.
    own: SoftQp,
    posted: HashSet<u64>,
    next: u64,
}

impl<'e> Server<'e> {
    fn new(end: &'e End, bystander: &End, theirs: &SoftQp) -> Self {
        let caps = SrqCaps {
            max_wr: RECEIVES as u32,
            max_sge: 2,
        };
        let srq = end.context.create_srq(&end.pd, &caps).unwrap();
        let own = make(end, QpType::Rc, Some(&srq));
        connect(end, &own, theirs.qpn());
        connect(bystander, theirs, own.qpn());
        Server {
            end,
            srq,
            own,
            posted: HashSet::new(),
            next: 0,
        }
    }

    fn post(&mut self) {
        while self.posted.len() < RECEIVES as usize {
            let at = self.next % RECEIVES * u64::from(ROOM);
            let sges = [self.end.mr.sge(at, ROOM).unwrap()];
            let request = RecvRequest::new(WrId(self.next), &sges);
            self.srq.post_recv(&[request]).unwrap();
            self.posted.insert(self.next);
            self.next += 1;
        }
    }

    /// Each receive completes once.
    fn take(&mut self, completion: &WorkCompletion) {
        let is_known = self.posted.remove(&completion.wr_id.0);
        assert!(is_known, "completed twice: {completion:?}");
        if completion.status.is_success() {
            assert_eq!(completion.byte_len, ROOM);
        }
    }

    /// Exactly the receives that have not completed take a message of the bystander's.
    fn drain(&mut self, bystander: &End, theirs: &SoftQp) {
        while !self.posted.is_empty() {
            send(bystander, theirs);
            let completion = self.end.poll_one("a message of the bystander");
            assert_eq!(completion.status, WcStatus::Success);
            assert_eq!(completion.qp_num, self.own.qpn());
            self.take(&completion);
        }
        assert!(self.end.poll().is_empty());
        self.post();
    }
}

/// Kills a victim; counts the receives that were flushed.
fn kill_after(
    server: &mut Server<'_>,
    bystander: (&End, &SoftQp),
    (role, most): (&str, Option<u64>),
    flushed: &mut usize,
) -> Result<Killing, String> {
    let mut victim = Victim::start(role);
    let hello = victim.hear();
    let address = Address::from_line(&hello);
    let traced = victim.trace(&hello)?;
    let here = server.end;
    let qp = make(here, service(role), Some(&server.srq));
    connect_as(service(role), here, &qp, address.qpn);
    victim.tell(&here.address(&qp).to_line());
    assert_eq!(victim.hear(), "ready");
    server.take(&here.poll_one("the warm-up"));
    victim.tell("go");
    let length = victim.kill_after(traced, most);
    let is_gone = || is_gone(address.slot());
    assert!(wait_until(is_gone));
    let came = here.poll();
    came.iter().for_each(|completion| server.take(completion));
    let arrived = came.iter().filter(|c| c.status.is_success()).count();
    assert!(came.len() <= 1, "{came:?}");
    if service(role) == QpType::Rc {
        assert_eq!(qp.state(), QpState::Err);
        let told = here.context.async_event().unwrap();
        assert_eq!(told, Some(AsyncEvent::LastWqeReached(qp.qpn())));
    } else {
        assert_eq!((qp.state(), arrived), (QpState::Rts, came.len()));
    }
    server.drain(bystander.0, bystander.1);
    drop(qp);
    server.drain(bystander.0, bystander.1);
    *flushed += came.len() - arrived;
    Ok(Killing { length, arrived })
}

#[test]
fn killed_in_the_middle_of_a_message_to_a_shared_queue() {
    const TEST: &str = "killed_in_the_middle_of_a_message_to_a_shared_queue";
    isolated_with(TEST, stepped_victim, || {
        let mut random = Random::from_env(TEST);
        for role in ["rc", "uc"] {
            let (here, there) = (End::new(Bytes::kib(4)), End::new(Bytes::kib(4)));
            there.mr.write(0, &message(2)).unwrap();
            let theirs = make(&there, QpType::Rc, None);
            let mut server = Server::new(&here, &there, &theirs);
            stay_on_this_cpu(); // not the engines, which run already
            server.post();
            server.drain(&there, &theirs);
            let mut flushed = 0;
            let budget = (Duration::from_millis(2200), &mut random);
            kill_all_along(role, 1, budget, |most| {
                kill_after(&mut server, (&there, &theirs), (role, most), &mut flushed)
            });
            println!("{role}: {flushed} receives were flushed");
        }
    });
}
