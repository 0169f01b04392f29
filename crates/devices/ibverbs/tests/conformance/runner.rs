//! Runs cases in a process of their own, so that one that fails or hangs ends no other: the cases after it run in a new
//! process.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use adverb_conformance::known::Outcome;

use crate::args::{CASES, Subject};
use crate::one::PASSED;

/// Runs cases on a device.
pub(crate) struct Runner<'s> {
    subject: &'s Subject,
    process: Option<Process>,
}

impl<'s> Runner<'s> {
    pub(crate) fn new(subject: &'s Subject) -> Self {
        let process = None;
        Runner { subject, process }
    }

    /// Runs a case, for at most `limit`.
    pub(crate) fn run(&mut self, name: &str, limit: Duration) -> Outcome {
        let mut process = match self.process.take() {
            Some(process) => process,
            None => Process::start(self.subject),
        };
        let answer = process.ask(name, limit);
        match answer {
            Ok(answer) => {
                self.process = Some(process);
                match answer == PASSED {
                    true => Outcome::Passed,
                    false => Outcome::Lacks(answer),
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let said = process.kill();
                Outcome::Failed(format!("did not end within {limit:?}; {said}"))
            }
            Err(RecvTimeoutError::Disconnected) => Outcome::Failed(process.end()),
        }
    }
}

struct Process {
    child: Child,
    stdin: ChildStdin,
    stderr: ChildStderr,
    answers: Receiver<String>,
}

impl Process {
    fn start(subject: &Subject) -> Self {
        let program = std::env::current_exe().expect("the running program has a path");
        let child = Command::new(program)
            .args(subject.args())
            .arg(CASES)
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.expect("start a process for cases");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = child.stdout.take().expect("a pipe");
        let stderr = child.stderr.take().expect("a pipe");
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            // Nobody waits for the answers of a process that was too slow.
            let _ = lines.map(|line| sender.send(line)).find(Result::is_err);
        });
        Process {
            child,
            stdin,
            stderr,
            answers,
        }
    }

    fn ask(&mut self, name: &str, limit: Duration) -> Result<String, RecvTimeoutError> {
        // Where it has ended, nothing answers.
        let _ = writeln!(self.stdin, "{name}");
        self.answers.recv_timeout(limit)
    }

    fn kill(mut self) -> String {
        let _ = self.child.kill();
        self.end()
    }

    /// How the process has ended, and what it wrote to stderr.
    fn end(mut self) -> String {
        let status = self.child.wait().expect("the child is ours");
        let mut said = Vec::new();
        let _ = self.stderr.read_to_end(&mut said);
        format!("{status}: {}", String::from_utf8_lossy(&said).trim())
    }
}
