//! Wireshark's dissector reads in our packets what we wrote.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use adverb_verbs::{Psn, Qpn};
use adverb_wire::bth::BthFlags;
use adverb_wire::cm::CmMessage;
use adverb_wire::mad::{GSI_QKEY, GSI_QPN};
use adverb_wire::pcap::{LinkType, PcapWriter};
use adverb_wire::{Bth, Deth, Extension, Frame, Opcode, Packet, PacketHeaders, Service, frame};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const FIELDS: [&str; 22] = [
    "udp.dstport",
    "infiniband.bth.opcode",
    "infiniband.bth.se",
    "infiniband.bth.m",
    "infiniband.bth.padcnt",
    "infiniband.bth.p_key",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.psn",
    "infiniband.deth.q_key",
    "infiniband.deth.srcqp",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.atomiceth.swapdt",
    "infiniband.atomiceth.cmpdt",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.atomicacketh.origremdt",
    "infiniband.immdt",
    "infiniband.ieth",
    "infiniband.invariant.crc",
];

fn not_run(why: &str) {
    let _ = writeln!(
        std::io::stderr(),
        "\nNOT RUN: packets in Wireshark's dissector: {why}"
    );
}

/// What a field is in a packet of ours; nothing if it has none.
fn expected(frame: &Frame<'_>, field: &str) -> Option<u64> {
    let bth = &frame.packet.headers.bth;
    let extension = &frame.packet.headers.extension;
    let bit = |flag| u64::from(bth.flags.contains(flag));
    let reth = match extension {
        Extension::Rdma(reth) | Extension::RdmaImm(reth, _) => Some(reth),
        _ => None,
    };
    let deth = match extension {
        Extension::Datagram(deth) | Extension::DatagramImm(deth, _) => Some(deth),
        _ => None,
    };
    let atomic = match extension {
        Extension::Atomic(atomic) => Some(atomic),
        _ => None,
    };
    let aeth = match extension {
        Extension::Ack(aeth) | Extension::AtomicAck(aeth, _) => Some(aeth),
        _ => None,
    };
    // Wireshark names the address of an AtomicETH as a RETH's.
    let remote = reth.map(|r| r.remote).or(atomic.map(|a| a.remote));
    match field {
        "udp.dstport" => Some(4791),
        "infiniband.bth.opcode" => Some(bth.opcode.code().into()),
        "infiniband.bth.se" => Some(bit(BthFlags::SOLICITED)),
        "infiniband.bth.m" => Some(bit(BthFlags::MIGRATED)),
        "infiniband.bth.padcnt" => Some(bth.pad.into()),
        "infiniband.bth.p_key" => Some(bth.pkey.into()),
        "infiniband.bth.destqp" => Some(bth.dest_qp.get().into()),
        "infiniband.bth.a" => Some(bit(BthFlags::ACK_REQ)),
        "infiniband.bth.psn" => Some(bth.psn.get().into()),
        "infiniband.deth.q_key" => deth.map(|d| d.qkey.into()),
        "infiniband.deth.srcqp" => deth.map(|d| d.src_qp.get().into()),
        "infiniband.reth.va" => remote.map(|remote| remote.addr),
        "infiniband.reth.r_key" => remote.map(|remote| remote.rkey.0.into()),
        "infiniband.reth.dmalen" => reth.map(|r| r.length.into()),
        "infiniband.atomiceth.swapdt" => atomic.map(|a| a.swap_or_add),
        "infiniband.atomiceth.cmpdt" => atomic.map(|a| a.compare),
        "infiniband.aeth.syndrome" => aeth.map(|a| a.syndrome.to_byte().into()),
        "infiniband.aeth.msn" => aeth.map(|a| a.msn.into()),
        "infiniband.atomicacketh.origremdt" => match extension {
            Extension::AtomicAck(_, found) => Some(found.original),
            _ => None,
        },
        "infiniband.immdt" => match extension {
            Extension::Imm(imm) | Extension::RdmaImm(_, imm) | Extension::DatagramImm(_, imm) => {
                Some(imm.imm.0.into())
            }
            _ => None,
        },
        "infiniband.ieth" => match extension {
            Extension::Invalidate(ieth) => Some(ieth.rkey.0.into()),
            _ => None,
        },
        "infiniband.invariant.crc" => Some(frame.icrc.0.swap_bytes().into()),
        other => panic!("no field {other}"),
    }
}

/// A number as tshark prints it: decimal, hexadecimal, or bare bytes.
fn number(field: &str, text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if ["infiniband.immdt", "infiniband.ieth"].contains(&field) => {
            u64::from_str_radix(text, 16).ok()
        }
        None => text.parse().ok(),
    }
}

/// Frames of every opcode that Wireshark dissects as InfiniBand's transports.
fn frames() -> Vec<Vec<u8>> {
    let mut runner = TestRunner::deterministic();
    let strategy = (crate::common::packet(), crate::common::ip(), any::<u16>());
    let mut made = Vec::new();
    while made.len() < 400 {
        let ((headers, payload), ip, port) = strategy.new_tree(&mut runner).unwrap().current();
        // A dissector may take a datagram from another known port for another protocol.
        let port = port | 0xc000;
        if headers.bth.opcode.service() == Service::Cnp {
            continue;
        }
        let payload = &payload;
        let mut bytes = vec![0; 600];
        let packet = Packet { headers, payload };
        let length = frame::emit(&ip, port, &packet, &mut bytes).unwrap();
        bytes.truncate(length);
        made.push(bytes);
    }
    made
}

fn write(path: &Path, frames: &[Vec<u8>]) {
    let file = BufWriter::new(File::create(path).unwrap());
    let mut pcap = PcapWriter::new(file, LinkType::Raw).unwrap();
    for (n, bytes) in frames.iter().enumerate() {
        pcap.write(Duration::from_micros(n as u64), bytes).unwrap();
    }
    pcap.into_inner().flush().unwrap();
}

/// One line a frame, with the fields between tabs; nothing if tshark is not installed.
fn dissect(path: &Path, fields: &[&str]) -> Option<String> {
    let mut tshark = Command::new("tshark");
    tshark
        .args(["-n", "-T", "fields", "-E", "occurrence=f", "-r"])
        .arg(path);
    // It takes some random payloads for its own.
    tshark.args(["--disable-protocol", "rpcordma"]);
    for field in fields {
        tshark.args(["-e", field]);
    }
    match tshark.stderr(Stdio::piped()).output() {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "tshark: {errors}");
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) => {
            not_run(&format!("needs the package tshark ({error})"));
            None
        }
    }
}

#[test]
fn wireshark_reads_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets.pcap");
    let frames = frames();
    write(&path, &frames);
    let Some(lines) = dissect(&path, &FIELDS) else {
        return;
    };
    assert_eq!(lines.lines().count(), frames.len());
    let mut seen = vec![];
    for (bytes, line) in frames.iter().zip(lines.lines()) {
        let ours = Frame::parse(bytes).unwrap();
        seen.push(ours.packet.opcode());
        let theirs: Vec<&str> = line.split('\t').collect();
        // Wireshark knows the opcodes of XRC, but not its extended header, nor those behind it.
        let is_xrc = ours.packet.opcode().service() == Service::Xrc;
        let is_read = |field: &&str| !is_xrc || field.starts_with("infiniband.bth.");
        let both = FIELDS.iter().zip(&theirs);
        for (field, text) in both.filter(|(field, _)| is_read(field)) {
            assert_eq!(
                number(field, text),
                expected(&ours, field),
                "{field} is '{text}' in {ours}"
            );
        }
    }
    for opcode in Opcode::ALL {
        let there = seen.contains(opcode) || opcode.service() == Service::Cnp;
        assert!(there, "no frame of {}", opcode.name());
    }
}

/// Fields of the messages of the communication manager that Wireshark dissects: all but MRA and SIDR. It names the
/// queue pair of a DREQ as if it belonged to a REQ, and shows only 12 of the 20 bits of a flow
/// label, and other bits for the rate.
const CM_FIELDS: [&str; 33] = [
    "infiniband.mad.transactionid",
    "infiniband.mad.attributeid",
    "infiniband.cm.req",
    "infiniband.cm.req.localcaguid",
    "infiniband.cm.req.localqpn",
    "infiniband.cm.req.responderres",
    "infiniband.cm.req.initdepth",
    "infiniband.cm.req.remoteresptout",
    "infiniband.cm.req.startpsn",
    "infiniband.cm.req.localresptout",
    "infiniband.cm.req.retrcount",
    "infiniband.cm.req.pkey",
    "infiniband.cm.req.rnrretrcount",
    "infiniband.cm.req.maxcmretr",
    "infiniband.cm.req.prim_locallid",
    "infiniband.cm.req.prim_tfcclass",
    "infiniband.cm.req.prim_hoplim",
    "infiniband.cm.req.prim_sl",
    "infiniband.cm.req.prim_localacktout",
    "infiniband.cm.rep",
    "infiniband.cm.rep.remotecommid",
    "infiniband.cm.rep.localqpn",
    "infiniband.cm.rep.startpsn",
    "infiniband.cm.rep.respres",
    "infiniband.cm.rep.initdepth",
    "infiniband.cm.rep.rnrretrcount",
    "infiniband.cm.rep.localcaguid",
    "infiniband.cm.rtu.localcommid",
    "infiniband.cm.rej.remotecommid",
    "infiniband.cm.rej.reason",
    "infiniband.cm.dreq.localcommid",
    "infiniband.cm.req.remoteqpneecn",
    "infiniband.cm.drsp.remotecommid",
];

/// What a field is in a message of ours; nothing if it has none.
fn expected_of_cm(transaction: u64, message: &CmMessage, field: &str) -> Option<u64> {
    let field = field.strip_prefix("infiniband.").unwrap();
    if field == "mad.transactionid" {
        return Some(transaction);
    }
    Some(match (message, field) {
        (_, "mad.attributeid") => u64::from(message.to_mad(0)[17]),
        (CmMessage::Req(req), "cm.req") => req.local_id.into(),
        (CmMessage::Req(req), "cm.req.localcaguid") => req.ca_guid,
        (CmMessage::Req(req), "cm.req.localqpn") => req.qpn.get().into(),
        (CmMessage::Req(req), "cm.req.responderres") => req.responder_resources.into(),
        (CmMessage::Req(req), "cm.req.initdepth") => req.initiator_depth.into(),
        (CmMessage::Req(req), "cm.req.remoteresptout") => req.remote_response_timeout.code().into(),
        (CmMessage::Req(req), "cm.req.startpsn") => req.starting_psn.get().into(),
        (CmMessage::Req(req), "cm.req.localresptout") => req.local_response_timeout.code().into(),
        (CmMessage::Req(req), "cm.req.retrcount") => req.retry_count.into(),
        (CmMessage::Req(req), "cm.req.pkey") => req.pkey.into(),
        (CmMessage::Req(req), "cm.req.rnrretrcount") => req.rnr_retry_count.into(),
        (CmMessage::Req(req), "cm.req.maxcmretr") => req.max_cm_retries.into(),
        (CmMessage::Req(req), "cm.req.prim_locallid") => req.primary.local_lid.into(),
        (CmMessage::Req(req), "cm.req.prim_tfcclass") => req.primary.traffic_class.into(),
        (CmMessage::Req(req), "cm.req.prim_hoplim") => req.primary.hop_limit.into(),
        (CmMessage::Req(req), "cm.req.prim_sl") => req.primary.sl.into(),
        (CmMessage::Req(req), "cm.req.prim_localacktout") => req.primary.ack_timeout.code().into(),
        (CmMessage::Rep(rep), "cm.rep") => rep.local_id.into(),
        (CmMessage::Rep(rep), "cm.rep.remotecommid") => rep.remote_id.into(),
        (CmMessage::Rep(rep), "cm.rep.localqpn") => rep.qpn.get().into(),
        (CmMessage::Rep(rep), "cm.rep.startpsn") => rep.starting_psn.get().into(),
        (CmMessage::Rep(rep), "cm.rep.respres") => rep.responder_resources.into(),
        (CmMessage::Rep(rep), "cm.rep.initdepth") => rep.initiator_depth.into(),
        (CmMessage::Rep(rep), "cm.rep.rnrretrcount") => rep.rnr_retry_count.into(),
        (CmMessage::Rep(rep), "cm.rep.localcaguid") => rep.ca_guid,
        (CmMessage::Rtu(rtu), "cm.rtu.localcommid") => rtu.local_id.into(),
        (CmMessage::Rej(rej), "cm.rej.remotecommid") => rej.remote_id.into(),
        (CmMessage::Rej(rej), "cm.rej.reason") => rej.reason.0.into(),
        (CmMessage::Dreq(dreq), "cm.dreq.localcommid") => dreq.local_id.into(),
        (CmMessage::Dreq(dreq), "cm.req.remoteqpneecn") => dreq.remote_qpn.get().into(),
        (CmMessage::Drep(drep), "cm.drsp.remotecommid") => drep.remote_id.into(),
        _ => return None,
    })
}

/// A frame with a management datagram between two queue pairs 1.
fn frame_of(mad: &[u8], ip: &adverb_wire::Ip) -> Vec<u8> {
    let bth = Bth::new(Opcode::UdSendOnly, GSI_QPN, Psn::new(0));
    let extension = Extension::Datagram(Deth {
        qkey: GSI_QKEY,
        src_qp: Qpn::new(1).unwrap(),
    });
    let packet = Packet {
        headers: PacketHeaders::new(bth, extension),
        payload: mad,
    };
    let mut bytes = vec![0; 600];
    let length = frame::emit(ip, 0xc001, &packet, &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

#[test]
fn wireshark_reads_messages_of_the_communication_manager() {
    let mut runner = TestRunner::deterministic();
    let strategy = (
        crate::common::cm::message(),
        any::<u64>(),
        crate::common::ip(),
    );
    let mut made = Vec::new();
    while made.len() < 200 {
        let (message, transaction, ip) = strategy.new_tree(&mut runner).unwrap().current();
        made.push((message, transaction, ip));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cm.pcap");
    let mads = made.iter();
    let frames: Vec<_> = mads
        .map(|(message, transaction, ip)| frame_of(&message.to_mad(*transaction), ip))
        .collect();
    write(&path, &frames);
    let Some(lines) = dissect(&path, &CM_FIELDS) else {
        return;
    };
    assert_eq!(lines.lines().count(), made.len());
    for ((message, transaction, _), line) in made.iter().zip(lines.lines()) {
        for (field, text) in CM_FIELDS.iter().zip(line.split('\t')) {
            assert_eq!(
                number(field, text),
                expected_of_cm(*transaction, message, field),
                "{field} is '{text}' in {message:?}"
            );
        }
    }
}
