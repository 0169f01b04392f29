//! The server, as the client sees it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use adverb_host::{Machine, Wire, WireError};
use adverb_results::Impairment;
use adverb_studies::CellSpec;
use adverb_verbs::{DeviceCaps, PathMtu, PathOptionError};
use anyhow::{Context, bail, ensure};
use rustix::event::{Timespec, poll};

use super::{
    CellNumber, CellOrder, Connection, Frame, Greeting, HostPort, Identity, MAX_GREETING, PATIENCE,
    ToClient, ToServer, Trouble, Visit, Welcome, printable,
};
use crate::device::{DeviceChoice, DeviceInfo, SoftAddress};
use crate::failure::Usage;
use crate::interrupt::Interrupt;
use crate::terminal;

/// How long one address of the server may take to accept.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// How long the server may take to open its device.
const WELCOME_PATIENCE: Duration = Duration::from_secs(20);
/// Pauses before the tries to reach a server that was lost: together longer than it takes a server
/// to notice that this client was lost.
const PAUSES: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

type ToPeer = Connection<ToServer, ToClient>;

/// A server that welcomed this client.
pub(crate) struct Peer {
    address: HostPort,
    device: DeviceChoice,
    identity: Identity,
    welcome: Welcome,
    /// None once it is lost.
    connection: Option<ToPeer>,
    cells: CellNumber,
}

impl Peer {
    /// Asks the server at `address` to take part on `device`.
    ///
    /// # Errors
    /// In words for the user: nobody is there, it is no server of this version, or it refuses.
    pub(crate) fn connect(
        address: &HostPort,
        device: &DeviceChoice,
        info: &DeviceInfo,
    ) -> anyhow::Result<Self> {
        let identity = Identity::of(info);
        let (connection, welcome) = open(address, device, &identity)?;
        check_ip_versions(address, &device.met_at(connection.local_ip()), &welcome)?;
        Ok(Peer {
            address: address.clone(),
            device: device.clone(),
            identity,
            welcome,
            connection: Some(connection),
            cells: 0,
        })
    }

    pub(crate) fn address(&self) -> &HostPort {
        &self.address
    }

    /// What the server said of itself.
    pub(crate) fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Whether the server runs on this machine.
    pub(crate) fn is_here(&self) -> bool {
        self.identity.same_machine(&self.welcome.identity)
    }

    /// Whether the server uses this very device, and shares memory with this process.
    pub(crate) fn shares_memory_at(&self, device: &DeviceChoice) -> bool {
        let is_parted = self.identity.parted_from(&self.welcome.identity).is_some();
        self.welcome.device == device.reference() && !is_parted
    }

    /// Limits of both devices, where this host's are `caps`.
    pub(crate) fn common_limits(&self, caps: &DeviceCaps) -> DeviceCaps {
        self.welcome.limits.within(caps)
    }

    /// Whether the server's port carries such packets.
    pub(crate) fn check_path_mtu(&self, asked: Option<PathMtu>) -> Result<(), Usage> {
        let max = self.welcome.limits.path_mtu;
        match asked.filter(|path_mtu| *path_mtu > max) {
            None => Ok(()),
            Some(path_mtu) => {
                let refused = PathOptionError::PathMtu { path_mtu, max };
                Err(Usage(format!("the server at {}: {refused}", self.address)))
            }
        }
    }

    /// Whether the server's port can do this to packets, too.
    pub(crate) fn check_impairment(&self, asked: &Impairment) -> Result<(), Usage> {
        let (device, address) = (&self.welcome.device, &self.address);
        match device.has_udp_port() {
            true => Ok(()),
            false => Err(Usage(format!(
                "{asked}: the server at {address} uses {device}, which does nothing to packets on purpose; `adverb serve --device soft@ADDR` there, or without --device, does"
            ))),
        }
    }

    /// Makes sure, before a cell, that the server is there; connects anew where it was lost.
    ///
    /// # Errors
    /// In words for the user: it cannot be reached any more, or another one is there now.
    pub(crate) fn ready(&mut self, interrupt: &Interrupt) -> anyhow::Result<()> {
        while let Some(connection) = &mut self.connection {
            match connection.hear() {
                Ok(None) => return Ok(()),
                Ok(Some(Frame::Word(ToClient::Stopped))) | Err(_) => self.connection = None,
                Ok(Some(_)) => {}
            }
        }
        let mut result = Ok(());
        for pause in PAUSES {
            if interrupt.within(pause) {
                return Ok(());
            }
            result = self.connect_anew();
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn connect_anew(&mut self) -> anyhow::Result<()> {
        let (connection, welcome) = open(&self.address, &self.device, &self.identity)?;
        ensure!(
            welcome.site.host == self.welcome.site.host
                && welcome.device == self.welcome.device
                && welcome.core == self.welcome.core,
            "the server at {} is no longer the one that the measurement began with",
            self.address
        );
        self.welcome = welcome;
        self.connection = Some(connection);
        Ok(())
    }

    /// Orders the server's side of a cell.
    pub(crate) fn order(
        &mut self,
        spec: &CellSpec,
        shares_core: bool,
    ) -> Result<CellNumber, Trouble> {
        self.cells += 1;
        let cell = self.cells;
        let order = CellOrder {
            cell,
            spec: spec.clone(),
            shares_core,
        };
        self.connection()?.say(&ToServer::Order(Box::new(order)))?;
        Ok(cell)
    }

    /// The connection, while there is one.
    pub(crate) fn connection(&mut self) -> Result<&mut ToPeer, Trouble> {
        self.connection.as_mut().ok_or(WireError::Closed.into())
    }

    /// The same, to look at.
    pub(crate) fn connected(&self) -> Option<&ToPeer> {
        self.connection.as_ref()
    }

    /// This host's address on the network that leads to the server.
    pub(crate) fn reached_from(&self) -> Option<IpAddr> {
        self.connection.as_ref().and_then(Connection::local_ip)
    }

    /// The connection is of no more use.
    pub(crate) fn lose(&mut self) {
        self.connection = None;
    }
}

/// UDP ports talk to others of their own IP version.
fn check_ip_versions(
    address: &HostPort,
    ours: &DeviceChoice,
    welcome: &Welcome,
) -> anyhow::Result<()> {
    let theirs = welcome.device.name.strip_prefix("soft@");
    let theirs = theirs.and_then(|ip| ip.parse::<IpAddr>().ok());
    if let (DeviceChoice::Soft(SoftAddress::At(here)), Some(there)) = (ours, theirs) {
        ensure!(
            here.to_canonical().is_ipv4() == there.to_canonical().is_ipv4(),
            "the server at {address} uses soft@{there}, this side {ours}: one is an IPv4 address, the other an IPv6 address; name addresses of one kind with --device on both sides"
        );
    }
    Ok(())
}

/// Connects, greets and is welcomed.
fn open(
    address: &HostPort,
    device: &DeviceChoice,
    identity: &Identity,
) -> anyhow::Result<(ToPeer, Welcome)> {
    let mut connection = greet(address, reach(address)?)?;
    let visit = Visit {
        host: Machine::this().host,
        device: device.elsewhere(),
        identity: identity.clone(),
    };
    let lost = || format!("the server at {address}");
    connection.say(&ToServer::Visit(visit)).with_context(lost)?;
    let deadline = Instant::now() + WELCOME_PATIENCE;
    loop {
        match connection.hear().with_context(lost)? {
            Some(Frame::Word(ToClient::Welcome(welcome))) => return Ok((connection, *welcome)),
            Some(Frame::Word(ToClient::Refused { reason })) => {
                bail!("the server at {address} refused: {}", printable(&reason))
            }
            Some(Frame::Word(ToClient::Stopped)) => bail!("the server at {address} was stopped"),
            Some(_) => {}
            None => {
                let left = deadline.saturating_duration_since(Instant::now());
                ensure!(
                    !left.is_zero(),
                    "the server at {address} gave no answer within {} s",
                    WELCOME_PATIENCE.as_secs()
                );
                wait(connection.poll_fd(), left)?;
            }
        }
    }
}

/// A connection to the first address of the host that accepts one.
fn reach(address: &HostPort) -> anyhow::Result<Wire> {
    let mut refused = None;
    for candidate in address.resolve().context("--peer")? {
        match Wire::connect(candidate, CONNECT_PATIENCE) {
            Ok(wire) => return Ok(wire),
            Err(e) => refused = Some(e),
        }
    }
    let reason = refused.map_or_else(String::new, |e| format!(": {e}"));
    bail!(
        "cannot reach a server at {address}{reason}: start `adverb serve --bind ADDRESS` there, and see that no firewall is between"
    )
}

/// Says hello, and hears who answers.
fn greet(address: &HostPort, mut wire: Wire) -> anyhow::Result<ToPeer> {
    let who = format!("the server at {address}");
    wire.take_at_most(MAX_GREETING);
    let deadline = Instant::now() + PATIENCE;
    let strange = |e: WireError| match e {
        WireError::TooLong { .. } => anyhow::anyhow!("{who} does not speak Adverb's protocol"),
        other => anyhow::Error::new(other).context(who.clone()),
    };
    wire.send(&[&Greeting::ours()]).map_err(strange)?;
    let greeting = loop {
        if let Some(greeting) = wire.receive().map_err(strange)? {
            break greeting;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        ensure!(
            !left.is_zero(),
            "{who} accepted, but said nothing within {} s: is it `adverb serve`, and is it running?",
            PATIENCE.as_secs()
        );
        wait(wire.poll_fd(), left)?;
    };
    let greeting = Greeting::read(&greeting, &who).map_err(anyhow::Error::msg)?;
    if greeting.version != crate::VERSION {
        terminal::warn(&format!(
            "{who} is Adverb {}, this is {}",
            printable(&greeting.version),
            crate::VERSION
        ));
    }
    wire.take_at_most(adverb_host::MAX_MESSAGE);
    Ok(Connection::new(wire))
}

fn wait(fd: rustix::event::PollFd<'_>, patience: Duration) -> anyhow::Result<()> {
    let timeout = Timespec::try_from(patience).context("deadline out of range")?;
    match poll(&mut [fd], Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e).context("cannot wait for the server"),
    }
}
