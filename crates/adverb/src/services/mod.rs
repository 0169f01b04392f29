//! `adverb sequencer`, `kv`, `rpc`, `closed-loop`, `open-loop`, `connect`, `mcast` and others: programs of several members.

mod check;
mod connect;
mod loops;
mod mcast;
mod result;
mod rpc;
mod start;
mod store;
mod sync;
mod wan;
mod words;

use adverb_launch::{DeviceChoice, Usage};
use adverb_measure::JobCell;
use adverb_patterns::{
    Clients, Echo, Items, Job, MAX_BATCH, OneSided, OneSidedClients, Puts, RD_ATOMIC, Remote,
    RequestBy, Rpc, Service, Serving, StoreLoad,
};
use adverb_units::Bytes;
use adverb_verbs::Level;
use adverb_workload::pattern::Timing;

use crate::args::{
    ClientArgs, KvArgs, KvBy, KvPuts, PostingArgs, SequencerArgs, SequencerBy, ServerArgs,
};
use check::{
    AS_OUTSTANDING, check_by_rpc, check_cores, check_counts, check_duration, check_memory,
    check_store, passive, posting,
};
pub(crate) use connect::connect;
pub(crate) use loops::loops;
pub(crate) use mcast::mcast;
pub(crate) use rpc::{queue_pair, rpc, why_not};
pub(crate) use start::{NO_NOISE, Setting, measure_as};
use start::{measure, schedule};
pub(crate) use store::{serve_store, store};
pub(crate) use sync::sync;
pub(crate) use wan::{fetch, interference, overlap, rendezvous};
use words::{counted, word, words_of_one_sided, words_of_served};

/// Maximum size of values and records in bytes.
const MAX_VALUE: u64 = 4096;
/// One in this many answers on a queue pair asks for a completion.
const SIGNALED_EVERY: u32 = 64;

/// `adverb sequencer`.
pub(crate) fn sequencer(points: &[SequencerArgs]) -> anyhow::Result<()> {
    measure(points.iter().map(sequencer_cell), &points[0].clients)
}

/// `adverb kv`.
pub(crate) fn kv(points: &[KvArgs]) -> anyhow::Result<()> {
    measure(points.iter().map(kv_cell), &points[0].clients)
}

fn sequencer_cell(args: &SequencerArgs) -> Result<JobCell, Usage> {
    let clients = &args.clients;
    let device = clients.on.device.choice();
    let by = args.by.unwrap_or(match device {
        DeviceChoice::Tcp(_) => SequencerBy::Tcp,
        _ => SequencerBy::Rpc,
    });
    if let Some(why) = refusal(by == SequencerBy::Tcp, &device) {
        return Err(Usage(format!("--by {}: {why}", word(&by))));
    }
    let request_by = match by {
        SequencerBy::Tcp => return over_tcp(&args.server, clients),
        SequencerBy::Rpc => RequestBy::Write,
        SequencerBy::RpcImm => RequestBy::HeaderOnly,
        SequencerBy::Atomics => {
            passive(&args.server, "--by rpc")?;
            return onesided(Remote::Counter, args.server.posting, clients);
        }
    };
    let service = Service::Sequencer(request_by);
    served(service, &args.server, clients)
}

/// Returns why a device cannot answer over TCP, or by queue pairs; `None` if it can.
fn refusal(is_over_tcp: bool, device: &DeviceChoice) -> Option<&'static str> {
    match (is_over_tcp, device) {
        (true, DeviceChoice::Tcp(_) | DeviceChoice::Model(_)) => None,
        (true, _) => Some("an RDMA device has no sockets; name --device tcp"),
        (false, DeviceChoice::Tcp(_)) => Some("TCP has no queue pairs; leave out --by"),
        (false, _) => None,
    }
}

/// Returns a cell for a sequencer over TCP.
fn over_tcp(server: &ServerArgs, clients: &ClientArgs) -> Result<JobCell, Usage> {
    if let Some(flag) = server.posting.typed() {
        let reason = "over TCP a core sends all answers that it has for a client by one call";
        return Err(Usage(format!("{flag}: {reason}; leave it out")));
    }
    check_duration(&clients.runs)?;
    check_cores(server.cores, clients.clients)?;
    let echo = Echo {
        path: clients.on.path.options()?,
        ..Echo::sequencer(server.cores, asking(clients, server.rate))
    };
    let (name, params) = echo.parameters(server.rate);
    let title = format!(
        "over TCP, {}, {} with {} outstanding",
        counted(server.cores, "server core"),
        counted(clients.clients, "client"),
        clients.outstanding
    );
    let job = Job::Echo(echo, schedule(clients));
    Ok(JobCell::new(name, &params, title, job))
}

/// Returns the clients of a service; `rate` are the requests per second that all of them offer.
fn asking(args: &ClientArgs, rate: Option<f64>) -> Clients {
    Clients::new([args.clients, args.machines(), args.outstanding], rate)
}

fn kv_cell(args: &KvArgs) -> Result<JobCell, Usage> {
    if !(1..=MAX_VALUE).contains(&args.value.get()) {
        let (given, max) = (args.value, Bytes::new(MAX_VALUE));
        return Err(Usage(format!("--value {given}: expected 1 B to {max}")));
    }
    let value = args.value.get() as u32;
    let clients = &args.clients;
    match args.by {
        KvBy::Rpc => {
            check_by_rpc(args)?;
            let service = Service::Store(StoreLoad {
                items: args.items,
                level: Level::Memory,
                value,
                put_ratio: args.put,
            });
            served(service, &args.server, clients)
        }
        KvBy::Memory => {
            let puts = puts(args, value)?;
            let cores: u32 = match puts {
                Puts::Lock => 1,
                Puts::Ask { cores, .. } => cores,
            };
            let reads = args.reads.unwrap_or(1);
            let item = u64::from(value.next_multiple_of(64)) * u64::from(reads) + 64;
            check_memory("these items", &[args.items, item, cores.into()])?;
            let each = u64::from(clients.outstanding) * u64::from(args.server.posting.qps());
            let buffers = [each, clients.clients.into(), value.into()];
            check_memory("these records", &buffers)?;
            let remote = Remote::Items(Items {
                items: args.items,
                records: vec![value; reads as usize],
                mean_reads: reads.into(),
                put_ratio: args.put,
                puts,
            });
            onesided(remote, args.server.posting, clients)
        }
    }
}

/// Returns how PUTs change items that clients READ.
fn puts(args: &KvArgs, value: u32) -> Result<Puts, Usage> {
    match args.puts {
        None | Some(KvPuts::Lock) => {
            passive(&args.server, "--by rpc and --puts ask")?;
            Ok(Puts::Lock)
        }
        Some(KvPuts::Ask) => {
            if args.server.rate.is_some() {
                let reason =
                    "--rate is for --by rpc: here a client sends its next request after the answer";
                return Err(Usage(reason.to_owned()));
            }
            let cores = args.server.cores;
            check_cores(cores, args.clients.clients)?;
            Ok(Puts::Ask { cores, value })
        }
    }
}

/// Returns a cell for a service of server cores.
fn served(service: Service, server: &ServerArgs, clients: &ClientArgs) -> Result<JobCell, Usage> {
    check_counts(clients, server.posting)?;
    check_cores(server.cores, clients.clients)?;
    if let Service::Store(store) = service {
        check_store(&store, server, clients)?;
    }
    let posting = posting(
        server.posting,
        MAX_BATCH,
        "the number of requests that a core takes at once",
    )?;
    let rpc = Rpc {
        service,
        serving: Serving {
            cores: server.cores,
            qps_per_port: server.posting.qps(),
            posting,
            signaled_every: SIGNALED_EVERY,
        },
        clients: asking(clients, server.rate),
        path: clients.on.path.options()?,
    };
    let (name, params) = rpc.parameters(server.rate);
    let server_cores = counted(server.cores, "server core");
    let title = words_of_served(posting, server.posting.qps(), clients);
    let way = match service {
        Service::Sequencer(RequestBy::HeaderOnly) => "by RPC with immediate data",
        Service::Sequencer(RequestBy::Write) | Service::Store(_) => "by RPC",
    };
    let title = format!("{way}, {server_cores}, {title}");
    let job = Job::Rpc(rpc, schedule(clients));
    Ok(JobCell::new(name, &params, title, job))
}

/// Returns a cell for a service in memory that clients access with one-sided operations.
fn onesided(remote: Remote, posts: PostingArgs, clients: &ClientArgs) -> Result<JobCell, Usage> {
    check_counts(clients, posts)?;
    let posting = posting(posts, clients.outstanding, AS_OUTSTANDING)?;
    let program = OneSided {
        remote,
        clients: OneSidedClients {
            threads: clients.clients,
            machines: clients.machines(),
            qps: posts.qps(),
            outstanding: clients.outstanding,
            posting,
            rd_atomic: RD_ATOMIC,
            timing: Timing::Each,
            seed: 1,
        },
        path: clients.on.path.options()?,
    };
    let (name, params) = program.parameters();
    let mut who = "without a server's CPU".to_owned();
    if let Remote::Items(items) = &program.remote
        && let Puts::Ask { cores, .. } = items.puts
    {
        who = format!("PUTs by {}", counted(cores, "server core"));
    }
    let title = format!(
        "{who}, {}",
        words_of_one_sided(posting, posts.qps(), clients)
    );
    let job = Job::OneSided(program, schedule(clients));
    Ok(JobCell::new(name, &params, title, job))
}
