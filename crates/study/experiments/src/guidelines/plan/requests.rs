//! Cells of requests without a service: echoes, atomics, SENDs, READs and WRITEs of one machine or of many clients.

use adverb_patterns::{
    Clients, Echo, EchoBy, Inbound, Job, Limits, Load, Opcode, Outbound, Pattern, Places, Posting,
    Refill, Reply, Schedule, Transport, Wait,
};
use adverb_units::Span;
use adverb_verbs::PathOptions;
use serde_json::{Value, json};

use super::super::figures::{ANSWERS, ATOMICS, INBOUND, LADDER, PCIE, SENDS, UNITS, WINDOWS};
use super::{Draft, RD_ATOMIC, SIGNALED_EVERY};

/// Ways to answer, by the transport of the replies.
const WAYS: [(EchoBy, Transport); 8] = [
    (EchoBy::Send, Transport::Rc),
    (EchoBy::Send, Transport::Ud),
    (EchoBy::Write, Transport::Rc),
    (EchoBy::Write, Transport::Uc),
    (EchoBy::WriteSend, Transport::Rc),
    (EchoBy::WriteSend, Transport::Ud),
    (EchoBy::Read, Transport::Rc),
    (EchoBy::Tcp, Transport::Rc),
];
/// Clients of one core, each with a machine of its own, and what each has outstanding.
const CLIENTS_OF: [u32; 5] = [1, 4, 16, 64, 128];
const ECHOES: u32 = 4;
/// Bytes of a request and of its reply.
const ECHOED: u32 = 32;
/// Words that atomics choose from.
const WORDS_OF: [u64; 7] = [1, 4, 16, 64, 256, 1024, 4096];
/// Payloads of SENDs and of requests to one machine, and the largest one that is inline there.
const SEND_SIZES: [u32; 6] = [0, 16, 32, 60, 96, 128];
const INBOUND_SIZES: [u32; 5] = [8, 32, 64, 128, 256];
const INLINE: u32 = 128;
/// READs that each core posts before it waits for all of them.
const WINDOWS_OF: [u32; 6] = [1, 4, 8, 16, 24, 32];
/// Machines that one posts to, or that post to one.
const PEERS: u32 = 8;
/// Memory of each machine that requests access.
const MEMORY: u64 = 2 << 20;

impl Draft {
    /// Ways to answer, over clients.
    pub(super) fn answers(&mut self) {
        let clients_of = match (self.abilities.is_virtual, self.is_quick()) {
            (true, false) => &CLIENTS_OF[..],
            (true, true) => &[1, 16, 64][..],
            (false, _) => &[1, 2][..],
        };
        let ways = WAYS.into_iter().filter(|way| self.has(*way));
        for (by, transport) in ways.collect::<Vec<_>>() {
            for threads in clients_of.iter().copied() {
                let echo = Echo {
                    by,
                    content: Reply::Digest,
                    transport,
                    request: ECHOED,
                    reply: ECHOED,
                    cores: 1,
                    clients: Clients::new(
                        [threads, self.clients([0, threads, 0])[1], ECHOES],
                        None,
                    ),
                    think: Span::ZERO,
                    wait: Wait::Poll,
                    path: PathOptions::default(),
                };
                let job = Job::Echo(echo, self.schedule(Span::from_us(300)));
                let figures = match by {
                    // How the kernel's driver uses PCIe is not modelled.
                    EchoBy::Tcp => vec![ANSWERS.id],
                    _ => self.with_pcie(vec![ANSWERS.id]),
                };
                self.add(echo.parameters(None), job, figures);
            }
        }
    }

    /// A sequencer over TCP, for comparison with the ladder: under load, and with one request at a time.
    pub(super) fn sequencer_over_tcp(&mut self) {
        for clients in [self.clients([70, 5, 32]), [1, 1, 1]] {
            let echo = Echo::sequencer(1, Clients::new(clients, None));
            let job = Job::Echo(echo, self.schedule(Span::from_us(1000)));
            self.add(echo.parameters(None), job, vec![LADDER.id]);
        }
    }

    /// Whether the device has the queue pairs or the sockets that a way needs.
    fn has(&self, (by, transport): (EchoBy, Transport)) -> bool {
        match (by, transport) {
            (EchoBy::Tcp, _) => self.abilities.sockets,
            (_, Transport::Rc) => self.abilities.queue_pairs,
            _ => self.abilities.all_transports,
        }
    }

    /// FETCH_ADD on random words, from many clients.
    pub(super) fn atomics(&mut self) {
        let [threads, machines, outstanding] = self.clients([32, 5, 64]);
        let qps = 2 * threads;
        for words in WORDS_OF {
            let load = Load {
                places: Places::Random {
                    align: 8,
                    within: 8 * words,
                },
                signaled_every: 32,
                posting: Posting::List(16),
                limits: Limits::of_each_qp(outstanding, RD_ATOMIC),
                ..Load::new(Opcode::FetchAdd, 8)
            };
            let shape = Inbound {
                threads,
                peers: machines,
                qps,
                window: None,
                receivers: 0,
                depth: 1,
                memory: 8 * words,
            };
            let pattern = Pattern::inbound(Transport::Rc, &load, &shape);
            let mut params = of_load(&load);
            params["words"] = words.into();
            params["clients"] = threads.into();
            params["machines"] = machines.into();
            params["qps"] = 2.into();
            // Requests for one word wait 2 ms for each other.
            let schedule = self.schedule(match words {
                1..=16 => Span::from_ms(3),
                _ => Span::from_us(300),
            });
            let job = Job::Pattern(pattern, schedule);
            let figures = self.with_pcie(vec![ATOMICS.id]);
            self.add(("atomics", params), job, figures);
        }
    }

    /// SENDs (UD) of one machine, from one core over queue pairs, and from all cores over payload.
    pub(super) fn sends(&mut self) {
        let send = |size, list| Load {
            inline: size > 0,
            signaled_every: SIGNALED_EVERY,
            posting: Posting::of(list),
            limits: Limits::of_each_qp(127, RD_ATOMIC),
            ..match size {
                0 => Load::new(Opcode::SendImm, 0),
                _ => Load::new(Opcode::Send, size),
            }
        };
        for (list, qps) in [(1, 1), (1, 4), (16, 1), (16, 2), (16, 4)] {
            self.outbound(Transport::Ud, &send(60, list), (1, qps), UNITS.id);
        }
        let cores = self.cores(14);
        for size in SEND_SIZES {
            for list in [1, 16] {
                self.outbound(Transport::Ud, &send(size, list), (cores, 4), SENDS.id);
            }
        }
    }

    /// READs by window, from all cores.
    pub(super) fn windows(&mut self) {
        let cores = self.cores(14);
        for window in WINDOWS_OF {
            let load = Load {
                signaled_every: window,
                refill: Refill::Window,
                limits: Limits {
                    per_qp: 1024,
                    per_member: window,
                    rd_atomic: RD_ATOMIC,
                },
                ..Load::new(Opcode::Read, 8)
            };
            self.outbound(Transport::Rc, &load, (cores, 1), WINDOWS.id);
        }
    }

    /// Requests of `cores` with `qps` queue pairs each to passive machines.
    fn outbound(
        &mut self,
        transport: Transport,
        load: &Load,
        (cores, qps): (u32, u32),
        figure: &'static str,
    ) {
        let [_, peers, _] = self.clients([0, PEERS, 0]);
        let shape = Outbound {
            cores,
            qps,
            peers,
            memory: MEMORY,
        };
        // A completion covers up to 64 requests: a short time counts in steps of all queue pairs' 64.
        let measured = Span::from_us(if self.is_quick() { 200 } else { 1000 });
        let (schedule, figures) = (self.schedule(measured), self.with_pcie(vec![figure]));
        self.outbound_of((transport, load), shape, schedule, figures);
    }

    /// Adds requests to passive machines.
    fn outbound_of(
        &mut self,
        (transport, load): (Transport, &Load),
        shape: Outbound,
        schedule: Schedule,
        figures: Vec<&'static str>,
    ) {
        let mut params = of_load(load);
        params["transport"] = json!(transport.to_string().to_lowercase());
        params["clients"] = shape.cores.into();
        params["machines"] = shape.peers.into();
        params["qps"] = shape.qps.into();
        let job = Job::Pattern(Pattern::outbound(transport, load, shape), schedule);
        self.add(("outbound", params), job, figures);
    }

    /// Adds requests of clients to one machine.
    fn inbound_of(
        &mut self,
        (transport, load): (Transport, &Load),
        shape: &Inbound,
        schedule: Schedule,
        figures: Vec<&'static str>,
    ) {
        let mut params = of_load(load);
        params["transport"] = json!(transport.to_string().to_lowercase());
        params["clients"] = shape.threads.into();
        params["machines"] = shape.peers.into();
        let job = Job::Pattern(Pattern::inbound(transport, load, shape), schedule);
        self.add(("inbound", params), job, figures);
    }

    /// Each verb at the machine that posts, one by one and in lists, and at the one that it accesses: what crosses PCIe.
    pub(super) fn verbs(&mut self) {
        let ops = [
            (Opcode::Send, true),
            (Opcode::SendImm, false),
            (Opcode::WriteImm, true),
            (Opcode::Write, true),
            (Opcode::Write, false),
            (Opcode::Read, false),
            (Opcode::FetchAdd, false),
            (Opcode::Cas, false),
        ];
        let schedule = self.schedule(Span::from_us(200));
        for (op, inline) in ops {
            if op.is_atomic() && !self.abilities.atomics {
                continue;
            }
            let size = match op {
                Opcode::SendImm => 0,
                op if op.is_atomic() => 8,
                _ => 32,
            };
            let load = |list| Load {
                inline,
                posting: Posting::of(list),
                limits: Limits::of_each_qp(16, RD_ATOMIC),
                ..Load::new(op, size)
            };
            let figures = vec![PCIE.id];
            for list in [1, 16] {
                let load = load(list);
                let shape = Outbound {
                    cores: 1,
                    qps: 1,
                    peers: 1,
                    memory: MEMORY,
                };
                self.outbound_of((Transport::Rc, &load), shape, schedule, figures.clone());
            }
            let load = load(1);
            let shape = Inbound {
                threads: 1,
                peers: 1,
                qps: 1,
                window: None,
                receivers: u32::from(op.consumes_receive()),
                depth: 64,
                memory: MEMORY,
            };
            self.inbound_of((Transport::Rc, &load), &shape, schedule, figures);
        }
    }

    /// READs and WRITEs of many clients to one passive machine, over payload.
    pub(super) fn inbound(&mut self) {
        let [threads, machines, _] = self.clients([112, PEERS, 0]);
        for size in INBOUND_SIZES {
            for (op, transport, list) in [
                (Opcode::Read, Transport::Rc, 1),
                (Opcode::Write, Transport::Uc, 16),
            ] {
                let load = Load {
                    inline: op == Opcode::Write && size <= INLINE,
                    signaled_every: SIGNALED_EVERY,
                    posting: Posting::of(list),
                    limits: Limits::of_each_qp(32, RD_ATOMIC),
                    ..Load::new(op, size)
                };
                let shape = Inbound {
                    threads,
                    peers: machines,
                    qps: threads,
                    window: None,
                    receivers: 0,
                    depth: 1,
                    memory: MEMORY,
                };
                let schedule = self.schedule(Span::from_us(300));
                let figures = self.with_pcie(vec![INBOUND.id]);
                self.inbound_of((transport, &load), &shape, schedule, figures);
            }
        }
    }
}

/// Returns the parameters of requests, by name.
fn of_load(load: &Load) -> Value {
    json!({
        "op": load.op,
        "size_bytes": load.size,
        "inline": load.inline,
        "outstanding": load.limits.per_qp.min(load.limits.per_member),
        "batch": load.posting.requests(),
    })
}
