//! Programs that the guest runs for the harness, several at once.

use std::collections::HashMap;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process_group};

use super::Reply;
use crate::protocol::{CHUNK, Ending, Event, JobId, Run, Stream};

/// The `PATH` of programs.
pub(super) const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// How long output may still come after its program ended: a descendant that left the process
/// group may hold the pipe open indefinitely.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The jobs that run. Each is known by the sender that has it killed.
#[derive(Clone, Default)]
pub(super) struct Jobs(Arc<Mutex<HashMap<JobId, Sender<Wakeup>>>>);

/// Why a job's keeper wakes up.
enum Wakeup {
    Kill,
    Exited(std::io::Result<ExitStatus>),
}

impl Jobs {
    /// Starts a program; its events are sent through `reply`.
    pub(super) fn start(&self, run: Run, reply: Reply) {
        let (wake, woken) = mpsc::channel();
        self.with(|jobs| jobs.insert(reply.job, wake.clone()));
        let jobs = self.clone();
        thread::spawn(move || {
            match keep(&run, &reply, wake, &woken) {
                Ok(ending) => reply.send(&Event::Ended(ending)),
                Err(error) => reply.send(&Event::Failed(format!("{error:#}"))),
            }
            jobs.with(|jobs| jobs.remove(&reply.job));
        });
    }

    /// Kills what a job runs; one that has ended is not an error.
    pub(super) fn kill(&self, job: JobId) {
        self.with(|jobs| jobs.get(&job).map(|wake| wake.send(Wakeup::Kill)));
    }

    fn with<T>(&self, f: impl FnOnce(&mut HashMap<JobId, Sender<Wakeup>>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs a program to its end or its limit.
fn keep(
    run: &Run,
    reply: &Reply,
    wake: Sender<Wakeup>,
    woken: &Receiver<Wakeup>,
) -> anyhow::Result<Ending> {
    let mut child = spawn(run)?;
    let group = Pid::from_child(&child);
    let drained = pump_all(&mut child, reply);
    thread::spawn(move || wake.send(Wakeup::Exited(child.wait())));
    let deadline = Instant::now().checked_add(Duration::from_millis(run.limit_ms));
    let mut limit_reached = false;
    let status = loop {
        let left = deadline.map_or(Duration::MAX, |d| {
            d.saturating_duration_since(Instant::now())
        });
        let left = if limit_reached { Duration::MAX } else { left };
        match woken.recv_timeout(left) {
            Ok(Wakeup::Exited(status)) => break status.context("cannot wait for the program")?,
            Ok(Wakeup::Kill) => kill(group),
            Err(RecvTimeoutError::Timeout) => {
                limit_reached = true;
                kill(group);
            }
            Err(RecvTimeoutError::Disconnected) => unreachable!("the waiting thread reports"),
        }
    };
    // Descendants end with their program.
    kill(group);
    for _ in 0..2 {
        let _ = drained.recv_timeout(DRAIN_TIMEOUT);
    }
    Ok(match (limit_reached, status.code(), status.signal()) {
        (true, _, _) => Ending::LimitReached,
        (false, Some(code), _) => Ending::Exited(code),
        (false, None, signal) => Ending::Signaled(signal.unwrap_or_default()),
    })
}

fn spawn(run: &Run) -> anyhow::Result<Child> {
    Command::new(&run.program)
        .args(&run.args)
        .env_clear()
        .envs([("PATH", PATH), ("HOME", "/run"), ("TMPDIR", "/tmp")])
        .envs(run.env.iter().map(|(k, v)| (k, v)))
        .current_dir("/run")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot run {}", run.program))
}

fn kill(group: Pid) {
    // Fails only if nobody is left in the group.
    let _ = kill_process_group(group, Signal::KILL);
}

/// Forwards both streams; the receiver is notified of the end of each.
fn pump_all(child: &mut Child, reply: &Reply) -> Receiver<()> {
    let (done, drained) = mpsc::channel();
    let stdout = child.stdout.take().expect("stdout is piped");
    let stderr = child.stderr.take().expect("stderr is piped");
    let (reply_too, done_too) = (reply.to(reply.job), done.clone());
    thread::spawn(move || pump(stderr, Stream::Stderr, &reply_too, &done_too));
    let reply = reply.to(reply.job);
    thread::spawn(move || pump(stdout, Stream::Stdout, &reply, &done));
    drained
}

fn pump(mut from: impl Read, stream: Stream, reply: &Reply, done: &Sender<()>) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(n @ 1..) = from.read(&mut chunk) {
        let bytes = chunk[..n].to_vec();
        reply.send(&Event::Output { stream, bytes });
    }
    let _ = done.send(());
}
