//! Long random sequences of operations against a simple model of memory and completions.
//!
//! Two sides plan the same batches from the same seed: what each posts, and what memory and
//! completions have to be afterwards. Within a batch every byte is written by one operation at
//! most, so the outcome does not depend on timing, while both sides post, poll and dawdle as their
//! own dice say. `ADVERB_TEST_SEED` repeats a plan, `ADVERB_MODEL_OPS` sets its length.
#![allow(unsafe_code)]

mod common;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use adverb_softnic::{SoftMr, SoftQp};
use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, Context, Imm, Lkey, MemoryRegion, Operation, PostError, PostErrorCause, QpAttr,
    QpCaps, QpState, Qpn, QueuePair, RecvRequest, RemoteAddress, RetryCount, Rkey, SendFlags,
    SendRequest, Sge, WcOpcode, WcStatus, WorkCompletion, WrId,
};
use common::{
    Address, End, Random, SEED, child, connect_with, isolated, isolated_with, wait_until,
};

const MEMORY: usize = 128 << 10;
const PAIRS: usize = 2;
const MAX_SGE: u64 = 4;
const BATCHES_PER_LIFE: u32 = 12;
const SCRIBBLE: u8 = 0x5a;

type Place = Range<usize>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Send,
    SendImm(u32),
    Write,
    WriteImm(u32),
    Read,
}

impl Kind {
    fn any(random: &mut Random) -> Self {
        let imm = random.next() as u32;
        [
            Kind::Send,
            Kind::SendImm(imm),
            Kind::Write,
            Kind::WriteImm(imm),
            Kind::Read,
        ][random.below(5) as usize]
    }

    fn arrives(self) -> bool {
        !matches!(self, Kind::Write | Kind::Read)
    }

    fn opcode(self) -> WcOpcode {
        match self {
            Kind::Send | Kind::SendImm(_) => WcOpcode::Send,
            Kind::Write | Kind::WriteImm(_) => WcOpcode::RdmaWrite,
            Kind::Read => WcOpcode::RdmaRead,
        }
    }
}

/// A send request to be.
#[derive(Clone, Debug)]
struct Planned {
    kind: Kind,
    pieces: Vec<Place>,
    /// Place in the peer's memory (WRITE, READ).
    remote: Place,
    /// What is sent, or has to be read.
    content: Vec<u8>,
    inline: bool,
    signaled: bool,
    solicited: bool,
}

/// A receive request to be, and what has to arrive in it.
#[derive(Clone, Debug)]
struct PlannedReceive {
    pieces: Vec<Place>,
    kind: Kind,
    content: Vec<u8>,
    /// WRITEs that the peer posted before it, which have to be placed.
    written: Vec<(Place, Vec<u8>)>,
}

/// What one side posts to one queue pair in a batch.
#[derive(Clone, Debug, Default)]
struct Work {
    sends: Vec<Planned>,
    receives: Vec<PlannedReceive>,
}

/// The plan: the same on both sides.
struct Planner {
    random: Random,
    /// Memory of both sides.
    image: [Vec<u8>; 2],
    free: [usize; 2],
    sizes: Sizes,
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    send: u32,
    receive: u32,
    inline: u32,
}

impl Planner {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let sizes = Sizes {
            send: random.within(3..24) as u32,
            receive: random.within(1..20) as u32,
            inline: random.within(0..256) as u32,
        };
        Planner {
            random,
            image: [vec![0; MEMORY], vec![0; MEMORY]],
            free: [0; 2],
            sizes,
        }
    }

    fn length(&mut self) -> usize {
        let top = match self.random.below(100) {
            0..5 => 1,
            5..60 => 64,
            60..95 => 700,
            _ => 9000,
        };
        self.random.below(top) as usize
    }

    fn place(&mut self, side: usize, length: usize) -> Option<Place> {
        let begin = self.free[side] + self.random.below(17) as usize;
        self.free[side] = begin + length;
        (self.free[side] <= MEMORY).then_some(begin..begin + length)
    }

    fn pieces(&mut self, side: usize, length: usize) -> Option<Vec<Place>> {
        let count = self.random.within(1..MAX_SGE + 1);
        let mut left = length;
        let mut pieces = Vec::new();
        for i in 0..count {
            let share = if i + 1 == count {
                left
            } else {
                self.random.below(left as u64 + 1) as usize
            };
            pieces.push(self.place(side, share)?);
            left -= share;
        }
        Some(pieces)
    }

    fn put(&mut self, side: usize, pieces: &[Place], content: &[u8]) {
        let mut from = content;
        for piece in pieces {
            let (now, later) = from.split_at(piece.len().min(from.len()));
            self.image[side][piece.start..piece.start + now.len()].copy_from_slice(now);
            from = later;
        }
    }

    /// The work of both sides on all pairs of queue pairs.
    #[expect(
        clippy::needless_range_loop,
        reason = "a pair is an index on both sides"
    )]
    fn batch(&mut self) -> [Vec<Work>; 2] {
        self.free = [0; 2];
        let mut works = [vec![Work::default(); PAIRS], vec![Work::default(); PAIRS]];
        for pair in 0..PAIRS {
            for side in 0..2 {
                let (mut unsignaled, mut written) = (0, Vec::new());
                for _ in 0..self.random.within(1..48) {
                    let Some((mut planned, receive)) = self.operation(side, &mut written) else {
                        break;
                    };
                    unsignaled += 1;
                    planned.signaled = self.random.chance(40) || unsignaled >= self.sizes.send / 2;
                    if planned.signaled {
                        unsignaled = 0;
                    }
                    works[side][pair].sends.push(planned);
                    works[1 - side][pair].receives.extend(receive);
                }
                if let Some(last) = works[side][pair].sends.last_mut() {
                    last.signaled = true;
                }
            }
        }
        works
    }

    fn operation(
        &mut self,
        side: usize,
        written: &mut Vec<(Place, Vec<u8>)>,
    ) -> Option<(Planned, Option<PlannedReceive>)> {
        let (kind, length) = (Kind::any(&mut self.random), self.length());
        let peer = 1 - side;
        let read_back = written.last().filter(|_| kind == Kind::Read).cloned();
        let remote = match (kind, read_back) {
            (Kind::Read, Some((place, _))) if self.random.chance(30) => place,
            (Kind::Write | Kind::WriteImm(_) | Kind::Read, _) => self.place(peer, length)?,
            _ => 0..0,
        };
        let length = if kind == Kind::Read {
            remote.len()
        } else {
            length
        };
        let pieces = self.pieces(side, length)?;
        let content = if kind == Kind::Read {
            self.image[peer][remote.clone()].to_vec()
        } else {
            self.random.bytes(length)
        };
        let inline =
            kind != Kind::Read && length <= self.sizes.inline as usize && self.random.chance(50);
        let receive = if kind.arrives() {
            Some(self.receive(peer, kind, &content, written.clone())?)
        } else {
            None
        };
        if inline {
            self.put(side, &pieces, &vec![SCRIBBLE; length]);
        } else {
            self.put(side, &pieces, &content);
        }
        if matches!(kind, Kind::Write | Kind::WriteImm(_)) {
            self.put(peer, std::slice::from_ref(&remote), &content);
            written.push((remote.clone(), content.clone()));
        }
        let planned = Planned {
            kind,
            pieces,
            remote,
            content,
            inline,
            signaled: false,
            solicited: self.random.chance(20),
        };
        Some((planned, receive))
    }

    fn receive(
        &mut self,
        side: usize,
        kind: Kind,
        content: &[u8],
        mut written: Vec<(Place, Vec<u8>)>,
    ) -> Option<PlannedReceive> {
        let room = content.len() + self.random.below(40) as usize;
        let pieces = self.pieces(side, room)?;
        written.drain(..written.len().saturating_sub(3));
        if matches!(kind, Kind::Send | Kind::SendImm(_)) {
            self.put(side, &pieces, content);
        }
        Some(PlannedReceive {
            pieces,
            kind,
            content: content.to_vec(),
            written,
        })
    }
}

/// The way to the other side, out of band.
trait Link {
    fn tell(&mut self, line: &str);
    fn hear(&mut self) -> String;

    fn exchange(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    fn meet(&mut self, what: &str) {
        assert_eq!(self.exchange(what), what, "out of step");
    }
}

struct Lines<R, W>(R, W);

impl<R: BufRead, W: Write> Link for Lines<R, W> {
    fn tell(&mut self, line: &str) {
        writeln!(self.1, "\n@{line}").unwrap();
        self.1.flush().unwrap();
    }

    fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            let length = self.0.read_line(&mut line).unwrap();
            assert!(length != 0, "the other side has ended");
            if let Some(told) = line.strip_prefix('@') {
                return told.trim().to_owned();
            }
        }
    }
}

struct Threads(Sender<String>, Receiver<String>);

impl Link for Threads {
    fn tell(&mut self, line: &str) {
        self.0.send(line.to_owned()).unwrap();
    }

    fn hear(&mut self) -> String {
        self.1.recv().expect("the other side lives")
    }
}

/// What one side's queue pair is at.
#[derive(Default)]
struct Progress {
    sends_posted: usize,
    /// Requests that a polled completion gave back.
    sends_retired: usize,
    receives_posted: usize,
    receives_done: usize,
    /// Requests of the batch that have not completed.
    signaled: VecDeque<usize>,
}

struct Side<'l> {
    side: usize,
    end: End,
    /// A region that the peer must not touch.
    locked: SoftMr,
    qps: Vec<SoftQp>,
    peers: Vec<Qpn>,
    memory: RemoteAddress,
    peer_locked: RemoteAddress,
    planner: Planner,
    dice: Random,
    link: &'l mut dyn Link,
    /// Requests posted by both sides.
    operations: u64,
    psn: u32,
}

const RECEIVE: u64 = 1 << 40;

impl<'l> Side<'l> {
    fn new(side: usize, seed: u64, link: &'l mut dyn Link) -> Self {
        let end = End::new(Bytes::new(MEMORY as u64));
        let locked = end
            .context
            .alloc_mr(&end.pd, Bytes::kib(4), AccessFlags::LOCAL_WRITE)
            .unwrap();
        let mine = (end.mr.remote(0), locked.remote(0));
        let told = link.exchange(&format!(
            "{} {} {} {}",
            mine.0.addr, mine.0.rkey.0, mine.1.addr, mine.1.rkey.0
        ));
        let told: Vec<u64> = told.split(' ').map(|n| n.parse().unwrap()).collect();
        let remote = |i: usize| RemoteAddress {
            addr: told[i],
            rkey: Rkey(told[i + 1] as u32),
        };
        Side {
            side,
            end,
            locked,
            qps: Vec::new(),
            peers: Vec::new(),
            memory: remote(0),
            peer_locked: remote(2),
            planner: Planner::new(seed),
            dice: Random(seed ^ (side as u64 + 77)),
            link,
            operations: 0,
            psn: 0,
        }
    }

    fn run(mut self, operations: u64) -> u64 {
        let mut life = 0;
        while self.operations < operations {
            self.connect_all(life);
            for _ in 0..BATCHES_PER_LIFE {
                self.batch();
            }
            for pair in 0..PAIRS {
                self.fault(pair);
            }
            life += 1;
        }
        self.operations
    }

    /// Creates new queue pairs, or resets the existing ones.
    fn connect_all(&mut self, life: u64) {
        if self.planner.random.chance(50) || life == 0 {
            let sizes = self.planner.sizes;
            self.qps.clear();
            let caps = QpCaps {
                max_send_wr: sizes.send,
                max_recv_wr: sizes.receive,
                max_send_sge: MAX_SGE as u32,
                max_recv_sge: MAX_SGE as u32,
                max_inline_data: sizes.inline,
            };
            self.qps = (0..PAIRS).map(|_| self.end.qp_of(caps)).collect();
        } else {
            for qp in &self.qps {
                qp.modify(&QpAttr::to(QpState::Reset)).unwrap();
            }
        }
        self.peers.clear();
        for qp in &self.qps {
            let told = self.link.exchange(&self.end.address(qp).to_line());
            self.peers.push(Address::from_line(&told).qpn);
        }
        self.psn = self.planner.random.below(1 << 24) as u32;
        for (qp, peer) in self.qps.iter().zip(&self.peers) {
            connect_with(&self.end, qp, *peer, RetryCount::MAX, self.psn);
        }
        self.link.meet("connected");
    }

    fn sges(&self, pieces: &[Place]) -> Vec<Sge<'_>> {
        let sge = |p: &Place| self.end.mr.sge(p.start as u64, p.len() as u32).unwrap();
        pieces.iter().map(sge).collect()
    }

    fn write(&self, pieces: &[Place], content: &[u8]) {
        let mut from = content;
        for piece in pieces {
            let (now, later) = from.split_at(piece.len());
            self.end.mr.write(piece.start as u64, now).unwrap();
            from = later;
        }
    }

    fn memory(&self, place: Place) -> Vec<u8> {
        let mut bytes = vec![0; place.len()];
        self.end.mr.read(place.start as u64, &mut bytes).unwrap();
        bytes
    }

    fn batch(&mut self) {
        let both = self.planner.batch();
        let of_batch = both.iter().flatten();
        self.operations += of_batch
            .map(|w| (w.sends.len() + w.receives.len()) as u64)
            .sum::<u64>();
        let works = &both[self.side];
        let mut progress: Vec<Progress> = (0..PAIRS).map(|_| Progress::default()).collect();
        let eager = self.dice.within(5..60);
        let deadline = Instant::now() + Duration::from_secs(20);
        let is_done = |p: &Progress, w: &Work| {
            p.sends_posted == w.sends.len()
                && p.signaled.is_empty()
                && p.receives_done == w.receives.len()
        };
        while !progress.iter().zip(works).all(|(p, w)| is_done(p, w)) {
            assert!(Instant::now() < deadline, "stuck at {}", self.operations);
            let pair = self.dice.below(PAIRS as u64) as usize;
            match self.dice.below(100) {
                die if die < eager => self.post_sends(pair, &works[pair], &mut progress[pair]),
                die if die < 65 => self.post_receives(pair, &works[pair], &mut progress[pair]),
                99 if self.dice.chance(5) => std::thread::sleep(Duration::from_micros(300)),
                _ => self.poll(works, &mut progress),
            }
        }
        self.link.meet("batch");
        self.compare_memory();
        self.link.meet("compared");
    }

    fn compare_memory(&self) {
        let (got, model) = (self.memory(0..MEMORY), &self.planner.image[self.side]);
        if let Some(at) = (0..MEMORY).find(|i| got[*i] != model[*i]) {
            panic!(
                "side {}: byte {at} is {:#x}, the model has {:#x}",
                self.side, got[at], model[at]
            );
        }
    }

    fn post_sends(&mut self, pair: usize, work: &Work, progress: &mut Progress) {
        let left = &work.sends[progress.sends_posted..];
        let list = &left[..left.len().min(self.dice.within(1..7) as usize)];
        let room =
            self.planner.sizes.send as usize - (progress.sends_posted - progress.sends_retired);
        for planned in list.iter().filter(|p| p.kind != Kind::Read) {
            self.write(&planned.pieces, &planned.content);
        }
        let sges: Vec<_> = list.iter().map(|p| self.sges(&p.pieces)).collect();
        let requests: Vec<_> = list
            .iter()
            .zip(&sges)
            .enumerate()
            .map(|(i, (p, sges))| self.request(p, progress.sends_posted + i, sges))
            .collect();
        let result = self.qps[pair].post_send(&requests);
        let accepted = check_room(&result, list.len(), room, "send");
        for (i, planned) in list.iter().take(accepted).enumerate() {
            if planned.inline {
                self.write(&planned.pieces, &vec![SCRIBBLE; planned.content.len()]);
            }
            if planned.signaled {
                progress.signaled.push_back(progress.sends_posted + i);
            }
        }
        progress.sends_posted += accepted;
    }

    fn request<'a>(&self, planned: &Planned, n: usize, sges: &'a [Sge<'a>]) -> SendRequest<'a> {
        let remote = self.memory.at(planned.remote.start as u64);
        let operation = match planned.kind {
            Kind::Send => Operation::Send,
            Kind::SendImm(imm) => Operation::SendWithImm(Imm(imm)),
            Kind::Write => Operation::RdmaWrite(remote),
            Kind::WriteImm(imm) => Operation::RdmaWriteWithImm(remote, Imm(imm)),
            Kind::Read => Operation::RdmaRead(remote),
        };
        let flags = [
            (planned.inline, SendFlags::INLINE),
            (planned.signaled, SendFlags::SIGNALED),
            (planned.solicited, SendFlags::SOLICITED),
        ];
        let flags = flags.into_iter().filter(|(is, _)| *is).map(|(_, f)| f);
        SendRequest::new(WrId(n as u64), operation, sges).with_flags(flags.collect())
    }

    fn post_receives(&mut self, pair: usize, work: &Work, progress: &mut Progress) {
        let left = &work.receives[progress.receives_posted..];
        let list = &left[..left.len().min(self.dice.within(1..5) as usize)];
        let room = self.planner.sizes.receive as usize
            - (progress.receives_posted - progress.receives_done);
        let sges: Vec<_> = list.iter().map(|p| self.sges(&p.pieces)).collect();
        let id = |i| WrId(RECEIVE | (progress.receives_posted + i) as u64);
        let requests: Vec<_> = (0..list.len())
            .map(|i| RecvRequest::new(id(i), &sges[i]))
            .collect();
        let result = self.qps[pair].post_recv(&requests);
        progress.receives_posted += check_room(&result, list.len(), room, "receive");
    }

    fn poll(&mut self, works: &[Work], progress: &mut [Progress]) {
        use adverb_verbs::CompletionQueue;
        let mut found = [WorkCompletion::default(); 8];
        let most = self.dice.within(1..9) as usize;
        let count = self.end.cq.poll(&mut found[..most]).unwrap();
        for completion in &found[..count] {
            let pair = self.qps.iter().position(|q| q.qpn() == completion.qp_num);
            let pair = pair.expect("one of ours");
            assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
            let (work, progress) = (&works[pair], &mut progress[pair]);
            if completion.wr_id.0 & RECEIVE == 0 {
                let n = progress.signaled.pop_front().expect("a signaled request");
                let planned = &work.sends[n];
                assert_eq!(completion.wr_id, WrId(n as u64), "{completion:?}");
                assert_eq!(completion.opcode, planned.kind.opcode());
                if planned.kind == Kind::Read {
                    assert_eq!(completion.byte_len as usize, planned.content.len());
                    let read: Vec<u8> = (planned.pieces.iter())
                        .flat_map(|p| self.memory(p.clone()))
                        .collect();
                    assert_eq!(read, planned.content, "READ {n}");
                }
                progress.sends_retired = n + 1;
            } else {
                let n = progress.receives_done;
                assert!(n < progress.receives_posted, "{completion:?}");
                assert_eq!(completion.wr_id, WrId(RECEIVE | n as u64), "{completion:?}");
                self.check_arrival(completion, &work.receives[n]);
                progress.receives_done += 1;
            }
        }
    }

    fn check_arrival(&self, completion: &WorkCompletion, receive: &PlannedReceive) {
        let (opcode, imm) = match receive.kind {
            Kind::SendImm(imm) => (WcOpcode::Recv, Some(Imm(imm))),
            Kind::WriteImm(imm) => (WcOpcode::RecvRdmaWithImm, Some(Imm(imm))),
            _ => (WcOpcode::Recv, None),
        };
        assert_eq!((completion.opcode, completion.imm), (opcode, imm));
        assert_eq!(completion.byte_len as usize, receive.content.len());
        if opcode == WcOpcode::Recv {
            let mut got: Vec<u8> = (receive.pieces.iter())
                .flat_map(|p| self.memory(p.clone()))
                .collect();
            got.truncate(receive.content.len());
            assert_eq!(got, receive.content, "{completion:?}");
        }
        for (place, content) in &receive.written {
            assert_eq!(self.memory(place.clone()), *content, "a WRITE before it");
        }
    }

    /// Ends the queue pair's life by a request that must fail.
    fn fault(&mut self, pair: usize) {
        let (fault, offender) = (
            self.planner.random.below(6),
            self.planner.random.below(2) as usize,
        );
        let receives = self.planner.sizes.receive.min(3) as usize;
        if self.side == offender {
            self.link.meet("receives are posted");
            self.offend(pair, fault);
            self.link.meet("offended");
        } else {
            self.suffer(pair, fault, receives);
        }
        let sge = [self.end.mr.sge(0, 0).unwrap()];
        let qp = &self.qps[pair];
        assert_eq!(qp.state(), QpState::Err);
        qp.post_recv(&[RecvRequest::new(WrId(RECEIVE), &sge)])
            .unwrap();
        qp.post_send(&[SendRequest::new(WrId(9), Operation::Send, &sge)])
            .unwrap();
        let all = [self.end.poll_one("flush"), self.end.poll_one("flush")];
        assert!(all.iter().all(|c| c.status == WcStatus::WrFlushErr));
        assert!(self.end.poll().is_empty());
        self.operations += 10;
        self.link.meet("failed");
    }

    fn offend(&self, pair: usize, fault: u64) {
        let qp = &self.qps[pair];
        let small = [self.end.mr.sge(0, 8).unwrap()];
        let long = [self.end.mr.sge(0, 512).unwrap()];
        let bad = [small[0].with_lkey(Lkey(self.locked.lkey().0 ^ 0x8000_0000))];
        let wrong_key = RemoteAddress {
            rkey: Rkey(self.memory.rkey.0 ^ 0x8000_0000),
            ..self.memory
        };
        let (operation, sges, status) = match fault {
            0 => (
                Operation::RdmaWrite(wrong_key),
                &small,
                WcStatus::RemAccessErr,
            ),
            1 => {
                let beyond = self.memory.at(MEMORY as u64 - 7);
                (Operation::RdmaWrite(beyond), &small, WcStatus::RemAccessErr)
            }
            2 => (
                Operation::RdmaRead(self.peer_locked),
                &small,
                WcStatus::RemAccessErr,
            ),
            3 => (Operation::Send, &long, WcStatus::RemInvReqErr),
            4 => (Operation::Send, &small, WcStatus::RemOpErr),
            _ => (Operation::Send, &bad, WcStatus::LocProtErr),
        };
        let wrong = SendRequest::new(WrId(1), operation, sges);
        let after = SendRequest::new(WrId(2), Operation::Send, &small);
        qp.post_send(&[wrong]).unwrap();
        qp.post_send(&[after, after]).unwrap();
        let all = [0; 3].map(|_| self.end.poll_one("the fault"));
        let got = all.map(|c| (c.wr_id.0, c.status));
        let flushed = (2, WcStatus::WrFlushErr);
        assert_eq!(got, [(1, status), flushed, flushed], "fault {fault}");
    }

    fn suffer(&mut self, pair: usize, fault: u64, receives: usize) {
        let sge = [self.end.mr.sge(0, 16).unwrap()];
        let wrong = [sge[0].with_lkey(Lkey(self.locked.lkey().0 ^ 0x8000_0000))];
        let sge = if fault == 4 { &wrong } else { &sge };
        for i in 0..receives {
            let id = WrId(RECEIVE | i as u64);
            self.qps[pair]
                .post_recv(&[RecvRequest::new(id, sge)])
                .unwrap();
        }
        self.link.meet("receives are posted");
        self.link.meet("offended");
        let qp = &self.qps[pair];
        if fault == 5 {
            assert_eq!(qp.state(), QpState::Rts, "a fault of the other side alone");
            qp.modify(&QpAttr::to(QpState::Err)).unwrap();
        }
        for i in 0..receives {
            let completion = self.end.poll_one("a receive that fails");
            assert_eq!(completion.wr_id, WrId(RECEIVE | i as u64));
            let status = match (fault, i) {
                (3, 0) => WcStatus::LocLenErr,
                (4, 0) => WcStatus::LocProtErr,
                _ => WcStatus::WrFlushErr,
            };
            assert_eq!(completion.status, status, "fault {fault}, receive {i}");
        }
        let failed = wait_until(|| qp.state() == QpState::Err);
        assert!(failed, "fault {fault} leaves {}", qp.state());
    }
}

/// How many of a list were taken; only a full queue may refuse.
fn check_room(
    result: &Result<(), PostError>,
    count: usize,
    room: usize,
    queue: &'static str,
) -> usize {
    match result {
        Ok(()) => {
            assert!(count <= room, "the {queue} queue took {count} into {room}");
            count
        }
        Err(PostError { index, cause }) => {
            assert!(matches!(cause, PostErrorCause::QueueFull { queue: q, .. } if *q == queue));
            assert_eq!(*index, room, "of {count}");
            room
        }
    }
}

fn operations() -> u64 {
    std::env::var("ADVERB_MODEL_OPS").map_or(600_000, |n| n.parse().expect("a number"))
}

/// Queue sizes depend on the seed, so one test covers several.
const SEEDS: u64 = 6;

#[test]
fn two_threads_do_what_the_model_does() {
    isolated("two_threads_do_what_the_model_does", || {
        let mut random = Random::from_env("two_threads_do_what_the_model_does");
        let mut done = 0;
        for _ in 0..SEEDS {
            let seed = random.next();
            let ((a, from_a), (b, from_b)) = (channel(), channel());
            let other = std::thread::spawn(move || {
                Side::new(1, seed, &mut Threads(b, from_a)).run(operations() / SEEDS)
            });
            done += Side::new(0, seed, &mut Threads(a, from_b)).run(operations() / SEEDS);
            other.join().unwrap();
        }
        println!("{done} operations");
    });
}

#[test]
fn two_processes_do_what_the_model_does() {
    let play = |_: &str| play_other();
    isolated_with("two_processes_do_what_the_model_does", play, || {
        let mut random = Random::from_env("two_processes_do_what_the_model_does");
        let mut done = 0;
        for _ in 0..SEEDS {
            let seed = random.next();
            let mut other = child("other")
                .env(SEED, seed.to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut link = Lines(
                BufReader::new(other.stdout.take().unwrap()),
                other.stdin.take().unwrap(),
            );
            done += Side::new(0, seed, &mut link).run(operations() / SEEDS);
            // The harness of the other side still writes to the pipe.
            let mut rest = String::new();
            let _ = std::io::Read::read_to_string(&mut link.0, &mut rest);
            assert!(other.wait().unwrap().success(), "{rest}");
        }
        println!("{done} operations");
    });
}

/// The other side, in a separate process.
fn play_other() {
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    let mut link = Lines(std::io::stdin().lock(), std::io::stdout());
    Side::new(1, seed, &mut link).run(operations() / SEEDS);
}
