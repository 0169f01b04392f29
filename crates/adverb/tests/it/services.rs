//! `sequencer`, `kv` and `closed-loop`: on the user-space device and on the model.

use crate::common::{Place, end_of, records, signal, wait_for};
use insta::assert_snapshot;
use rustix::process::Signal;
use serde_json::Value;

/// The one object of a command that ended well; the device leaves no files.
#[track_caller]
fn figures(command: &str) -> Value {
    let place = Place::new();
    let mut objects = place.run(&format!("{command} --json")).ok().json();
    assert_eq!(objects.len(), 1, "{command}");
    assert!(place.shm_files().is_empty(), "{command}");
    objects.remove(0)
}

#[track_caller]
fn count(figures: &Value, path: &str) -> u64 {
    let value = figures.pointer(path).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("{path} in {figures}"))
}

#[test]
fn lost_packets_are_sent_again_and_the_record_says_so() {
    for program in [
        "closed-loop --op read --size 4K",
        "sequencer --by atomics",
        "kv --by memory --puts ask --put 0.5 --items 100",
    ] {
        let faults =
            "--device soft@127.46.0.3 --loss 2% --reorder 1% --timeout 16ms --duration 200ms";
        let figures = figures(&format!("{program} {faults}"));
        assert_eq!(figures["params"]["impairment"]["loss"], 0.02, "{figures}");
        assert_eq!(figures["params"]["ack_timeout_ns"], 16_777_216);
        let cell = figures["cell"].as_str().unwrap();
        assert!(cell.ends_with("/loss=0.02/reorder=0.01"), "{cell}");
        assert!(count(&figures, "/metrics/requests") > 0, "{figures}");
        let all = figures["counters"].as_object().unwrap().values();
        let lost = all.filter_map(|role| role["impaired_lost_pkts"].as_u64());
        assert!(lost.sum::<u64>() > 0, "{figures}");
    }
    // Datagrams use the same ports.
    let plain = figures("kv --device soft@127.46.0.3 --loss 0 --duration 50ms");
    assert!(count(&plain, "/metrics/checked/values") > 0, "{plain}");
}

const DEVICES: [&str; 2] = [
    "--duration 50ms",
    "--device model:connect_ib --machines 2 --duration 200us",
];

#[test]
fn a_sequencer_by_each_way_hands_out_every_number_once() {
    for device in DEVICES {
        for how in [
            "--by rpc",
            "--by rpc --batch 1 --cores 2 --clients 3",
            "--by rpc-imm --qps 3",
            "--by rpc-imm --rate 20k",
            "--by atomics",
            "--by atomics --batch 1 --qps 1 --outstanding 1",
        ] {
            let figures = figures(&format!("sequencer {how} {device}"));
            assert_eq!(figures["program"], "sequencer");
            // The command itself fails where one is missing or there twice.
            assert!(
                count(&figures, "/metrics/checked/numbers") > 0,
                "{how} {device}"
            );
            assert!(figures["metrics"]["checked"].get("values").is_none());
        }
    }
}

/// As over queue pairs; one server core and several.
#[test]
fn a_sequencer_over_tcp_hands_out_every_number_once() {
    for args in [
        "--device tcp --duration 50ms",
        "--device tcp --duration 50ms --cores 2 --clients 3",
        "--by tcp --device model:cx3 --clients 3 --cores 2 --machines 2 --duration 1ms",
        "--by tcp --device model:cx3 --rate 20k --duration 1ms",
    ] {
        let figures = figures(&format!("sequencer {args}"));
        assert_eq!(figures["params"]["by"], "tcp");
        assert!(count(&figures, "/metrics/checked/numbers") > 0, "{args}");
    }
}

#[test]
fn a_store_by_each_way_gives_the_values_of_its_keys() {
    for device in DEVICES {
        for how in [
            "--by rpc",
            "--by rpc --value 1K --put 0.5 --cores 2 --batch 1",
            "--by memory",
            "--by memory --reads 3 --value 100 --put 0.5",
        ] {
            let figures = figures(&format!("kv --items 2000 {how} {device}"));
            assert!(
                count(&figures, "/metrics/checked/values") > 0,
                "{how} {device}"
            );
        }
        let locked = figures(&format!("kv --items 100 --by memory --put 1 {device}"));
        assert!(count(&locked, "/metrics/checked/locks") > 0, "{device}");
    }
}

#[test]
fn puts_of_a_store_in_memory_are_carried_out_by_the_cores_that_are_asked() {
    for device in DEVICES {
        for how in [
            "--put 0.5",
            "--put 0.5 --cores 2 --clients 3 --value 900 --reads 2",
            "--put 1 --batch 1 --qps 1",
        ] {
            let store = format!("kv --items 200 --by memory --puts ask {how} {device}");
            let figures = figures(&store);
            assert!(count(&figures, "/metrics/checked/puts") > 0, "{store}");
            assert!(
                figures["metrics"]["checked"].get("locks").is_none(),
                "{store}"
            );
            let values = count(&figures, "/metrics/checked/values");
            assert_eq!(values > 0, !how.starts_with("--put 1"), "{store}");
            assert_eq!(figures["params"]["puts"], "ask");
        }
    }
}

#[test]
fn a_closed_loop_of_each_operation() {
    for device in DEVICES {
        for how in [
            "write --inline --size 32",
            "write --size 8K",
            "read",
            "fetch-add --batch 1",
            "cas",
        ] {
            let figures = figures(&format!("closed-loop --op {how} {device}"));
            assert_eq!(figures["params"]["op"], how.split(' ').next().unwrap());
            let rate = figures["metrics"]["requests_per_s"].as_f64();
            assert_eq!(
                rate.is_some(),
                count(&figures, "/metrics/requests") > 0,
                "{how}"
            );
            let is_atomic = ["fetch-add --batch 1", "cas"].contains(&how);
            assert_eq!(figures["params"]["size_bytes"] == 8, is_atomic, "{how}");
        }
    }
}

#[test]
fn shares_and_times_are_swept_by_a_list() {
    let swept = |command: &str, path: &str| -> Vec<Value> {
        let records = Place::new().run(&format!("{command} --json")).ok().json();
        let values = records
            .iter()
            .map(|record| record.pointer(path).unwrap().clone());
        values.collect()
    };
    let shares = swept(
        "kv --put 0,0.5 --device model:cx3 --duration 100us",
        "/params/put_ratio",
    );
    assert_eq!(shares, [0.0, 0.5]);
    let faults = "closed-loop --op read --duration 50ms --device soft@127.46.0.4";
    let losses = swept(&format!("{faults} --loss 0,1%"), "/params/impairment/loss");
    assert_eq!(losses, [0.0, 0.01]);
    let lossless = format!("{faults} --loss 0 --retry-cnt 3,7 -u 4ms,16ms");
    assert_eq!(swept(&lossless, "/params/retry_cnt"), [3, 3, 7, 7]);
}

#[test]
fn the_model_gives_equal_figures_for_equal_commands() {
    for command in [
        "sequencer --device model:connect_ib --clients 6 --cores 2",
        "kv --device model:cx3 --clients 4",
        "kv --by memory --device model:cx3 --clients 4",
        "closed-loop --op read --device model:cx3",
    ] {
        let metrics = |command| figures(command)["metrics"].take();
        assert_eq!(metrics(command), metrics(command), "{command}");
    }
}

#[test]
fn an_rpc_is_much_faster_than_atomics_on_one_word() {
    let rate = |how: &str| {
        let figures = figures(&format!(
            "sequencer {how} --device model:connect_ib --clients 40 --machines 4"
        ));
        figures["metrics"]["requests_per_s"].as_f64().unwrap()
    };
    let atomics = rate("--by atomics");
    let alone = rate("--by rpc --batch 1");
    let batched = rate("--by rpc --batch 32 --qps 6 --outstanding 32");
    let cores = rate("--by rpc-imm --batch 32 --qps 6 --outstanding 32 --cores 8");
    assert!(2.0 * atomics < alone, "{atomics}, {alone}");
    assert!(2.0 * alone < batched, "{alone}, {batched}");
    assert!(2.0 * batched < cores, "{batched}, {cores}");
}

#[test]
fn a_table_says_what_was_run_and_what_was_checked() {
    let place = Place::new();
    let table = |command: &str| -> Vec<String> {
        let out = place.run(command).ok().out;
        out.lines().map(str::to_owned).collect()
    };
    let header = " requests       rate      least       most      batch       mean         sd        p50        p99      p99.9        max";
    let lines = table("sequencer --by atomics --device model:cx3 --duration 200us");
    assert_snapshot!(lines[0], @"sequencer on model:cx3: without a server's CPU, 2 clients with 8 outstanding on each of 2 queue pairs, up to 8 a doorbell");
    assert_eq!(lines[1], header);
    assert!(
        lines[2].contains("M/s") && lines[2].contains("µs"),
        "{}",
        lines[2]
    );
    assert!(
        lines[3].ends_with(" numbers, each handed out exactly once."),
        "{}",
        lines[3]
    );
    let titles = ["rpc", "rpc-imm"].map(|by| {
        let lines = table(&format!(
            "sequencer --by {by} --device model:cx3 --duration 200us"
        ));
        lines[0].clone()
    });
    assert_snapshot!(titles[0], @"sequencer on model:cx3: by RPC, 1 server core, 2 clients with 8 outstanding, 2 queue pairs, up to 16 a doorbell");
    assert_snapshot!(titles[1], @"sequencer on model:cx3: by RPC with immediate data, 1 server core, 2 clients with 8 outstanding, 2 queue pairs, up to 16 a doorbell");
    let lines =
        table("closed-loop --op read --device model:cx3 --duration 200us --clients 1 --qps 1");
    assert_snapshot!(lines[0], @"closed-loop on model:cx3: read of 64 B, 1 client with 8 outstanding on a queue pair, one a doorbell");
    assert_eq!(lines[1], header);
    assert_eq!(lines.len(), 3);
}

#[test]
fn invalid_options_are_refused_in_one_line() {
    let refused = |command: &str| Place::new().run(command).refused(2).to_owned();
    assert_snapshot!(refused("sequencer --pcie-counters"), @"error: --pcie-counters: soft has no PCIe device; name an RDMA device, verbs:NAME");
    assert_snapshot!(refused("sequencer --pcie-counters --device model:cx3"), @"error: --pcie-counters: a model counts cache lines over PCIe without it (pcie_lines_per_request in --json); leave it out");
    assert_snapshot!(refused("sequencer --by tcp"), @"error: --by tcp: an RDMA device has no sockets; name --device tcp");
    assert_snapshot!(refused("sequencer --cores 3"), @"error: --cores 3 exceeds --clients 2: a client is served by one core");
    assert_snapshot!(refused("sequencer --by atomics --rate 5"), @"error: --rate is for --by rpc: here the server's CPU does nothing");
    assert_snapshot!(refused("sequencer --rate soon"), @"error: --rate: invalid rate 'soon': expected a number per second, 1 or more, such as 5000, 100k or 2M");
    assert_snapshot!(refused("sequencer --clients 0"), @"error: --clients: invalid count '0': expected a whole number from 1 to 4096");
    assert_snapshot!(refused("sequencer --clients 600"), @"error: 601 members exceed the maximum of 256 threads on one machine");
    assert_snapshot!(refused("sequencer --batch 33"), @"error: --batch 33: expected 1 to 32, the number of requests that a core takes at once");
    assert_snapshot!(refused("sequencer --by atomics --batch 9"), @"error: --batch 9: expected 1 to 8, the number of --outstanding requests");
    assert_snapshot!(refused("sequencer --device verbs+cm:none"), @"error: verbs+cm:none: its queue pairs are UC and UD; name the device as verbs:NAME");
    assert_snapshot!(refused("kv --put 2"), @"error: --put: invalid share '2': expected a number from 0 to 1");
    assert_snapshot!(refused("kv --value 8K"), @"error: --value 8 KiB: expected 1 B to 4 KiB");
    assert_snapshot!(refused("kv --value 512 --device model:cx3_fdr_nurdma"), @"error: server core 0: a message of 512 B exceeds the path MTU of 256 B, the maximum of a datagram; use a smaller --value");
    assert_snapshot!(refused("kv --value 0"), @"error: --value 0 B: expected 1 B to 4 KiB");
    assert_snapshot!(refused("kv --items 0"), @"error: --items: invalid count '0': expected a whole number from 1");
    assert_snapshot!(refused("kv --items 400000000"), @"error: these items would take more than 2 GiB of memory; choose fewer or smaller ones");
    assert_snapshot!(refused("kv --by memory --value 4"), @"error: a record of 4 B: expected 8 to 1048576 B");
    assert_snapshot!(refused("kv --by memory --reads 0"), @"error: --reads: invalid count '0': expected a whole number from 1");
    assert_snapshot!(refused("kv --puts ask"), @"error: --puts ask: by RPC the server's cores change items; it is for --by memory");
    assert_snapshot!(refused("kv --by memory --puts ask --cores 3"), @"error: --cores 3 exceeds --clients 2: a client is served by one core");
    assert_snapshot!(refused("kv --by memory --puts ask --rate 5k"), @"error: --rate is for --by rpc: here a client sends its next request after the answer");
    assert_snapshot!(refused("kv --by memory --puts lock --cores 2"), @"error: --cores is for --by rpc and --puts ask: here the server's CPU does nothing");
    assert_snapshot!(refused("kv --reads 2"), @"error: --reads 2: by RPC the server's cores look keys up; it is for --by memory");
    assert_snapshot!(refused("closed-loop --op cas --size 16"), @"error: --size 16: cas is an operation on 8 B; leave it out");
    assert_snapshot!(refused("closed-loop --op write --inline --size 64K"), @"error: 64 KiB inline: this device takes at most 1 KiB; choose a smaller size or no inline");
    assert_snapshot!(refused("closed-loop --op read --inline"), @"error: --inline is for --op write: read carries no payload");
    assert_snapshot!(refused("closed-loop --op read --size 16G"), @"error: these payloads would take more than 2 GiB of memory; choose fewer or smaller ones");
}

/// One NIC sends the requests of all clients, or each has its own and one NIC answers all.
#[test]
fn clients_of_an_inbound_loop_have_machines_of_their_own() {
    let measured = |how: &str| {
        let line = format!("closed-loop --op read --clients 30 {how} --device model:cx3");
        let record = figures(&line);
        let rate = record["metrics"]["requests_per_s"].as_f64().unwrap();
        let host = record["metrics"]["busiest"]["host"].clone();
        (rate, host, record["params"]["machines"].clone())
    };
    let (outbound, host, machines) = measured("");
    assert_eq!((host, machines), ("machine 0".into(), 1.into()));
    let (inbound, host, machines) = measured("--inbound");
    // ConnectX-3 answers 26 million READs a second (Kalia et al., ATC 2016, Figure 12).
    assert!((24e6..27e6).contains(&inbound), "{inbound}");
    assert!(outbound < inbound, "{outbound}, {inbound}");
    assert_eq!((host, machines), ("machine 0".into(), 30.into()));
    let on_soft = figures("closed-loop --op fetch-add --inbound --machines 2 --duration 50ms");
    assert_eq!(on_soft["params"]["inbound"], true);
    let hosts = on_soft["roles"].as_array().unwrap().len();
    assert_eq!(hosts, 3, "two clients and the server");
}

#[test]
fn a_run_without_requests_has_no_rate() {
    let command = "sequencer --device model:cx3 --duration 1ns";
    let ended = Place::new().run(command).ok();
    let talk = ended.talk_of_itself();
    let first = talk.lines().next().unwrap();
    assert_snapshot!(first, @"warning: sequencer/by=rpc/server_cores=1/clients=2/outstanding=8/machines=1/qps=2/batch=16: no request ended within 1.00 ns: choose a longer --duration");
    let row = ended.out.lines().nth(2).unwrap();
    let row: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(row, ["0", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"]);
    assert_eq!(figures(command)["metrics"]["requests_per_s"], Value::Null);
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let ended = Place::new().run("sequencer --device verbs:none");
    let line = ended.refused(1);
    assert!(line.contains("cannot open device verbs:none"), "{line}");
}

#[test]
fn ctrl_c_ends_all_members() {
    for program in [
        "sequencer --duration 60s",
        "kv --by memory --duration 60s",
        "closed-loop --op read --duration 60s",
        "sequencer --device model:cx3 --duration 1000s",
    ] {
        let place = Place::new();
        let child = place.spawn(program);
        let is_model = program.contains("--device");
        wait_for("the device's files", || {
            is_model || !place.shm_files().is_empty()
        });
        if is_model {
            // It begins to listen for signals before it runs.
            wait_for("the signal's handler", || catches_sigint(child.id()));
        }
        signal(child.id(), Signal::INT);
        let ended = end_of(child);
        assert_eq!(ended.refused(130), "error: interrupted", "{program:?}");
        assert!(place.shm_files().is_empty(), "{program:?}");
    }
}

/// Whether a process has a handler for SIGINT (proc(5): SigCgt).
fn catches_sigint(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (Signal::INT.as_raw() - 1)) != 0)
}

#[test]
fn members_at_one_address_are_said_to_share_memory() {
    let place = Place::new();
    let args = "sequencer --by atomics --duration 20ms --device soft@127.48.0.1";
    let talk = place.run(args).ok().talk;
    let warning = "warning: all members are at soft@127.48.0.1 and share memory: this measures the local port, as device soft; for UDP name an address for each host (--device soft@ADDR,soft@ADDR or --peer)";
    assert!(talk.lines().any(|line| line == warning), "{talk}");
}

/// A resumed folder keeps the two apart.
#[test]
fn what_members_at_one_address_measure_is_not_taken_for_udp() {
    let place = Place::new();
    let line =
        "closed-loop --op write --clients 1 --outstanding 1 --duration 20ms --out s --resume";
    for device in ["soft@127.48.1.1", "soft@127.48.1.1,soft@127.48.1.2"] {
        place.run(&format!("{line} --device {device}")).ok();
    }
    let records = records(&place.path("s"));
    let devices: Vec<_> = records
        .iter()
        .map(|r| r["device"]["name"].clone())
        .collect();
    assert_eq!(devices, ["soft", "soft@127.48.1.1"]);
    assert_eq!(records[0]["cell"], records[1]["cell"]);
    assert_eq!(records[0]["roles"][0]["device"], Value::Null);
}

#[test]
fn a_histogram_says_which_share_of_the_requests_was_timed() {
    let place = Place::new();
    let line = "closed-loop --op write --duration 20ms --json";
    let record = place.run(line).record();
    let metrics = &record["metrics"];
    let histogram = &metrics["histogram"];
    let requests = metrics["requests"].as_f64().unwrap();
    let every = (requests / histogram["samples"].as_f64().unwrap()).round();
    assert_eq!(histogram["sampled_every"].as_f64(), Some(every.max(1.0)));
}
