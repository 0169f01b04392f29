//! The kernel's RDMA stack next to the user-space NIC, in a virtual machine.
//!
//! As peer: one program runs over `rdma_cm` or rsockets on Soft-RoCE, the other over the user-space NIC, each active in
//! turn. As a further device: programs over the user-space NIC see Soft-RoCE's device, too, and use it.

#![allow(missing_docs, reason = "a test program")]

use std::io::Write;
use std::process::ExitCode;

use adverb_units::Span;
use adverb_vm::{Ending, LabSpec, Program, missing};

/// What the scripts share: a function that runs a pair and prints what it prints.
const TRY: &str = r#"
try() { # what, service of the user-space server ("": the kernel's), server, client
    $3 >/tmp/server.log 2>&1 &
    server=$!
    tries=0
    until [ "$tries" -gt 600 ] || listens "$2"; do
        tries=$((tries + 1))
        sleep 0.1
    done
    $4 >/tmp/client.log 2>&1
    client=$?
    if [ "$5" = refused ]; then kill "$server"; fi
    wait "$server"
    echo "$1: client $client, server $?"
    cat /tmp/client.log /tmp/server.log
    echo "end of $1"
}

listens() {
    if [ "$1" = tcp ]; then
        grep -q ':4853 .* 0A' /proc/net/tcp /proc/net/tcp6
    elif [ -n "$1" ]; then
        ls /tmp/adverb-0@10.77.0.2-*/*"$1" >/dev/null 2>&1
    else
        rdma resource show cm_id 2>/dev/null | grep -q 'state LISTEN'
    fi
}
"#;

/// Runs the pairs. The user-space NIC is at 10.77.0.2, in its own network namespace.
const PAIRS: &str = r#"
over="ip netns exec peer env LD_PRELOAD=$1 ADVERB_SHM=/tmp ADVERB_EXPLAIN=1 ADVERB_RUN_ADDRESS=10.77.0.2"

try "kernel to adverb" .s1061c06 "$over rping -s -a 10.77.0.2 -C 5 -v -V" "rping -c -a 10.77.0.2 -C 5 -v -V"
try "adverb to kernel" "" "rping -s -a 10.77.0.1 -C 5 -v -V" "$over rping -c -a 10.77.0.1 -C 5 -v -V"
try "datagrams, kernel to adverb" .s1111c06 "$over udaddy -b 10.77.0.2" "udaddy -s 10.77.0.2"
try "datagrams, adverb to kernel" "" "udaddy -b 10.77.0.1" "$over udaddy -s 10.77.0.1"
stream="rstream -T v -T b -S 70000 -I 2 -C 10"
try "rsockets, kernel to adverb" .s1061d2f "$over $stream -b 10.77.0.2" "$stream -s 10.77.0.2"
try "rsockets, adverb to kernel" "" "$stream -b 10.77.0.1" "$over $stream -s 10.77.0.1"
try "adverb refuses" .s1061c06 "$over rping -s -a 10.77.0.2" "rping -c -a 10.77.0.2 -p 78 -C 1" refused
try "the kernel refuses" "" "rping -s -a 10.77.0.1" "$over rping -c -a 10.77.0.1 -p 78 -C 1" refused
"#;

/// Runs programs over the user-space NIC that see, and use, the kernel's device.
const REAL: &str = r#"
both="env LD_PRELOAD=$1 ADVERB_SHM=/tmp ADVERB_EXPLAIN=1"
echo "devices: $($both ibv_devices | awk 'NR > 2 { print $1 }' | xargs)"
echo "devices that are ours: $($both ADVERB_RUN_ONLY=1 ibv_devices | awk 'NR > 2 { print $1 }' | xargs)"
echo "ports: $($both ibv_devinfo | grep -c PORT_ACTIVE)"
pingpong="-d rxe0 -g 1 -n 50"
try "real device, RC" tcp "$both ibv_rc_pingpong $pingpong -e" "$both ibv_rc_pingpong $pingpong -e 10.77.0.1"
try "real device, SRQ" tcp "$both ibv_srq_pingpong $pingpong" "$both ibv_srq_pingpong $pingpong 10.77.0.1"
try "real device, UD" tcp "ibv_ud_pingpong $pingpong" "$both ibv_ud_pingpong $pingpong 10.77.0.1"
"#;

fn main() -> ExitCode {
    let mut args = std::env::args();
    let first = args.next().unwrap_or_default();
    if first.rsplit('/').next() == Some(adverb_vm::INIT_NAME) {
        return adverb_vm::run_init();
    }
    let args: Vec<String> = args.collect();
    let filters: Vec<_> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let wanted = filters.is_empty() || filters.iter().any(|f| "kernel".contains(f.as_str()));
    if args.iter().any(|arg| arg == "--list") || !wanted {
        return ExitCode::SUCCESS;
    }
    let mut needs: Vec<_> = missing().iter().map(ToString::to_string).collect();
    if !std::path::Path::new("/usr/bin/rping").is_file() {
        needs.push("rdmacm-utils".into());
    }
    if !needs.is_empty() {
        let _ = writeln!(
            std::io::stderr(),
            "\nNOT RUN: the kernel's rdma_cm as peer of the user-space NIC: needs the packages {}",
            needs.join(", ")
        );
        return ExitCode::SUCCESS;
    }
    let text = in_a_machine();
    print!("{text}");
    check(&text);
    ExitCode::SUCCESS
}

fn in_a_machine() -> String {
    let me = std::env::current_exe().expect("the running program has a path");
    let library = me.with_file_name("libadverb_preload.so");
    let lab = LabSpec::looped().init(&me).boot();
    let lab = lab.unwrap_or_else(|e| panic!("cannot boot a virtual machine: {e}"));
    let library = library.to_string_lossy();
    let run = |script: &str| {
        let script = format!("{TRY}{script}");
        let program = Program::new("sh").args(["-c", &*script, "pairs", &*library]);
        let output = lab.machine(0).run(&program.limit(Span::from_secs(400)));
        let output = output.unwrap_or_else(|e| panic!("the virtual machine failed: {e}"));
        let [text, errors] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(
            matches!(output.ending, Ending::Exited(_)),
            "{:?}\n{text}{errors}",
            output.ending
        );
        format!("{text}{errors}")
    };
    [PAIRS, REAL].map(run).concat()
}

fn check(text: &str) {
    let part = |name: &str| {
        let begin = text.find(&format!("\n{name}: ")).map(|at| at + 1);
        let begin = begin.or_else(|| text.starts_with(name).then_some(0));
        let rest = &text[begin.unwrap_or_else(|| panic!("no part '{name}' in\n{text}"))..];
        let end = rest.find(&format!("end of {name}"));
        &rest[..end.unwrap_or(rest.len())]
    };
    for name in ["kernel to adverb", "adverb to kernel"] {
        let told = part(name);
        assert!(told.contains("client 0, server 0"), "{told}");
        // The last line of data, of both sides.
        assert_eq!(told.matches("rdma-ping-4: EFGHIJKLMN").count(), 2, "{told}");
    }
    for name in ["datagrams, kernel to adverb", "datagrams, adverb to kernel"] {
        let told = part(name);
        assert!(told.contains("client 0, server 0"), "{told}");
        assert_eq!(told.matches("return status 0").count(), 2, "{told}");
    }
    for name in ["rsockets, kernel to adverb", "rsockets, adverb to kernel"] {
        let told = part(name);
        assert!(told.contains("client 0, server 0"), "{told}");
        // One row of each side, which has verified the bytes.
        assert_eq!(told.matches(" 68k ").count(), 2, "{told}");
    }
    for line in [
        "devices: adverb0 rxe0",
        "devices that are ours: adverb0",
        "ports: 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    for name in ["real device, RC", "real device, SRQ", "real device, UD"] {
        let told = part(name);
        assert!(told.contains("client 0, server 0"), "{told}");
        assert_eq!(told.matches("50 iters in").count(), 2, "{told}");
    }
    for name in ["adverb refuses", "the kernel refuses"] {
        let told = part(name);
        assert!(told.contains("RDMA_CM_EVENT_REJECTED, error 8"), "{told}");
    }
}
