//! A machine that runs, and the programs that it runs for the harness.

mod files;
mod job;
mod routes;

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use adverb_units::{Bytes, Span};

use crate::console::Console;
use crate::error::{Error, io_error};
use crate::program::{Output, Program};
use crate::protocol::{Event, JobId, Request, Setup, write_frame};
use crate::qemu::{Hardware, Qemu};
pub use job::Job;
use routes::{Pending, Routes};

/// How long a guest may take to boot, and to bring up its RDMA link: an emulated machine on a
/// loaded host.
const BOOT_TIMEOUT: Span = Span::from_secs(90);
/// How long a guest may take to answer, beyond a program's own limit.
const ANSWER_TIMEOUT: Span = Span::from_secs(20);
/// How long QEMU may take to be gone once the port was closed from its side.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// What is kept of each stream of a program that is run to its end.
const KEPT_OUTPUT: Bytes = Bytes::mib(64);

/// A virtual machine that runs; dropping it ends it.
pub struct Machine {
    name: String,
    address: String,
    port: Mutex<UnixStream>,
    routes: Routes,
    console: Console,
    next_job: AtomicU32,
    qemu: Mutex<Qemu>,
    /// What is known of its end, once somebody looked.
    end: Mutex<Option<String>>,
}

impl Machine {
    /// Starts the machine; when [`Machine::set_up`] returns, it can be used.
    pub(crate) fn start(name: String, address: String, hardware: &Hardware) -> Result<Self, Error> {
        let console = Console::default();
        let (qemu, port) = Qemu::start(hardware, &console)
            .map_err(io_error("cannot start", Path::new(crate::needs::QEMU)))?;
        let prepare = || -> std::io::Result<UnixStream> {
            port.set_write_timeout(Some(ANSWER_TIMEOUT.into()))?;
            port.try_clone()
        };
        let reader = prepare().map_err(io_error("cannot use", Path::new("the port")))?;
        let routes = Routes::new();
        let machine = Machine {
            name,
            address,
            port: Mutex::new(port),
            routes: routes.clone(),
            console,
            // 0 is the guest's greeting.
            next_job: AtomicU32::new(1),
            qemu: Mutex::new(qemu),
            end: Mutex::new(None),
        };
        let greeting = machine.routes.events_of(JobId(0));
        thread::spawn(move || routes.follow(&reader));
        machine.receive(&greeting, BOOT_TIMEOUT, "boot")?;
        Ok(machine)
    }

    /// Gives it its name, network and RDMA link.
    pub(crate) fn set_up(&self, setup: Setup) -> Result<(), Error> {
        let pending = self.ask(&Request::Setup(setup))?;
        self.done(&pending, BOOT_TIMEOUT, "bring up its RDMA link")
    }

    /// Its host name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// IPv4 address of its `eth0`, over which its RDMA device is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The id of its QEMU process on this host.
    pub fn pid(&self) -> u32 {
        let qemu = self.qemu.lock().unwrap_or_else(PoisonError::into_inner);
        qemu.pid().as_raw_nonzero().get().unsigned_abs()
    }

    /// The last lines of its console.
    pub fn console(&self) -> String {
        self.console.last_lines()
    }

    /// Starts a program; several may run at once.
    ///
    /// # Errors
    /// The machine is gone. A program that cannot be started is an error of the [`Job`].
    pub fn start_program(&self, program: &Program) -> Result<Job<'_>, Error> {
        Job::start(self, program)
    }

    /// Runs a program to its end and collects what it prints.
    ///
    /// # Errors
    /// The program cannot be started or prints more than 64 MiB; the machine is gone or does not
    /// answer. A program that fails or reaches its limit is not an error: see [`Output::ending`].
    pub fn run(&self, program: &Program) -> Result<Output, Error> {
        self.start_program(program)?.output()
    }

    /// Waits until a program of the guest listens on this TCP port, as servers do that exchange
    /// their queue pairs' numbers over TCP.
    ///
    /// # Errors
    /// [`Error::Hung`] if none does within `timeout`; the machine is gone or does not answer.
    pub fn wait_until_listening(&self, port: u16, timeout: Span) -> Result<(), Error> {
        let deadline = Instant::now().checked_add(timeout.into());
        loop {
            let mut tables = self.read_file("/proc/net/tcp")?;
            tables.extend(self.read_file("/proc/net/tcp6")?);
            if listens(&String::from_utf8_lossy(&tables), port) {
                return Ok(());
            }
            if deadline.is_some_and(|d| Instant::now() > d) {
                return Err(self.hung("listen on a TCP port", timeout));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn ask(&self, request: &Request) -> Result<Pending<'_>, Error> {
        let job = JobId(self.next_job.fetch_add(1, Ordering::Relaxed));
        let pending = self.routes.await_answers(job);
        self.send(job, request)?;
        Ok(pending)
    }

    fn send(&self, job: JobId, request: &Request) -> Result<(), Error> {
        let port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        write_frame(&*port, job, request).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => self.hung("take a request", ANSWER_TIMEOUT),
            std::io::ErrorKind::InvalidInput => self.refused(error.to_string()),
            _ => self.ended(),
        })
    }

    /// Where a job's events arrive; disconnected at once if the machine has ended.
    fn receive(
        &self,
        events: &Receiver<Event>,
        timeout: Span,
        what: &'static str,
    ) -> Result<Event, Error> {
        match events.recv_timeout(timeout.into()) {
            Ok(event) => Ok(event),
            Err(RecvTimeoutError::Timeout) => Err(self.hung(what, timeout)),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
        }
    }

    fn done(&self, pending: &Pending<'_>, wait: Span, what: &'static str) -> Result<(), Error> {
        match self.receive(&pending.events, wait, what)? {
            Event::Done => Ok(()),
            Event::Failed(reason) => Err(self.refused(reason)),
            other => Err(self.refused(format!("unexpected answer {other:?}"))),
        }
    }

    fn refused(&self, reason: String) -> Error {
        Error::Refused {
            machine: self.name.clone(),
            reason,
        }
    }

    fn hung(&self, what: &'static str, timeout: Span) -> Error {
        Error::Hung {
            machine: self.name.clone(),
            what,
            timeout,
            console: self.console(),
        }
    }

    /// The port is closed: QEMU has ended or is about to.
    fn ended(&self) -> Error {
        let how = self.how_it_ended();
        Error::Ended {
            machine: self.name.clone(),
            how,
            console: self.console(),
        }
    }

    fn how_it_ended(&self) -> String {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*end {
            return known.clone();
        }
        let mut qemu = self.qemu.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + END_TIMEOUT;
        while !qemu.has_ended() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let how = match (qemu.has_ended(), qemu.end()) {
            (true, Some(Ok(status))) => format!(" (QEMU: {status})"),
            (false, _) => " (its port closed, QEMU was killed)".to_owned(),
            _ => String::new(),
        };
        let fault = self.console.fault().map(|fault| format!(": {fault}"));
        end.insert(how + &fault.unwrap_or_default()).clone()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = port.shutdown(Shutdown::Both);
    }
}

/// Whether a socket listens on `port` in the text of `/proc/net/tcp` or `/proc/net/tcp6`: a line
/// `slot: ADDRESS:PORT REMOTE STATE …` in hexadecimal.
fn listens(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().is_some_and(|field| field.ends_with(&suffix));
        local && fields.nth(1) == Some(LISTEN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_found() {
        let table = "  sl  local_address rem_address   st\n\
                     0: 00000000:4855 00000000:0000 0A 0:0\n\
                     1: 0100007F:1234 0100007F:4855 01 0:0\n";
        assert!(listens(table, 0x4855));
        assert!(!listens(table, 0x1234));
        assert!(!listens(table, 0x855));
    }
}
