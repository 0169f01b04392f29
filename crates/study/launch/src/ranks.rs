//! The ranks of a job of `mpirun` or `srun`: rank 0 is the caller, the others are its agents.
//!
//! Rank 0 listens and publishes its addresses; each other rank connects to one of them. The greetings contain
//! the job and the rank, because an address may lead to another host or another job. Otherwise the connection
//! is the same as between any caller and agent (see [`crate::control`]).

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use adverb_host::{MAX_FRAME, Machine, Rank, Wire};
use anyhow::{Context, anyhow, ensure};
use rustix::event::{PollFd, PollFlags};

use crate::agent::{AgentOptions, Farewell, serve_caller};
use crate::catalog::Catalog;
use crate::control::{
    ConnectedRank, Connection, Greeting, HostPort, MAX_GREETING, RankName, Ranks, ToAgent,
    ToCaller, wait,
};
use crate::event::Log;
use crate::place::Pinning;
use crate::text::printable;

/// Timeout for the ranks of a job to find each other; they do not start at the same time.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for connecting to one address of rank 0.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause before the addresses of rank 0 are tried again.
const PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of connections without a greeting, in addition to one per rank.
const MOST_STRANGERS: usize = 16;

impl Ranks {
    /// Waits, as rank 0, for the other ranks of the job. They try the address `first` before other addresses
    /// of this host.
    ///
    /// # Errors
    /// The launcher does not publish this host's addresses, or a rank does not connect.
    pub fn gather(
        rank: &Rank,
        first: Option<IpAddr>,
        catalog: &'static Catalog,
    ) -> anyhow::Result<Self> {
        let listener = listen(rank.port().unwrap_or(0))?;
        let at = listener.local_addr()?.port();
        let addresses = addresses(first)?;
        let addresses = addresses.map(|ip| SocketAddr::new(ip, at).to_string());
        let addresses = addresses.collect::<Vec<_>>().join(" ");
        let job = rank.clone();
        // Kept until all ranks have looked it up.
        let _published = within(rank, move || job.publish(&addresses))??;
        let mut arrivals = Arrivals {
            rank,
            catalog,
            seats: (1..rank.size).map(|_| None).collect(),
            strangers: Vec::new(),
        };
        arrivals.take_all(&listener)?;
        Ok(Ranks::new(arrivals.seats))
    }
}

/// Serves rank 0 of the job as another rank; returns whether all runs had ended when rank 0 left.
///
/// # Errors
/// Rank 0 cannot be reached.
pub fn serve_rank_0(
    rank: &Rank,
    pinning: Pinning,
    catalog: &'static Catalog,
    log: Log,
) -> anyhow::Result<bool> {
    let job = rank.clone();
    let addresses = within(rank, move || job.look_up())??;
    let caller = dial(rank, &addresses, catalog)?;
    let options = AgentOptions {
        pinning,
        ..AgentOptions::default()
    };
    let farewell = serve_caller(caller, &options, (catalog, log))?;
    Ok(farewell == Farewell::Idle)
}

type ToRank0 = (Connection<ToCaller, ToAgent>, SocketAddr);

/// Connects to rank 0, which may not listen yet.
fn dial(rank: &Rank, addresses: &[String], catalog: &Catalog) -> anyhow::Result<ToRank0> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let mut last = anyhow!("it has no address");
        for address in addresses {
            match dial_one(rank, address, catalog) {
                Ok(found) => return Ok(found),
                Err(e) => last = e,
            }
        }
        if Instant::now() >= deadline {
            let list = addresses.join(", ");
            let rank = rank.rank;
            return Err(last.context(format!("rank {rank} cannot reach rank 0 at {list}")));
        }
        thread::sleep(PAUSE);
    }
}

fn dial_one(rank: &Rank, address: &str, catalog: &Catalog) -> anyhow::Result<ToRank0> {
    let host: HostPort = address.parse().map_err(anyhow::Error::msg)?;
    let mut last = anyhow!("{address} has no address");
    for at in host.resolve()? {
        let found = Wire::connect(at, CONNECT_TIMEOUT).map_err(anyhow::Error::new);
        let greeted = found.and_then(|wire| {
            let (connection, greeting) =
                Connection::greet(wire, "rank 0", Some(named(rank)), catalog)?;
            let is_rank_0 = |name: &RankName| name.job == rank.job && name.rank == 0;
            ensure!(
                greeting.rank.as_ref().is_some_and(is_rank_0),
                "{at} is not rank 0 of this job"
            );
            Ok((connection, at))
        });
        match greeted {
            Ok(found) => return Ok(found),
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn named(rank: &Rank) -> RankName {
    RankName {
        job: rank.job.clone(),
        rank: rank.rank,
        host: Machine::this().host,
    }
}

/// Ranks that have connected, and connections that have not greeted yet.
struct Arrivals<'r> {
    rank: &'r Rank,
    catalog: &'static Catalog,
    seats: Vec<Option<ConnectedRank>>,
    strangers: Vec<Wire>,
}

impl Arrivals<'_> {
    fn take_all(&mut self, listener: &TcpListener) -> anyhow::Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        while self.seats.iter().any(Option::is_none) {
            let left = deadline.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "{}", self.missing());
            let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
            fds.extend(self.strangers.iter().map(Wire::poll_fd));
            wait(&mut fds, left)?;
            while let Ok((stream, _)) = listener.accept() {
                // The connection may be closed already.
                let _ = self.meet(stream);
            }
            for wire in std::mem::take(&mut self.strangers) {
                self.hear(wire)?;
            }
        }
        Ok(())
    }

    fn missing(&self) -> String {
        let missing = (1..).zip(&self.seats).filter(|(_, seat)| seat.is_none());
        let missing: Vec<String> = missing
            .map(|(rank, _): (u32, _)| rank.to_string())
            .collect();
        format!(
            "{} of {} ranks did not connect within {} s, the first of them rank {}: check that no firewall is between the hosts",
            missing.len(),
            self.rank.size,
            TIMEOUT.as_secs(),
            missing[0]
        )
    }

    fn meet(&mut self, stream: TcpStream) -> anyhow::Result<()> {
        if self.strangers.len() >= self.seats.len() + MOST_STRANGERS {
            return Ok(());
        }
        let mut wire = Wire::new(stream)?;
        wire.take_at_most(MAX_GREETING);
        wire.send(&[&Greeting::ours(self.catalog, Some(named(self.rank)))])?;
        self.strangers.push(wire);
        Ok(())
    }

    /// Accepts a rank, and closes connections from outside of this job.
    fn hear(&mut self, mut wire: Wire) -> anyhow::Result<()> {
        let greeting = match wire.receive() {
            Ok(Some(greeting)) => greeting,
            Ok(None) => {
                self.strangers.push(wire);
                return Ok(());
            }
            Err(_) => return Ok(()),
        };
        // Not by `Greeting::read`: a rank of another version is an error at once, without a timeout.
        let name = serde_json::from_slice::<Greeting>(&greeting).ok();
        let Some(name) = name.and_then(|greeting| greeting.rank) else {
            return Ok(());
        };
        let at = name.rank.checked_sub(1).map(|at| at as usize);
        let seat = at.and_then(|at| self.seats.get_mut(at));
        let Some(seat) = seat.filter(|seat| seat.is_none() && name.job == self.rank.job) else {
            return Ok(());
        };
        let host = printable(&name.host);
        let who = format!("rank {} ({host})", name.rank);
        Greeting::read(&greeting, &who, self.catalog).map_err(anyhow::Error::msg)?;
        wire.take_at_most(MAX_FRAME);
        let connection = Connection::new(wire);
        *seat = Some(ConnectedRank { host, connection });
        Ok(())
    }
}

fn listen(port: u16) -> anyhow::Result<TcpListener> {
    // An IPv6 socket accepts IPv4, too; the kernel may lack IPv6.
    let listener =
        TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
    let listener =
        listener.with_context(|| format!("cannot listen for the other ranks at port {port}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Returns the addresses of this host in the order in which others should try them: loopback last.
fn addresses(first: Option<IpAddr>) -> anyhow::Result<impl Iterator<Item = IpAddr>> {
    let all = adverb_softnic::host_addresses().context("cannot list this host's addresses")?;
    let order = |ip: &IpAddr| match ip {
        ip if Some(*ip) == first => Some(0),
        ip if ip.is_loopback() => Some(3),
        IpAddr::V4(_) => Some(1),
        // A link-local address is valid on one interface only.
        IpAddr::V6(ip) if ip.is_unicast_link_local() => None,
        IpAddr::V6(_) => Some(2),
    };
    let all = first.into_iter().chain(all);
    let mut ordered: Vec<_> = all.filter_map(|ip| Some((order(&ip)?, ip))).collect();
    ordered.sort_by_key(|(order, _)| *order);
    ordered.dedup();
    Ok(ordered.into_iter().map(|(_, ip)| ip))
}

/// What `work` returns, if that takes no longer than the ranks may take to find each other: PMIx waits for all
/// of them, and knows no limit.
fn within<T: Send + 'static>(
    rank: &Rank,
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<T> {
    let (result, done) = mpsc::channel();
    // What is too late ends with this process.
    thread::spawn(move || result.send(work()));
    done.recv_timeout(TIMEOUT).map_err(|_| {
        anyhow!(
            "rank {} of {}: the other ranks did not ask for each other by PMIx within {} s",
            rank.rank,
            rank.size,
            TIMEOUT.as_secs()
        )
    })
}
