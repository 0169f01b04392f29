//! `adverb sequencer`, `adverb kv` and `adverb closed-loop`: programs of several members.

mod members;
mod program;
mod result;
mod stopping;

use adverb_patterns::{
    Asking, Clients, Handed, Items, Limits, Load, MAX_BATCH, OneSided, OneSidedClients, Outbound,
    Pace, Part, Pattern, Places, Posting, Puts, Remote, Request, Rpc, RpcPart, Schedule, Service,
    ServiceTally, Serving, StoreLoad, Tally, Timing, Transport,
};
use adverb_units::{Bytes, Span};
use adverb_verbs::{Level, RoleId};
use anyhow::bail;
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::VERSION;
use crate::args::{
    ClientArgs, ClosedLoopArgs, ClosedLoopOp, KvArgs, KvBy, KvPuts, PostingArgs, SequencerArgs,
    SequencerBy, ServerArgs,
};
use crate::busy::Beside;
use crate::device::{DeviceChoice, DeviceInfo};
use crate::failure::Usage;
use crate::interrupt::Interrupt;
use program::Served;
use result::{Checked, Figures, Waiting, together};

/// Values and records of up to so many bytes.
const MAX_VALUE: u64 = 4096;
/// Memory of a member of a closed loop.
const MEMORY: u64 = 2 << 20;
/// Memory of a whole program, as far as its sizes ask for it.
const MOST_MEMORY: Bytes = Bytes::mib(2048);
/// One answer of so many on a queue pair asks for a completion.
const SIGNALED_EVERY: u32 = 64;
/// Longest list, where none is named.
const DEFAULT_BATCH: u32 = 16;
/// Why a list can be no longer.
const AS_OUTSTANDING: &str = "as many as --outstanding lets be under way";
/// Payload of a request of a closed loop, where none is named.
const DEFAULT_SIZE: Bytes = Bytes::new(64);
/// What an atomic operation works on.
const ATOMIC_SIZE: Bytes = Bytes::new(8);
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

/// Refuses what only a store has that clients READ.
fn check_by_rpc(args: &KvArgs) -> Result<(), Usage> {
    let refused = match args {
        KvArgs {
            puts: Some(puts), ..
        } => {
            format!(
                "--puts {}: by RPC the server's cores change items",
                word(puts)
            )
        }
        KvArgs {
            reads: Some(reads), ..
        } => {
            format!("--reads {reads}: by RPC the server's cores look keys up")
        }
        _ => return Ok(()),
    };
    Err(Usage(format!("{refused}; it is for --by memory")))
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

/// `adverb closed-loop`.
pub(crate) fn closed_loop(args: &ClosedLoopArgs) -> anyhow::Result<()> {
    let clients = &args.clients;
    let request = match args.op {
        ClosedLoopOp::Write => Request::Write,
        ClosedLoopOp::Read => Request::Read,
        ClosedLoopOp::FetchAdd => Request::FetchAdd,
        ClosedLoopOp::Cas => Request::CompareSwap,
    };
    let payload = payload(args)?;
    check_inline(args, payload)?;
    let size = u32::try_from(payload.get()).unwrap_or(u32::MAX);
    let places = u64::from(clients.clients) * u64::from(args.posting.qps);
    let distance = u64::from(size).max(8).next_multiple_of(64);
    // Each client has room for all places, and so have the members that serve them.
    let members = u64::from(clients.clients) + u64::from(clients.machines);
    check_memory("these payloads", &[distance, places, members])?;
    check_counts(clients, args.posting)?;
    let posting = posting(args.posting, clients.outstanding, AS_OUTSTANDING)?;
    let load = Load {
        inline: args.inline,
        posting,
        limits: Limits {
            per_qp: clients.outstanding,
            per_member: u32::MAX,
            rd_atomic: RD_ATOMIC,
        },
        places: Places::Own(distance),
        timing: Timing::Each,
        ..Load::new(request, size)
    };
    let shape = Outbound {
        cores: clients.clients,
        qps: args.posting.qps,
        peers: clients.machines,
        memory: MEMORY.max(distance * places),
    };
    let pattern = Pattern::outbound(Transport::Rc, &load, shape);
    let tallies = run(clients, &pattern)?;
    let posts = pattern.members.iter().zip(&tallies);
    let posts = posts.filter(|(member, _)| matches!(member.part, Part::Request(_)));
    let posts: Vec<&Tally> = posts.map(|(_, tally)| tally).collect();
    let timed: u64 = posts.iter().map(|tally| tally.timed).sum();
    let waited: Span = posts.iter().map(|tally| tally.waited).sum();
    let params = json!({
        "op": word(&args.op), "size_bytes": size, "inline": args.inline,
    });
    let figures = Figures {
        program: "closed-loop",
        device: clients.device.choice().reference(),
        adverb: VERSION,
        title: format!(
            "{} of {payload}, {}",
            word(&args.op),
            words(posting, args.posting.qps, clients)
        ),
        params: with_common(params, posting, args.posting.qps, clients),
        requests: posts.iter().map(|tally| tally.completed).sum(),
        elapsed_ns: duration(clients).as_ns_f64(),
        requests_per_s: together(posts.iter().filter_map(|tally| tally.per_second())),
        batch_mean: None,
        waiting_ns: Waiting {
            mean: (timed > 0).then(|| waited.as_ns_f64() / timed as f64),
            ..Waiting::default()
        },
        checked: Checked::default(),
    };
    figures.print(clients.json)
}

/// What a request of a closed loop moves.
fn payload(args: &ClosedLoopArgs) -> Result<Bytes, Usage> {
    let is_atomic = matches!(args.op, ClosedLoopOp::FetchAdd | ClosedLoopOp::Cas);
    match args.size {
        None if is_atomic => Ok(ATOMIC_SIZE),
        None => Ok(DEFAULT_SIZE),
        Some(size) if is_atomic && size != ATOMIC_SIZE => Err(Usage(format!(
            "--size {}: {} is an operation on {ATOMIC_SIZE}; leave it out",
            size.get(),
            word(&args.op)
        ))),
        Some(size) => Ok(size),
    }
}

/// Refuses inline where there is no payload, or where the device does not take so much.
fn check_inline(args: &ClosedLoopArgs, payload: Bytes) -> anyhow::Result<()> {
    if !args.inline {
        return Ok(());
    }
    if args.op != ClosedLoopOp::Write {
        let op = word(&args.op);
        let reason = format!("--inline is for --op write: {op} carries no payload");
        return Err(Usage(reason).into());
    }
    let caps = DeviceInfo::query(&args.clients.device.choice())?.caps;
    let most = Bytes::new(caps.max_inline_data.into());
    if payload > most {
        return Err(Usage(format!(
            "{payload} inline: this device takes at most {most}; choose a smaller size or no inline"
        ))
        .into());
    }
    Ok(())
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
    let program = Served::new(Rpc {
        service,
        serving: Serving {
            cores: server.cores,
            qps_per_core: server.posting.qps,
            posting,
            signaled_every: SIGNALED_EVERY,
        },
        clients: Clients {
            threads: clients.clients,
            machines: clients.machines,
            outstanding: clients.outstanding,
            pace,
            timing: Timing::Each,
            seed: 1,
        },
    });
    let tallies = run(clients, &program)?;
    let (cores, others) = tallies.split_at(server.cores as usize);
    debug_assert_eq!(program.rpc.part(RoleId(server.cores)), RpcPart::Client(0));
    params["server_cores"] = server.cores.into();
    params["offered_per_s"] = server.rate.into();
    let answers: u64 = cores.iter().map(|tally| tally.requests).sum();
    let posts: u64 = cores.iter().map(|tally| tally.posts).sum();
    let mut figures = figures(name, params, (posting, server.posting.qps), clients, others);
    figures.requests_per_s = together(cores.iter().filter_map(ServiceTally::per_second));
    figures.batch_mean = (posts > 0).then(|| answers as f64 / posts as f64);
    let cores = counted(server.cores, "server core");
    figures.title = format!("by RPC, {cores}, {}", figures.title);
    figures.checked = match service {
        Service::Sequencer(_) => numbers(others, Some(program.handed_out()))?,
        Service::Store(_) => values(others),
    };
    figures.print(clients.json)
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
            machines: clients.machines,
            qps: posts.qps,
            outstanding: clients.outstanding,
            posting,
            rd_atomic: RD_ATOMIC,
            timing: Timing::Each,
            seed: 1,
        },
    };
    let tallies = run(clients, &program)?;
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
    figures.print(clients.json)
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

/// Runs a program on the device that was named.
fn run<P: program::Program>(args: &ClientArgs, program: &P) -> anyhow::Result<Vec<P::Tally>> {
    let measured = duration(args);
    let schedule = Schedule {
        warm_up: measured / 4,
        measured,
    };
    let interrupt = Interrupt::listen()?;
    let device = args.device.choice();
    let beside = Beside::from_now(&device);
    let tallies = members::run(&device, program, schedule, &interrupt)?;
    beside.warn();
    Ok(tallies)
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
        waiting_ns: Waiting::of(clients.iter().map(|tally| tally.samples.clone())),
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

/// Refuses server cores that would have no client, or none at all.
fn check_cores(cores: u32, clients: u32) -> anyhow::Result<()> {
    if (1..=clients).contains(&cores) {
        return Ok(());
    }
    Err(Usage(format!(
        "{cores} server cores for {clients} clients: a client is served by one core; choose 1 to {clients}"
    ))
    .into())
}

fn check_counts(clients: &ClientArgs, posts: PostingArgs) -> anyhow::Result<()> {
    for (what, given, most) in [
        ("--clients", clients.clients, 4096),
        ("--outstanding", clients.outstanding, 4096),
        ("--machines", clients.machines, 1024),
        ("--qps", posts.qps, 1024),
    ] {
        if !(1..=most).contains(&given) {
            return Err(Usage(format!("{what} {given}: 1 to {most} are possible")).into());
        }
    }
    if posts.qps.saturating_mul(clients.clients) > 1 << 16 {
        let (qps, threads) = (posts.qps, clients.clients);
        return Err(Usage(format!(
            "{threads} clients and {qps} queue pairs: at most 65536 queue pairs are possible"
        ))
        .into());
    }
    if clients.duration == Some(Span::ZERO) {
        return Err(Usage("--duration 0: nothing can be measured in no time".to_owned()).into());
    }
    Ok(())
}

/// Refuses sizes whose product is more memory than a command should take.
fn check_memory(what: &str, factors: &[u64]) -> anyhow::Result<()> {
    let product = |all: u64, factor: &u64| all.checked_mul(*factor);
    let needed = factors.iter().try_fold(1, product);
    if needed.is_some_and(|bytes| bytes <= MOST_MEMORY.get()) {
        return Ok(());
    }
    Err(Usage(format!(
        "{what} would take more than {MOST_MEMORY} of memory; choose fewer or smaller ones"
    ))
    .into())
}

/// Tables, requests under way and answers.
fn check_store(store: &StoreLoad, server: &ServerArgs, clients: &ClientArgs) -> anyhow::Result<()> {
    // Key, value and half of a bucket.
    let (item, cores) = (u64::from(store.value) + 64, u64::from(server.cores));
    check_memory("these items", &[store.items, item, cores])?;
    let under_way = u64::from(clients.clients) * u64::from(clients.outstanding);
    check_memory("these requests", &[under_way, item, 4])?;
    let answers = u64::from(server.posting.qps) * 256;
    check_memory("these answers", &[answers, item, cores])
}

/// At most `most` at a time; a longer list than what may be under way would never be posted.
fn posting(posts: PostingArgs, most: u32, what: &str) -> anyhow::Result<Posting> {
    let batch = posts.batch.unwrap_or(DEFAULT_BATCH.min(most));
    if !(1..=most).contains(&batch) {
        let reason = format!("--batch {batch}: 1 to {most} are possible, {what}");
        return Err(Usage(reason).into());
    }
    Ok(match batch {
        1 => Posting::Single,
        n => Posting::List(n),
    })
}

/// Refuses what only a server's cores have.
fn passive(server: &ServerArgs, rather: &str) -> anyhow::Result<()> {
    let refused = match server {
        ServerArgs { rate: Some(_), .. } => "--rate",
        ServerArgs { cores: 2.., .. } => "--cores",
        _ => return Ok(()),
    };
    Err(Usage(format!(
        "{refused} is for {rather}: here the server's CPU does nothing"
    ))
    .into())
}

/// A choice as it is typed.
fn word(choice: &impl ValueEnum) -> String {
    let value = choice.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

fn with_common(mut params: Value, posting: Posting, qps: u32, clients: &ClientArgs) -> Value {
    params["clients"] = clients.clients.into();
    params["outstanding"] = clients.outstanding.into();
    params["machines"] = clients.machines.into();
    params["qps"] = qps.into();
    params["batch"] = list(posting).into();
    params
}

fn list(posting: Posting) -> u32 {
    match posting {
        Posting::Single => 1,
        Posting::List(n) => n,
    }
}

/// What all programs have in common, for people.
fn words(posting: Posting, qps: u32, clients: &ClientArgs) -> String {
    let threads = counted(clients.clients, "client");
    let (outstanding, qps) = (clients.outstanding, counted(qps, "queue pair"));
    let list = list(posting);
    format!("{threads} with {outstanding} under way, {qps}, up to {list} a doorbell")
}

/// `1 client`, `2 clients`.
fn counted(count: u32, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
