//! `adverb store`.

use std::net::SocketAddr;
use std::sync::Arc;

use adverb_cached::{Rdma, Server, Shared};
use adverb_launch::{DeviceChoice, Interrupt, Usage};
use adverb_measure::JobCell;
use adverb_patterns::Job;
use adverb_patterns::store::attach::ACCESS;
use adverb_patterns::store::cache::Limits;
use adverb_patterns::store::{MAX_VALUE, Store};
use adverb_softnic::{SoftContext, SoftDevice};
use adverb_units::Bytes;
use adverb_verbs::{Context, Device, NumaPlacement};
use adverb_workload::pattern::Timing;
use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::rand::{GetRandomFlags, getrandom};

use super::check::check_memory;
use super::loops::{independent_load, of_independent};
use super::result::Rows;
use super::start::{Setting, measure_as};
use super::words::counted;
use crate::args::{StoreArgs, StoreLoadArgs, StoreServeArgs};
use crate::terminal;

/// Most clients of RDMA of a server.
const MOST_RDMA: u32 = 1024;

/// `adverb store`.
pub(crate) fn store(points: &[StoreArgs]) -> anyhow::Result<()> {
    let load = &points[0].load;
    let setting = Setting::new(&load.on, load.repetitions);
    let cells = points.iter().map(|args| cell(&args.load));
    measure_as(cells, &setting, Rows::of_requests).map(drop)
}

fn cell(args: &StoreLoadArgs) -> Result<JobCell, Usage> {
    let most = Bytes::new(MAX_VALUE.into());
    let value = args.value.get();
    if !(1..=most.get()).contains(&value) {
        return Err(Usage(format!(
            "--value {}: expected 1 B to {most}",
            args.value
        )));
    }
    check_memory("this store", &[args.memory.get()])?;
    check_memory("these items", &[args.items, 64])?;
    let connections = u64::from(args.clients) * u64::from(args.connections);
    check_memory("these connections", &[connections, value + 1024])?;
    let server = args.server;
    if let (Some(server), DeviceChoice::Model(_)) = (server, args.on.device.choice()) {
        let reason = format!("--server {server}: a model runs in virtual time, a server does not");
        return Err(Usage(reason));
    }
    if let Some(server) = server {
        refuse_placed_server(server, args)?;
    }
    let numa = &args.numa;
    let threads = numa.numa_server.unwrap_or_default();
    let store = Store {
        server,
        workers: args.workers,
        memory: args.memory,
        items: args.items,
        value: value as u32,
        put_ratio: args.put,
        clients: args.clients,
        machines: args.machines(),
        connections: args.connections,
        requests: args.requests,
        timing: Timing::Each,
        numa_client: numa.numa_client.unwrap_or_default(),
        numa_server: NumaPlacement {
            threads,
            memory: numa.numa_memory.unwrap_or(threads),
        },
        load: independent_load(&args.load)?,
        seed: 1,
        path: args.on.path.options()?,
    };
    let whose = server.map_or_else(String::new, |server| format!(" of {server}"));
    let workers = match args.workers {
        1 => String::new(),
        n => format!(", {n} workers"),
    };
    let title = format!(
        "{}{whose} with {}, {} a connection, values of {}{workers}{}",
        counted(args.clients, "client"),
        counted(args.connections, "connection"),
        args.requests,
        args.value,
        of_independent(store.load),
    );
    let params = store.parameters();
    Ok(JobCell::new("store", &params, title, Job::Store(store)))
}

/// Refuses to place, load or size a server that is running elsewhere.
fn refuse_placed_server(server: SocketAddr, args: &StoreLoadArgs) -> Result<(), Usage> {
    let given = [
        (args.numa.numa_server.is_some(), "--numa-server"),
        (args.numa.numa_memory.is_some(), "--numa-memory"),
        (args.load.load > 0, "--load"),
        (args.workers > 1, "--workers"),
    ];
    match given.into_iter().find(|(given, _)| *given) {
        None => Ok(()),
        Some((_, flag)) => Err(Usage(format!(
            "{flag}: the server at {server} is running, and nothing here changes it; leave it out"
        ))),
    }
}

/// `adverb store serve`.
pub(crate) fn serve_store(args: &StoreServeArgs) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    check_memory("this store", &[args.memory.get()])?;
    for (option, given, least) in [
        ("--memory", args.memory, Bytes::new(64)),
        ("--max-value", args.max_value, Bytes::new(1)),
    ] {
        if given < least {
            return Err(Usage(format!("{option} {given}: expected at least {least}")).into());
        }
    }
    let limits = Limits {
        memory: args.memory,
        max_value: args.max_value.min(args.memory),
        evicts: !args.no_evict,
    };
    let context = SoftDevice::new().open()?;
    let pd = context.alloc_pd()?;
    let clients = args.connections.min(MOST_RDMA);
    let region = Rdma::<SoftContext>::region(args.memory, clients);
    let region = context.alloc_mr(&pd, region, ACCESS)?;
    let mut secret = [0; 8];
    getrandom(&mut secret[..], GetRandomFlags::empty())?;
    let secret = u64::from_ne_bytes(secret);
    let rdma = Rdma::new(context, pd, (args.memory, clients, args.threads), secret)?;
    let shared = Arc::new(Shared::new(limits, region, Some(rdma)));
    let limits = (args.threads, args.connections);
    let server = Server::bind(args.listen, limits, shared)?;
    let address = server.address()?;
    terminal::say(&format!(
        "listening at {address}, {} for values",
        args.memory
    ));
    let stop = server.stop();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            while !interrupt.raised() {
                // An error means EINTR: a signal has arrived.
                let _ = poll(
                    &mut [PollFd::from_borrowed_fd(interrupt.fd(), PollFlags::IN)],
                    None,
                );
            }
            stop.stop();
        })
        .context("cannot start a thread")?;
    Ok(server.run()?)
}
