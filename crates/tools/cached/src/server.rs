//! The threads of a server: one accepts, the others serve.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope};
use std::time::Duration;

use adverb_verbs::Context;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::connection::{Connection, READ};
use crate::rdma::Rdma;
use crate::shared::Shared;

/// The event that ends a thread; no descriptor has this number.
const STOP: u64 = u64::MAX;
/// Events that a thread takes at once.
const EVENTS: usize = 256;
/// Descriptors of the process in addition to connections.
const OTHER_FILES: u64 = 64;
/// Time until accepting is tried again when it failed.
const AGAIN: Duration = Duration::from_millis(10);

/// The server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It cannot listen.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// Too few open files are allowed.
    #[error(
        "{connections} connections need {needed} open files, and the limit is {limit}; use fewer --connections, or raise it (ulimit -Hn)"
    )]
    Files {
        /// Connections.
        connections: u32,
        /// Files that they need.
        needed: u64,
        /// The hard limit.
        limit: u64,
    },
    /// The system refused something else.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// A server that listens.
pub struct Server<C: Context> {
    listener: TcpListener,
    shared: Arc<Shared<C>>,
    workers: Vec<Worker>,
    connections: u32,
    stop: Stop,
}

/// Ends a server.
#[derive(Clone, Debug)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// Ends it.
    pub fn stop(&self) {
        // The counter of an eventfd takes 2^64 - 2 of these.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// A thread that serves.
#[derive(Debug)]
struct Worker {
    epoll: OwnedFd,
    /// Connections that it has not seen yet.
    inbox: Mutex<Vec<TcpStream>>,
}

impl<C: Context> Server<C>
where
    Shared<C>: Send + Sync,
    Rdma<C>: Sync,
{
    /// Listens at an address, for a number of connections that some threads will serve.
    ///
    /// # Errors
    /// The address is in use or not of this host, or the system's limits are too low.
    pub fn bind(
        address: SocketAddr,
        (threads, connections): (u32, u32),
        shared: Arc<Shared<C>>,
    ) -> Result<Self, StartError> {
        allow_files(connections)?;
        let listener = TcpListener::bind(address).map_err(|e| StartError::Listen(address, e))?;
        listener.set_nonblocking(true)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = Stop(Arc::new(stop.map_err(io::Error::from)?));
        let worker = |_| -> io::Result<Worker> {
            let epoll = epoll::create(CreateFlags::CLOEXEC)?;
            epoll::add(&epoll, &*stop.0, EventData::new_u64(STOP), EventFlags::IN)?;
            Ok(Worker {
                epoll,
                inbox: Mutex::default(),
            })
        };
        let workers = (0..threads.max(1)).map(worker).collect::<io::Result<_>>()?;
        Ok(Server {
            listener,
            shared,
            workers,
            connections,
            stop,
        })
    }

    /// Returns where it listens.
    ///
    /// # Errors
    /// The system failed.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns what ends it.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// A thread could not be started, or the system failed.
    pub fn run(&self) -> io::Result<()> {
        std::thread::scope(|scope| {
            let served = self.start(scope).and_then(|()| self.accept());
            // The scope waits for the threads that were started, also if another one could not be.
            self.stop.stop();
            if let Some(rdma) = &self.shared.rdma {
                rdma.stop();
            }
            served
        })
    }

    /// Starts the threads that serve.
    fn start<'s>(&'s self, scope: &'s Scope<'s, '_>) -> io::Result<()> {
        let rdma = self.shared.rdma.iter();
        let rdma = rdma.flat_map(|rdma| rdma.threads().map(move |number| (rdma, number)));
        let count = self.workers.len() + rdma.clone().count();
        let failed = |e: io::Error| {
            let reason = format!("cannot start {count} threads: {e}");
            io::Error::new(e.kind(), reason)
        };
        let named = || Builder::new().name("adverb-store".to_owned());
        for worker in &self.workers {
            let started = named().spawn_scoped(scope, || worker.run(&self.shared));
            started.map_err(failed)?;
        }
        for (rdma, number) in rdma {
            let started = named().spawn_scoped(scope, move || rdma.run(number, &self.shared));
            started.map_err(failed)?;
        }
        Ok(())
    }

    /// Accepts connections, for each thread in turn.
    fn accept(&self) -> io::Result<()> {
        for worker in self.workers.iter().cycle() {
            let stream = loop {
                let wanted = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
                let mut fds = [self.listener.as_fd(), self.stop.0.as_fd()].map(wanted);
                match poll(&mut fds, None) {
                    Err(rustix::io::Errno::INTR) => continue,
                    other => other?,
                };
                if !fds[1].revents().is_empty() {
                    return Ok(());
                }
                match self.listener.accept() {
                    Ok((stream, _)) => break stream,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    // The client has gone, or files are short for a while.
                    Err(_) => std::thread::sleep(AGAIN),
                }
            };
            self.admit(worker, stream);
        }
        Ok(())
    }

    /// Hands a connection to a thread, or refuses it.
    fn admit(&self, worker: &Worker, mut stream: TcpStream) {
        let is_full = {
            let counts = &mut self.shared.items().counts;
            let is_full = counts.curr_connections >= self.connections.into();
            match is_full {
                true => counts.rejected_connections += 1,
                false => {
                    counts.curr_connections += 1;
                    counts.total_connections += 1;
                }
            }
            is_full
        };
        if is_full {
            // It fits the buffer of a new socket. The client may be gone already.
            let _ = stream.write_all(b"ERROR Too many open connections\r\n");
            return;
        }
        let prepared = stream
            .set_nonblocking(true)
            .and_then(|()| stream.set_nodelay(true));
        let fd = stream.as_raw_fd();
        // An event before the next line finds no connection, and is reported again.
        let added = prepared.and_then(|()| {
            let id = EventData::new_u64(fd as u64);
            Ok(epoll::add(&worker.epoll, &stream, id, EventFlags::IN)?)
        });
        match added {
            Ok(()) => worker.inbox().push(stream),
            Err(_) => self.shared.items().counts.curr_connections -= 1,
        }
    }
}

impl Worker {
    fn inbox(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run<C: Context>(&self, shared: &Shared<C>) {
        let mut connections: HashMap<u64, (Connection, EventFlags)> = HashMap::new();
        let mut events = Vec::with_capacity(EVENTS);
        let mut buffer = vec![0; READ];
        loop {
            events.clear();
            let waited = epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                None,
            );
            if waited.is_err() {
                // Interrupted by a signal: nothing else can fail with valid arguments.
                continue;
            }
            for event in &events {
                let id = event.data.u64();
                if id == STOP {
                    connections
                        .into_values()
                        .for_each(|(connection, _)| connection.end(shared));
                    return;
                }
                if !connections.contains_key(&id) {
                    let new = std::mem::take(&mut *self.inbox()).into_iter();
                    connections.extend(new.map(|stream| {
                        let id = stream.as_raw_fd() as u64;
                        (id, (Connection::new(stream), EventFlags::IN))
                    }));
                }
                let Some((connection, waits_for)) = connections.get_mut(&id) else {
                    continue;
                };
                let wanted = connection.turn(shared, &mut buffer);
                let changed = match wanted {
                    Some(wanted) if wanted != *waits_for => {
                        *waits_for = wanted;
                        epoll::modify(
                            &self.epoll,
                            &connection.stream,
                            EventData::new_u64(id),
                            wanted,
                        )
                    }
                    Some(_) => Ok(()),
                    None => Err(rustix::io::Errno::PIPE),
                };
                if changed.is_err()
                    && let Some((connection, _)) = connections.remove(&id)
                {
                    connection.end(shared);
                    shared.items().counts.curr_connections -= 1;
                }
            }
        }
    }
}

/// Raises the limit of open files, if it is too low.
fn allow_files(connections: u32) -> Result<(), StartError> {
    let needed = u64::from(connections) + OTHER_FILES;
    let limits = getrlimit(Resource::Nofile);
    if limits.current.is_none_or(|limit| limit >= needed) {
        return Ok(());
    }
    if let Some(limit) = limits.maximum.filter(|limit| *limit < needed) {
        return Err(StartError::Files {
            connections,
            needed,
            limit,
        });
    }
    let limits = Rlimit {
        current: Some(needed),
        ..limits
    };
    Ok(setrlimit(Resource::Nofile, limits).map_err(io::Error::from)?)
}
