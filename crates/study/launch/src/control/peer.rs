//! An agent, as seen by the caller.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use adverb_host::{Machine, Wire, WireError};
use adverb_results::Impairment;
use adverb_verbs::{DeviceCaps, PathMtu};
use anyhow::{Context, bail, ensure};

use super::{
    Connection, ConnectionError, Frame, HostPort, Identity, PeerAddress, Ranks, RunNumber,
    RunOrder, ToAgent, ToAgentLink, ToCaller, Visit, Welcome, wait,
};
use crate::catalog::Catalog;
use crate::device::{DeviceChoice, SoftAddress};
use crate::event::{Event, Log};
use crate::info::DeviceInfo;
use crate::interrupt::Interrupt;
use crate::text::{Usage, printable};

/// Timeout for connecting to one address of the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for the server's welcome, which needs its device open.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(20);
/// Pauses before attempts to reconnect to a server. Together they are longer than the time in which a server
/// notices that this caller was lost.
const PAUSES: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// An agent that admitted this caller.
pub struct Peer {
    address: PeerAddress,
    /// Its name in messages.
    name: String,
    device: DeviceChoice,
    identity: Identity,
    welcome: Welcome,
    /// `None` once it is lost.
    connection: Option<ToAgentLink>,
    runs: RunNumber,
    catalog: &'static Catalog,
    log: Log,
}

impl Peer {
    /// Connects to the agent at `address`, for a caller that uses `device`; `ranks` are the other ranks of this
    /// process's job.
    ///
    /// # Errors
    /// The agent cannot be reached, has another version, or refuses.
    pub fn connect(
        address: &PeerAddress,
        ranks: &Ranks,
        (device, info): (&DeviceChoice, &DeviceInfo),
        catalog: &'static Catalog,
        log: Log,
    ) -> anyhow::Result<Self> {
        let identity = Identity::of(info);
        let (name, connection) = match address {
            PeerAddress::Server(server) => (called(server), call(server, (catalog, log))?),
            PeerAddress::Rank(rank) => ranks.take(*rank)?,
        };
        let (connection, welcome) = visit(&name, connection, device, &identity)?;
        check_ip_versions(&name, &device.met_at(connection.local_ip()), &welcome)?;
        Ok(Peer {
            address: address.clone(),
            name,
            device: device.clone(),
            identity,
            welcome,
            connection: Some(connection),
            runs: 0,
            catalog,
            log,
        })
    }

    /// Returns its name in messages: `the server at nodeb:18600`, `rank 3 (nodeb)`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its description of itself.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Whether it runs on this machine.
    pub fn is_here(&self) -> bool {
        self.identity.same_machine(&self.welcome.identity)
    }

    /// Whether its roles may run on the same cores as the roles of `other`.
    pub(crate) fn meets(&self, other: &Peer) -> bool {
        let (ours, theirs) = (&self.welcome, &other.welcome);
        ours.identity.same_machine(&theirs.identity)
            && ours.usable.iter().any(|core| theirs.usable.contains(core))
    }

    /// Whether it uses this same device, and shares memory with this process.
    pub fn shares_memory_at(&self, device: &DeviceChoice) -> bool {
        self.welcome.device == device.reference() && self.shares_memory()
    }

    /// Whether it shares memory with this process.
    pub(crate) fn shares_memory(&self) -> bool {
        let parted = self.identity.parted_from(&self.welcome.identity);
        parted.is_none()
    }

    /// Whether two agents share memory.
    pub(crate) fn shares_memory_with(&self, other: &Peer) -> bool {
        let parted = self.welcome.identity.parted_from(&other.welcome.identity);
        parted.is_none()
    }

    /// Returns the limits of both devices, if this host's are `caps`.
    pub fn common_limits(&self, caps: &DeviceCaps) -> DeviceCaps {
        self.welcome.limits.within(caps)
    }

    /// Returns the path MTU of its port.
    pub fn path_mtu(&self) -> PathMtu {
        self.welcome.limits.path_mtu
    }

    /// Checks that its port can inject these faults, too.
    ///
    /// # Errors
    /// It cannot; the error names a device that can.
    pub fn check_impairment(&self, asked: &Impairment) -> Result<(), Usage> {
        let (device, name) = (&self.welcome.device, &self.name);
        match device.has_udp_port() {
            true => Ok(()),
            false => Err(Usage(format!(
                "{asked}: {name} uses {device}, which injects no faults; start `adverb serve` there with --device soft@ADDR, or without --device"
            ))),
        }
    }

    /// Makes sure, before a run, that the agent is connected; reconnects if it was lost.
    ///
    /// # Errors
    /// It cannot be reached any more, or another agent is at its address.
    pub(crate) fn ready(&mut self, interrupt: &Interrupt) -> anyhow::Result<()> {
        while let Some(connection) = &mut self.connection {
            match connection.hear() {
                Ok(None) => return Ok(()),
                Ok(Some(Frame::Word(ToCaller::Stopped | ToCaller::Evicted))) | Err(_) => {
                    self.connection = None;
                }
                Ok(Some(_)) => {}
            }
        }
        let mut result = Ok(());
        for pause in PAUSES {
            if interrupt.within(pause) {
                return Ok(());
            }
            result = self.connect_again();
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn connect_again(&mut self) -> anyhow::Result<()> {
        let name = &self.name;
        let PeerAddress::Server(server) = &self.address else {
            bail!("{name} is gone");
        };
        let connection = call(server, (self.catalog, self.log))?;
        let (connection, welcome) = visit(name, connection, &self.device, &self.identity)?;
        ensure!(
            welcome.site.host == self.welcome.site.host
                && welcome.device == self.welcome.device
                && welcome.cores == self.welcome.cores,
            "{name} is not the server with which the measurement started"
        );
        self.welcome = welcome;
        self.connection = Some(connection);
        Ok(())
    }

    /// Orders the agent's part in a run; `order` gets the run's number.
    pub(crate) fn order(&mut self, mut order: RunOrder) -> Result<RunNumber, ConnectionError> {
        self.runs += 1;
        order.run = self.runs;
        self.connection()?.say(&ToAgent::Run(Box::new(order)))?;
        Ok(self.runs)
    }

    /// Returns the connection, unless it is lost.
    pub(crate) fn connection(&mut self) -> Result<&mut ToAgentLink, ConnectionError> {
        self.connection.as_mut().ok_or(WireError::Closed.into())
    }

    /// The same, to look at.
    pub(crate) fn connected(&self) -> Option<&ToAgentLink> {
        self.connection.as_ref()
    }

    /// This host's address on the network that leads to the agent.
    pub fn reached_from(&self) -> Option<IpAddr> {
        self.connection.as_ref().and_then(Connection::local_ip)
    }

    /// Drops the connection.
    pub(crate) fn lose(&mut self) {
        self.connection = None;
    }
}

/// Refuses UDP ports of different IP versions.
fn check_ip_versions(name: &str, ours: &DeviceChoice, welcome: &Welcome) -> anyhow::Result<()> {
    let theirs = welcome.device.name.strip_prefix("soft@");
    let theirs = theirs.and_then(|ip| ip.parse::<IpAddr>().ok());
    if let (DeviceChoice::Soft(SoftAddress::At(here)), Some(there)) = (ours, theirs) {
        ensure!(
            here.to_canonical().is_ipv4() == there.to_canonical().is_ipv4(),
            "{name} uses soft@{there}, this side {ours}: one is an IPv4 address, the other an IPv6 address; name addresses of one kind with --device on both sides"
        );
    }
    Ok(())
}

/// Returns the name of the server at `address` in messages.
fn called(address: &HostPort) -> String {
    format!("the server at {address}")
}

/// Connects to a server, and exchanges greetings.
fn call(address: &HostPort, (catalog, log): (&Catalog, Log)) -> anyhow::Result<ToAgentLink> {
    let who = called(address);
    let (connection, greeting) = Connection::greet(reach(address)?, &who, None, catalog)?;
    if greeting.version != catalog.version {
        let theirs = printable(&greeting.version);
        let ours = catalog.version;
        log(Event::Warning(format!(
            "{who} runs Adverb {theirs}, this is {ours}"
        )));
    }
    Ok(connection)
}

/// Sends a request and waits for the welcome.
fn visit(
    who: &str,
    mut connection: ToAgentLink,
    device: &DeviceChoice,
    identity: &Identity,
) -> anyhow::Result<(ToAgentLink, Welcome)> {
    let visit = Visit {
        host: Machine::this().host,
        device: device.elsewhere(),
        identity: identity.clone(),
    };
    let lost = || who.to_owned();
    connection.say(&ToAgent::Visit(visit)).with_context(lost)?;
    let deadline = Instant::now() + WELCOME_TIMEOUT;
    loop {
        match connection.hear().with_context(lost)? {
            Some(Frame::Word(ToCaller::Welcome(welcome))) => return Ok((connection, *welcome)),
            Some(Frame::Word(ToCaller::Refused { reason })) => {
                bail!("{who} refused: {}", printable(&reason))
            }
            Some(Frame::Word(ToCaller::Stopped)) => bail!("{who} was stopped"),
            Some(_) => {}
            None => {
                let left = deadline.saturating_duration_since(Instant::now());
                ensure!(
                    !left.is_zero(),
                    "{who} did not answer within {} s",
                    WELCOME_TIMEOUT.as_secs()
                );
                wait(&mut [connection.poll_fd()], left)?;
            }
        }
    }
}

/// Connects to the first address of the host that accepts a connection.
fn reach(address: &HostPort) -> anyhow::Result<Wire> {
    let mut refused = None;
    for candidate in address.resolve().context("--peer")? {
        match Wire::connect(candidate, CONNECT_TIMEOUT) {
            Ok(wire) => return Ok(wire),
            Err(e) => refused = Some(e),
        }
    }
    let reason = refused.map_or_else(String::new, |e| format!(": {e}"));
    bail!(
        "cannot reach a server at {address}{reason}: start `adverb serve --bind ADDRESS` there, and check that no firewall blocks it"
    )
}
