//! What bad input gets: one line that names the value and the remedy, and the exit status.

use crate::common::{Ended, Place};
use insta::assert_snapshot;

/// The line of a usage error.
#[track_caller]
fn usage(args: &str) -> String {
    Place::new().run(args).refused(2).to_owned()
}

#[test]
fn unknown_words() {
    assert_snapshot!(usage("foo"), @"error: unknown command 'foo': choose from study, ping, blast, closed-loop, open-loop, sequencer, kv, rpc, store, sync, connect, mcast, overlap, fetch, interference, rendezvous, run, env, degen, serve, devices, doctor, nodes, place, model, report, compare, claims, completions");
    assert_snapshot!(usage("pin --op send"), @"error: unknown command 'pin': did you mean ping? see `adverb --help`");
    assert_snapshot!(usage("calibrate"), @"error: unknown command 'calibrate': did you mean `adverb model calibrate`? see `adverb model --help`");
    assert_snapshot!(usage("model foo"), @"error: unknown command 'foo': choose from list, show, trace, validate, calibrate");
    assert_snapshot!(usage("ping --op shout"), @"error: invalid --op 'shout': expected send, write-imm, write, read, write-read, fetch-add or cas");
    assert_snapshot!(usage("blast --op write-read"), @"error: invalid --op 'write-read': expected send, write-imm, write, read, fetch-add or cas");
    assert_snapshot!(usage("blast --op read --completion hope"), @"error: --completion: invalid completion 'hope': expected poll, event, or hybrid:TIME with a time up to 5.00 ms, such as hybrid:20us");
    assert_snapshot!(usage("blast --op read --post twice"), @"error: invalid --post 'twice': expected single or list");
    assert_snapshot!(usage("ping --op send --sise 8"), @"error: unknown argument '--sise': did you mean '--size'? see `adverb ping --help`");
    assert_snapshot!(usage("ping --op send now"), @"error: unknown argument 'now': see `adverb ping --help`");
    assert_snapshot!(usage("study --profile slow"), @"error: invalid --profile 'slow': expected quick, paper or full");
    assert_snapshot!(usage("study --only fig1,fig9"), @"error: --only: invalid figure 'fig9': choose from fig1, fig2, fig3, fig4, fig5, fig6, table1, fig7, fig8, rank-rtt, rank-cpu, latency, loss, path (a letter names a panel: fig1a); with --study wan from wan3, wan4a, wan4b, wan5, wan6, wan7, wan8, wan9, beyond; with --study numa from numa2, numa3, numa4, numa5c, numa5, numa5d, numa6, numa7, sync; with --study guidelines from ladder, cores, offered, queues, answers, atomics, units, sends, inbound, windows, kv, herd, generations, pcie");
    assert_snapshot!(usage("study --study kalia"), @"error: --study: invalid study 'kalia': choose from macarthur, russell, path, wan, numa, guidelines");
    assert_snapshot!(usage("study --study russell --only fig1"), @"error: --only fig1: not a figure of --study russell, which has rank-rtt, rank-cpu, latency");
}

#[test]
fn something_is_missing_or_too_much() {
    assert_snapshot!(usage("ping"), @"error: --op is missing: see `adverb ping --help`");
    assert_snapshot!(usage("report"), @"error: <DIR>... is missing: see `adverb report --help`");
    assert_snapshot!(usage("study --resume"), @"error: --out is missing: see `adverb study --help`");
    assert_snapshot!(usage("ping --op"), @"error: --op needs a value: expected send, write-imm, write, read, write-read, fetch-add or cas");
    assert_snapshot!(usage("ping --op send --op read"), @"error: --op is given twice: give it once");
    assert_snapshot!(usage("ping --op send --iters 5 --duration 2s"), @"error: --iters cannot be used with --duration: leave out one of them");
    assert_snapshot!(usage("ping --op send --cpu 0,0 --no-pin"), @"error: --cpu cannot be used with --no-pin: leave out one of them");
}

#[test]
fn devices() {
    assert_snapshot!(usage("ping --op send --device hard"), @"error: --device: invalid device 'hard': expected soft, soft@ADDR, verbs:NAME[:PORT[:GID]], model:PRESET or tcp (see `adverb devices`)");
    assert_snapshot!(usage("ping --op send --device soft@here"), @"error: --device 'soft@here': invalid address 'here': expected soft@ADDR with an IPv4 or IPv6 address of this host, such as soft@10.0.0.1, or soft@auto");
    assert_snapshot!(usage("ping --op send --device verbs:"), @"error: --device 'verbs:': invalid device '': expected NAME[:PORT[:GID]], such as mlx5_0:1:3; ibv_devices lists the names");
    assert_snapshot!(usage("ping --op send --device verbs:mlx5_0:0"), @"error: --device 'verbs:mlx5_0:0': invalid port '0' in 'mlx5_0:0': expected a number from 1 to 254");
    assert_snapshot!(usage("ping --op send --device verbs:mlx5_0:1:first"), @"error: --device 'verbs:mlx5_0:1:first': invalid GID 'first' in 'mlx5_0:1:first': expected its index (0, 1, ...) or the port's IP address");
}

#[test]
fn gids() {
    assert_snapshot!(usage("ping --op send --gid 3"), @"error: --gid: soft has no GID table; name a device behind libibverbs with --device verbs:NAME, or leave it out");
    assert_snapshot!(usage("kv --gid 3 --device soft@127.0.0.1,soft@127.0.0.2"), @"error: --gid: soft@127.0.0.1 has no GID table; name a device behind libibverbs with --device verbs:NAME, or leave it out");
    assert_snapshot!(usage("study --gid 3 --device model:cx3 --out s"), @"error: --gid: model:cx3 has no GID table; name a device behind libibverbs with --device verbs:NAME, or leave it out");
    assert_snapshot!(usage("blast --op send --gid 3 --device verbs:mlx5_0:1:2"), @"error: --gid: verbs:mlx5_0:1:2 already names a GID; leave out one of them");
    assert_snapshot!(usage("closed-loop --op read --gid first --device verbs:mlx5_0"), @"error: --gid: invalid GID 'first': expected its index (0, 1, ...) or the port's IP address");
}

#[test]
fn peers() {
    assert_snapshot!(usage("ping --op send --peer nodeb:x"), @"error: --peer: invalid port 'x' in 'nodeb:x': expected a number from 1 to 65535");
    assert_snapshot!(usage("study --peer nodeb:70000"), @"error: --peer: invalid port '70000' in 'nodeb:70000': expected a number from 1 to 65535");
    assert_snapshot!(usage("blast --op read --peer http://nodeb/"), @"error: --peer: invalid port '//nodeb/' in 'http://nodeb/': expected a number from 1 to 65535");
    assert_snapshot!(usage("serve --bind :1"), @"error: --bind: invalid host ':1': expected HOST, HOST:PORT or [IPV6]:PORT, such as 10.0.0.2:18600");
    assert_snapshot!(usage("serve --cpu 0 --no-pin"), @"error: --cpu cannot be used with --no-pin: leave out one of them");
}

#[test]
fn sizes() {
    assert_snapshot!(usage("ping --op write --size 0"), @"error: size 0 B is outside the range of ping write, 1 B to 64 MiB");
    assert_snapshot!(usage("ping --op send --size 128M"), @"error: size 128 MiB is outside the range of ping send, 0 B to 64 MiB");
    assert_snapshot!(usage("blast --op send --size 1..512M"), @"error: size 512 MiB is outside the range of blast send, 1 B to 256 MiB");
    assert_snapshot!(usage("blast --op send --size 4..1"), @"error: --size: '4..1' has no points from 4 B to 1 B: write a value, a list such as 8,64,4096, or a range that doubles such as 1..64");
    assert_snapshot!(usage("ping --op send --size many"), @"error: --size: invalid size 'many': expected bytes, or a number with K, M or G (binary), such as 8, 4K, 1M");
    assert_snapshot!(usage("ping --op send --size -8"), @"error: --size: invalid size '-8': expected bytes, or a number with K, M or G (binary), such as 8, 4K, 1M");
    assert_snapshot!(usage("ping --op send --size 1G --inline"), @"error: size 1 GiB is outside the range of ping send, 0 B to 64 MiB");
    assert_snapshot!(usage("ping --op send --size 1M --inline"), @"error: 1 MiB inline: this device takes at most 1 KiB; choose a smaller size or no inline");
    assert_snapshot!(usage("blast --op read --size 8 --inline"), @"error: RDMA READ cannot be inline: its request carries no payload; leave inline out");
}

#[test]
fn path_mtus() {
    assert_snapshot!(usage("ping --op send --loss 1%"), @"error: loss 1 % (seed 1): soft injects no faults: only models and the UDP port of the user-space device do; name it with --device soft@ADDR, such as soft@127.0.0.1, or run the programs behind `adverb degen`");
    assert_snapshot!(usage("blast --op write --duplicate 0.001 --seed 2 --device model:cx3"), @"error: --duplicate 0.1 %: model:cx3 neither duplicates nor reorders packets; leave it out, or name a UDP port with --device soft@ADDR");
    assert_snapshot!(usage("ping --op send --device soft@127.0.0.1 --loss 101%"), @"error: --loss: invalid probability '101%': expected 0 to 100 with %, or 0 to 1, such as 1% or 0.01");
    assert_snapshot!(usage("ping --op send --device soft@127.0.0.1 --reorder -1"), @"error: --reorder: invalid probability '-1': expected 0 to 100 with %, or 0 to 1, such as 1% or 0.01");
    assert_snapshot!(usage("ping --op send --device soft@127.0.0.1 --seed 3"), @"error: --seed 3 chooses packets for --loss, --duplicate, --reorder, --corrupt or --jitter: add one of them");
    assert_snapshot!(usage("ping --op send --mtu 1500"), @"error: --mtu: invalid path MTU '1500': expected 256, 512, 1024, 2048 or 4096");
    assert_snapshot!(usage("blast --op send --mtu jumbo"), @"error: --mtu: invalid path MTU 'jumbo': expected 256, 512, 1024, 2048 or 4096");
    assert_snapshot!(usage("ping --op send --mtu 1024"), @"error: path MTU 1 KiB: this device's port (shared memory) does not split messages into packets; leave it out");
    assert_snapshot!(usage("study --mtu 1024 --out s"), @"error: path MTU 1 KiB: this device's port (shared memory) does not split messages into packets; leave it out");
    assert_snapshot!(usage("ping --op send --device model:cx3_fdr_nurdma --mtu 1024"), @"error: path MTU 1 KiB: this device's port carries packets of at most 256 B; choose a smaller one");
}

#[test]
fn paths_of_all_programs() {
    assert_snapshot!(usage("kv --by memory --loss 1%"), @"error: loss 1 % (seed 1): soft injects no faults: only models and the UDP port of the user-space device do; name it with --device soft@ADDR, such as soft@127.0.0.1, or run the programs behind `adverb degen`");
    assert_snapshot!(usage("closed-loop --op read --reorder 1% --device model:connect_ib"), @"error: --reorder 1 %: model:connect_ib neither duplicates nor reorders packets; leave it out, or name a UDP port with --device soft@ADDR");
    assert_snapshot!(usage("closed-loop --op read --seed 2 --device soft@127.0.0.1"), @"error: --seed 2 chooses packets for --loss, --duplicate, --reorder, --corrupt or --jitter: add one of them");
    assert_snapshot!(usage("closed-loop --op read --mtu 1024"), @"error: path MTU 1 KiB: this device's port (shared memory) does not split messages into packets; leave it out");
    assert_snapshot!(usage("sequencer --by atomics --device model:connect_ib --timeout 1ms"), @"error: --timeout 1.05 ms (4.096 µs × 2^8): model:connect_ib loses no packets, so nothing is ever retransmitted; leave it out, or add --loss or --delay");
    assert_snapshot!(usage("kv --device soft@127.0.0.1 --loss 1%"), @"error: loss 1 % (seed 1): requests and answers of an RPC are sent by UC and UD queue pairs, which send nothing again; leave it out, or choose operations on the server's memory (--by atomics, --by memory)");
    assert_snapshot!(usage("sequencer --device soft@127.0.0.1 --retries 3"), @"error: --retries 3: requests and answers of an RPC are sent by UC and UD queue pairs, which send nothing again; leave it out, or choose operations on the server's memory (--by atomics, --by memory)");
    assert_snapshot!(usage("study --loss 1% --out s"), @"error: loss 1 % (seed 1): soft injects no faults: only models and the UDP port of the user-space device do; name it with --device soft@ADDR, such as soft@127.0.0.1, or run the programs behind `adverb degen`");
}

#[test]
fn posting_interfaces() {
    assert_snapshot!(usage("ping --op send --api old"), @"error: --api: invalid posting interface 'old': expected post (ibv_post_send) or wr (ibv_wr_*)");
    assert_snapshot!(usage("ping --op send --api wr"), @"error: --api wr: soft has no choice of posting interfaces; name a device behind libibverbs with --device verbs:NAME, or leave --api out");
    assert_snapshot!(usage("blast --op write --api post --device soft@127.0.0.1"), @"error: --api post: soft@127.0.0.1 has no choice of posting interfaces; name a device behind libibverbs with --device verbs:NAME, or leave --api out");
    assert_snapshot!(usage("kv --api wr --device model:cx3"), @"error: --api wr: model:cx3 has no choice of posting interfaces; name a device behind libibverbs with --device verbs:NAME, or leave --api out");
    assert_snapshot!(usage("closed-loop --op read --api wr"), @"error: --api wr: soft has no choice of posting interfaces; name a device behind libibverbs with --device verbs:NAME, or leave --api out");
    assert_snapshot!(usage("study --api wr --out s"), @"error: --api wr: soft has no choice of posting interfaces; name a device behind libibverbs with --device verbs:NAME, or leave --api out");
}

#[test]
fn loss_is_studied_where_packets_can_be_lost() {
    assert_snapshot!(usage("study --only loss --out s"), @"error: --only loss: loss 0 %: soft injects no faults: only models and the UDP port of the user-space device do; name it with --device soft@ADDR, such as soft@127.0.0.1, or run the programs behind `adverb degen`");
}

#[test]
fn timeouts_and_retries() {
    assert_snapshot!(usage("ping --op send --timeout 0"), @"error: --timeout: invalid timeout '0': expected a time up to 8796 s with its unit, such as 1ms, or n for 4.096 µs × 2^n, 1 to 31");
    assert_snapshot!(usage("blast --op send --timeout 3h"), @"error: --timeout: invalid timeout '3h': expected a time up to 8796 s with its unit, such as 1ms, or n for 4.096 µs × 2^n, 1 to 31");
    assert_snapshot!(usage("blast --op send --qp-timeout 32"), @"error: --qp-timeout: invalid timeout '32': expected a time up to 8796 s with its unit, such as 1ms, or n for 4.096 µs × 2^n, 1 to 31");
    assert_snapshot!(usage("ping --op send --retries 8"), @"error: --retries: invalid retry count '8': expected 0 to 7");
    assert_snapshot!(usage("ping --op read --device model:cx3 --timeout 1ms"), @"error: --timeout 1.05 ms (4.096 µs × 2^8): model:cx3 loses no packets, so nothing is ever retransmitted; leave it out, or add --loss or --delay");
    assert_snapshot!(usage("study --device model:cx3 --timeout 1ms --out s"), @"error: --timeout 1.05 ms (4.096 µs × 2^8): model:cx3 loses no packets, so nothing is ever retransmitted; leave it out, or add --loss or --delay");
    assert_snapshot!(usage("blast --op read --device model:cx3 --retries 1"), @"error: --retries 1: model:cx3 loses no packets, so nothing is ever retransmitted; leave it out, or add --loss or --delay");
}

#[test]
fn counts_and_times() {
    assert_snapshot!(usage("blast --op write --buffers 0"), @"error: --buffers: invalid count '0': expected a whole number from 1");
    assert_snapshot!(usage("blast --op write --buffers 257"), @"error: 257 buffers are outside the range of blast, 1 to 256");
    assert_snapshot!(usage("blast --op write --buffers -1"), @"error: --buffers: invalid count '-1': expected a whole number from 1");
    assert_snapshot!(usage("ping --op send --iters 0"), @"error: --iters: invalid count '0': expected a whole number from 1");
    assert_snapshot!(usage("ping --op send --iters 1e6"), @"error: --iters: invalid count '1e6': expected a whole number from 1");
    assert_snapshot!(usage("ping --op send --warmup x"), @"error: --warmup: invalid count 'x': expected a whole number from 0");
    assert_snapshot!(usage("ping --op send --seed -1"), @"error: --seed: invalid count '-1': expected a whole number from 0");
    assert_snapshot!(usage("kv --repetitions 1001"), @"error: --repetitions: invalid count '1001': expected a whole number from 1 to 1000");
    assert_snapshot!(usage("kv --repetitions 5 --device model:cx3"), @"error: --repetitions: virtual time has no noise, so a model repeats only what loses packets; leave it out");
    assert_snapshot!(usage("kv --clients 0"), @"error: --clients: invalid count '0': expected a whole number from 1 to 4096");
    assert_snapshot!(usage("ping --op send --duration 0s"), @"error: duration 0: at least 1 ns is needed to measure anything");
    assert_snapshot!(usage("ping --op send --duration 0"), @"error: duration 0: at least 1 ns is needed to measure anything");
    assert_snapshot!(usage("kv --duration 2m"), @"error: --duration: invalid duration '2m': expected seconds, such as 10 or 0.5, or a number with a unit, such as 500ms or 20us");
    assert_snapshot!(usage("ping --op send --cpu x"), @"error: --cpu: invalid list of cores 'x': expected core numbers, such as 0,1");
    assert_snapshot!(usage("ping --op send --cpu 0"), @"error: --cpu 0: both sides run here: write two core numbers, such as 0,1");
    assert_snapshot!(usage("ping --op send --cpu 0,1 --peer nodeb"), @"error: --cpu 0,1: with --peer only one side runs here: write its core alone; the other one's is chosen by `adverb serve --cpu`");
}

#[test]
fn signaling() {
    assert_snapshot!(usage("blast --op write --transport uc --device model:ammasso_gige"), @"error: blast write has no transport uc: the device has only RC queue pairs; choose rc");
    assert_snapshot!(usage("blast --op write --buffers 4 --signal every=5"), @"error: signal every=5 with 4 buffers would stall: without a completion within 4 messages no buffer is ever free; choose 1 to 4");
    assert_snapshot!(usage("blast --op write --signal every=0"), @"error: --signal: invalid signaling 'every=0': expected all, periodic, write-unsignaled, or every=N with N from 1");
    assert_snapshot!(usage("blast --op write --signal never"), @"error: --signal: invalid signaling 'never': expected all, periodic, write-unsignaled, or every=N with N from 1");
    assert_snapshot!(usage("ping --op send --signal write-unsignaled"), @"error: ping send has no signaling write-unsignaled: choose from all");
    assert_snapshot!(usage("ping --op write --completion event"), @"error: ping write has no completion events: an RDMA WRITE raises none at its target, which therefore polls its memory; choose poll, or write-imm");
}

#[test]
fn a_core_that_is_not_usable_is_named() {
    for args in [
        "ping --op send --cpu 0,4095",
        "ping --op send --cpu 4095 --peer nodeb",
        "serve --cpu 4095",
    ] {
        let line = usage(args);
        assert!(
            line.starts_with("error: --cpu: core 4095 is not usable here: choose from "),
            "{line}"
        );
    }
}

#[test]
fn no_command_shows_what_there_is() {
    let ended = Place::new().run("");
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.talk.contains("study") && ended.talk.contains("blast"),
        "{}",
        ended.talk
    );
}

#[test]
fn help_and_version_are_answers() {
    let place = Place::new();
    for args in [
        "--help",
        "study --help",
        "ping --help",
        "blast --help",
        "closed-loop --help",
        "sequencer --help",
        "kv --help",
        "serve --help",
        "devices --help",
        "model --help",
        "model show --help",
        "model validate --help",
        "report --help",
    ] {
        let help = place.run(args).ok();
        assert!(
            help.out.lines().all(|line| line.chars().count() <= 100),
            "{}",
            help.out
        );
        assert_eq!(help.talk, "");
    }
    let version = place.run("--version").ok().out;
    assert!(
        version.starts_with(concat!("adverb ", env!("CARGO_PKG_VERSION"))),
        "{version}"
    );
}

#[test]
fn refused_commands_run_nothing_and_create_nothing() {
    let place = Place::new();
    place.run("study --out here --only fig9").refused(2);
    assert!(!place.path("here").exists());
    assert!(place.shm_files().is_empty());
}

#[test]
fn one_side_alone_says_so_at_once() {
    let place = Place::new();
    let ended = place.run("role active");
    assert_eq!(ended.code, Some(1));
    let line = ended.talk.trim_end();
    let by_hand =
        "error: this command is started by others, such as `adverb ping`, for each role: ";
    assert!(line.starts_with(by_hand), "{line}");
}

#[test]
fn colour_only_where_asked_for() {
    let place = Place::new();
    assert!(!place.run("report nowhere").talk.contains('\x1b'));
    assert!(
        place
            .run("--color always report nowhere")
            .talk
            .contains('\x1b')
    );
    assert!(
        !place
            .run("--color never report nowhere")
            .talk
            .contains('\x1b')
    );
}

#[test]
fn a_full_disk_behind_standard_output_is_named() {
    let place = Place::new();
    for args in [
        "model list",
        "devices --device soft",
        "ping --op send --device model:cx3 --json",
        "--help",
        "--version",
        "study -h",
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let ended = place.command(args).stdout(full.unwrap()).output();
        let ended = Ended::from(ended.unwrap());
        let line = "error: cannot write to standard output: No space left on device (os error 28)";
        assert_eq!(ended.refused(1), line, "{args:?}");
    }
}
