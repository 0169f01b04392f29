//! `adverb rpc`: requests answered in each way, on the user-space device, over UDP and on models.

use crate::common::Place;
use insta::assert_snapshot;
use serde_json::Value;

#[track_caller]
fn records(command: &str) -> Vec<Value> {
    let place = Place::new();
    let records = place.run(&format!("rpc {command} --json")).ok().json();
    assert!(place.shm_files().is_empty(), "{command}");
    records
}

/// The ways of the records, each with its transport, in order.
fn ways(records: &[Value]) -> Vec<String> {
    let word = |record: &Value, name| record["params"][name].as_str().unwrap().to_owned();
    let way = |record| format!("{} {}", word(record, "by"), word(record, "transport"));
    records.iter().map(way).collect()
}

const ALL: [&str; 9] = [
    "send rc",
    "send uc",
    "send ud",
    "write rc",
    "write uc",
    "write-send rc",
    "write-send uc",
    "write-send ud",
    "read rc",
];

#[test]
fn each_way_runs_over_each_transport_that_can_carry_it() {
    for device in [
        "--duration 30ms",
        "--device soft@127.0.0.1 --duration 30ms",
        "--device soft@127.47.0.1,soft@127.47.0.2 --duration 30ms --request 100 --reply 3000",
        "--device model:cx3 --clients 5 --cores 2 --outstanding 3 --request 1K",
    ] {
        let records = records(device);
        assert_eq!(ways(&records), ALL, "{device}");
        for record in &records {
            let metrics = &record["metrics"];
            assert!(metrics["checked"]["replies"].as_u64() > Some(0), "{record}");
            let figure = |name: &str| metrics[name].as_f64();
            assert!(figure("client_least_per_s") <= figure("client_most_per_s"));
            let server = record["roles"][0]["name"].as_str();
            assert_eq!(server, Some("server core 0"), "{record}");
        }
    }
}

#[test]
fn sockets_are_compared_with_queue_pairs() {
    let tcp = "--clients 3 --cores 2 --outstanding 3 --request 100 --reply 3000 --duration 30ms";
    assert_eq!(ways(&records(&format!("{tcp} --device tcp"))), ["tcp tcp"]);
    let both = records("--device soft,tcp --by send,tcp --transport rc --duration 30ms");
    assert_eq!(ways(&both), ["send rc", "tcp tcp"]);
    let model = records("--device model:cx3 --by tcp,write --transport rc --clients 4");
    assert_eq!(ways(&model), ["tcp tcp", "write rc"]);
    let rate = |record: &Value| record["metrics"]["requests_per_s"].as_f64().unwrap();
    assert!(rate(&model[0]) < rate(&model[1]), "{model:?}");
}

/// More than the buffers of both sockets hold is in flight in each direction.
#[test]
fn a_client_over_tcp_takes_replies_while_it_sends() {
    let records = records(
        "--device tcp --clients 1 --outstanding 64 --request 1M --reply 1M --duration 200ms",
    );
    assert!(records[0]["metrics"]["checked"]["replies"].as_u64() >= Some(64));
}

#[test]
fn several_devices_have_one_table_and_a_sentence_each() {
    let place = Place::new();
    let devices = "--device model:cx3,model:connect_ib --clients 4 --transport rc";
    let text = place.run(&format!("rpc {devices}")).ok().out;
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("rpc on model:cx3, model:connect_ib: over rc, requests of 64 B"),
        "{text}"
    );
    let columns: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(columns[..3], ["by", "device", "rate"], "{text}");
    let of = |name: &str| lines.iter().filter(|line| line.contains(name)).count();
    // Four ways and a sentence; the first line has both.
    assert_eq!((of("model:cx3"), of("model:connect_ib")), (6, 6), "{text}");
    let sentences = lines.iter().filter(|line| line.starts_with("On model:"));
    assert_eq!(sentences.count(), 2, "{text}");
    assert!(text.contains("Checked: "), "{text}");
}

/// The sentence has no figure that is not in the table.
#[test]
fn the_answer_names_the_ways_from_best_to_worst() {
    let text = Place::new()
        .run("rpc --device model:cx3 --clients 20 --by send,write,read")
        .ok()
        .out;
    let answer = text.lines().last().unwrap();
    let ways: Vec<&str> = answer.split(['(', ')']).step_by(2).collect();
    assert_eq!(ways.len(), 4, "{answer}");
    let figures = answer.split(['(', ')']).skip(1).step_by(2);
    let mut rates = Vec::new();
    for figures in figures {
        let shown: Vec<&str> = figures.split(", ").collect();
        let p50 = shown[1].strip_prefix("p50 ").unwrap();
        let row = text
            .lines()
            .find(|line| line.contains(shown[0]) && line.contains(p50));
        assert!(
            row.is_some_and(|row| !row.starts_with("On ")),
            "{shown:?} in {text}"
        );
        rates.push(shown[0].to_owned());
    }
    assert_eq!(rates.len(), 3, "{answer}");
}

#[test]
fn waiting_is_swept_against_an_offered_load() {
    let sweep = "--by send --transport rc --rate 10k,100k --completion poll,event,hybrid:20us";
    let records = records(&format!("{sweep} --device model:cx3 --duration 2ms"));
    let figure = |record: &Value, path: &str| record.pointer(path).and_then(Value::as_f64).unwrap();
    let server = |record: &Value| figure(record, "/metrics/server_cpu_percent");
    let p50 = |record: &Value| figure(record, "/metrics/latency_ns/p50");
    let waits: Vec<&str> = records
        .iter()
        .map(|r| r["params"]["completion"].as_str().unwrap())
        .collect();
    assert_eq!(waits[..3], ["poll", "event", "hybrid:20us"]);
    let [poll, event, hybrid] = &records[..3] else {
        panic!("{records:?}")
    };
    assert!(
        p50(poll) < p50(event) && server(event) < 20.0,
        "{records:?}"
    );
    assert!(
        server(event) < server(hybrid) && server(hybrid) < server(poll),
        "{records:?}"
    );
}

#[test]
fn latency_and_cpu_are_plotted_over_the_offered_load() {
    let place = Place::new();
    let sweep = "--by send --rate 10k,100k --completion poll,event --device model:cx3 --out load";
    place.run(&format!("rpc {sweep}")).ok();
    let page = std::fs::read_to_string(place.path("load/report.html")).unwrap();
    for figure in ["mean latency", "CPU of a client", "CPU of the server"] {
        assert!(
            page.contains(&format!("{figure} over offered requests per second")),
            "{figure}"
        );
    }
}

/// What the command answers.
fn answer(args: &str) -> String {
    let out = Place::new().run(&format!("rpc --device model:cx3 {args}"));
    let out = out.ok().out;
    let answer = out.lines().find(|line| line.starts_with("On model:cx3, "));
    answer.unwrap().to_owned()
}

#[test]
fn the_answer_takes_no_latency_of_a_way_that_does_not_keep_up() {
    let none = answer("--clients 4 --transport rc --rate 20M");
    assert!(
        none.contains("no way keeps up with what is offered"),
        "{none}"
    );
    assert!(!none.contains("soonest"), "{none}");
    let some = answer("--clients 20 --transport rc --by send,read --rate 8M");
    assert!(
        some.contains("READ over RC") && some.contains("answers soonest"),
        "{some}"
    );
    assert!(
        some.ends_with("; SEND does not keep up with what is offered."),
        "{some}"
    );
}

#[test]
fn the_answer_names_the_point_and_what_is_equal() {
    // A second core of the server adds nothing.
    let cores = answer("--by write,send --transport rc --clients 4 --cores 1,2");
    assert!(
        cores.contains("(server_cores=1, ") && !cores.contains("CPU 200 %"),
        "{cores}"
    );
    let think = answer("--by read,write --transport rc --clients 4 --think 10us");
    assert!(
        think.contains(" have the highest rate, equal within 2 %."),
        "{think}"
    );
    let clients = answer("--by read,write --transport rc --clients 1,20");
    assert!(clients.contains("READ over RC (clients=20, "), "{clients}");
}

/// Each way was judged at its own best point: WRITE with replies of 256 B against SEND with 1 KiB.
#[test]
fn ways_are_compared_at_the_same_point_of_the_workload() {
    let sizes = answer("--by write,read --transport rc --clients 1 --reply 8,16,4K");
    let leaders = "WRITE and polling over RC has the highest rate at reply_bytes=8 to 16; READ over RC has the highest rate at reply_bytes=4096.";
    assert!(sizes.contains(leaders), "{sizes}");
    let same = answer("--by send,write --transport rc --clients 1 --think 1us,10us");
    assert!(
        same.ends_with("WRITE and polling over RC has the highest rate at all 2 points."),
        "{same}"
    );
    let rates = answer("--by send,read --transport rc --clients 20 --rate 1M,8M,100M");
    assert!(
        rates.contains("READ over RC answers soonest at offered=1.00 M/s to 8.00 M/s; at offered=100 M/s no way keeps up"),
        "{rates}"
    );
}

/// A way "led" at all points, although the ways were equal at most of them.
#[test]
fn a_way_leads_only_where_it_is_faster_by_more_than_two_percent() {
    let sizes = answer("--by send,write-send --transport rc --reply 180,8K,64K --clients 8");
    let leaders = "WRITE answered by SEND over RC has the highest rate at reply_bytes=180; SEND over RC and WRITE answered by \
                   SEND over RC have the highest rate at reply_bytes=8192 to 65536, equal within 2 %.";
    assert!(sizes.contains(leaders), "{sizes}");
}

/// One way on several devices had no sentence.
#[test]
fn the_fastest_of_several_devices_is_named() {
    let devices = "rpc --device model:cx3,model:cx7 --by send --transport rc --clients 8";
    let out = Place::new().run(devices).ok().out;
    let last = out.lines().last().unwrap();
    assert!(
        last.starts_with("model:cx3 has the highest rate ("),
        "{out}"
    );
    assert!(last.contains("× the rate of model:cx7 ("), "{out}");
}

#[test]
fn equal_ways_of_a_lower_rank_are_merged() {
    let all = answer("--clients 20 --transport rc");
    let (_, lower) = all.split_once("followed by ").unwrap();
    assert!(
        lower.contains("), equal within 2 %, then SEND over RC ("),
        "{all}"
    );
}

/// 37 random arrivals were compared with the 40 that are due on average.
#[test]
fn a_few_random_arrivals_may_be_fewer_than_their_mean() {
    let few = answer("--by tcp,send --transport rc --clients 4 --rate 20k --duration 2ms");
    assert!(
        few.contains("SEND over RC (") && few.contains(" answers soonest"),
        "{few}"
    );
}

#[test]
fn what_remains_is_named_if_the_rest_is_left_out() {
    let place = Place::new();
    let one_way = "rpc --device model:cx3 --by tcp,send --transport rc --completion event";
    let title = place.run(one_way).ok().out;
    assert!(
        title.starts_with("rpc on model:cx3: by send, over rc, "),
        "{title}"
    );
    let devices = "rpc --device model:cx3,model:ammasso_gige --by send --transport uc";
    let ended = place.run(devices).ok();
    assert!(
        ended
            .out
            .starts_with("rpc on model:cx3: by send, over uc, "),
        "{}",
        ended.out
    );
    let said = ended.talk_of_itself();
    assert!(
        said.contains(
            "left out: send over uc on model:ammasso_gige: the device has only RC queue pairs"
        ),
        "{said}"
    );
}

#[test]
fn ways_that_cannot_exist_are_left_out_with_the_reason() {
    let ended = Place::new().run("rpc --device model:cx3 --completion event");
    let said = ended.ok().talk_of_itself();
    assert!(
        said.contains("left out: read over uc with --completion event: only RC has READ"),
        "{said}"
    );
    assert!(said.contains("left out: write over rc with --completion event: both sides poll memory, which raises no events"), "{said}");
    let ended = Place::new().run("rpc --device model:cx3 --by send --reply 8K --loss 1%");
    let said = ended.ok().talk_of_itself();
    assert!(
        said.contains("left out: send over ud: a message of 8 KiB exceeds the path MTU of 4 KiB"),
        "{said}"
    );
    assert!(
        said.contains("left out: send over uc: loss 1 % (seed 1): UC and UD send nothing again"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let usage = |args: &str| {
        Place::new()
            .run(&format!("rpc {args}"))
            .refused(2)
            .to_owned()
    };
    assert_snapshot!(usage("--by read --transport ud"), @"error: --by read over ud: only RC has READ");
    assert_snapshot!(usage("--by send --transport ud --request 8K"), @"error: --by send over ud: a message of 8 KiB exceeds the path MTU of 4 KiB");
    assert_snapshot!(usage("--by push"), @"error: invalid --by 'push': expected send, write, write-send, read or tcp");
    assert_snapshot!(usage("--request 4"), @"error: --request 4 B: expected 8 B to 1 MiB");
    assert_snapshot!(usage("--reply 2M"), @"error: --reply 2 MiB: expected 8 B to 1 MiB");
    assert_snapshot!(usage("--think 1us --rate 1k"), @"error: --think cannot be used with --rate: leave out one of them");
    assert_snapshot!(usage("--cores 3 --clients 2"), @"error: --cores 3 exceeds --clients 2: a client is served by one core");
    assert_snapshot!(usage("--completion hybrid"), @"error: --completion: invalid completion 'hybrid': expected poll, event, or hybrid:TIME with a time up to 5.00 ms, such as hybrid:20us");
    assert_snapshot!(usage("--duration 0"), @"error: --duration 0: nothing can be measured in no time");
    assert_snapshot!(usage("--by send --transport uc --device soft@127.0.0.1 --loss 1%"), @"error: loss 1 % (seed 1): requests and answers of an RPC are sent by UC and UD queue pairs, which send nothing again; leave it out, or choose --transport rc");
    assert_snapshot!(usage("--device tcp --by send --transport rc"), @"error: --by send: TCP has no queue pairs; leave out --by");
    assert_snapshot!(usage("--by tcp"), @"error: --by tcp: an RDMA device has no sockets; name --device tcp");
    assert_snapshot!(usage("--device tcp --completion event"), @"error: --by tcp with --completion event: both sides poll their sockets");
    assert_snapshot!(usage("--by write --transport rc --completion event"), @"error: --by write over rc with --completion event: both sides poll memory, which raises no events");
}

/// What is compared is in the folder, whether it was measured now or before.
#[test]
fn a_resumed_comparison_has_all_of_its_points() {
    let place = Place::new();
    let line = "rpc --transport rc --device model:cx3 --duration 1ms --out s";
    let first = place.run(&format!("{line} --by send --rate 100k")).ok().out;
    assert!(
        first.contains("over rc") && first.contains("100 k/s offered"),
        "{first}"
    );
    let second = format!("{line} --resume --rate 100k --by send,read");
    for _ in 0..2 {
        let out = place.run(&second).ok().out;
        let last = out.lines().last().unwrap();
        assert!(
            last.contains("SEND") && last.contains("READ over RC"),
            "{out}"
        );
        assert!(!out.contains("-0"), "{out}");
    }
}

#[test]
fn a_transport_of_queue_pairs_is_refused_for_sockets_alone() {
    for line in ["--by tcp --device model:cx3", "--device tcp"] {
        let refused = Place::new().run(&format!("rpc {line} --transport ud"));
        assert_eq!(
            refused.refused(2),
            "error: --transport ud: TCP sockets have no queue pairs; leave it out"
        );
    }
    let mixed = "rpc --by tcp,send --transport rc --device model:cx3 --duration 1ms";
    let out = Place::new().run(mixed).ok().out;
    assert!(!out.lines().next().unwrap().contains("over"), "{out}");
}
