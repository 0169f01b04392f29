//! A process of roles, or a group of threads instead, as seen by its parent.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use adverb_host::{HubFrame, Wire, WireError};
use adverb_units::Bytes;
use rustix::event::{PollFd, PollFlags};

use crate::catalog::Catalog;
use crate::role::serve;

/// Maximum unread data for a process. Roles send less than a kilobyte at once, and read.
const MOST_WAITING: Bytes = Bytes::mib(16);

/// What roles run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Threads of the calling process, which end at their next wait when they are stopped.
    Threads,
    /// Processes of their own, which can be killed and die with the calling process.
    Processes,
}

/// A process's stderr and its text.
struct Pipe {
    stream: Option<ChildStderr>,
    text: Vec<u8>,
}

impl Pipe {
    fn new(stream: Option<ChildStderr>) -> io::Result<Self> {
        if let Some(stream) = &stream {
            rustix::io::ioctl_fionbio(stream, true)?;
        }
        let text = Vec::new();
        Ok(Pipe { stream, text })
    }

    /// Reads what is available, without waiting.
    fn read(&mut self) -> io::Result<()> {
        let mut piece = [0; 16 * 1024];
        while let Some(stream) = &mut self.stream {
            match stream.read(&mut piece) {
                Ok(0) => self.stream = None,
                Ok(n) => self.text.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Returns the last two lines: for a panic, its place and reason.
    fn last_words(&self) -> String {
        let text = String::from_utf8_lossy(&self.text);
        let said = text.lines().map(str::trim);
        let mut last: Vec<&str> = said
            .filter(|line| !line.is_empty() && !line.starts_with("note:"))
            .rev()
            .take(2)
            .collect();
        last.reverse();
        last.join(" ")
    }
}

/// What the roles run in.
enum Body {
    Child {
        child: Child,
        talk: Pipe,
        status: Option<ExitStatus>,
    },
    Threads {
        /// `None` once it was joined.
        group: Option<JoinHandle<anyhow::Result<()>>>,
        stop: Arc<AtomicBool>,
        /// Why the group ended before its roles started.
        error: Option<String>,
    },
}

/// Roles that were started together.
pub(crate) struct Process {
    /// `None` once the other end has closed it.
    socket: Option<Wire<UnixStream>>,
    body: Body,
    is_stopped: bool,
    /// It did not read its messages, and was killed for that.
    is_deaf: bool,
}

impl Process {
    /// Starts a process and sends it `order`; `ps` shows it as `names`.
    pub(crate) fn start(
        catalog: &'static Catalog,
        mode: Mode,
        names: &str,
        order: &[u8],
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut socket = Wire::local(ours)?;
        let order = HubFrame::Control(order.to_vec());
        socket
            .send(&[&order.to_bytes()])
            .map_err(io::Error::other)?;
        let body = match mode {
            Mode::Processes => spawn(names, theirs.into())?,
            Mode::Threads => threads(catalog, theirs)?,
        };
        Ok(Process {
            socket: Some(socket),
            body,
            is_stopped: false,
            is_deaf: false,
        })
    }

    /// Whether it has not ended yet.
    pub(crate) fn is_running(&self) -> bool {
        match &self.body {
            Body::Child { status, .. } => status.is_none(),
            Body::Threads { group, .. } => group.is_some(),
        }
    }

    /// Whether a signal ended it.
    pub(crate) fn was_killed(&self) -> bool {
        match &self.body {
            Body::Child { status, .. } => status.is_some_and(|status| status.signal().is_some()),
            Body::Threads { .. } => false,
        }
    }

    /// What to wait for.
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let socket = self.socket.as_ref().map(Wire::poll_fd);
        let talk = match &self.body {
            Body::Child { talk, .. } => talk.stream.as_ref(),
            Body::Threads { .. } => None,
        };
        let talk = talk.map(|stream| PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN));
        socket.into_iter().chain(talk)
    }

    /// Returns the next frame, if one has arrived. Reaps the process if it has ended.
    pub(crate) fn receive(&mut self) -> io::Result<Option<HubFrame>> {
        if let Some(socket) = &mut self.socket {
            // A process that has ended is noticed when it is read from.
            let _ = socket.flush();
            match socket.receive() {
                Ok(Some(frame)) => {
                    let frame = HubFrame::read(&frame);
                    let strange = || io::Error::other("a role sent a malformed frame");
                    return frame.ok_or_else(strange).map(Some);
                }
                Ok(None) => {}
                Err(WireError::System(e)) => return Err(e),
                Err(_) => self.socket = None,
            }
        }
        self.reap()?;
        Ok(None)
    }

    fn reap(&mut self) -> io::Result<()> {
        match &mut self.body {
            Body::Child {
                child,
                talk,
                status,
            } => {
                talk.read()?;
                if status.is_none() && self.socket.is_none() && talk.stream.is_none() {
                    *status = Some(child.wait()?);
                }
            }
            Body::Threads { group, error, .. } => {
                if let Some(group) = group.take_if(|_| self.socket.is_none()) {
                    // Panics of roles were caught.
                    if let Ok(Err(e)) = group.join() {
                        *error = Some(crate::text::one_line(&e));
                    }
                }
            }
        }
        Ok(())
    }

    /// Sends a frame. Kills a process that does not read its messages.
    pub(crate) fn send(&mut self, frame: &HubFrame) {
        let Some(socket) = &mut self.socket else {
            return;
        };
        // A process that has ended is noticed when it is read from.
        let _ = socket.send(&[&frame.to_bytes()]);
        if socket.unsent() > MOST_WAITING {
            self.is_deaf = true;
            self.kill();
        }
    }

    /// Ends the process if it is running.
    pub(crate) fn kill(&mut self) {
        if !self.is_running() {
            return;
        }
        self.is_stopped = true;
        match &mut self.body {
            // Killing fails if it has just ended by itself.
            Body::Child { child, .. } => drop(child.kill()),
            Body::Threads { stop, .. } => stop.store(true, Ordering::Relaxed),
        }
    }

    /// Returns why roles ended without an answer; `None` if they were ended on purpose.
    pub(crate) fn end_without_answer(&self) -> Option<String> {
        if self.is_deaf {
            return Some(format!("did not read {MOST_WAITING} of messages"));
        }
        if self.is_stopped {
            return None;
        }
        match &self.body {
            Body::Child { talk, status, .. } => {
                let how = status.map_or_else(|| "vanished".to_owned(), how_ended);
                Some(match talk.last_words() {
                    words if words.is_empty() => how,
                    words => format!("{how} ({words})"),
                })
            }
            Body::Threads { error, .. } => {
                let error = error.clone();
                Some(error.unwrap_or_else(|| "ended without an answer".to_owned()))
            }
        }
    }
}

impl Drop for Process {
    /// Ends and reaps the process, also if its owner has failed.
    fn drop(&mut self) {
        if !self.is_running() {
            return;
        }
        self.kill();
        match &mut self.body {
            Body::Child { child, .. } => drop(child.wait()),
            Body::Threads { group, .. } => {
                // Closing the socket ends the roles that read from it.
                self.socket = None;
                drop(group.take().map(JoinHandle::join));
            }
        }
    }
}

/// Starts a process whose stdin is `socket`.
fn spawn(names: &str, socket: OwnedFd) -> io::Result<Body> {
    // Not by path: the file may have been replaced during a long study.
    let mut child = Command::new("/proc/self/exe")
        .arg0("adverb")
        .args(["role", names])
        // The last lines of stderr become one line of a record.
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::from(socket))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // Ctrl-C is for the parent, which ends the roles in its own order.
        .process_group(0)
        .spawn()?;
    Ok(Body::Child {
        talk: Pipe::new(child.stderr.take())?,
        child,
        status: None,
    })
}

/// Starts threads that behave like a process.
fn threads(catalog: &'static Catalog, socket: UnixStream) -> io::Result<Body> {
    let stop = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&stop);
    let thread = std::thread::Builder::new().name("roles".to_owned());
    let group = thread.spawn(move || serve(catalog, socket, Some(theirs)))?;
    Ok(Body::Threads {
        group: Some(group),
        stop,
        error: None,
    })
}

fn how_ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("killed by signal {signal}"),
        (None, Some(code)) => format!("ended with status {code} and no answer"),
        (None, None) => "ended without an answer".to_owned(),
    }
}
