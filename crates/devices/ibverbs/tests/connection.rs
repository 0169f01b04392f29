//! Connections through librdmacm, on Soft-RoCE in a virtual machine: made, and refused by name.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use adverb_ibverbs::{Connecting, VerbsContext, VerbsCq, VerbsDevice, VerbsQp};
use adverb_units::Span;
use adverb_verbs::{
    AccessFlags, ConnectError, Connection, Context, Device, Endpoint, PathMtu, PathOptions, Psn,
    QpAttr, QpCaps, QpInit, QpState, QpType, QueuePair, TrafficClass,
};
use adverb_vm::{Ending, LabSpec, Program, missing};

/// The argument that makes this program check instead of booting a machine.
const INSIDE: &str = "--inside";
const LIBRARY: &str = "librdmacm.so.1";

fn main() -> ExitCode {
    let mut args = std::env::args();
    let first = args.next().unwrap_or_default();
    if first.rsplit('/').next() == Some(adverb_vm::INIT_NAME) {
        return adverb_vm::run_init();
    }
    let args: Vec<String> = args.collect();
    if args.iter().any(|arg| arg == INSIDE) {
        inside();
        return ExitCode::SUCCESS;
    }
    let filters: Vec<_> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let wanted = filters.is_empty() || filters.iter().any(|f| "connection".contains(f.as_str()));
    if args.iter().any(|arg| arg == "--list") || !wanted {
        return ExitCode::SUCCESS;
    }
    in_a_machine()
}

fn in_a_machine() -> ExitCode {
    let mut needs: Vec<_> = missing().iter().map(ToString::to_string).collect();
    if library().is_none() {
        needs.push("librdmacm1".into());
    }
    if !needs.is_empty() {
        let _ = writeln!(
            std::io::stderr(),
            "\nNOT RUN: connections through librdmacm on Soft-RoCE: needs the packages {}",
            needs.join(", ")
        );
        return ExitCode::SUCCESS;
    }
    let me = std::env::current_exe().expect("the running program has a path");
    let lab = LabSpec::one().init(&me).boot();
    let lab = lab.unwrap_or_else(|e| panic!("cannot boot a virtual machine: {e}"));
    let program = Program::new(me.to_string_lossy()).args([INSIDE]);
    let output = lab.machine(0).run(&program.limit(Span::from_secs(120)));
    let output = output.unwrap_or_else(|e| panic!("the virtual machine failed: {e}"));
    for text in [&output.stdout, &output.stderr] {
        print!("{}", String::from_utf8_lossy(text));
    }
    ExitCode::from(u8::from(output.ending != Ending::Exited(0)))
}

/// Where this host's loader finds the library, in the folders of Debian and Fedora.
fn library() -> Option<PathBuf> {
    [
        "/usr/lib/x86_64-linux-gnu",
        "/lib/x86_64-linux-gnu",
        "/usr/lib64",
    ]
    .iter()
    .map(|folder| Path::new(folder).join(LIBRARY))
    .find(|path| path.is_file())
}

/// A queue pair in INIT, with its objects.
struct End {
    context: VerbsContext,
    qp: VerbsQp,
    _cq: VerbsCq,
}

impl End {
    fn new(device: &str, connecting: Connecting) -> Self {
        let device: VerbsDevice = device.parse().expect("a name");
        let context = device.with_connecting(connecting).open();
        let context = context.unwrap_or_else(|e| panic!("{e}"));
        let pd = context.alloc_pd().expect("a protection domain");
        let cq = context.create_cq(16, None).expect("a completion queue");
        let init = QpInit::new(QpType::Rc, &cq, QpCaps::new(4, 4));
        let qp = context.create_qp(&pd, &init).expect("a queue pair");
        let to_init = QpAttr::to_init(context.port_num(), AccessFlags::LOCAL_WRITE);
        qp.modify(&to_init).expect("INIT");
        End {
            context,
            qp,
            _cq: cq,
        }
    }

    fn managed() -> Self {
        End::new("rxe0", Connecting::Manager)
    }

    fn endpoint(&self, cm: Option<SocketAddr>) -> Endpoint {
        let port_num = self.context.port_num();
        let port = self.context.port(port_num).expect("a port");
        Endpoint {
            qpn: self.qp.qpn(),
            psn: Psn::new(7),
            gid: port.gid,
            lid: port.lid,
            port: port_num,
            cm,
        }
    }

    /// Listens; returns what its peer is to know.
    fn listening(&self) -> Endpoint {
        let address = self.qp.listen().unwrap_or_else(|e| panic!("{e}"));
        assert!(address.is_some_and(|a| a.port() != 0), "{address:?}");
        self.endpoint(address)
    }

    fn connect(&self, local: Endpoint, remote: Endpoint) -> Result<(), ConnectError> {
        self.qp.connect(&Connection {
            local,
            remote,
            path_mtu: PathMtu::B1024,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            options: PathOptions {
                traffic_class: Some(TrafficClass(8)),
                ..PathOptions::default()
            },
        })
    }
}

fn inside() {
    for (name, check) in [
        ("both sides reach RTS", reaches_rts as fn()),
        ("a new pair connects after the last one is gone", again),
        ("a GID that was named connects, too", named_gid),
        ("no listener is a rejection with its reason", no_listener),
        ("a stranger is rejected, the peer still served", stranger),
        ("no route to another network, with both addresses", no_way),
        ("a peer without connection manager is reported", mixed),
        ("the wait for a missing peer times out", nobody),
    ] {
        check();
        println!("connection: {name}: ok");
    }
}

fn pair(active: &End, passive: &End) {
    let waits = passive.listening();
    let comes = active.endpoint(None);
    let (went, came) = thread::scope(|scope| {
        let came = scope.spawn(|| passive.connect(waits, comes));
        (active.connect(comes, waits), came.join().expect("no panic"))
    });
    went.unwrap_or_else(|e| panic!("active: {e}"));
    came.unwrap_or_else(|e| panic!("passive: {e}"));
    for end in [active, passive] {
        assert_eq!(end.qp.state(), QpState::Rts);
    }
}

fn reaches_rts() {
    pair(&End::managed(), &End::managed());
    let said = End::managed().context.provenance();
    assert!(said.contains(&("connected by".into(), "librdmacm".into())));
}

fn again() {
    for _ in 0..10 {
        pair(&End::managed(), &End::managed());
    }
}

fn named_gid() {
    let end = || End::new("rxe0:1:1", Connecting::Manager);
    pair(&end(), &end());
}

fn no_listener() {
    let (active, gone) = (End::managed(), End::managed());
    let remote = gone.listening();
    drop(gone);
    let refused = active.connect(active.endpoint(None), remote).unwrap_err();
    let words = refused.to_string();
    assert!(
        words.starts_with("the peer at 10.77.0.1:") && words.contains("nothing listens there"),
        "{words}"
    );
}

fn stranger() {
    let (active, passive, stranger) = (End::managed(), End::managed(), End::managed());
    let waits = passive.listening();
    let comes = active.endpoint(None);
    thread::scope(|scope| {
        let came = scope.spawn(|| passive.connect(waits, comes));
        let refused = stranger.connect(stranger.endpoint(None), waits);
        let words = refused.unwrap_err().to_string();
        assert!(words.contains("rejected by its program"), "{words}");
        active.connect(comes, waits).expect("the peer is served");
        came.join().expect("no panic").expect("the peer came");
    });
}

fn no_way() {
    let active = End::managed();
    let far = "192.0.2.1:18515".parse().expect("an address");
    let refused = active.connect(active.endpoint(None), active.endpoint(Some(far)));
    let words = refused.unwrap_err().to_string();
    assert!(
        words.starts_with("no route from 10.77.0.1:0 to 192.0.2.1:18515: "),
        "{words}"
    );
}

fn mixed() {
    let (managed, hand) = (End::managed(), End::new("rxe0", Connecting::ByHand));
    assert_eq!(hand.qp.listen().expect("nothing to do"), None);
    let refused = managed.connect(managed.endpoint(None), hand.endpoint(None));
    assert!(matches!(refused, Err(ConnectError::OnlyThisManaged)));
    let refused = hand.connect(hand.endpoint(None), managed.listening());
    assert!(matches!(refused, Err(ConnectError::OnlyPeerManaged { .. })));
}

fn nobody() {
    let (passive, absent) = (End::managed(), End::managed());
    let waits = passive.listening();
    let refused = passive.connect(waits, absent.endpoint(None)).unwrap_err();
    assert!(
        matches!(refused, ConnectError::TimedOut { .. }),
        "{refused}"
    );
}
