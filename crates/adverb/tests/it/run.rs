//! `adverb run` and `adverb env`: what they pass to the program, and what they refuse.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

use crate::common::{Ended, Place};
use adverb_results::{Activity, read_records};
use insta::assert_snapshot;

#[test]
fn the_exit_status_is_that_of_the_program() {
    let place = Place::new();
    let mut command = place.command("run -- sh -c");
    let ended = command.arg("exit 42").output().unwrap();
    assert_eq!(ended.status.code(), Some(42));
    let mut command = place.command("run sh -c");
    let ended = command.arg("kill -TERM $$").output().unwrap();
    assert_eq!(ended.status.signal(), Some(15));
}

#[test]
fn the_program_gets_its_arguments_and_the_environment_as_they_are() {
    let place = Place::new();
    let mut command = place.command("run --mtu 1024 -- sh -c");
    let script = "printf '%s|' \"$0\" \"$@\" \"$LD_PRELOAD\" \"$ADVERB_RUN_MTU\" \"$MINE\"";
    command.args([script, "--loss", "1..2", "--", "-h"]);
    let output = command.env("MINE", "a b").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = text.split('|').collect();
    assert_eq!(words[..4], ["--loss", "1..2", "--", "-h"]);
    assert!(words[4].ends_with("/libadverb_preload.so"), "{text}");
    assert_eq!(words[5..7], ["1024", "a b"]);
}

#[test]
fn a_library_that_was_preloaded_before_stays() {
    let place = Place::new();
    // Nested: the library is not named twice.
    let mut command = place.command("run --");
    let adverb = command.get_program().to_owned();
    command
        .arg(adverb)
        .args(["run", "sh", "-c", "echo $LD_PRELOAD"]);
    let nested = command.env("LD_PRELOAD", "libm.so.6").output().unwrap();
    let text = String::from_utf8(nested.stdout).unwrap();
    let (ours, others) = text.trim_end().split_once(':').unwrap();
    assert!(ours.ends_with("libadverb_preload.so"), "{text}");
    assert_eq!(others, "libm.so.6");
}

#[test]
fn a_shell_evaluates_the_output_of_env() {
    let place = Place::new();
    let mut command = place.command("env --device-name a --device-name b=10.0.0.7 --loss 1%");
    let output = command.env("LD_PRELOAD", "it's.so").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let script = "eval \"$0\"; unset LD_PRELOAD; env | grep ^ADVERB_ | sort";
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script])
        .env_clear()
        .env("PATH", "/usr/bin:/bin");
    let seen = shell
        .arg(String::from_utf8(output.stdout).unwrap())
        .output()
        .unwrap();
    assert_snapshot!(String::from_utf8(seen.stdout).unwrap(), @r#"
    ADVERB_RUN_DEVICES=a,b=10.0.0.7
    ADVERB_RUN_FAULTS={"loss":0.01,"duplicate":0.0,"reorder":0.0,"corrupt":0.0,"seed":1}
    "#);
}

#[test]
fn programs_that_cannot_be_started_are_named_with_the_reason() {
    let place = Place::new();
    let refused = |line: &str, status| place.run(line).refused(status).to_owned();
    assert_snapshot!(refused("run -- no-such-program", 127), @"error: cannot run no-such-program: no program of this name is in the folders of PATH");
    assert_snapshot!(refused("run -- ./missing", 127), @"error: cannot run ./missing: no such file");
    assert_snapshot!(refused("run -- /", 126), @"error: cannot run /: is a directory");
    assert_snapshot!(refused("run -- /etc/passwd", 126), @"error: cannot run /etc/passwd: Permission denied (os error 13)");
    assert_snapshot!(refused("run --pcap /nowhere/a.pcap -- true", 1), @"error: --pcap: cannot write /nowhere/a.pcap: No such file or directory (os error 2)");
}

#[test]
fn invalid_options_are_refused() {
    let place = Place::new();
    let refused = |line: &str| place.run(line).refused(2).to_owned();
    assert_snapshot!(refused("run"), @"error: <PROGRAM>... is missing: see `adverb run --help`");
    assert_snapshot!(refused("run --devices 17 -- true"), @"error: --devices: invalid count '17': expected a whole number from 1 to 16");
    assert_snapshot!(refused("run --devices 2 --device-name a -- true"), @"error: --devices cannot be used with --device-name: leave out one of them");
    assert_snapshot!(refused("run --mtu 1500 -- true"), @"error: --mtu: invalid path MTU '1500': expected 256, 512, 1024, 2048 or 4096");
    assert_snapshot!(refused("run --seed 2 -- true"), @"error: --seed 2 chooses packets for --loss, --duplicate, --reorder, --corrupt or --jitter: add one of them");
    assert_snapshot!(refused("run --delay 11s -- true"), @"error: --delay '11s': 11.0 s exceeds the longest delay, 10.0 s");
    assert_snapshot!(refused("run --delay=-1ms -- true"), @"error: --delay: invalid duration '-1ms': expected a number and a unit, such as 2s, 500ms, 20us or 100ns");
    assert_snapshot!(refused("run --delay 1ms --jitter 2ms -- true"), @"error: --jitter 2.00 ms exceeds --delay 1.00 ms");
    assert_snapshot!(refused("run --rate 10 -- true"), @"error: --rate: invalid rate '10': expected a number and a unit, such as 10Gbit/s, 2.5Gbit or 100Mbit");
    assert_snapshot!(refused("run --queue 5 -- true"), @"error: --link-rate is missing: see `adverb run --help`");
    assert_snapshot!(refused("run --rate 1Gbit --queue 0 -- true"), @"error: --queue: invalid count '0': expected a whole number from 1 to 1000000");
    assert_snapshot!(refused("env --address localhost"), @"error: --address: invalid address 'localhost': expected an IPv4 or IPv6 address of this host, such as 10.0.0.1");
    assert_snapshot!(refused("env --device-name a=b"), @"error: --device-name 'a=b': invalid address 'b': expected an IPv4 or IPv6 address of this host, such as 10.0.0.1");
    assert_snapshot!(refused("env --device-name a,b"), @"error: --device-name: invalid name 'a,b': expected 1 to 63 letters, digits, '_', '-' and '.', other than '.' and '..'");
    assert_snapshot!(refused("env --device-name a --device-name a=10.0.0.1"), @"error: --device-name 'a' is given twice: give each device a name of its own");
}

/// The dynamic loader did not find the library, and the program ran without it.
#[test]
fn a_folder_whose_name_the_dynamic_loader_changes_is_refused() {
    let place = Place::new();
    let folder = place.path("$LIB");
    std::fs::create_dir(&folder).unwrap();
    let adverb = place.command("").get_program().to_owned();
    let adverb = Path::new(&adverb);
    for name in ["adverb", "libadverb_preload.so"] {
        let (from, to) = (adverb.with_file_name(name), folder.join(name));
        std::fs::hard_link(&from, &to)
            .or_else(|_| std::fs::copy(&from, &to).map(drop))
            .unwrap();
    }
    let mut run = Command::new(folder.join("adverb"));
    let ended = Ended::from(run.args(["run", "--", "true"]).output().unwrap());
    let refused = ended.refused(1);
    assert!(
        refused.contains("the path has a space, a colon or $"),
        "{refused}"
    );
}

/// Calls that posted send requests, of all processes that wrote a record to this folder, and how many of them were
/// batches of `ibv_wr_*`.
fn posts(folder: &Path) -> (u64, u64) {
    let files = std::fs::read_dir(folder).unwrap();
    let records = files.flat_map(|file| read_records(&file.unwrap().path()).unwrap().records);
    let activities = records.map(|record| Activity::of(&record).unwrap());
    let pairs: Vec<_> = activities.flat_map(|all| all.queue_pairs).collect();
    let calls = pairs.iter().map(|qp| qp.sends.calls).sum();
    (calls, pairs.iter().map(|qp| qp.wr_batches).sum())
}

/// It opens libibverbs by name.
#[test]
fn our_own_measurements_run_over_it_through_both_posting_interfaces() {
    let place = Place::new();
    for api in ["post", "wr"] {
        let mut command = place.command(&format!("run --address 127.0.0.181 --record {api} --"));
        let adverb = command.get_program().to_owned();
        let line = format!(
            "ping --op write --device verbs:adverb0 --iters 50 --verify --json --api {api}"
        );
        command.arg(adverb).args(line.split(' '));
        let record = Ended::from(command.output().unwrap()).record();
        assert_eq!(record["device"]["kind"], "verbs");
        assert_eq!(record["params"]["api"], api);
        let driver = &record["provenance"]["device"]["driver"];
        assert!(driver.as_str().unwrap().starts_with("adverb "), "{driver}");
        let (calls, batches) = posts(&place.path(api));
        assert!(calls >= 100, "{calls}");
        assert_eq!(batches, if api == "wr" { calls } else { 0 });
    }
}

/// The group is joined through librdmacm, whose functions are the user-space device's.
#[test]
fn subscribers_join_a_group_through_the_connection_manager() {
    let place = Place::new();
    let mut command = place.command("run --address 127.0.0.182 --");
    let adverb = command.get_program().to_owned();
    let line = "mcast --device verbs+cm:adverb0 --group 239.3.4.1 --messages 500 --rate 5k --churn 1 --json";
    command.arg(adverb).args(line.split(' '));
    let record = Ended::from(command.output().unwrap()).record();
    assert_eq!(record["provenance"]["device"]["connected by"], "librdmacm");
    for subscriber in [1, 2] {
        let metrics = &record["roles"][subscriber]["metrics"];
        assert!(metrics["messages"].as_u64() > Some(0), "{record}");
        assert!(metrics["join_ns"].as_f64() > Some(0.0), "{record}");
    }
}
