//! A peer that is killed, or stopped, at any instruction leaves the others alive.
//!
//! The *victim* is a child process (this binary again, in [`role`]). The *survivor* traces it,
//! steps k instructions into one call of the device (the victim marks its begin and end by `int3`)
//! and kills it there. A *bystander*, a third port, is connected to the survivor's same completion
//! queue. `ADVERB_KILL_ALL=1` tries every k instead of one at random out of each stretch.
#![allow(unsafe_code)]

mod common;

use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

use adverb_softnic::{SoftDevice, SoftQp};
use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, CompletionQueue, Context, Device, Imm, MemoryRegion, ModifyQpError, NotifyOn,
    Operation, QpAttr, QpState, QueuePair, RecvRequest, RetryCount, SendFlags, SendRequest,
    WcOpcode, WcStatus, WorkCompletion, WrId,
};
use common::victim::{Killing, Victim, hear, kill_all_along, mark, stay_on_this_cpu, tell};
use common::{
    Address, End, Random, child, connect, connect_with, device_dir, device_files, is_gone,
    isolated, isolated_with, not_run, wait_until,
};

/// What the victim is in the middle of when it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VictimCall {
    SendInline,
    /// The first request of a connection: reads the peer's queue pair and maps its memory.
    SendCold,
    SendList,
    WriteWithImm,
    Write,
    Read,
    FetchAdd,
    PostRecv,
    Poll,
    Notify,
    Register,
    CreateQp,
    Connect,
    Destroy,
    Open,
}

impl VictimCall {
    const ALL: [VictimCall; 15] = [
        VictimCall::SendInline,
        VictimCall::SendCold,
        VictimCall::SendList,
        VictimCall::WriteWithImm,
        VictimCall::Write,
        VictimCall::Read,
        VictimCall::FetchAdd,
        VictimCall::PostRecv,
        VictimCall::Poll,
        VictimCall::Notify,
        VictimCall::Register,
        VictimCall::CreateQp,
        VictimCall::Connect,
        VictimCall::Destroy,
        VictimCall::Open,
    ];

    fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|call| format!("{call:?}") == name)
    }

    /// Receives of the survivor that the call completes.
    fn arrivals(self) -> usize {
        match self {
            VictimCall::SendInline | VictimCall::SendCold | VictimCall::WriteWithImm => 1,
            VictimCall::SendList => 3,
            _ => 0,
        }
    }

    /// Whether the victim exchanges a message with the survivor before.
    fn is_warm(self) -> bool {
        !matches!(self, VictimCall::SendCold | VictimCall::Connect)
    }

    /// Messages of the survivor to the victim before the call.
    fn messages_to_victim(self) -> u64 {
        match self {
            VictimCall::Poll | VictimCall::Notify => 2,
            VictimCall::PostRecv => 1,
            _ => 0,
        }
    }
}

/// Receives that the survivor posts to a victim.
const RECEIVES: u64 = 6;
/// Room of a receive; messages are shorter.
const ROOM: u64 = 256;
/// Where the survivor's memory is written to by WRITE.
const WRITTEN: u64 = RECEIVES * ROOM;
const WRITE_LENGTH: u32 = 200;
/// Where messages to the victim and to the bystander are.
const OWN: u64 = WRITTEN + 1024;
/// What untouched memory holds.
const UNTOUCHED: u8 = 0xee;

/// Byte `i` of message `n` of the victim. Never [`UNTOUCHED`].
fn pattern(n: u64, i: u64) -> u8 {
    ((n * 31 + i * 7) % 0xe0) as u8
}

fn message(n: u64, length: u64) -> Vec<u8> {
    (0..length).map(|i| pattern(n, i)).collect()
}

/// Makes the untouched word at [`WRITTEN`] what a WRITE of message 1 would make it.
fn addend() -> u64 {
    let new = message(1, 8).try_into().expect("8 bytes");
    u64::from_ne_bytes(new).wrapping_sub(u64::from_ne_bytes([UNTOUCHED; 8]))
}

// ---------------------------------------------------------------------------------------------
// The victim

/// What child processes do.
fn play(role: &str) {
    match role {
        "blast" => blasting_victim(),
        "alone" => lonely_victim(),
        "leaves" => leaving_peer(),
        "executes" => executing_peer(),
        "executed" => executed_peer(),
        name => stepped_victim(VictimCall::named(name).expect("a role")),
    }
}

fn stepped_victim(call: VictimCall) {
    let end = End::new(Bytes::new(4096));
    let qp = end.qp();
    // SAFETY: gettid has no preconditions.
    let thread = unsafe { libc::gettid() };
    tell(&format!("{} {thread}", end.address(&qp).to_line()));
    let survivor = Address::from_line(&hear());
    end.mr.write(0, &message(1, 1024)).unwrap();
    end.mr.write(1024, &message(0, 1024)).unwrap();
    if call != VictimCall::Connect {
        connect(&end, &qp, survivor.qpn);
    }
    if call.is_warm() {
        let sge = [end.mr.sge(1024, 16).unwrap()];
        let request = SendRequest::new(WrId(0), Operation::Send, &sge);
        qp.post_send(&[request.with_flags(SendFlags::SIGNALED)])
            .unwrap();
        assert_eq!(end.poll_one("warm-up").status, WcStatus::Success);
        let remote = survivor.memory.at(WRITTEN + 512);
        let request = SendRequest::new(WrId(0), Operation::RdmaRead(remote), &sge);
        qp.post_send(&[request.with_flags(SendFlags::SIGNALED)])
            .unwrap();
        assert_eq!(end.poll_one("warm-up").status, WcStatus::Success);
    }
    if matches!(call, VictimCall::Poll | VictimCall::Notify) {
        let sge = [end.mr.sge(2048, 16).unwrap()];
        qp.post_recv(&[
            RecvRequest::new(WrId(1), &sge),
            RecvRequest::new(WrId(2), &sge),
        ])
        .unwrap();
    }
    tell("ready");
    hear();
    perform(call, &end, qp, survivor);
    loop {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn perform(call: VictimCall, end: &End, qp: SoftQp, survivor: Address) {
    let (small, large) = (
        [end.mr.sge(0, 16).unwrap()],
        [
            end.mr.sge(0, 40).unwrap(),
            end.mr.sge(40, WRITE_LENGTH - 40).unwrap(),
        ],
    );
    let target = survivor.memory.at(WRITTEN);
    let word = [end.mr.sge(3072, 8).unwrap()];
    let inline = SendRequest::new(WrId(1), Operation::Send, &small)
        .with_flags(SendFlags::SIGNALED | SendFlags::INLINE);
    let mut polled = [WorkCompletion::default(); 4];
    match call {
        VictimCall::SendInline | VictimCall::SendCold => {
            mark();
            let _ = qp.post_send(&[inline]);
            mark();
        }
        VictimCall::SendList => {
            mark();
            let _ = qp.post_send(&[inline, inline, inline]);
            mark();
        }
        VictimCall::WriteWithImm | VictimCall::Write | VictimCall::Read | VictimCall::FetchAdd => {
            let (operation, sges) = match call {
                VictimCall::WriteWithImm => {
                    (Operation::RdmaWriteWithImm(target, Imm(77)), &large[..])
                }
                VictimCall::Write => (Operation::RdmaWrite(target), &large[..]),
                VictimCall::FetchAdd => (Operation::FetchAdd(target, addend()), &word[..]),
                _ => (Operation::RdmaRead(target), &large[..]),
            };
            let request = SendRequest::new(WrId(1), operation, sges);
            let request = request.with_flags(SendFlags::SIGNALED);
            mark();
            let _ = qp.post_send(&[request]);
            mark();
        }
        VictimCall::PostRecv => {
            let request = RecvRequest::new(WrId(1), &small);
            mark();
            let _ = qp.post_recv(&[request]);
            mark();
        }
        VictimCall::Poll => {
            mark();
            let _ = end.cq.poll(&mut polled);
            mark();
        }
        VictimCall::Notify => {
            mark();
            let _ = end.cq.req_notify(NotifyOn::Any);
            mark();
        }
        VictimCall::Register => {
            mark();
            let made = end
                .context
                .alloc_mr(&end.pd, Bytes::new(8192), AccessFlags::LOCAL_WRITE);
            mark();
            drop(made);
        }
        VictimCall::CreateQp => {
            mark();
            let made = end.qp();
            mark();
            drop(made);
        }
        VictimCall::Connect => {
            mark();
            connect(end, &qp, survivor.qpn);
            mark();
        }
        VictimCall::Destroy => {
            mark();
            drop(qp);
            mark();
        }
        VictimCall::Open => {
            mark();
            let made = SoftDevice::new().open();
            mark();
            drop(made);
        }
    }
}

// ---------------------------------------------------------------------------------------------
// The survivor

/// The process that outlives all victims of a test.
struct Scene {
    end: End,
    bystander: End,
    own: SoftQp,
    other: SoftQp,
}

impl Scene {
    fn new() -> Self {
        // As in a C program, writing to a pipe after the victim's death is fatal.
        // SAFETY: sets a default disposition; no handler is involved.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let (end, bystander) = (End::new(Bytes::kib(64)), End::new(Bytes::kib(4)));
        let (own, other) = (end.qp(), bystander.qp());
        connect(&end, &own, other.qpn());
        connect(&bystander, &other, own.qpn());
        Scene {
            end,
            bystander,
            own,
            other,
        }
    }

    /// A message from the bystander, and one back.
    fn ping(&self) {
        let (here, there) = (&self.end, &self.bystander);
        let target = [here.mr.sge(OWN, 16).unwrap()];
        self.own
            .post_recv(&[RecvRequest::new(WrId(500), &target)])
            .unwrap();
        let back = [there.mr.sge(64, 16).unwrap()];
        self.other
            .post_recv(&[RecvRequest::new(WrId(600), &back)])
            .unwrap();
        let source = [there.mr.sge(0, 16).unwrap()];
        let send = SendRequest::new(WrId(501), Operation::Send, &source);
        self.other
            .post_send(&[send.with_flags(SendFlags::SIGNALED)])
            .unwrap();
        let got = here.poll_one("a ping to the survivor");
        assert_eq!((got.wr_id, got.status), (WrId(500), WcStatus::Success));
        let send = SendRequest::new(WrId(601), Operation::Send, &target);
        self.own
            .post_send(&[send.with_flags(SendFlags::SIGNALED)])
            .unwrap();
        let sent = here.poll_one("a ping back");
        assert_eq!((sent.wr_id, sent.status), (WrId(601), WcStatus::Success));
        for _ in 0..2 {
            let got = there.poll_one("a ping to the bystander");
            assert_eq!(got.status, WcStatus::Success, "{got:?}");
        }
    }
}

fn kill_after(scene: &Scene, call: VictimCall, most: Option<u64>) -> Result<Killing, String> {
    let mut victim = Victim::start(&format!("{call:?}"));
    let here = &scene.end;
    let qp = here.qp();
    let hello = victim.hear();
    let address = Address::from_line(&hello);
    let traced = victim.trace(&hello)?;
    here.mr.write(0, &vec![UNTOUCHED; OWN as usize]).unwrap();
    connect(here, &qp, address.qpn);
    let pieces: Vec<_> = (0..RECEIVES)
        .map(|i| [here.mr.sge(i * ROOM, ROOM as u32).unwrap()])
        .collect();
    let receives: Vec<_> = (0..RECEIVES)
        .map(|i| RecvRequest::new(WrId(i), &pieces[i as usize]))
        .collect();
    qp.post_recv(&receives).unwrap();
    // The warm-up is to open the way to this channel.
    here.cq.req_notify(NotifyOn::Any).unwrap();
    victim.tell(&here.address(&qp).to_line());
    assert_eq!(victim.hear(), "ready");
    let source = [here.mr.sge(OWN, 16).unwrap()];
    let own = |i| {
        SendRequest::new(WrId(100 + i), Operation::Send, &source).with_flags(SendFlags::SIGNALED)
    };
    (0..call.messages_to_victim()).for_each(|i| qp.post_send(&[own(i)]).unwrap());
    let mut sends = call.messages_to_victim();
    here.cq.req_notify(NotifyOn::Any).unwrap();
    victim.tell("go");
    let length = victim.kill_after(traced, most);
    if call != VictimCall::Destroy {
        // Posted to a dead peer that nobody may know to be dead yet.
        qp.post_send(&[own(sends)]).unwrap();
        sends += 1;
    }
    let mut all = Vec::new();
    here.sleep_until(&format!("{call:?} after {most:?}"), |new| {
        all.clear();
        all.extend_from_slice(new);
        all.len() as u64 >= RECEIVES + sends && qp.state() == QpState::Err
    });
    let arrived = check_completions(call, &qp, &all, sends);
    check_memory(here, call, &all);
    qp.post_send(&[own(sends)]).unwrap();
    let last = here.poll_one("a request in the error state");
    // The first one that fails says that the peer is lost.
    let is_first = all.iter().all(|c| c.wr_id.0 < 100 || c.status.is_success());
    let expected = match is_first {
        true => WcStatus::RetryExcErr,
        false => WcStatus::WrFlushErr,
    };
    assert_eq!(last.status, expected);
    drop(qp);
    scene.ping();
    assert!(here.poll().is_empty(), "completions twice");
    // Another port may have the slot's number; here there is only the bystander.
    let gone = wait_until(|| is_gone(address.slot()));
    assert!(gone, "files of a dead one stay: {:?}", device_files());
    Ok(Killing { length, arrived })
}

/// Every request completed once, in order; returns how many receives arrived during the call.
fn check_completions(call: VictimCall, qp: &SoftQp, all: &[WorkCompletion], sends: u64) -> usize {
    assert!(all.iter().all(|c| c.qp_num == qp.qpn()), "{all:?}");
    let (received, sent): (Vec<&WorkCompletion>, Vec<&WorkCompletion>) =
        all.iter().partition(|c| c.wr_id.0 < 100);
    let ids: Vec<u64> = received.iter().map(|c| c.wr_id.0).collect();
    assert_eq!(ids, (0..RECEIVES).collect::<Vec<_>>(), "{all:?}");
    let ids: Vec<u64> = sent.iter().map(|c| c.wr_id.0 - 100).collect();
    assert_eq!(ids, (0..sends).collect::<Vec<_>>(), "{all:?}");
    let arrived = received
        .iter()
        .take_while(|c| c.status.is_success())
        .count();
    let flushed = |c: &&WorkCompletion| c.status == WcStatus::WrFlushErr;
    assert!(received[arrived..].iter().all(flushed), "{all:?}");
    let ended = |c: &&WorkCompletion| {
        matches!(c.status, WcStatus::WrFlushErr | WcStatus::RetryExcErr)
            || (call.messages_to_victim() > 0 && c.status.is_success())
    };
    assert!(sent.iter().all(ended), "{all:?}");
    let first = sent.iter().find(|c| !c.status.is_success());
    assert!(
        first.is_none_or(|c| c.status == WcStatus::RetryExcErr),
        "{all:?}"
    );
    let warm = usize::from(call.is_warm());
    assert!(
        (warm..=warm + call.arrivals()).contains(&arrived),
        "{call:?}: {all:?}"
    );
    arrived - warm
}

/// What arrived is whole; what did not arrive is old or new; nothing else was touched.
fn check_memory(here: &End, call: VictimCall, all: &[WorkCompletion]) {
    let mut memory = vec![0; OWN as usize];
    here.mr.read(0, &mut memory).unwrap();
    for completion in all.iter().filter(|c| c.wr_id.0 < 100) {
        let n = completion.wr_id.0;
        let at = (n * ROOM) as usize;
        let (room, is_warm_up) = (&memory[at..at + ROOM as usize], call.is_warm() && n == 0);
        let new = message(u64::from(!is_warm_up), 16);
        if completion.status.is_success() && completion.opcode == WcOpcode::Recv {
            assert_eq!(completion.byte_len, 16);
            assert_eq!(room[..16], new);
        }
        let is_old_or_new = |(got, new): (&u8, &u8)| *got == UNTOUCHED || got == new;
        assert!(room[..16].iter().zip(&new).all(is_old_or_new), "{room:?}");
        assert!(room[16..].iter().all(|b| *b == UNTOUCHED), "{room:?}");
    }
    let (written, beyond) = memory[WRITTEN as usize..].split_at(WRITE_LENGTH as usize);
    let new = message(1, WRITE_LENGTH.into());
    let word = &written[..8];
    let is_whole = *word == [UNTOUCHED; 8] || *word == new[..8];
    assert!(
        call != VictimCall::FetchAdd || is_whole,
        "half an addition: {word:?}"
    );
    let is_old_or_new = |(got, new): (&u8, &u8)| *got == UNTOUCHED || got == new;
    assert!(written.iter().zip(&new).all(is_old_or_new), "{written:?}");
    assert!(beyond.iter().all(|b| *b == UNTOUCHED));
    let with_imm = all.iter().find(|c| c.imm.is_some());
    if let Some(arrived) = with_imm {
        assert_eq!(arrived.imm, Some(Imm(77)));
        assert_eq!(arrived.byte_len, WRITE_LENGTH);
        assert_eq!(written, new, "completed before it was placed");
    }
}

fn killing_test(test: &str, calls: &[VictimCall]) {
    isolated_with(test, play, || {
        let mut random = Random::from_env(test);
        for call in calls {
            let crowds = if call.arrivals() > 0 { 2 } else { 1 };
            for crowd in [0, 8].into_iter().take(crowds) {
                let scene = Scene::new();
                let _crowd = scene.end.crowd(crowd);
                stay_on_this_cpu(); // not the engines, which run already
                scene.ping();
                let budget = (Duration::from_millis(2200), &mut random);
                kill_all_along(&format!("{call:?}"), call.arrivals(), budget, |most| {
                    kill_after(&scene, *call, most)
                });
            }
        }
    });
}

#[test]
fn killed_in_the_middle_of_sending() {
    killing_test(
        "killed_in_the_middle_of_sending",
        &[
            VictimCall::SendInline,
            VictimCall::SendCold,
            VictimCall::SendList,
        ],
    );
}

#[test]
fn killed_in_the_middle_of_rdma() {
    killing_test(
        "killed_in_the_middle_of_rdma",
        &[
            VictimCall::WriteWithImm,
            VictimCall::Write,
            VictimCall::Read,
            VictimCall::FetchAdd,
        ],
    );
}

#[test]
fn killed_in_the_middle_of_receiving() {
    killing_test(
        "killed_in_the_middle_of_receiving",
        &[VictimCall::PostRecv, VictimCall::Poll, VictimCall::Notify],
    );
}

#[test]
fn killed_in_the_middle_of_making_and_destroying() {
    killing_test(
        "killed_in_the_middle_of_making_and_destroying",
        &[
            VictimCall::Register,
            VictimCall::CreateQp,
            VictimCall::Connect,
            VictimCall::Destroy,
            VictimCall::Open,
        ],
    );
}

// ---------------------------------------------------------------------------------------------
// Killed under load, stopped, left alone

fn blasting_victim() {
    let end = End::new(Bytes::kib(64));
    let qp = end.qp();
    tell(&end.address(&qp).to_line());
    let survivor = Address::from_line(&hear());
    connect(&end, &qp, survivor.qpn);
    tell("ready");
    hear();
    Blast::new(&end, &qp, survivor).run(|_| false);
}

/// Both directions at full speed: numbered messages, checked on arrival.
struct Blast<'a> {
    end: &'a End,
    qp: &'a SoftQp,
    peer: Address,
    /// Receives posted, messages received, requests posted, requests completed.
    posted: u64,
    received: u64,
    sent: u64,
    completed: u64,
    failed_sends: u64,
    flushed_receives: u64,
}

const DEPTH: u64 = 16;
const BLAST_ROOM: u64 = 512;
/// Where the messages to the peer are built.
const OUTGOING: u64 = DEPTH * BLAST_ROOM;
/// The memory that the peer writes to.
const WRITTEN_TO: u64 = 2 * OUTGOING;

impl<'a> Blast<'a> {
    fn new(end: &'a End, qp: &'a SoftQp, peer: Address) -> Self {
        Blast {
            end,
            qp,
            peer,
            posted: 0,
            received: 0,
            sent: 0,
            completed: 0,
            failed_sends: 0,
            flushed_receives: 0,
        }
    }

    fn length(n: u64) -> u64 {
        8 + n * 13 % 400
    }

    /// Until `done`, or until the queue pair has failed and everything is completed.
    fn run(&mut self, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done(self) {
            assert!(Instant::now() < deadline, "hangs: {}", self.account());
            if self.qp.state() == QpState::Err {
                if self.received == self.posted && self.completed == self.sent {
                    return;
                }
            } else {
                self.post();
            }
            for completion in self.end.poll() {
                self.take(completion);
            }
        }
    }

    fn account(&self) -> String {
        format!(
            "receives {}/{}, sends {}/{}",
            self.received, self.posted, self.completed, self.sent
        )
    }

    fn post(&mut self) {
        while self.posted - self.received < DEPTH {
            let at = self.posted % DEPTH * BLAST_ROOM;
            let sge = [self.end.mr.sge(at, BLAST_ROOM as u32).unwrap()];
            let request = RecvRequest::new(WrId(self.posted), &sge);
            self.qp.post_recv(&[request]).unwrap();
            self.posted += 1;
        }
        while self.sent - self.completed < DEPTH {
            let n = self.sent;
            let (at, length) = (n % DEPTH * BLAST_ROOM, Self::length(n));
            self.end
                .mr
                .write(OUTGOING + at, &message(n, length))
                .unwrap();
            let sge = [self.end.mr.sge(OUTGOING + at, length as u32).unwrap()];
            let operation = match n % 3 {
                0 => Operation::Send,
                1 => Operation::SendWithImm(Imm(n as u32)),
                _ => {
                    Operation::RdmaWriteWithImm(self.peer.memory.at(WRITTEN_TO + at), Imm(n as u32))
                }
            };
            let request = SendRequest::new(WrId(1 << 32 | n), operation, &sge);
            let inline = if length < 200 {
                SendFlags::INLINE
            } else {
                SendFlags::empty()
            };
            self.qp
                .post_send(&[request.with_flags(inline | SendFlags::SIGNALED)])
                .unwrap();
            self.sent += 1;
        }
    }

    fn take(&mut self, completion: WorkCompletion) {
        if completion.wr_id.0 >> 32 == 1 {
            assert_eq!(completion.wr_id.0 as u32, self.completed as u32);
            self.completed += 1;
            match completion.status {
                WcStatus::Success => assert_eq!(self.failed_sends, 0, "{completion:?}"),
                WcStatus::RetryExcErr => assert_eq!(self.failed_sends, 0, "{completion:?}"),
                status => assert_eq!(status, WcStatus::WrFlushErr),
            }
            self.failed_sends += u64::from(!completion.status.is_success());
            return;
        }
        let n = self.received;
        assert_eq!(completion.wr_id, WrId(n), "{completion:?}");
        self.received += 1;
        if completion.status == WcStatus::WrFlushErr {
            self.flushed_receives += 1;
            return;
        }
        assert_eq!(completion.status, WcStatus::Success);
        assert_eq!(self.flushed_receives, 0, "a success after a flush");
        assert_eq!(u64::from(completion.byte_len), Self::length(n));
        assert_eq!(
            completion.imm,
            (!n.is_multiple_of(3)).then_some(Imm(n as u32))
        );
        let base = if n % 3 == 2 { WRITTEN_TO } else { 0 };
        let mut got = vec![0; completion.byte_len as usize];
        self.end
            .mr
            .read(base + n % DEPTH * BLAST_ROOM, &mut got)
            .unwrap();
        // The peer may write the same place again once it knows of this completion's slot only;
        // WRITE targets are reused after DEPTH messages, which it cannot be ahead by.
        assert_eq!(got, message(n, Self::length(n)), "message {n}");
    }
}

#[test]
fn killed_at_a_random_time_under_load() {
    isolated_with("killed_at_a_random_time_under_load", play, || {
        let mut random = Random::from_env("killed_at_a_random_time_under_load");
        let scene = Scene::new();
        let (mut messages, mut least) = (0, 0);
        for _ in 0..50 {
            let mut victim = Victim::start("blast");
            let qp = scene.end.qp();
            let peer = Address::from_line(&victim.hear());
            connect(&scene.end, &qp, peer.qpn);
            victim.tell(&scene.end.address(&qp).to_line());
            assert_eq!(victim.hear(), "ready");
            victim.tell("go");
            let mut blast = Blast::new(&scene.end, &qp, peer);
            // Under load by count, at any instant by time: a slow machine only takes longer.
            let load = random.within(0..400);
            blast.run(|blast| blast.received + blast.completed >= load);
            let end = Instant::now() + Duration::from_micros(random.within(0..200));
            blast.run(|_| Instant::now() > end);
            victim.kill();
            blast.run(|_| false);
            assert_eq!(qp.state(), QpState::Err);
            assert!(blast.flushed_receives <= DEPTH);
            least += load;
            messages += blast.received + blast.completed;
            drop(qp);
            scene.ping();
        }
        println!("{messages} requests completed");
        assert!(messages >= least, "{least} were to be carried out");
        let port = format!("{:03x}.", scene.end.address(&scene.own).slot());
        let by = format!("{:03x}.", scene.bystander.address(&scene.other).slot());
        let only_ours = || {
            let is_ours = |name: &String| name.starts_with(&port) || name.starts_with(&by);
            device_files().iter().all(is_ours)
        };
        assert!(wait_until(only_ours));
    });
}

/// Within this a call that waits for a stopped peer returns, on a machine of any load.
const BOUND: Duration = Duration::from_secs(60);

fn within_bound<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = call();
    let took = begin.elapsed();
    assert!(took < BOUND, "{what} took {took:?}");
    result
}

/// Stops a victim in the middle of a SEND, and resets and destroys the queue pair.
fn stopped_after(scene: &Scene, k: u64) -> Result<bool, String> {
    let mut victim = Victim::start("SendInline");
    let here = &scene.end;
    let qp = here.qp();
    let hello = victim.hear();
    let traced = victim.trace(&hello)?;
    connect(here, &qp, Address::from_line(&hello).qpn);
    here.mr.write(0, &[UNTOUCHED; 4096]).unwrap();
    let sge = [here.mr.sge(0, 64).unwrap()];
    let receives = [0, 1, 2].map(|i| RecvRequest::new(WrId(i), &sge));
    qp.post_recv(&receives).unwrap();
    // Armed as in `kill_after`, or the call would be shorter.
    here.cq.req_notify(NotifyOn::Any).unwrap();
    victim.tell(&here.address(&qp).to_line());
    assert_eq!(victim.hear(), "ready");
    here.cq.req_notify(NotifyOn::Any).unwrap();
    victim.tell("go");
    traced.step(k);

    scene.ping_among(|c| c.qp_num == qp.qpn());
    within_bound("going to ERR", || {
        qp.modify(&QpAttr::to(QpState::Err)).unwrap();
    });
    let all = here.poll();
    let flushed = all.iter().filter(|c| !c.status.is_success()).count();
    assert!((1..=2).contains(&flushed), "{all:?}");
    let reset = within_bound("reset", || qp.modify(&QpAttr::to(QpState::Reset)));
    let is_held = match reset {
        Ok(()) => false,
        Err(ModifyQpError::Busy { reason }) => {
            assert!(reason.contains(&victim.id().to_string()), "{reason}");
            assert_eq!(qp.state(), QpState::Err, "a refused modify changed it");
            true
        }
        Err(other) => panic!("{other}"),
    };
    within_bound("destroying", || drop(qp));
    scene.ping();
    // A queue pair made now must not get what the stopped one still holds.
    let (next, far) = (here.qp(), scene.bystander.qp());
    connect(here, &next, far.qpn());
    connect(&scene.bystander, &far, next.qpn());
    let fresh = [here.mr.sge(1024, 64).unwrap()];
    next.post_recv(&[RecvRequest::new(WrId(7), &fresh)])
        .unwrap();
    traced.go_on(libc::PTRACE_CONT); // to the end of the call
    traced.wait();
    assert!(traced.is_at_mark());
    scene.ping();
    assert!(here.poll().is_empty(), "a message for another queue pair");
    victim.kill();
    scene.ping();
    Ok(is_held)
}

impl Scene {
    /// A ping. Completions for which `is_other` holds may arrive in between.
    fn ping_among(&self, is_other: impl Fn(&WorkCompletion) -> bool) {
        let stray = self.end.poll();
        assert!(stray.iter().all(is_other), "{stray:?}");
        self.ping();
    }
}

#[test]
fn a_peer_stopped_in_the_middle_of_an_operation_hangs_nobody() {
    const TEST: &str = "a_peer_stopped_in_the_middle_of_an_operation_hangs_nobody";
    isolated_with(TEST, play, || {
        let mut random = Random::from_env(TEST);
        let scene = Scene::new();
        let whole = match kill_after(&scene, VictimCall::SendInline, None) {
            Ok(whole) => whole.length.unwrap(),
            Err(why) => return not_run(&format!("a peer stopped in an operation: {why}")),
        };
        let mut held = 0;
        // In the middle it is certainly inside the operation.
        for range in [whole / 3..whole / 2, 0..whole * 3 / 4] {
            let k = random.within(range);
            held += u32::from(stopped_after(&scene, k).unwrap());
        }
        println!("{held} of 2 held the queue pair");
        assert!(held > 0, "none was stopped inside an operation");
    });
}

/// Destroys one queue pair, closes its device with two others, and exits.
fn leaving_peer() {
    let end = End::new(Bytes::kib(64));
    let mut qps = [(); 3].map(|()| end.qp());
    for qp in &mut qps {
        tell(&end.address(qp).to_line());
        let survivor = Address::from_line(&hear());
        connect(&end, qp, survivor.qpn);
    }
    tell("ready");
    hear();
    let [destroyed, ..] = qps;
    drop(destroyed);
    end.context.remove_files();
    std::process::exit(0);
}

/// A peer that posts its last message and exits moved the queue pair to the error state, so that a program which received
/// this message found the flushed receives with it.
#[test]
fn a_peer_that_exits_fails_only_queue_pairs_with_outstanding_requests() {
    let body = || {
        let end = End::new(Bytes::kib(64));
        let mut peer = Victim::start("leaves");
        let qps = [(); 3].map(|()| {
            let qp = end.qp();
            let remote = Address::from_line(&peer.hear());
            peer.tell(&end.address(&qp).to_line());
            (qp, remote)
        });
        assert_eq!(peer.hear(), "ready");
        let sge = [end.mr.sge(0, 8).unwrap()];
        let write = |(qp, remote): &(SoftQp, Address), id| {
            let operation = Operation::RdmaWrite(remote.memory.at(0));
            let request = SendRequest::new(WrId(id), operation, &sge);
            qp.post_send(&[request.with_flags(SendFlags::SIGNALED)])
                .unwrap();
            end.poll_one("a WRITE")
        };
        for (qp, remote) in &qps {
            connect(&end, qp, remote.qpn);
        }
        let (receive, send, first_write) = (10, 20, 30);
        for (n, pair) in (first_write..).zip(&qps) {
            pair.0
                .post_recv(&[RecvRequest::new(WrId(receive), &sge)])
                .unwrap();
            assert_eq!(write(pair, n).status, WcStatus::Success);
        }
        let [destroyed, open, waiting] = qps;
        let request = SendRequest::new(WrId(send), Operation::Send, &sge);
        waiting.0.post_send(&[request]).unwrap();
        peer.tell("go");
        let ended = [(); 2].map(|()| end.poll_one("the end of the peer"));
        let expected = [
            (WrId(send), WcStatus::RetryExcErr),
            (WrId(receive), WcStatus::WrFlushErr),
        ];
        assert_eq!(ended.map(|wc| (wc.wr_id, wc.status)), expected);
        for pair in [destroyed, open] {
            // The engine may not have come to this queue pair yet.
            assert!(wait_until(|| {
                let wc = write(&pair, first_write);
                assert_ne!(wc.wr_id, WrId(receive), "{wc:?}");
                wc.status == WcStatus::RetryExcErr
            }));
            let wc = end.poll_one("the receive");
            assert_eq!((wc.wr_id, wc.status), (WrId(receive), WcStatus::WrFlushErr));
        }
    };
    isolated_with(
        "a_peer_that_exits_fails_only_queue_pairs_with_outstanding_requests",
        play,
        body,
    );
}

/// Connects two queue pairs and runs another program, which has no time to close the device.
fn executing_peer() {
    let end = End::new(Bytes::kib(64));
    let qps = [end.qp(), end.qp()];
    for qp in &qps {
        tell(&end.address(qp).to_line());
        connect(&end, qp, Address::from_line(&hear()).qpn);
    }
    tell("ready");
    hear();
    panic!("{}", child("executed").exec());
}

/// The other program, which opens the device again.
fn executed_peer() {
    let end = End::new(Bytes::kib(64));
    let qp = end.qp();
    tell(&end.address(&qp).to_line());
    connect(&end, &qp, Address::from_line(&hear()).qpn);
    tell("ready");
    hear();
}

/// A process that ran another program kept its number, so its peers' requests went on to complete with success, or waited
/// for a receive without end, and they did not find the device that the program opened in the same slot.
#[test]
fn a_peer_that_executes_another_program_is_noticed() {
    let body = || {
        let end = End::new(Bytes::kib(64));
        let mut peer = Victim::start("executes");
        let meet = |peer: &mut Victim| {
            let remote = Address::from_line(&peer.hear());
            let qp = end.qp();
            peer.tell(&end.address(&qp).to_line());
            (qp, remote)
        };
        let [waits, writes] = [(); 2].map(|()| meet(&mut peer));
        assert_eq!(peer.hear(), "ready");
        for (qp, remote) in [&waits, &writes] {
            connect(&end, qp, remote.qpn);
        }
        let sge = [end.mr.sge(0, 8).unwrap()];
        let write = |(qp, remote): &(SoftQp, Address)| {
            let operation = Operation::RdmaWrite(remote.memory.at(0));
            let request = SendRequest::new(WrId(1), operation, &sge);
            qp.post_send(&[request.with_flags(SendFlags::SIGNALED)])
                .unwrap();
            let wc = end.poll_one("a WRITE");
            assert_eq!(wc.wr_id, WrId(1));
            wc.status
        };
        assert_eq!(write(&writes), WcStatus::Success);
        waits
            .0
            .post_send(&[SendRequest::new(WrId(2), Operation::Send, &sge)])
            .unwrap();
        peer.tell("go");
        let wc = end.poll_one("the SEND without a receive");
        assert_eq!((wc.wr_id, wc.status), (WrId(2), WcStatus::RetryExcErr));
        assert!(wait_until(|| write(&writes) == WcStatus::RetryExcErr));
        let again = meet(&mut peer);
        assert_eq!(peer.hear(), "ready");
        assert_eq!(again.1.slot(), writes.1.slot());
        connect(&end, &again.0, again.1.qpn);
        assert_eq!(write(&again), WcStatus::Success);
    };
    isolated_with(
        "a_peer_that_executes_another_program_is_noticed",
        play,
        body,
    );
}

fn lonely_victim() {
    let end = End::new(Bytes::kib(64));
    let qp = end.qp();
    tell(&end.address(&qp).to_line());
    hear();
}

#[test]
fn files_of_a_killed_process_are_reaped_by_the_next() {
    isolated_with(
        "files_of_a_killed_process_are_reaped_by_the_next",
        play,
        || {
            let mut victims = [Victim::start("alone"), Victim::start("alone")];
            let slots: Vec<u32> = victims
                .iter_mut()
                .map(|v| Address::from_line(&v.hear()).slot())
                .collect();
            assert_ne!(slots[0], slots[1]);
            let living = device_files().len();
            victims.iter_mut().for_each(Victim::kill);
            assert_eq!(device_files().len(), living, "nobody was there to reap");
            let end = End::new(Bytes::kib(64));
            let left = device_files();
            assert_eq!(left.len() * 2, living, "{left:?}");
            assert!(left.iter().all(|name| name.starts_with("000.")), "{left:?}");
            drop(end);
            assert!(!device_dir().exists());
        },
    );
}

#[test]
fn a_port_that_is_closed_and_opened_again_is_found_again() {
    isolated(
        "a_port_that_is_closed_and_opened_again_is_found_again",
        || {
            let here = End::new(Bytes::kib(4));
            for _ in 0..3 {
                let there = End::new(Bytes::kib(4));
                let (near, far) = (here.qp(), there.qp());
                connect_with(&here, &near, far.qpn(), RetryCount::MAX, 3);
                connect_with(&there, &far, near.qpn(), RetryCount::MAX, 3);
                let sge = [there.mr.sge(0, 8).unwrap()];
                far.post_recv(&[RecvRequest::new(WrId(1), &sge)]).unwrap();
                let sge = [here.mr.sge(0, 8).unwrap()];
                let request = SendRequest::new(WrId(2), Operation::Send, &sge);
                near.post_send(&[request.with_flags(SendFlags::SIGNALED)])
                    .unwrap();
                assert_eq!(here.poll_one("the send").status, WcStatus::Success);
                assert_eq!(there.poll_one("the receive").status, WcStatus::Success);
            }
        },
    );
}
