//! Managers joined by a network in virtual time. A rule decides how often, and when, each message arrives.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;

use adverb_transport::cm::{CmEvent, CmParams, ConnId, Manager};
use adverb_units::{Span, Time};
use adverb_verbs::{AckTimeout, Gid, PathMtu, Psn, Qpn};
use adverb_wire::cm::{
    Dreq, Path, PortSpace, RejectReason, Rep, Req, ServiceId, ServiceType, SidrRep, SidrReq,
    SidrStatus,
};

pub const SERVICE: ServiceId = ServiceId::of(PortSpace::Tcp, 7174);

/// Time that a message takes.
const FLIGHT: Span = Span::from_us(50);
/// Virtual time after which a test gives up.
const TIMEOUT: Span = Span::from_secs(1000);

/// Delays with which a message arrives: one per copy.
type Rule = Box<dyn FnMut(usize) -> Vec<Span>>;

/// An event, without what the tests do not compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    Request(ConnId),
    SidrRequest(ConnId),
    Replied(ConnId),
    Established(ConnId),
    Rejected(ConnId, RejectReason),
    Unreachable(ConnId),
    Disconnected(ConnId),
    TimewaitExit(ConnId),
    SidrReplied(ConnId, u8),
}

/// The address of a host.
pub fn at(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8], 4791))
}

fn host_at(address: SocketAddr) -> usize {
    (0..).find(|host| at(*host).ip() == address.ip()).unwrap()
}

pub struct Lab {
    pub now: Time,
    pub hosts: Vec<Manager<SocketAddr>>,
    /// Kinds of the messages sent, in order.
    pub sent: Vec<&'static str>,
    /// Private data of the last REJ.
    pub private: Vec<u8>,
    rule: Rule,
    /// Messages in flight, by arrival and number: from, to, bytes.
    flying: BTreeMap<(Time, usize), (usize, usize, [u8; 256])>,
}

impl Lab {
    fn new(rule: impl FnMut(usize) -> Vec<Span> + 'static) -> Self {
        let host = |n: u32| Manager::new(CmParams::default(), 0x1000 * (n + 1));
        Lab {
            now: Time::ZERO,
            hosts: (0..3).map(host).collect(),
            sent: Vec::new(),
            private: Vec::new(),
            rule: Box::new(rule),
            flying: BTreeMap::new(),
        }
    }

    pub fn perfect() -> Self {
        Lab::new(|_| vec![FLIGHT])
    }

    pub fn losing_the(lost: usize) -> Self {
        Lab::new(move |n| if n == lost { vec![] } else { vec![FLIGHT] })
    }

    pub fn repeating(times: usize) -> Self {
        Lab::new(move |_| vec![FLIGHT; times])
    }

    pub fn cut() -> Self {
        Lab::new(|_| vec![])
    }

    pub fn cut_now(&mut self) {
        self.rule = Box::new(|_| vec![]);
    }

    /// A third of the messages is lost, a third arrives twice, after up to 100 ms.
    pub fn bad(seed: u64) -> Self {
        Lab::new(move |n| {
            let random = |what: u8| {
                let mut hasher = DefaultHasher::new();
                (seed, n, what).hash(&mut hasher);
                hasher.finish()
            };
            let copies = (random(0) % 3) as u8;
            let delay = |copy| FLIGHT + Span::from_us(random(copy + 1) % 100_000);
            (0..copies).map(delay).collect()
        })
    }

    pub fn listen(&mut self, host: usize, backlog: usize) {
        assert!(self.hosts[host].listen(SERVICE, backlog));
    }

    pub fn connect(&mut self, from: usize, to: usize) -> ConnId {
        self.hosts[from].connect(self.now, at(to), req(SERVICE))
    }

    pub fn accept(&mut self, host: usize, id: ConnId) {
        self.hosts[host].accept(self.now, id, rep()).unwrap();
    }

    pub fn disconnect(&mut self, host: usize, id: ConnId) {
        self.hosts[host].disconnect(self.now, id).unwrap();
    }

    pub fn destroy(&mut self, host: usize, id: ConnId) {
        self.hosts[host].destroy(self.now, id);
    }

    pub fn deliver(&mut self, from: SocketAddr, to: usize, mad: &[u8]) {
        self.hosts[to].handle_mad(self.now, from, mad);
    }

    /// Number of connections of a host that are not established.
    pub fn waiting(&self, host: usize) -> usize {
        self.hosts[host].connections().count()
    }

    /// Passes time until something happens at a host.
    pub fn next(&mut self, host: usize) -> Happened {
        let end = self.now + TIMEOUT;
        loop {
            if let Some(event) = self.hosts[host].poll_event() {
                return self.name(event);
            }
            assert!(self.now < end && self.step(), "nothing more happens");
        }
    }

    /// Passes time.
    pub fn run(&mut self, span: Span) {
        let end = self.now + span;
        self.send();
        while self.next_time().is_some_and(|next| next <= end) {
            self.step();
        }
        self.now = end;
    }

    /// Passes time until nothing is in flight and no timer runs; returns whether nothing happened but ends of TimeWait.
    pub fn quiet(&mut self) -> bool {
        while self.step() {}
        let events = self.hosts.iter_mut().filter_map(Manager::poll_event);
        let mut others = events.filter(|e| !matches!(e, CmEvent::TimewaitExit { .. }));
        others.next().is_none()
    }

    fn next_time(&self) -> Option<Time> {
        let timers = self.hosts.iter().filter_map(Manager::poll_timeout);
        let arrivals = self.flying.keys().next().map(|(at, _)| *at);
        timers.chain(arrivals).min()
    }

    fn step(&mut self) -> bool {
        self.send();
        let Some(next) = self.next_time() else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(entry) = self.flying.first_entry()
            && entry.key().0 <= self.now
        {
            let (from, to, mad) = entry.remove();
            self.hosts[to].handle_mad(self.now, at(from), &mad);
        }
        let now = self.now;
        self.hosts.iter_mut().for_each(|h| h.handle_timeout(now));
        self.send();
        true
    }

    fn send(&mut self) {
        for from in 0..self.hosts.len() {
            while let Some((to, mad)) = self.hosts[from].poll_transmit() {
                let number = self.sent.len();
                self.sent.push(kind(&mad));
                for delay in (self.rule)(number) {
                    let key = (self.now + delay, 10 * number + self.flying.len() % 10);
                    self.flying.insert(key, (from, host_at(to), mad));
                }
            }
        }
    }

    fn name(&mut self, event: CmEvent<SocketAddr>) -> Happened {
        match event {
            CmEvent::Request { id, .. } => Happened::Request(id),
            CmEvent::SidrRequest { id, .. } => Happened::SidrRequest(id),
            CmEvent::Replied { id, .. } => Happened::Replied(id),
            CmEvent::Established { id } => Happened::Established(id),
            CmEvent::Rejected {
                id,
                reason,
                private_data,
            } => {
                self.private = private_data.to_vec();
                Happened::Rejected(id, reason)
            }
            CmEvent::Unreachable { id } => Happened::Unreachable(id),
            CmEvent::Disconnected { id } => Happened::Disconnected(id),
            CmEvent::TimewaitExit { id } => Happened::TimewaitExit(id),
            CmEvent::SidrReplied { id, rep } => Happened::SidrReplied(id, rep.status.0),
        }
    }
}

fn kind(mad: &[u8]) -> &'static str {
    let kinds = [
        "REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP",
    ];
    kinds[usize::from(mad[17] - 0x10)]
}

fn qpn(n: u32) -> Qpn {
    Qpn::new(n).unwrap()
}

fn timeout(code: u8) -> AckTimeout {
    AckTimeout::new(code).unwrap()
}

pub fn req(service: ServiceId) -> Req {
    Req {
        local_id: 0,
        service,
        ca_guid: 1,
        qkey: 0,
        qpn: qpn(17),
        responder_resources: 1,
        initiator_depth: 1,
        remote_response_timeout: timeout(17),
        service_type: ServiceType::Rc,
        has_flow_control: false,
        starting_psn: Psn::new(1),
        local_response_timeout: timeout(17),
        retry_count: 7,
        pkey: 0xffff,
        path_mtu: PathMtu::B1024,
        rnr_retry_count: 7,
        max_cm_retries: 15,
        has_srq: false,
        primary: Path {
            local_lid: 0xffff,
            remote_lid: 0xffff,
            local_gid: Gid([1; 16]),
            remote_gid: Gid([2; 16]),
            flow_label: 0,
            rate: 0,
            traffic_class: 0,
            hop_limit: 64,
            sl: 0,
            is_subnet_local: false,
            ack_timeout: timeout(14),
        },
        private_data: [0; Req::PRIVATE],
    }
}

pub fn rep() -> Rep {
    Rep {
        local_id: 0,
        remote_id: 0,
        qkey: 0,
        qpn: qpn(18),
        starting_psn: Psn::new(2),
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: timeout(0),
        failover: 0,
        has_flow_control: false,
        rnr_retry_count: 7,
        has_srq: false,
        ca_guid: 2,
        private_data: [0; Rep::PRIVATE],
    }
}

pub fn dreq(to: ConnId) -> Dreq {
    Dreq {
        local_id: 99,
        remote_id: to.0,
        remote_qpn: qpn(17),
        private_data: [0; Dreq::PRIVATE],
    }
}

pub fn sidr_req() -> SidrReq {
    SidrReq {
        request_id: 0,
        pkey: 0xffff,
        service: SERVICE,
        private_data: [0; SidrReq::PRIVATE],
    }
}

pub fn sidr_rep() -> SidrRep {
    SidrRep {
        request_id: 0,
        status: SidrStatus::VALID,
        additional_length: 0,
        qpn: qpn(19),
        service: SERVICE,
        qkey: 0x0123_4567,
        additional: [0; SidrRep::ADDITIONAL],
        private_data: [0; SidrRep::PRIVATE],
    }
}
