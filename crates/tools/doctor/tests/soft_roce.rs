//! A machine with an RDMA device: Soft-RoCE, in a virtual machine. Checks the findings for its initial state
//! and after each of the usual mistakes.
//!
//! This program is its own guest: as `/init`, and with the argument `examine`, which prints the
//! findings about `rxe0` as JSON.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use adverb_doctor::{Machine, Process, Scope, examine};
use adverb_vm::{Lab, LabSpec, Program, missing};
use serde_json::Value;

const EXAMINE: &str = "examine";

fn main() -> ExitCode {
    let mut args = std::env::args();
    let name = args.next().unwrap_or_default();
    if name.rsplit('/').next() == Some(adverb_vm::INIT_NAME) {
        return adverb_vm::run_init();
    }
    match args.next().as_deref() {
        Some(EXAMINE) => print_findings(),
        // The harness that cargo and its friends expect: one test, which they do not see.
        Some("--list") => {}
        _ => drive(),
    }
    ExitCode::SUCCESS
}

fn print_findings() {
    let machine = Machine::gather(Path::new("/"), Process::this()).unwrap();
    let findings = examine(&machine, &Scope::Verbs("rxe0".to_owned())).unwrap();
    println!("{}", serde_json::to_string(&findings).unwrap());
}

fn drive() {
    let mut needs: Vec<String> = missing().iter().map(ToString::to_string).collect();
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&dirs).any(|dir| dir.join("ibv_devinfo").is_file()) {
        needs.push("ibverbs-utils (the driver's MTU)".to_owned());
    }
    if !needs.is_empty() {
        let needs = needs.join(", ");
        let _ = writeln!(
            std::io::stderr(),
            "\nNOT RUN: the doctor on Soft-RoCE: needs the packages {needs}"
        );
        return;
    }
    let me = std::env::current_exe().unwrap();
    let lab = LabSpec::one().init(&me).boot().unwrap();
    let guest = Guest {
        lab,
        me: me.to_string_lossy().into_owned(),
    };
    guest.as_it_comes();
    guest.path_mtus_are_those_of_the_driver();
    guest.mistakes();
    println!("test the doctor on Soft-RoCE ... ok");
}

struct Guest {
    lab: Lab,
    me: String,
}

impl Guest {
    fn run(&self, command: &str) -> String {
        let program = Program::new("sh").args(["-c", command]);
        let output = self.lab.machine(0).run(&program).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.success(), "{command}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Verdict and finding of a check.
    fn says(&self, id: &str) -> String {
        let text = self.run(&format!("{} {EXAMINE}", self.me));
        let findings: Vec<Value> = serde_json::from_str(&text).unwrap();
        let finding = findings.iter().find(|finding| finding["id"] == id);
        let finding = finding.unwrap_or_else(|| panic!("no {id} in {text}"));
        let word = |field| finding[field].as_str().unwrap();
        format!("{}: {}", word("verdict"), word("found"))
    }

    #[track_caller]
    fn expect(&self, id: &str, said: &str) {
        assert_eq!(self.says(id), said, "{id}");
    }

    fn as_it_comes(&self) {
        self.expect("verbs-module", "ok: ib_uverbs is loaded");
        self.expect("provider", "ok: rxe for driver rdma_rxe");
        self.expect("device-file", "ok: /dev/infiniband/uverbs0 can be opened");
        self.expect("software-device", "note: Soft-RoCE");
        self.expect("gid", "ok: index 1, RoCE v2, 10.77.0.1");
        assert!(
            self.says("port-state")
                .starts_with("ok: ACTIVE, Ethernet, ")
        );
    }

    /// Where the driver changes to the next one, by what it says itself.
    fn path_mtus_are_those_of_the_driver(&self) {
        for mtu in [1103, 1104, 1500, 2127, 2128, 4175, 4176, 4200] {
            self.run(&format!("ip link set eth0 mtu {mtu}"));
            let attributes = self.run("ibv_devinfo -d rxe0");
            let active = attributes
                .lines()
                .find_map(|line| line.trim().strip_prefix("active_mtu:"));
            let active = active.unwrap_or_else(|| panic!("no MTU in {attributes}"));
            let path = active.split_whitespace().next().unwrap();
            let said = self.says("mtu");
            let expected = format!("{mtu} B on eth0: path MTU {path} B");
            assert!(said.ends_with(&expected), "{said}, not {expected}");
        }
        self.run("ip link set eth0 mtu 1500");
    }

    fn mistakes(&self) {
        self.run("ip address flush dev eth0 scope global");
        self.expect(
            "gid",
            "warning: link-local only: no IP address on the interface",
        );
        self.run("ip link set eth0 down");
        self.expect("port-state", "broken: DOWN, Ethernet: eth0 is switched off");
        self.run("ip link set eth0 up");
        self.run("ip address add 192.168.90.1/24 dev eth0");
        self.expect("gid", "ok: index 1, RoCE v2, 192.168.90.1");
        self.run("rm /dev/infiniband/uverbs0");
        self.expect("device-file", "broken: no /dev/infiniband/uverbs0");
        self.run("rm /dev/infiniband/rdma_cm");
        self.expect("connection-manager", "warning: no /dev/infiniband/rdma_cm");
    }
}
