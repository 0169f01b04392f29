//! What the tests with several processes share: a scene of their own, one end of a connection, and
//! numbers from a seed.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

pub mod flood;
pub mod network;
pub mod peer;
pub mod victim;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use adverb_softnic::{
    SoftAh, SoftChannel, SoftContext, SoftCq, SoftDevice, SoftMr, SoftPd, SoftQp, SoftSrq,
};
use adverb_units::{Bytes, Span};
use adverb_verbs::random::mix;
use adverb_verbs::{
    AccessFlags, AckTimeout, AddressVector, CompletionChannel, CompletionQueue, Context, Device,
    MemoryRegion, NotifyOn, PathMtu, PortNum, Psn, QpAttr, QpCaps, QpInit, QpState, QpType, Qpn,
    QueuePair, RemoteAddress, RetryCount, Rkey, WorkCompletion,
};

/// The queue key of all datagrams.
pub const QKEY: u32 = 0x00c0_ffee;
/// Names the role that a child process of a test plays.
pub const ROLE: &str = "ADVERB_TEST_ROLE";
/// Names the test, in the process in which its body runs and in those that it starts.
const INSIDE: &str = "ADVERB_TEST_INSIDE";
/// Seed of all random choices, to repeat a run.
pub const SEED: &str = "ADVERB_TEST_SEED";

/// A line for the summary of `scripts/test`: past the harness, which keeps what tests print.
pub fn not_run(what: &str) {
    let _ = writeln!(std::io::stderr(), "\nNOT RUN: {what}");
}

/// Runs `body` in a separate process with a separate directory for shared memory, and checks that no files are left
/// there. `test` is the name of the calling test.
pub fn isolated(test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        body();
        return;
    }
    let shm = tempfile::Builder::new()
        .prefix("adverb-test-")
        .tempdir_in(shared_memory())
        .unwrap();
    let output = this_test(test)
        .env(INSIDE, test)
        .env("ADVERB_SHM", shm.path())
        .output()
        .unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    // Past the harness: what is not run is told there.
    std::io::stderr().write_all(&output.stderr).unwrap();
    assert!(output.status.success(), "{test}: {}", output.status);
    let left: Vec<_> = std::fs::read_dir(shm.path()).unwrap().collect();
    assert!(
        left.is_empty(),
        "left in {}: {left:?}",
        shm.path().display()
    );
}

/// As [`isolated`], for a body that starts processes ([`child`]): each of them runs `play` with the
/// name of its role.
pub fn isolated_with(test: &str, play: impl FnOnce(&str), body: impl FnOnce()) {
    match std::env::var(ROLE) {
        Ok(role) => play(&role),
        Err(_) => isolated(test, body),
    }
}

/// A process of the test whose body runs here, which plays `role`.
pub fn child(role: &str) -> Command {
    let mut command = this_test(&std::env::var(INSIDE).expect("in a scene"));
    command.env(ROLE, role);
    command
}

/// Another user, who owns no files.
pub const NOBODY: u32 = 65534;

/// As [`isolated_with`], for a body that runs processes as [`NOBODY`]: the directories of both users
/// are in one place, as in /dev/shm.
pub fn with_another_user(test: &str, play: impl FnOnce(&str), body: impl FnOnce()) {
    isolated_with(test, play, || {
        if let Err(why) = this_test("--list").uid(NOBODY).output() {
            return not_run(&format!("{test}: cannot run as user {NOBODY}: {why}"));
        }
        let place = std::env::var("ADVERB_SHM").unwrap();
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o1777)).unwrap();
        body();
        for entry in std::fs::read_dir(&place).unwrap() {
            // What a killed process left is for its own user to remove.
            std::fs::remove_dir_all(entry.unwrap().path()).unwrap();
        }
    });
}

fn shared_memory() -> PathBuf {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() {
        shm.into()
    } else {
        std::env::temp_dir()
    }
}

/// This binary, to run nothing but `test`, on its main thread, without capturing.
pub fn this_test(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command
}

/// The directory that the device makes in this scene.
pub fn device_dir() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    let place = std::env::var_os("ADVERB_SHM").expect("in a scene");
    Path::new(&place).join(format!("adverb-{uid}"))
}

/// Names of the files in the device's directory; empty if there is no directory.
pub fn device_files() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(device_dir()) else {
        return Vec::new();
    };
    entries
        .flatten()
        .map(|e| e.file_name().into_string().unwrap())
        .collect()
}

/// Whether nothing is left of the port in this slot.
pub fn is_gone(slot: u32) -> bool {
    let prefix = format!("{slot:03x}.");
    !device_files().iter().any(|name| name.starts_with(&prefix))
}

/// Waits until `done`, and returns whether it happened within a minute, which is longer than a loaded machine
/// takes.
pub fn wait_until(done: impl FnMut() -> bool) -> bool {
    wait_at_most(Duration::from_secs(60), done)
}

/// Waits until `done`, and returns whether it happened within `timeout`.
pub fn wait_at_most(timeout: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + timeout;
    loop {
        if done() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Random numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// From the environment, else from the clock; printed, so that a failure can be repeated.
    pub fn from_env(test: &str) -> Self {
        let seed = match std::env::var(SEED) {
            Ok(seed) => seed.parse().expect("a number"),
            Err(_) => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap()
                .as_nanos() as u64,
        };
        println!("{test}: repeat with {SEED}={seed}");
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        let mixed = mix(self.0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed
    }

    /// Below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// From `range`, end excluded.
    pub fn within(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// True `percent` times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length.div_ceil(8))
            .flat_map(|_| self.next().to_le_bytes())
            .take(length)
            .collect()
    }
}

/// Everything one may do to a region.
pub fn all_access() -> AccessFlags {
    AccessFlags::LOCAL_WRITE
        | AccessFlags::REMOTE_WRITE
        | AccessFlags::REMOTE_READ
        | AccessFlags::REMOTE_ATOMIC
}

/// An opened device with a region, a channel and a queue for all completions.
pub struct End {
    pub context: SoftContext,
    pub pd: SoftPd,
    pub mr: SoftMr,
    pub channel: SoftChannel,
    pub cq: SoftCq,
}

/// What the other side has to know of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub qpn: Qpn,
    pub memory: RemoteAddress,
}

impl Address {
    pub fn to_line(self) -> String {
        format!(
            "{} {} {}",
            self.qpn.get(),
            self.memory.addr,
            self.memory.rkey.0
        )
    }

    pub fn from_line(line: &str) -> Self {
        let numbers: Vec<u64> = line
            .split_whitespace()
            .map(|n| n.parse().unwrap_or_else(|_| panic!("an address: {line}")))
            .collect();
        Address {
            qpn: Qpn::new(numbers[0] as u32).unwrap(),
            memory: RemoteAddress {
                addr: numbers[1],
                rkey: Rkey(numbers[2] as u32),
            },
        }
    }

    /// The slot of the port that has it.
    pub fn slot(self) -> u32 {
        slot_of(self.qpn)
    }
}

/// The slot of the port that has a queue pair of this number. All but the first carry a mark above it.
pub fn slot_of(qpn: Qpn) -> u32 {
    (qpn.get() & 0x7f_ffff) >> 14
}

/// Returns the number of a queue pair that does not exist, of the same device as `qpn`. The 12 lowest bits
/// of a number are an index that starts anywhere, so adding to one could carry into the device's bits.
pub fn unused_qpn(qpn: Qpn) -> Qpn {
    Qpn::new(qpn.get() ^ 1 << 6).expect("24 bits")
}

impl End {
    pub fn new(memory: Bytes) -> Self {
        End::of(SoftDevice::new(), memory)
    }

    pub fn of(device: SoftDevice, memory: Bytes) -> Self {
        let context = device.open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let mr = context.alloc_mr(&pd, memory, all_access()).unwrap();
        let channel = context.create_channel().unwrap();
        let cq = context.create_cq(1 << 14, Some(&channel)).unwrap();
        End {
            context,
            pd,
            mr,
            channel,
            cq,
        }
    }

    /// A queue pair in RESET.
    pub fn qp(&self) -> SoftQp {
        self.qp_of(QpCaps {
            max_send_sge: 4,
            max_recv_sge: 2,
            max_inline_data: 256,
            ..QpCaps::default()
        })
    }

    /// Idle queue pairs. With more than a few of them producers mark those that have a completion.
    pub fn crowd(&self, count: usize) -> Vec<SoftQp> {
        (0..count).map(|_| self.qp()).collect()
    }

    pub fn qp_of(&self, caps: QpCaps) -> SoftQp {
        let init = QpInit::new(QpType::Rc, &self.cq, caps);
        self.context.create_qp(&self.pd, &init).unwrap()
    }

    /// A queue pair in INIT.
    pub fn in_init(&self, qp_type: QpType) -> SoftQp {
        let init = QpInit::new(qp_type, &self.cq, QpCaps::default());
        let qp = self.context.create_qp(&self.pd, &init).unwrap();
        to_init(&qp);
        qp
    }

    /// The way to this end's port.
    pub fn local_address(&self) -> AddressVector {
        let port = self.context.port(PortNum::ONE).unwrap();
        AddressVector::new(port.gid, port.lid, PortNum::ONE)
    }

    /// A UD queue pair in RTS with the queue key [`QKEY`], whose sends complete into `cq`.
    pub fn datagram_qp(&self, cq: &SoftCq, caps: QpCaps) -> SoftQp {
        let init = self.datagram_init(cq, caps);
        let qp = self.context.create_qp(&self.pd, &init).unwrap();
        datagrams_to_rts(&qp);
        qp
    }

    /// The same with a shared receive queue.
    pub fn datagram_qp_with_srq(&self, cq: &SoftCq, caps: QpCaps, srq: &SoftSrq) -> SoftQp {
        let init = self.datagram_init(cq, caps);
        let qp = self.context.create_qp_with_srq(&self.pd, &init, srq);
        let qp = qp.unwrap();
        datagrams_to_rts(&qp);
        qp
    }

    fn datagram_init<'a>(&'a self, cq: &'a SoftCq, caps: QpCaps) -> QpInit<'a, SoftCq> {
        QpInit {
            qp_type: QpType::Ud,
            send_cq: cq,
            recv_cq: &self.cq,
            caps,
        }
    }

    /// The way of datagrams to this host's ports.
    pub fn ah(&self) -> SoftAh {
        (self.context.create_ah(&self.pd, &self.local_address())).unwrap()
    }

    pub fn address(&self, qp: &SoftQp) -> Address {
        Address {
            qpn: qp.qpn(),
            memory: self.mr.remote(0),
        }
    }

    /// All completions that are there.
    pub fn poll(&self) -> Vec<WorkCompletion> {
        let mut found = Vec::new();
        loop {
            let mut batch = [WorkCompletion::default(); 16];
            let count = self.cq.poll(&mut batch).unwrap();
            if count == 0 {
                return found;
            }
            found.extend_from_slice(&batch[..count]);
        }
    }

    /// Polls until one completion is there.
    pub fn poll_one(&self, what: &str) -> WorkCompletion {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let mut one = [WorkCompletion::default()];
            if self.cq.poll(&mut one).unwrap() == 1 {
                return one[0];
            }
            assert!(Instant::now() < deadline, "no completion: {what}");
            std::hint::spin_loop();
        }
    }

    /// Polls, and sleeps on the channel in between, until `enough` of all completions.
    pub fn sleep_until(&self, what: &str, mut enough: impl FnMut(&[WorkCompletion]) -> bool) {
        let mut all = Vec::new();
        loop {
            self.cq.req_notify(NotifyOn::Any).unwrap();
            all.extend(self.poll());
            if enough(&all) {
                return;
            }
            let event = self.channel.get_event(Span::from_secs(5)).unwrap();
            assert!(
                event.is_some(),
                "sleeps for ever: {what}; so far {all:?}, and unseen {:?}",
                self.poll()
            );
            self.cq.ack_events(1);
        }
    }
}

/// Moves a queue pair from RESET to INIT.
pub fn to_init(qp: &SoftQp) {
    let init = QpAttr::to_init(PortNum::ONE, all_access());
    qp.modify(&init).unwrap();
}

/// Brings a UC queue pair to RTS.
pub fn connect_uc(qp: &SoftQp, (address, dest): (AddressVector, Qpn), psn: Psn, mtu: PathMtu) {
    to_init(qp);
    let mut rtr = QpAttr::to_rtr(address, dest, psn, mtu);
    (rtr.max_dest_rd_atomic, rtr.min_rnr_timer) = (None, None);
    qp.modify(&rtr).unwrap();
    let mut rts = QpAttr::to(QpState::Rts);
    rts.sq_psn = Some(psn);
    qp.modify(&rts).unwrap();
}

/// Brings `qp` to RTS, connected to queue pair `dest` of the local port.
pub fn connect(end: &End, qp: &SoftQp, dest: Qpn) {
    connect_with(end, qp, dest, RetryCount::MAX, 0);
}

pub fn connect_with(end: &End, qp: &SoftQp, dest: Qpn, rnr_retry: RetryCount, psn: u32) {
    to_init(qp);
    qp.modify(&QpAttr::to_rtr(
        end.local_address(),
        dest,
        Psn::new(psn),
        PathMtu::B4096,
    ))
    .unwrap();
    let mut rts = QpAttr::to_rts(Psn::new(psn));
    rts.timeout = AckTimeout::new(10); // 4.2 ms
    rts.retry_cnt = RetryCount::new(1);
    rts.rnr_retry = Some(rnr_retry);
    qp.modify(&rts).unwrap();
}

fn datagrams_to_rts(qp: &SoftQp) {
    let mut attr = QpAttr::to(QpState::Init);
    attr.pkey_index = Some(0);
    attr.port = Some(PortNum::ONE);
    attr.qkey = Some(QKEY);
    qp.modify(&attr).unwrap();
    qp.modify(&QpAttr::to(QpState::Rtr)).unwrap();
    let mut attr = QpAttr::to(QpState::Rts);
    attr.sq_psn = Some(Psn::new(0));
    qp.modify(&attr).unwrap();
}
