//! Two queue pairs joined by a buffer, on one core: the cost of the transport of both sides together, with and
//! without the ICRC.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Duration;

use adverb_transport::{
    Access, AccessError, AtomicOperation, Key, LocalPiece, Memory, PACKET_SPACE, Payload, Place,
    RcConfig, RcQp, ReceiveQueue, ReceiveWork, RequesterConfig, ResponderConfig, SendWork, Work,
};
use adverb_units::Time;
use adverb_verbs::{
    AccessFlags, Lkey, PathMtu, Psn, QpType, Qpn, RemoteAddress, RetryParams, Rkey, RnrTimer,
    SendFlags, Srqn, WrId,
};
use adverb_wire::frame::Addresses;
use adverb_wire::ipv4::Unseen;
use adverb_wire::{Flow, Packet, ROCE_PORT, icrc};
use anyhow::Result;

use crate::child::on_core;
use crate::machine::cpu_time;

const SIZE: usize = 1 << 20;
const BATCH: u64 = 32;
/// Batches between two clock readings, which are system calls.
const BATCHES: u64 = 16;
/// CPU time for which a figure is measured, and before it warmed up.
const MEASURED: Duration = Duration::from_millis(300);
const WARM_UP: Duration = Duration::from_millis(50);
const SMALL: u32 = 64;
const LARGE: u32 = 64 << 10;
const REMOTE: RemoteAddress = RemoteAddress {
    addr: 0,
    rkey: Rkey(1),
};

/// What is posted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    Write,
    Send,
    Read,
}

impl Verb {
    const fn work(self) -> Work {
        match self {
            Verb::Write => Work::Write(REMOTE),
            Verb::Send => Work::Send,
            Verb::Read => Work::Read(REMOTE),
        }
    }
}

/// 64 B messages per second, with the ICRC and without.
pub(crate) fn messages(core: u32, verb: Verb) -> Result<(f64, f64)> {
    both(core, verb, SMALL)
}

/// Bytes per second in messages of 64 KiB, likewise.
pub(crate) fn bytes(core: u32, verb: Verb) -> Result<(f64, f64)> {
    let (sealed, bare) = both(core, verb, LARGE)?;
    Ok((sealed * f64::from(LARGE), bare * f64::from(LARGE)))
}

/// Messages per second with the ICRC and without.
fn both(core: u32, verb: Verb, length: u32) -> Result<(f64, f64)> {
    on_core(core, || {
        let rate = |icrc| per_second(&mut connected(icrc), verb.work(), length);
        Ok((rate(Icrc::Sealed), rate(Icrc::Without)))
    })
}

fn per_second(link: &mut Link, work: Work, length: u32) -> f64 {
    rate(link, work, length, WARM_UP);
    rate(link, work, length, MEASURED)
}

/// Returns the rate by the thread's CPU time, which does not depend on other load.
fn rate(link: &mut Link, work: Work, length: u32, at_least: Duration) -> f64 {
    let start = cpu_time();
    let mut messages = 0;
    loop {
        for _ in 0..BATCHES {
            link.batch(work, length);
        }
        messages += BATCHES * BATCH;
        let elapsed = cpu_time() - start;
        if elapsed >= at_least {
            return messages as f64 / elapsed.as_secs_f64();
        }
    }
}

/// One region from address 0, under either key.
struct Region(Vec<u8>);

impl Region {
    fn range(&self, place: Place, length: u64) -> Result<std::ops::Range<usize>, AccessError> {
        let known = match place.key {
            Key::Local(lkey) => lkey == Lkey(1),
            Key::Remote(rkey) => rkey == REMOTE.rkey,
        };
        if !known {
            return Err(AccessError::UnknownKey);
        }
        let end = place.addr.checked_add(length);
        let end = end.filter(|&end| end <= SIZE as u64);
        let end = end.ok_or(AccessError::OutOfRange)?;
        Ok(place.addr as usize..end as usize)
    }
}

impl Memory for Region {
    fn check(&self, place: Place, length: u64, _: Access) -> Result<(), AccessError> {
        self.range(place, length).map(|_| ())
    }

    fn read(&self, place: Place, into: &mut [u8]) -> Result<(), AccessError> {
        let range = self.range(place, into.len() as u64)?;
        into.copy_from_slice(&self.0[range]);
        Ok(())
    }

    fn write(&mut self, place: Place, from: &[u8]) -> Result<(), AccessError> {
        let range = self.range(place, from.len() as u64)?;
        self.0[range].copy_from_slice(from);
        Ok(())
    }

    fn atomic(
        &mut self,
        place: RemoteAddress,
        operation: AtomicOperation,
    ) -> Result<u64, AccessError> {
        let range = self.range(place.into(), 8)?;
        let word = (&mut self.0[range]).try_into().expect("8 bytes");
        Ok(operation.carry_out(word))
    }

    fn invalidate(&mut self, _: Rkey) -> Result<(), AccessError> {
        Err(AccessError::NotAllowed)
    }
}

#[derive(Clone, Copy)]
enum Icrc {
    Without,
    Sealed,
}

struct Link {
    qps: [RcQp; 2],
    memories: [Region; 2],
    out: [u8; PACKET_SPACE],
    icrc: Icrc,
}

fn qpn(n: u32) -> Qpn {
    Qpn::new(n).expect("small")
}

fn connected(icrc: Icrc) -> Link {
    let config = |own, peer| RcConfig {
        qp_type: QpType::Rc,
        qpn: qpn(own),
        peer: qpn(peer),
        path_mtu: PathMtu::B4096,
        requester: RequesterConfig {
            first_psn: Psn::new(0),
            max_work: 128,
            retry: RetryParams::default(),
            max_reads: 16,
            window: 256,
            max_window: 256,
        },
        responder: ResponderConfig {
            first_psn: Psn::new(0),
            access: AccessFlags::all(),
            max_reads: 16,
            rnr_timer: RnrTimer::new(1).expect("a code"),
        },
    };
    let qp = |own, peer| RcQp::new(&config(own, peer), ReceiveQueue::new(128));
    Link {
        qps: [qp(1, 2), qp(2, 1)],
        memories: [Region(vec![7; SIZE]), Region(vec![0; SIZE])],
        out: [0; PACKET_SPACE],
        icrc,
    }
}

impl Link {
    /// Carries packets until both sides have nothing to send.
    fn pump(&mut self) {
        let mut from = 0;
        let mut idle = 0;
        while idle < 2 {
            idle = if self.carry(from) == 0 { idle + 1 } else { 0 };
            from = 1 - from;
        }
    }

    /// Carries what one side has to send.
    fn carry(&mut self, from: usize) -> u32 {
        let mut carried = 0;
        let now = Time::ZERO;
        let to = 1 - from;
        while let Some(length) =
            self.qps[from].poll_transmit(now, &self.memories[from], &mut self.out)
        {
            carried += 1;
            let bytes = match self.icrc {
                Icrc::Without => &self.out[..length],
                Icrc::Sealed => {
                    let flow = flow(from);
                    let unseen = Unseen::default();
                    let sealed = icrc::seal(&flow, unseen, &mut self.out, length).expect("space");
                    icrc::check(&flow, unseen, &self.out[..sealed]).expect("right")
                }
            };
            let packet = Packet::parse(bytes).expect("a packet");
            let taken = self.qps[to].handle_packet(now, &packet, &mut self.memories[to]);
            taken.expect("nothing is lost");
        }
        carried
    }

    fn post(&mut self, wr_id: u64, work: Work, length: u32, flags: SendFlags) {
        let piece = LocalPiece {
            addr: 0,
            length,
            lkey: Lkey(1),
        };
        let work = SendWork {
            wr_id: WrId(wr_id),
            work,
            payload: Payload::Memory([piece].into_iter().collect()),
            flags,
            remote_srqn: Srqn(0),
        };
        let posted = self.qps[0].post_send(work, &self.memories[0]);
        posted.expect("there is space");
    }

    fn receive(&mut self, length: u32) {
        let piece = LocalPiece {
            addr: 0,
            length,
            lkey: Lkey(1),
        };
        let work = ReceiveWork {
            wr_id: WrId(0),
            pieces: [piece].into_iter().collect(),
        };
        self.qps[1].post_receive(work).expect("there is space");
    }

    /// A batch of messages, the last one signaled, until they are completed on both sides.
    fn batch(&mut self, work: Work, length: u32) {
        let receives = u64::from(work.consumes_receive()) * BATCH;
        for _ in 0..receives {
            self.receive(length);
        }
        for n in 1..=BATCH {
            let flags = if n == BATCH {
                SendFlags::SIGNALED
            } else {
                SendFlags::empty()
            };
            self.post(n, work, length, flags);
        }
        self.pump();
        let ended = self.qps[0].poll_completion().expect("the last is signaled");
        assert!(ended.work.status.is_success());
        for _ in 0..receives {
            black_box(self.qps[1].poll_completion().expect("each is received"));
        }
    }
}

fn flow(from: usize) -> Flow {
    let [one, two] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
    let addresses = match from {
        0 => Addresses::V4(one, two),
        _ => Addresses::V4(two, one),
    };
    Flow {
        addresses,
        source_port: 0xc000,
        destination_port: ROCE_PORT,
    }
}
