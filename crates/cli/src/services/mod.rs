//! `adverb sequencer`, `adverb kv` and `adverb closed-loop`: programs of several members.

mod check;
mod closed_loop;
mod result;
mod start;
mod words;

use adverb_launch::{DeviceChoice, Usage};
use adverb_patterns::{
    Asking, Clients, Handed, Items, Job, MAX_BATCH, OneSided, OneSidedClients, Pace, Posting, Puts,
    Remote, Rpc, RpcPart, Service, ServiceTally, Serving, StoreLoad, Timing,
};
use adverb_units::{Bytes, Span};
use adverb_verbs::{Level, PathOptions, RoleId};
use anyhow::bail;
use serde_json::{Value, json};

use crate::VERSION;
use crate::args::{
    ClientArgs, KvArgs, KvBy, KvPuts, PostingArgs, SequencerArgs, SequencerBy, ServerArgs,
};
use check::{
    AS_OUTSTANDING, check_by_rpc, check_cores, check_counts, check_memory, check_store, passive,
    posting,
};
pub(crate) use closed_loop::closed_loop;
use result::{Checked, Figures, Waiting, together};
use start::{machines, run, schedule, services};
use words::{counted, with_common, word, words};

/// Values and records of up to so many bytes.
const MAX_VALUE: u64 = 4096;
/// One answer of so many on a queue pair asks for a completion.
const SIGNALED_EVERY: u32 = 64;
/// READs and atomics of one queue pair on the wire.
const RD_ATOMIC: u8 = 16;

/// `adverb sequencer`.
pub(crate) fn sequencer(args: &SequencerArgs) -> anyhow::Result<()> {
    let (name, clients) = ("sequencer", &args.clients);
    let params = json!({ "by": word(&args.by) });
    match args.by {
        SequencerBy::Rpc => {
            let service = Service::Sequencer(Asking::Write);
            served(name, params, service, &args.server, clients)
        }
        SequencerBy::RpcImm => {
            let service = Service::Sequencer(Asking::HeaderOnly);
            served(name, params, service, &args.server, clients)
        }
        SequencerBy::Atomics => {
            passive(&args.server, "--by rpc")?;
            onesided(name, params, Remote::Counter, args.server.posting, clients)
        }
    }
}

/// `adverb kv`.
pub(crate) fn kv(args: &KvArgs) -> anyhow::Result<()> {
    if args.value.get() > MAX_VALUE {
        let (given, max) = (args.value, Bytes::new(MAX_VALUE));
        return Err(Usage(format!("values of {given}: at most {max} are possible")).into());
    }
    let value = args.value.get() as u32;
    let (name, clients) = ("kv", &args.clients);
    let mut params = json!({
        "by": word(&args.by), "value_bytes": value, "put_ratio": args.put, "items": args.items,
    });
    match args.by {
        KvBy::Rpc => {
            check_by_rpc(args)?;
            let service = Service::Store(StoreLoad {
                items: args.items,
                level: Level::Memory,
                value,
                put_ratio: args.put,
            });
            served(name, params, service, &args.server, clients)
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
            let each = u64::from(clients.outstanding) * u64::from(args.server.posting.qps);
            let buffers = [each, clients.clients.into(), value.into()];
            check_memory("these records", &buffers)?;
            params["reads"] = reads.into();
            params["puts"] = word(&args.puts.unwrap_or(KvPuts::Lock)).into();
            let remote = Remote::Items(Items {
                items: args.items,
                records: vec![value; reads as usize],
                mean_reads: reads.into(),
                put_ratio: args.put,
                puts,
            });
            onesided(name, params, remote, args.server.posting, clients)
        }
    }
}

/// How items are changed that clients READ.
fn puts(args: &KvArgs, value: u32) -> anyhow::Result<Puts> {
    match args.puts {
        None | Some(KvPuts::Lock) => {
            passive(&args.server, "--by rpc and --puts ask")?;
            Ok(Puts::Lock)
        }
        Some(KvPuts::Ask) => {
            if args.server.rate.is_some() {
                let reason =
                    "--rate is for --by rpc: here a client asks again when it was answered";
                return Err(Usage(reason.to_owned()).into());
            }
            let cores = args.server.cores;
            check_cores(cores, args.clients.clients)?;
            Ok(Puts::Ask { cores, value })
        }
    }
}

/// A service of server cores.
fn served(
    name: &'static str,
    mut params: Value,
    service: Service,
    server: &ServerArgs,
    clients: &ClientArgs,
) -> anyhow::Result<()> {
    check_counts(clients, server.posting)?;
    check_cores(server.cores, clients.clients)?;
    if let Service::Store(store) = service {
        check_store(&store, server, clients)?;
    }
    let posting = posting(
        server.posting,
        MAX_BATCH,
        "as many as a core takes at a time",
    )?;
    let pace = match server.rate {
        Some(rate) => Pace::Open(Span::from_secs_f64(f64::from(clients.clients) / rate)),
        None => Pace::Closed,
    };
    let rpc = Rpc {
        service,
        serving: Serving {
            cores: server.cores,
            qps_per_core: server.posting.qps,
            posting,
            signaled_every: SIGNALED_EVERY,
        },
        clients: Clients {
            threads: clients.clients,
            machines: machines(clients),
            outstanding: clients.outstanding,
            pace,
            timing: Timing::Each,
            seed: 1,
        },
        path: PathOptions::default(),
    };
    let tallies = services(run(clients, &Job::Rpc(rpc.clone(), schedule(clients)))?);
    let (cores, others) = tallies.split_at(server.cores as usize);
    debug_assert_eq!(rpc.part(RoleId(server.cores)), RpcPart::Client(0));
    params["server_cores"] = server.cores.into();
    params["offered_per_s"] = server.rate.into();
    let answers: u64 = cores.iter().map(|tally| tally.requests).sum();
    let posts: u64 = cores.iter().map(|tally| tally.posts).sum();
    let mut figures = figures(name, params, (posting, server.posting.qps), clients, others);
    figures.requests_per_s = together(cores.iter().filter_map(ServiceTally::per_second));
    figures.batch_mean = (posts > 0).then(|| answers as f64 / posts as f64);
    let server_cores = counted(server.cores, "server core");
    figures.title = format!("by RPC, {server_cores}, {}", figures.title);
    figures.checked = match service {
        Service::Sequencer(_) => {
            let handed_out = cores.iter().map(|core| core.handed_out).max();
            numbers(others, handed_out)?
        }
        Service::Store(_) => values(others),
    };
    figures.print(clients.format)
}

/// A service in memory that clients reach by themselves.
fn onesided(
    name: &'static str,
    params: Value,
    remote: Remote,
    posts: PostingArgs,
    clients: &ClientArgs,
) -> anyhow::Result<()> {
    check_counts(clients, posts)?;
    let posting = posting(posts, clients.outstanding, AS_OUTSTANDING)?;
    let program = OneSided {
        remote,
        clients: OneSidedClients {
            threads: clients.clients,
            machines: machines(clients),
            qps: posts.qps,
            outstanding: clients.outstanding,
            posting,
            rd_atomic: RD_ATOMIC,
            timing: Timing::Each,
            seed: 1,
        },
        path: PathOptions::default(),
    };
    let job = Job::OneSided(program.clone(), schedule(clients));
    let tallies = services(run(clients, &job)?);
    let (owners, others) = tallies.split_at(program.owners() as usize);
    let mut figures = figures(name, params, (posting, posts.qps), clients, others);
    let puts = match &program.remote {
        Remote::Items(items) => items.puts,
        Remote::Counter => Puts::Lock,
    };
    let who = match puts {
        Puts::Lock => "without a server's CPU".to_owned(),
        Puts::Ask { cores, .. } => format!("PUTs by {}", counted(cores, "server core")),
    };
    figures.title = format!("{who}, {}", figures.title);
    figures.checked = match program.remote {
        Remote::Counter => numbers(others, None)?,
        Remote::Items(_) => changes(owners, others, puts)?,
    };
    if let Puts::Ask { cores, .. } = puts {
        figures.params["server_cores"] = cores.into();
    }
    figures.print(clients.format)
}

/// Values, and how often items were changed, if clients and memory agree on that.
fn changes(
    owners: &[ServiceTally],
    clients: &[ServiceTally],
    puts: Puts,
) -> anyhow::Result<Checked> {
    let count = |tallies: &[ServiceTally]| tallies.iter().map(|tally| tally.locked).sum::<u64>();
    let (done, found) = (count(clients), count(owners));
    if done != found {
        bail!("clients changed items {done} times, memory says {found} times");
    }
    let some = Some(done).filter(|done| *done > 0);
    Ok(match puts {
        Puts::Lock => Checked {
            locks: some,
            ..values(clients)
        },
        Puts::Ask { .. } => Checked {
            puts: some,
            ..values(clients)
        },
    })
}

fn duration(args: &ClientArgs) -> Span {
    args.duration.unwrap_or(match args.device.choice() {
        DeviceChoice::Model(_) => Span::from_ms(1),
        DeviceChoice::Soft(_) | DeviceChoice::Verbs(_) => Span::from_secs(1),
    })
}

/// What the clients saw.
fn figures(
    program: &'static str,
    params: Value,
    (posting, qps): (Posting, u32),
    args: &ClientArgs,
    clients: &[ServiceTally],
) -> Figures {
    Figures {
        program,
        device: args.device.choice().reference(),
        adverb: VERSION,
        params: with_common(params, posting, qps, args),
        requests: clients.iter().map(|tally| tally.requests).sum(),
        elapsed_ns: duration(args).as_ns_f64(),
        requests_per_s: together(clients.iter().filter_map(ServiceTally::per_second)),
        batch_mean: None,
        waiting_ns: Waiting::of(clients.iter().filter_map(|tally| tally.waits.as_ref())),
        checked: Checked::default(),
        title: words(posting, qps, args),
    }
}

/// All numbers, if each was handed out exactly once.
fn numbers(clients: &[ServiceTally], handed_out: Option<u64>) -> anyhow::Result<Checked> {
    let mut all = Handed::default();
    clients.iter().for_each(|tally| all.merge(tally.handed));
    if handed_out.is_some_and(|count| count != all.count) || !all.is_exactly_once_from(0) {
        bail!(
            "a number was handed out twice or never, among {}",
            all.count
        );
    }
    Ok(Checked {
        numbers: Some(all.count),
        ..Checked::default()
    })
}

fn values(clients: &[ServiceTally]) -> Checked {
    Checked {
        values: Some(clients.iter().map(|tally| tally.values_checked).sum()),
        ..Checked::default()
    }
}
