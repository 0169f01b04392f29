//! One side as its parent sees it: a process and what it says.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};

use super::{Answer, Ended, Side, SideDevice};

/// How a side ended, as its parent saw it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// It said how.
    Answered(Ended),
    /// It died, or said nothing that can be understood.
    Died(String),
    /// The parent ended it.
    Stopped,
}

impl End {
    /// Why the side failed, and how little that explains (0 is best); none if it did not fail.
    pub(crate) fn reason(self, side: Side) -> Option<(u8, String)> {
        match self {
            End::Died(how) => Some((0, format!("{} side: {how}", side.name()))),
            End::Answered(Ended::Failed { reason, peer_gone }) => {
                Some((1 + u8::from(peer_gone), reason))
            }
            End::Answered(_) | End::Stopped => None,
        }
    }
}

/// A stream of the process, and what came out of it.
struct Pipe<S> {
    stream: Option<S>,
    text: Vec<u8>,
}

impl<S: Read + AsFd> Pipe<S> {
    fn new(stream: Option<S>) -> io::Result<Self> {
        if let Some(stream) = &stream {
            rustix::io::ioctl_fionbio(stream, true)?;
        }
        Ok(Pipe {
            stream,
            text: Vec::new(),
        })
    }

    fn poll_fd(&self) -> Option<PollFd<'_>> {
        let stream = self.stream.as_ref()?;
        Some(PollFd::new(stream, PollFlags::IN))
    }

    /// Takes what is there, without waiting.
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

    /// The last words: of a panic, where and why.
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

/// A side that was started.
pub(crate) struct Running {
    child: Child,
    answer: Pipe<ChildStdout>,
    talk: Pipe<ChildStderr>,
    status: Option<ExitStatus>,
    stopped: bool,
}

impl Running {
    /// Starts a side with its end of the socket pair as stdin.
    pub(crate) fn spawn(side: Side, link: OwnedFd) -> io::Result<Self> {
        // Not by its path: the file there may have been replaced during a long study.
        let mut child = Command::new("/proc/self/exe")
            .arg0("adverb")
            .args(["role", side.name()])
            // Its last words go into a record, in one line.
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::from(link))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for the parent, which ends the sides in its own order.
            .process_group(0)
            .spawn()?;
        Ok(Running {
            answer: Pipe::new(child.stdout.take())?,
            talk: Pipe::new(child.stderr.take())?,
            child,
            status: None,
            stopped: false,
        })
    }

    /// Whether it has not ended yet.
    pub(crate) fn is_running(&self) -> bool {
        self.status.is_none()
    }

    /// Whether it has ended, and not well.
    pub(crate) fn has_failed(&self) -> bool {
        self.status.is_some_and(|status| !status.success())
    }

    /// Whether a signal ended it.
    pub(crate) fn was_killed(&self) -> bool {
        self.status.is_some_and(|status| status.signal().is_some())
    }

    /// What to wait for.
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.answer.poll_fd().into_iter().chain(self.talk.poll_fd())
    }

    /// Takes what it said; reaps it if it has ended.
    pub(crate) fn read(&mut self) -> io::Result<()> {
        self.answer.read()?;
        self.talk.read()?;
        let ended = self.answer.stream.is_none() && self.talk.stream.is_none();
        if ended && self.status.is_none() {
            self.status = Some(self.child.wait()?);
        }
        Ok(())
    }

    /// Ends it, if it has not ended.
    pub(crate) fn kill(&mut self) {
        if self.is_running() {
            self.stopped = true;
            // It may just have ended by itself, which is as well.
            let _ = self.child.kill();
        }
    }

    /// How it ended, and what it said of its device.
    pub(crate) fn end(self) -> (End, SideDevice) {
        match serde_json::from_slice(&self.answer.text) {
            Ok(Answer {
                end,
                counters,
                details,
            }) => (End::Answered(end), SideDevice { counters, details }),
            Err(_) => (self.end_without_answer(), SideDevice::default()),
        }
    }

    fn end_without_answer(&self) -> End {
        if self.stopped {
            return End::Stopped;
        }
        let how = self.status.map_or_else(|| "vanished".to_owned(), told);
        End::Died(match self.talk.last_words() {
            words if words.is_empty() => how,
            words => format!("{how} ({words})"),
        })
    }
}

impl Drop for Running {
    /// None is left behind where the watch itself failed.
    fn drop(&mut self) {
        if self.is_running() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn told(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("killed by signal {signal}"),
        (None, Some(code)) => format!("ended with status {code} and no answer"),
        (None, None) => "ended without an answer".to_owned(),
    }
}
