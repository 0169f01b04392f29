//! The communication manager: two managers in virtual time, on a network that loses, repeats and delays messages.

use std::net::SocketAddr;

use crate::cm_lab::{Happened, Lab, SERVICE, at, rep, req, sidr_rep, sidr_req};
use adverb_transport::cm::{CmEvent, CmParams, ConnId, Manager};
use adverb_units::Span;
use adverb_wire::cm::{CmMessage, RejectReason};

/// Sends a request from host 0 to host 1; returns the names of the connection at both.
fn requested(lab: &mut Lab) -> (ConnId, ConnId) {
    let active = lab.connect(0, 1);
    let Happened::Request(passive) = lab.next(1) else {
        panic!("no request");
    };
    (active, passive)
}

/// Connects; returns the names of the connection at host 0 and host 1.
fn connected(lab: &mut Lab) -> (ConnId, ConnId) {
    lab.listen(1, 8);
    let (active, passive) = requested(lab);
    lab.accept(1, passive);
    assert_eq!(lab.next(0), Happened::Replied(active));
    lab.hosts[0].establish(active, b"ready").unwrap();
    assert_eq!(lab.next(1), Happened::Established(passive));
    (active, passive)
}

/// Disconnects from host 0; both sides learn of it and forget the connection.
fn disconnected(lab: &mut Lab, active: ConnId, passive: ConnId) {
    lab.disconnect(0, active);
    assert_eq!(lab.next(1), Happened::Disconnected(passive));
    assert_eq!(lab.next(0), Happened::Disconnected(active));
    assert_eq!(lab.next(1), Happened::TimewaitExit(passive));
    assert_eq!(lab.next(0), Happened::TimewaitExit(active));
    assert_eq!(
        lab.hosts
            .iter()
            .map(|h| h.connections().count())
            .sum::<usize>(),
        0
    );
}

#[test]
fn five_messages_connect_and_disconnect() {
    let mut lab = Lab::perfect();
    let (active, passive) = connected(&mut lab);
    disconnected(&mut lab, active, passive);
    assert_eq!(lab.sent, ["REQ", "REP", "RTU", "DREQ", "DREP"]);
}

#[test]
fn every_loss_of_one_message_is_repaired() {
    for lost in 0..5 {
        let mut lab = Lab::losing_the(lost);
        let (active, passive) = connected(&mut lab);
        disconnected(&mut lab, active, passive);
    }
}

#[test]
fn connections_survive_loss_and_duplication_in_any_order() {
    for seed in 0..200 {
        let mut lab = Lab::bad(seed);
        let (active, passive) = connected(&mut lab);
        disconnected(&mut lab, active, passive);
    }
}

#[test]
fn each_event_happens_once_although_every_message_arrives_three_times() {
    let mut lab = Lab::repeating(3);
    let (active, passive) = connected(&mut lab);
    disconnected(&mut lab, active, passive);
    assert!(lab.quiet(), "no further event");
}

#[test]
fn a_service_without_listener_is_refused_with_reason_8() {
    let mut lab = Lab::perfect();
    let active = lab.connect(0, 1);
    let reason = RejectReason::INVALID_SERVICE_ID;
    assert_eq!(lab.next(0), Happened::Rejected(active, reason));
    assert_eq!(lab.sent, ["REQ", "REJ"]);
}

#[test]
fn the_program_refuses_with_private_data() {
    let mut lab = Lab::losing_the(1);
    lab.listen(1, 1);
    let (active, passive) = requested(&mut lab);
    let now = lab.now;
    let why = (RejectReason::CONSUMER, &b"full"[..]);
    lab.hosts[1].reject(now, passive, why).unwrap();
    assert_eq!(
        lab.next(0),
        Happened::Rejected(active, RejectReason::CONSUMER)
    );
    assert_eq!(&lab.private[..5], b"full\0");
    // The REJ was lost; the repeated REQ got it again.
    assert_eq!(lab.sent, ["REQ", "REJ", "REQ", "REJ"]);
}

#[test]
fn a_slow_program_keeps_the_requester_waiting() {
    let mut lab = Lab::perfect();
    lab.listen(1, 1);
    let (active, passive) = requested(&mut lab);
    lab.run(Span::from_secs(60));
    assert_eq!(lab.sent, ["REQ", "REQ", "MRA"]);
    lab.accept(1, passive);
    assert_eq!(lab.next(0), Happened::Replied(active));
}

#[test]
fn an_absent_peer_is_unreachable_after_all_retries() {
    let mut lab = Lab::cut();
    let active = lab.connect(0, 1);
    let begin = lab.now;
    assert_eq!(lab.next(0), Happened::Unreachable(active));
    let params = CmParams::default();
    let timeout = params.response_timeout.span().unwrap();
    assert_eq!(lab.now.since(begin), timeout * 16);
    assert_eq!(lab.sent.iter().filter(|kind| **kind == "REQ").count(), 16);
}

#[test]
fn a_disconnect_from_a_dead_peer_ends_after_all_retries() {
    let mut lab = Lab::perfect();
    let (active, _) = connected(&mut lab);
    lab.cut_now();
    lab.disconnect(0, active);
    assert_eq!(lab.next(0), Happened::Disconnected(active));
    assert_eq!(lab.next(0), Happened::TimewaitExit(active));
}

#[test]
fn both_sides_may_disconnect_at_once() {
    let mut lab = Lab::perfect();
    let (active, passive) = connected(&mut lab);
    lab.disconnect(0, active);
    lab.disconnect(1, passive);
    assert_eq!(lab.next(0), Happened::Disconnected(active));
    assert_eq!(lab.next(1), Happened::Disconnected(passive));
    assert_eq!(lab.next(0), Happened::TimewaitExit(active));
}

#[test]
fn a_message_on_the_queue_pair_replaces_a_lost_rtu() {
    let mut lab = Lab::losing_the(2);
    lab.listen(1, 1);
    let (active, passive) = requested(&mut lab);
    lab.accept(1, passive);
    assert_eq!(lab.next(0), Happened::Replied(active));
    lab.hosts[0].establish(active, &[]).unwrap();
    lab.hosts[1].notify_established(passive).unwrap();
    assert_eq!(lab.next(1), Happened::Established(passive));
    assert!(lab.quiet());
}

#[test]
fn requests_beyond_the_backlog_wait() {
    let mut lab = Lab::perfect();
    lab.listen(1, 2);
    let actives: Vec<_> = (0..5).map(|_| lab.connect(0, 1)).collect();
    lab.run(Span::from_secs(5));
    assert_eq!(lab.waiting(1), 2);
    let mut established = 0;
    while established < actives.len() {
        match lab.next(1) {
            Happened::Request(passive) => {
                lab.accept(1, passive);
                let Happened::Replied(active) = lab.next(0) else {
                    panic!("no reply");
                };
                lab.hosts[0].establish(active, &[]).unwrap();
            }
            Happened::Established(_) => established += 1,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn withdrawn_requests_leave_the_backlog() {
    let mut lab = Lab::perfect();
    lab.listen(1, 2);
    for _ in 0..3 {
        let active = lab.connect(0, 1);
        let Happened::Request(passive) = lab.next(1) else {
            panic!("no request");
        };
        lab.destroy(0, active);
        let withdrawn = Happened::Rejected(passive, RejectReason::TIMEOUT);
        assert_eq!(lab.next(1), withdrawn);
    }
}

#[test]
fn a_destroyed_connection_has_no_events_and_tells_its_peer() {
    // Connected: the peer gets a DREQ.
    let mut lab = Lab::perfect();
    let (active, passive) = connected(&mut lab);
    lab.destroy(0, active);
    assert_eq!(lab.next(1), Happened::Disconnected(passive));
    assert_eq!(lab.next(1), Happened::TimewaitExit(passive));
    // Requested: the requester gets a REJ.
    let (active, passive) = requested(&mut lab);
    lab.destroy(1, passive);
    assert_eq!(
        lab.next(0),
        Happened::Rejected(active, RejectReason::CONSUMER)
    );
    // Requesting: the request is withdrawn.
    let (active, passive) = requested(&mut lab);
    lab.destroy(0, active);
    assert_eq!(
        lab.next(1),
        Happened::Rejected(passive, RejectReason::TIMEOUT)
    );
    assert!(lab.quiet());
}

#[test]
fn a_connection_is_reached_by_its_own_peer_alone() {
    let mut lab = Lab::perfect();
    let (active, passive) = connected(&mut lab);
    // Host 2 knows the names, but is another peer.
    for id in [active, passive] {
        let rtu = CmMessage::Dreq(crate::cm_lab::dreq(id)).to_mad(0);
        lab.deliver(at(2), 0, &rtu);
        lab.deliver(at(2), 1, &rtu);
    }
    assert!(lab.quiet());
    disconnected(&mut lab, active, passive);
}

#[test]
fn operations_in_the_wrong_state_are_refused_by_name() {
    let mut lab = Lab::perfect();
    let id = lab.connect(0, 1);
    let now = lab.now;
    let host = &mut lab.hosts[0];
    let wrong = host.accept(now, id, rep()).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "connection 0x1000 is waiting for the REP: expected waiting for an answer"
    );
    host.establish(id, &[]).unwrap_err();
    host.disconnect(now, id).unwrap_err();
    host.notify_established(id).unwrap_err();
    let why = (RejectReason::CONSUMER, &[][..]);
    host.reject(now, id, why).unwrap_err();
    let wrong = host.reject(now, ConnId(7), why).unwrap_err();
    assert!(wrong.to_string().contains("0x7 is closed"), "{wrong}");
}

#[test]
fn udp_services_are_resolved_through_loss_and_duplication() {
    for seed in 0..100 {
        let mut lab = Lab::bad(seed);
        lab.listen(1, 8);
        let now = lab.now;
        let asked = lab.hosts[0].resolve(now, at(1), sidr_req());
        let Happened::SidrRequest(request) = lab.next(1) else {
            panic!("no request");
        };
        let now = lab.now;
        lab.hosts[1].answer_sidr(now, request, sidr_rep()).unwrap();
        assert_eq!(lab.next(0), Happened::SidrReplied(asked, 0));
        assert!(lab.quiet());
    }
}

#[test]
fn a_udp_service_without_listener_is_not_supported() {
    let mut lab = Lab::perfect();
    let now = lab.now;
    let asked = lab.hosts[0].resolve(now, at(1), sidr_req());
    assert_eq!(lab.next(0), Happened::SidrReplied(asked, 1));
    lab.cut_now();
    let now = lab.now;
    let asked = lab.hosts[0].resolve(now, at(1), sidr_req());
    assert_eq!(lab.next(0), Happened::Unreachable(asked));
}

#[test]
fn arbitrary_messages_neither_panic_nor_connect() {
    let mut lab = Lab::perfect();
    lab.listen(1, 4);
    let (active, passive) = connected_listening(&mut lab);
    let mut bytes = CmMessage::Req(req(SERVICE)).to_mad(3);
    for (step, attribute) in (0..4000_usize).zip((0x0f..0x1b).cycle()) {
        bytes[17] = attribute;
        let place = 24 + step * 7 % 12;
        bytes[place] = bytes[place].wrapping_mul(31).wrapping_add(step as u8);
        lab.deliver(at(step % 3), 1, &bytes);
    }
    // Names of connections are four bytes; the noise did not hit this one.
    assert!(lab.hosts[1].connections().any(|id| id == passive));
    assert!(lab.hosts[0].connections().any(|id| id == active));
}

fn connected_listening(lab: &mut Lab) -> (ConnId, ConnId) {
    let (active, passive) = requested(lab);
    lab.accept(1, passive);
    assert_eq!(lab.next(0), Happened::Replied(active));
    lab.hosts[0].establish(active, &[]).unwrap();
    assert_eq!(lab.next(1), Happened::Established(passive));
    (active, passive)
}

#[test]
fn events_name_the_requested_service() {
    let mut host: Manager<SocketAddr> = Manager::new(CmParams::default(), 1);
    assert!(host.listen(SERVICE, 1) && !host.listen(SERVICE, 1));
    assert!(host.is_listening(SERVICE));
    let mad = CmMessage::Req(req(SERVICE)).to_mad(0);
    host.handle_mad(adverb_units::Time::ZERO, at(5), &mad);
    let event = host.poll_event().unwrap();
    assert_eq!(event.request(), Some((SERVICE, event.conn())));
    assert!(matches!(event, CmEvent::Request { peer, .. } if peer == at(5)));
    host.unlisten(SERVICE);
    assert!(!host.is_listening(SERVICE));
}

#[test]
fn another_process_of_the_host_may_answer() {
    let mut lab = Lab::perfect();
    let active = lab.connect(0, 1);
    let listener = SocketAddr::new(at(1).ip(), 4793);
    let answer = |from: u32| {
        let rep = adverb_wire::cm::Rep {
            local_id: from,
            remote_id: active.0,
            ..rep()
        };
        CmMessage::Rep(rep).to_mad(0)
    };
    // Not another host.
    lab.deliver(at(2), 0, &answer(6));
    lab.deliver(listener, 0, &answer(7));
    assert_eq!(lab.next(0), Happened::Replied(active));
    assert_eq!(lab.hosts[0].peer(active), Some(listener));
    lab.hosts[0].establish(active, &[]).unwrap();
    let rtu = std::iter::from_fn(|| lab.hosts[0].poll_transmit()).last();
    assert_eq!(rtu.map(|(to, _)| to), Some(listener));
}

#[test]
fn a_lost_peer_counts_as_disconnected() {
    let mut lab = Lab::perfect();
    let (active, _) = connected(&mut lab);
    lab.cut_now();
    let now = lab.now;
    lab.hosts[0].lose(now, active);
    assert_eq!(lab.next(0), Happened::Disconnected(active));
    assert_eq!(lab.next(0), Happened::TimewaitExit(active));
}
