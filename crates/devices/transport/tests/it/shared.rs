//! Connections whose responders take receives from one queue, which is kept outside.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::lab::memory::{REMOTE, pieces};
use crate::lab::{Delivery, Lab, Random, Side, config, steps};
use adverb_transport::{
    PostError, RcQp, ReceiveQueue, ReceiveWork, SharedReceives, UcConfig, UcQp, Work,
};
use adverb_verbs::{AccessFlags, Imm, PathMtu, QpState, WcStatus, WrId};
use adverb_wire::Verb;

/// A queue that everybody has a handle of.
#[derive(Clone, Debug, Default)]
struct Queue(Arc<Mutex<VecDeque<ReceiveWork>>>);

impl SharedReceives for Queue {
    fn take(&mut self) -> Option<ReceiveWork> {
        self.0.lock().unwrap().pop_front()
    }

    fn give_back(&mut self, work: ReceiveWork) {
        self.0.lock().unwrap().push_front(work);
    }
}

impl Queue {
    fn post(&self, id: u64, length: usize) {
        let pieces = pieces(id as usize * 1024, length);
        let wr_id = WrId(id);
        let mut queue = self.0.lock().unwrap();
        queue.push_back(ReceiveWork { wr_id, pieces });
    }

    fn waiting(&self) -> Vec<u64> {
        let queue = self.0.lock().unwrap();
        queue.iter().map(|work| work.wr_id.0).collect()
    }
}

/// A connection whose B takes from the queue.
fn lane(queue: &Queue) -> Lab<RcQp> {
    let a = RcQp::new(&config(Side::A), ReceiveQueue::new(4));
    let b = RcQp::new(&config(Side::B), ReceiveQueue::shared(queue.clone()));
    Lab::new(a, b, Box::new(|_| Delivery::Pass))
}

fn send(lab: &mut Lab<RcQp>, id: u64, work: Work, length: usize) -> Vec<u8> {
    let bytes = Random::new(id).bytes(length);
    let payload = lab.a.memory.put(0, &bytes);
    let memory = &lab.a.memory;
    lab.a
        .qp
        .post_send(steps::work(id, work, payload), memory)
        .unwrap();
    bytes
}

/// What completed at B since the last look.
fn received(lab: &mut Lab<RcQp>) -> Vec<(u64, WcStatus)> {
    let all = std::mem::take(&mut lab.b.completions);
    all.iter()
        .map(|c| (c.work.wr_id.0, c.work.status))
        .collect()
}

#[test]
fn connections_take_receives_in_turn() {
    let queue = Queue::default();
    let mut lanes = [lane(&queue), lane(&queue)];
    (0..6).for_each(|id| queue.post(id, 700));
    for id in 0..6 {
        let lab = &mut lanes[(id * id) as usize % 2];
        let bytes = send(lab, id, Work::Send, 700);
        lab.run();
        assert_eq!(received(lab), [(id, WcStatus::Success)]);
        assert_eq!(lab.b.memory.local[id as usize * 1024..][..700], bytes);
    }
}

#[test]
fn an_empty_shared_queue_is_not_ready_until_somebody_posts() {
    let queue = Queue::default();
    let mut lanes = [lane(&queue), lane(&queue)];
    send(&mut lanes[0], 1, Work::Send, 8);
    send(&mut lanes[1], 2, Work::WriteWithImm(REMOTE, Imm(3)), 300);
    for lab in &mut lanes {
        (0..20).for_each(|_| assert!(lab.step()));
        assert!(lab.a.qp.counters().rnr_naks > 0 && lab.b.completions.is_empty());
    }
    queue.post(5, 8);
    lanes[1].run();
    assert_eq!(received(&mut lanes[1]), [(5, WcStatus::Success)]);
    queue.post(6, 8);
    lanes[0].run();
    assert_eq!(received(&mut lanes[0]), [(6, WcStatus::Success)]);
}

#[test]
fn a_failing_connection_flushes_the_receive_that_it_has_begun_and_no_other() {
    let queue = Queue::default();
    let mut lab = lane(&queue);
    (0..3).for_each(|id| queue.post(id, 1000));
    // The last packets of the message are lost.
    let mut seen = 0;
    lab.rule(move |s| {
        let is_send = s.headers.bth.opcode.verb() == Verb::Send;
        seen += u32::from(is_send);
        if is_send && seen > 2 {
            Delivery::Drop
        } else {
            Delivery::Pass
        }
    });
    send(&mut lab, 1, Work::Send, 1000);
    (0..3).for_each(|_| assert!(lab.step()));
    assert_eq!(queue.waiting(), [1, 2]);
    lab.b.qp.enter_error();
    lab.flush();
    assert_eq!(received(&mut lab), [(0, WcStatus::WrFlushErr)]);
    assert_eq!(queue.waiting(), [1, 2]);
}

#[test]
fn a_write_that_is_refused_gives_its_receive_back() {
    let queue = Queue::default();
    let mut lab = lane(&queue);
    queue.post(1, 8);
    // The first packet is let through; before the last the region is deregistered.
    lab.rule(|s| match s.headers.bth.opcode.position().ends() {
        true => Delivery::Delay(crate::lab::FLIGHT),
        false => Delivery::Pass,
    });
    let bytes = send(&mut lab, 1, Work::WriteWithImm(REMOTE, Imm(3)), 300);
    lab.step();
    assert_eq!(lab.b.memory.shared[..256], bytes[..256]);
    assert!(lab.b.completions.is_empty());
    lab.b.memory.valid = false;
    lab.run();
    assert_eq!(lab.a.completions[0].work.status, WcStatus::RemAccessErr);
    assert_eq!(lab.b.qp.state(), QpState::Err);
    assert_eq!(received(&mut lab), []);
    assert_eq!(queue.waiting(), [1]);
}

#[test]
fn receives_are_posted_to_the_shared_queue_only() {
    let queue = Queue::default();
    let mut lab = lane(&queue);
    let work = ReceiveWork {
        wr_id: WrId(1),
        pieces: pieces(0, 8),
    };
    assert_eq!(lab.b.qp.post_receive(work), Err(PostError::SharedReceives));
}

#[test]
fn uc_gives_back_the_receive_of_a_message_that_lost_a_packet() {
    let queue = Queue::default();
    let (rc, other) = (config(Side::B), config(Side::A));
    let uc = |config: &adverb_transport::RcConfig| UcConfig {
        qpn: config.qpn,
        peer: config.peer,
        path_mtu: PathMtu::B256,
        first_psn: config.requester.first_psn,
        peer_first_psn: config.responder.first_psn,
        access: AccessFlags::all(),
        max_work: 8,
    };
    let mut a = UcQp::new(&uc(&other), ReceiveQueue::new(4));
    let mut b = UcQp::new(&uc(&rc), ReceiveQueue::shared(queue.clone()));
    queue.post(1, 1000);
    let (mut here, mut there) = (crate::lab::TestMemory::new(), crate::lab::TestMemory::new());
    for id in 1..=2 {
        let payload = here.put(0, &[7; 700]);
        a.post_send(steps::work(id, Work::Send, payload)).unwrap();
    }
    let mut out = [0; adverb_transport::PACKET_SPACE];
    let mut count = 0;
    while let Some(length) = a.poll_transmit(&here, &mut out) {
        count += 1;
        let packet = adverb_wire::Packet::parse(&out[..length]).unwrap();
        if count != 2 {
            let _ = b.handle_packet(&packet, &mut there);
        }
    }
    assert_eq!(count, 6);
    let completion = b.poll_completion().expect("the second message");
    assert_eq!(completion.work.wr_id, WrId(1));
    assert_eq!(completion.work.status, WcStatus::Success);
    assert_eq!(b.poll_completion(), None);
    assert_eq!(queue.waiting(), []);
}
