//! UC and UD over networks that lose, repeat, reorder and damage packets: a message arrives whole or not
//! at all, on the loopback and (as root) between two network namespaces. Both begin again with any first
//! packet, whatever its number: a short message that the network repeats or delays may arrive twice or
//! late.

#![allow(unsafe_code)]

mod common;

use std::time::{Duration, Instant};

use adverb_softnic::{SoftAh, SoftQp};
use adverb_units::Bytes;
use adverb_verbs::{
    AddressHandle, Context, Destination, Impairment, MemoryRegion, Operation, PathMtu, Probability,
    QpCaps, QpInit, QpState, QpType, QueuePair, RecvRequest, SendFlags, SendRequest, WcStatus,
    WrId,
};
use common::network::{FIRST_PSN, Faults, Network};
use common::{End, QKEY, Random, connect_uc, not_run, wait_until};

const MEMORY: Bytes = Bytes::mib(1);
/// Of one receive.
const ROOM: u64 = 4096;
const RECEIVES: u64 = 32;
/// Messages that have to arrive.
const ENOUGH: u64 = 300;
/// The network's header, in front of a datagram.
const GRH: usize = 40;

const ALL: Faults = Faults {
    lost: 50,
    repeated: 50,
    delayed: 50,
    damaged: 50,
};

fn connected(end: &End, qp: &SoftQp, (network, host, to): (&Network, usize, &SoftQp)) {
    let to = (network.address(host), to.qpn());
    connect_uc(qp, to, FIRST_PSN, PathMtu::B256);
    assert_eq!(qp.state(), QpState::Rts, "{}", end.context.name());
}

/// A sender, a receiver, and what is between them.
struct Scene {
    a: End,
    b: End,
    qp_a: SoftQp,
    qp_b: SoftQp,
    /// UD: the way to the receiver.
    ah: Option<SoftAh>,
}

impl Scene {
    fn new(network: &Network, service: QpType) -> Self {
        let (a, b) = (network.end(0, MEMORY), network.end(1, MEMORY));
        if service == QpType::Ud {
            let qps = [&a, &b].map(|end| end.datagram_qp(&end.cq, QpCaps::default()));
            let [qp_a, qp_b] = qps;
            let ah = a.context.create_ah(&a.pd, &network.address(1)).unwrap();
            let ah = Some(ah);
            return Scene {
                a,
                b,
                qp_a,
                qp_b,
                ah,
            };
        }
        let uc = |end: &End| {
            let init = QpInit::new(QpType::Uc, &end.cq, QpCaps::default());
            end.context.create_qp(&end.pd, &init).unwrap()
        };
        let (qp_a, qp_b) = (uc(&a), uc(&b));
        connected(&a, &qp_a, (network, 1, &qp_b));
        connected(&b, &qp_b, (network, 0, &qp_a));
        Scene {
            a,
            b,
            qp_a,
            qp_b,
            ah: None,
        }
    }

    /// Offset and maximum length of the message in a receive.
    fn front(&self) -> usize {
        self.ah.as_ref().map_or(0, |_| GRH)
    }

    /// Message `n`: on UC several packets, on UD one.
    fn message(&self, n: u64) -> Vec<u8> {
        let mut random = Random(n);
        let most = if self.ah.is_some() { 1000 } else { 2000 };
        let length = random.within(8..most) as usize;
        let mut bytes = random.bytes(length);
        bytes[..8].copy_from_slice(&n.to_ne_bytes());
        bytes
    }

    fn send(&self, n: u64) {
        let bytes = self.message(n);
        self.a.mr.write(0, &bytes).unwrap();
        let sges = [self.a.mr.sge(0, bytes.len() as u32).unwrap()];
        let request = SendRequest::new(WrId(n), Operation::Send, &sges);
        let request = request.with_flags(SendFlags::SIGNALED);
        let request = match &self.ah {
            None => request,
            Some(ah) => request.to(Destination {
                ah: ah.handle(),
                qpn: self.qp_b.qpn(),
                qkey: QKEY,
            }),
        };
        self.qp_a.post_send(&[request]).unwrap();
        assert_eq!(self.a.poll_one("of a SEND").status, WcStatus::Success);
    }

    fn post_receive(&self, n: u64) {
        let sges = [(self.b.mr).sge(n % RECEIVES * ROOM, ROOM as u32).unwrap()];
        let receive = RecvRequest::new(WrId(n), &sges);
        self.qp_b.post_recv(&[receive]).unwrap();
    }

    /// The numbers of the messages that have arrived, each of them whole.
    fn receive(&self) -> Vec<u64> {
        let whole = |completion: adverb_verbs::WorkCompletion| {
            assert_eq!(completion.status, WcStatus::Success);
            let mut bytes = vec![0; completion.byte_len as usize];
            let place = completion.wr_id.0 % RECEIVES * ROOM;
            self.b.mr.read(place, &mut bytes).unwrap();
            self.post_receive(completion.wr_id.0);
            let bytes = &bytes[self.front()..];
            let n = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
            assert!(bytes == self.message(n), "message {n} is torn");
            n
        };
        self.b.poll().into_iter().map(whole).collect()
    }
}

fn hold(name: &str, net: u8, service: QpType) {
    let mut networks = vec![Network::loopback(net)];
    match Network::wire(name) {
        Ok(wire) => networks.push(wire),
        Err(why) => not_run(&format!("{name} between network namespaces: {why}")),
    }
    for network in networks {
        let mut random = Random::from_env(name);
        let scene = Scene::new(&network, service);
        scene.b.context.inject_faults(ALL.rule(random.next()));
        run(&scene);
    }
}

/// The same where the sender's port does it, also to a receiver at its own address that shares its memory.
fn hold_impaired(name: &str, net: u8, service: QpType) {
    const EACH: Probability = Probability::per_million(50_000);
    for network in [Network::one_address(net), Network::loopback(net)] {
        let how = Impairment {
            loss: EACH,
            duplicate: EACH,
            reorder: EACH,
            corrupt: EACH,
            seed: Random::from_env(name).next(),
            ..Impairment::default()
        };
        run(&Scene::new(&network.impaired(how), service));
    }
}

fn run(scene: &Scene) {
    (0..RECEIVES).for_each(|n| scene.post_receive(n));
    let (mut sent, mut arrived) = (0, Vec::new());
    let deadline = Instant::now() + Duration::from_secs(60);
    while (arrived.len() as u64) < ENOUGH {
        assert!(Instant::now() < deadline, "{} of {sent}", arrived.len());
        scene.send(sent);
        sent += 1;
        arrived.extend(scene.receive());
    }
    assert!(arrived.iter().all(|n| *n < sent));
    let counters = scene.b.context.counters();
    assert!(counters["drop_icrc_err"] > 0, "{counters:?}");
    let is_uc = scene.ah.is_none();
    assert!(
        !is_uc || counters["drop_broken_message"] > 0,
        "{counters:?}"
    );
    assert_eq!(scene.a.context.counters()["resent_pkts_retry"], 0);
}

#[test]
fn messages_of_uc_arrive_whole_or_not_at_all() {
    hold("uc", 61, QpType::Uc);
}

#[test]
fn messages_of_uc_from_an_impaired_port_arrive_whole_or_not_at_all() {
    hold_impaired("uc-impaired", 63, QpType::Uc);
}

#[test]
fn datagrams_from_an_impaired_port_arrive_whole_or_not_at_all() {
    hold_impaired("ud-impaired", 64, QpType::Ud);
}

#[test]
fn datagrams_arrive_whole_or_not_at_all() {
    hold("ud", 62, QpType::Ud);
}

/// Within shared memory the receiver learns of its error later than the sender, which must not deliver more until then.
#[test]
fn a_receiver_of_uc_that_has_failed_gets_no_later_message() {
    for network in [Network::one_address(66), Network::loopback(66)] {
        let scene = Scene::new(&network, QpType::Uc);
        for (n, room) in [(0, 32), (1, 64), (2, 64)] {
            let sges = [scene.b.mr.sge(n * 64, room).unwrap()];
            (scene.qp_b.post_recv(&[RecvRequest::new(WrId(n), &sges)])).unwrap();
        }
        let sges = [scene.a.mr.sge(0, 64).unwrap()];
        let send = SendRequest::new(WrId(0), Operation::Send, &sges);
        scene.qp_a.post_send(&[send; 3]).unwrap();
        let mut arrived = Vec::new();
        wait_until(|| {
            let polled = scene.b.poll();
            arrived.extend(polled.iter().map(|done| (done.wr_id.0, done.status)));
            arrived.len() == 3
        });
        let expected = [
            (0, WcStatus::LocLenErr),
            (1, WcStatus::WrFlushErr),
            (2, WcStatus::WrFlushErr),
        ];
        assert_eq!(arrived, expected);
        assert_eq!(scene.qp_a.state(), QpState::Rts);
    }
}

#[test]
fn a_list_of_messages_fills_as_many_receives_at_once() {
    const COUNT: u64 = 64;
    const LENGTH: u64 = 8;
    let scene = Scene::new(&Network::loopback(65), QpType::Uc);
    for n in 0..COUNT {
        let sges = [scene.b.mr.sge(n * LENGTH, LENGTH as u32).unwrap()];
        (scene.qp_b.post_recv(&[RecvRequest::new(WrId(n), &sges)])).unwrap();
        scene.a.mr.write(n * LENGTH, &n.to_ne_bytes()).unwrap();
    }
    let sges: Vec<_> = (0..COUNT)
        .map(|n| [scene.a.mr.sge(n * LENGTH, LENGTH as u32).unwrap()])
        .collect();
    let sends = sges
        .iter()
        .map(|sges| SendRequest::new(WrId(0), Operation::Send, sges));
    scene.qp_a.post_send(&sends.collect::<Vec<_>>()).unwrap();
    let mut arrived = Vec::new();
    let has_all = wait_until(|| {
        arrived.extend(scene.b.poll().iter().map(|completion| completion.wr_id.0));
        arrived.len() as u64 == COUNT
    });
    assert!(has_all, "{arrived:?}: {:?}", scene.b.context.counters());
    for n in 0..COUNT {
        let mut bytes = [0; LENGTH as usize];
        scene.b.mr.read(n * LENGTH, &mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), n);
    }
}
