//! A program that runs.

use std::cell::Cell;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use adverb_units::Span;

use super::routes::Pending;
use super::{ANSWER_TIMEOUT, KEPT_OUTPUT, Machine};
use crate::error::Error;
use crate::program::{Output, Program, Progress};
use crate::protocol::{Ending, Event, Request, Run, Stream};

/// A program that a machine runs. Dropping it kills the program and its descendants.
pub struct Job<'a> {
    machine: &'a Machine,
    pending: Pending<'a>,
    limit: Span,
    deadline: Option<Instant>,
    state: Cell<State>,
}

/// Whether there is something left to kill.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// The program ended or was never started, or the machine is gone.
    Over,
}

impl<'a> Job<'a> {
    pub(super) fn start(machine: &'a Machine, program: &Program) -> Result<Self, Error> {
        let limit: Duration = program.limit.into();
        let run = Run {
            program: program.program.clone(),
            args: program.args.clone(),
            env: program.env.clone(),
            limit_ms: limit.as_millis().try_into().unwrap_or(u64::MAX),
        };
        let pending = machine.ask(&Request::Run(run))?;
        let deadline = Instant::now().checked_add(limit + Duration::from(ANSWER_TIMEOUT));
        Ok(Job {
            machine,
            pending,
            limit: program.limit,
            deadline,
            state: Cell::new(State::Running),
        })
    }

    /// Waits for the program's next event. [`Progress::Ended`] is the last one.
    ///
    /// # Errors
    /// The program cannot be started; the machine is gone or does not answer.
    pub fn progress(&self) -> Result<Progress, Error> {
        match self.event()? {
            Event::Output {
                stream: Stream::Stdout,
                bytes,
            } => Ok(Progress::Stdout(bytes)),
            Event::Output {
                stream: Stream::Stderr,
                bytes,
            } => Ok(Progress::Stderr(bytes)),
            Event::Ended(ending) => {
                self.state.set(State::Over);
                Ok(Progress::Ended(ending))
            }
            Event::Failed(reason) => {
                self.state.set(State::Over);
                Err(self.machine.refused(reason))
            }
            other => Err(self.machine.refused(format!("unexpected answer {other:?}"))),
        }
    }

    fn event(&self) -> Result<Event, Error> {
        let left = self.deadline.map_or(Duration::MAX, |d| {
            d.saturating_duration_since(Instant::now())
        });
        self.pending.events.recv_timeout(left).map_err(|e| match e {
            RecvTimeoutError::Timeout => {
                let timeout = self.limit + ANSWER_TIMEOUT;
                self.machine.hung("end a program", timeout)
            }
            RecvTimeoutError::Disconnected => {
                self.state.set(State::Over);
                self.machine.ended()
            }
        })
    }

    /// Kills the program and its descendants; [`Job::output`] then returns how it ended.
    ///
    /// # Errors
    /// The machine is gone or does not answer.
    pub fn kill(&self) -> Result<(), Error> {
        self.machine.send(self.pending.job, &Request::Kill)
    }

    /// Waits for the program's end and collects what it prints.
    ///
    /// # Errors
    /// As [`Job::progress`]; more than 64 MiB on a stream.
    pub fn output(self) -> Result<Output, Error> {
        let mut output = Output {
            ending: Ending::LimitReached,
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        loop {
            let (kept, bytes) = match self.progress()? {
                Progress::Stdout(bytes) => (&mut output.stdout, bytes),
                Progress::Stderr(bytes) => (&mut output.stderr, bytes),
                Progress::Ended(ending) => {
                    output.ending = ending;
                    return Ok(output);
                }
            };
            kept.extend(bytes);
            if kept.len() as u64 > KEPT_OUTPUT.get() {
                return Err(Error::TooMuchOutput {
                    machine: self.machine.name.clone(),
                    limit: KEPT_OUTPUT,
                });
            }
        }
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        if self.state.get() == State::Running {
            // Fails only if the machine is gone, and the program with it.
            let _ = self.kill();
        }
    }
}
