//! `adverb serve`: the passive side for clients on other hosts, one client after another.
//!
//! One thread, asleep in `poll`: while a cell is measured it wakes once a second for a sign of life.
//! A [`Caller`] is a connection that has not yet shown what it wants; a [`Visitor`] is the client
//! that is being served. Nobody has to wait for a caller who says nothing.

mod caller;
mod desk;
mod visitor;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use adverb_host::Wire;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::args::ServeArgs;
use crate::interrupt::Interrupt;
use crate::remote::HostPort;
use crate::terminal;
use caller::{Caller, Step};
use desk::Desk;
use visitor::Visitor;

/// Connections that have not said yet what they want; more are closed at once.
const MAX_CALLERS: usize = 16;
/// How long to leave the port alone when no more descriptors are to be had.
const RESPITE: Duration = Duration::from_secs(1);

/// Serves until a signal comes, or, with `--once`, the first client has left.
///
/// # Errors
/// In words for the user: the address or the device cannot be had.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let desk = Desk::new(args)?;
    let listener = listen(args.bind.as_ref())?;
    let interrupt = Interrupt::listen()?;
    introduce(listener.local_addr()?, &desk)?;
    let mut server = Server {
        listener,
        desk,
        callers: Vec::new(),
        visitor: None,
        respite: None,
        served: 0,
    };
    let most = if args.once { 1 } else { u64::MAX };
    while !interrupt.raised() && server.served < most {
        server.sleep(&interrupt)?;
        server.accept();
        server.hear_callers();
        server.attend();
    }
    server.close();
    Ok(())
}

fn listen(bind: Option<&HostPort>) -> anyhow::Result<TcpListener> {
    let default = HostPort::loopback();
    let address = bind.unwrap_or(&default);
    let addresses = address.resolve().context("--bind")?;
    let listener = TcpListener::bind(&addresses[..]).with_context(|| {
        format!(
            "cannot listen at {address}: choose an address of this host and a free port with --bind"
        )
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Says where it listens, and who may come.
fn introduce(address: SocketAddr, desk: &Desk) -> anyhow::Result<()> {
    let device = desk.device().map_or_else(
        || "the device that the client names".to_owned(),
        ToString::to_string,
    );
    terminal::say(&format!("listening at {address}, for {device}"));
    if address.ip().is_loopback() {
        terminal::say(
            "only this host reaches it: for others, --bind 0.0.0.0 or an address of the RDMA network",
        );
    } else {
        terminal::warn(&format!(
            "whoever reaches {address} can run measurements on this host: no authentication, no encryption"
        ));
    }
    Ok(())
}

struct Server {
    listener: TcpListener,
    desk: Desk,
    callers: Vec<Caller>,
    visitor: Option<Visitor>,
    /// No more connections are taken until then.
    respite: Option<Instant>,
    /// Clients that have left.
    served: u64,
}

impl Server {
    /// Until somebody calls or says something, a side does, a signal comes, or patience ends.
    fn sleep(&self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let mut fds = vec![PollFd::from_borrowed_fd(interrupt.fd(), PollFlags::IN)];
        let mut wake_at: Option<Instant> = self.respite;
        if self.respite.is_none() {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        let mut earlier = |at: Instant| wake_at = Some(wake_at.map_or(at, |w| w.min(at)));
        for caller in &self.callers {
            fds.push(caller.poll_fd());
            earlier(caller.deadline());
        }
        if let Some(visitor) = &self.visitor {
            fds.extend(visitor.poll_fds());
            earlier(visitor.wake_at());
        }
        let left = |at: Instant| Timespec::try_from(at.saturating_duration_since(Instant::now()));
        let timeout = wake_at
            .map(left)
            .transpose()
            .context("deadline out of range")?;
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e).context("cannot wait for clients"),
        }
    }

    fn accept(&mut self) {
        self.respite = self.respite.filter(|until| Instant::now() < *until);
        while self.respite.is_none() {
            match self.listener.accept() {
                // Its end is the answer to one too many.
                Ok(_) if self.is_crowded() => {}
                Ok((stream, from)) => match Wire::new(stream).map(|wire| Caller::new(wire, from)) {
                    Ok(caller) => self.callers.push(caller),
                    Err(e) => terminal::say(&format!("{from}: {e}")),
                },
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // Who called has gone.
                Err(e) if e.kind() == ErrorKind::ConnectionAborted => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    terminal::warn(&format!("cannot take a connection: {e}"));
                    self.respite = Some(Instant::now() + RESPITE);
                }
            }
        }
    }

    /// Whether there is no room for one more caller, not even after those who left.
    fn is_crowded(&mut self) -> bool {
        if self.callers.len() >= MAX_CALLERS {
            self.hear_callers();
        }
        self.callers.len() >= MAX_CALLERS
    }

    fn hear_callers(&mut self) {
        for mut caller in std::mem::take(&mut self.callers) {
            match caller.turn() {
                Step::Waits => self.callers.push(caller),
                Step::Left => {}
                Step::Asks(visit) => {
                    let busy = self.visitor.as_ref().map(Visitor::name);
                    match self.desk.admit(&visit, caller.reached_at(), busy) {
                        Ok(place) => {
                            let visitor = caller.welcome(place, &visit);
                            self.visitor = visitor.inspect(Visitor::announce);
                        }
                        Err(reason) => self.callers.extend(caller.refuse(&reason)),
                    }
                }
            }
        }
    }

    fn attend(&mut self) {
        let Some(visitor) = &mut self.visitor else {
            return;
        };
        if let Err(why) = visitor.turn() {
            visitor.farewell(&why);
            self.visitor = None;
            self.served += 1;
        }
    }

    /// Tells the client, and ends its side.
    fn close(self) {
        if let Some(mut visitor) = self.visitor {
            visitor.stopped();
        }
    }
}
