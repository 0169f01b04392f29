//! The guest's `/init`: mounts, modules, network and RDMA links, then the commands of the harness.
//!
//! It is process 1 and serves until the harness closes the port, then powers off. A panic here is
//! a panic of the guest's kernel, which the harness reports with the console's last lines.
//! Orphans are not reaped: a zombie costs nothing in a machine that lives for minutes.

mod files;
mod jobs;
mod setup;

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::system::{RebootCommand, reboot};

use crate::protocol::{Event, JobId, PORT, Request, read_frame, write_frame};
use jobs::Jobs;

/// The name under which the kernel starts a program as process 1.
pub const INIT_NAME: &str = "init";

/// How long the port may take to appear after its driver is loaded.
const PORT_TIMEOUT: Duration = Duration::from_secs(20);

/// Towards the harness; jobs share it.
#[derive(Clone)]
struct Reply {
    port: Arc<Mutex<File>>,
    job: JobId,
}

impl Reply {
    fn to(&self, job: JobId) -> Self {
        let port = Arc::clone(&self.port);
        Reply { port, job }
    }

    /// Sends an event. It is not an error if the harness is gone: the reader of requests ends the guest.
    fn send(&self, event: &Event) {
        let port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = write_frame(&*port, self.job, event) {
            eprintln!("adverb-vm: cannot answer the harness: {error}");
        }
    }

    /// Ends a job that has no output but its result.
    fn finish(&self, result: anyhow::Result<()>) {
        self.send(&match result {
            Ok(()) => Event::Done,
            Err(error) => Event::Failed(format!("{error:#}")),
        });
    }
}

/// Is process 1 of a guest: returns only where it cannot power the machine off, for instance
/// because this is not a guest.
pub fn run_init() -> ExitCode {
    if std::process::id() != 1 {
        eprintln!("error: {INIT_NAME} runs as process 1 of a machine that adverb-vm boots");
        return ExitCode::from(2);
    }
    if let Err(error) = serve() {
        eprintln!("adverb-vm: {error:#}");
    }
    let error = reboot(RebootCommand::Restart);
    eprintln!("adverb-vm: cannot restart: {error:?}");
    ExitCode::FAILURE
}

fn serve() -> anyhow::Result<()> {
    setup::modules()?;
    setup::mounts()?;
    let port = open_port()?;
    let reply = Reply {
        port: Arc::new(Mutex::new(port.try_clone()?)),
        job: JobId(0),
    };
    // Also waits until the other end is open: a read before that would look like its end.
    reply.send(&Event::Hello);
    let jobs = Jobs::default();
    loop {
        let (job, request) = match read_frame::<Request>(&port) {
            Ok(frame) => frame,
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(e).context("cannot read from the harness"),
        };
        let reply = reply.to(job);
        match request {
            Request::Setup(wanted) => reply.finish(setup::network(&wanted)),
            Request::Run(run) => jobs.start(run, reply),
            Request::Kill => jobs.kill(job),
            Request::Write { path, how, bytes } => reply.finish(files::write(&path, how, &bytes)),
            Request::Get { path } => files::send(path, reply),
        }
    }
}

fn open_port() -> anyhow::Result<File> {
    let deadline = Instant::now() + PORT_TIMEOUT;
    loop {
        if let Some(device) = find_port() {
            let opened = OpenOptions::new().read(true).write(true).open(&device);
            return opened.with_context(|| format!("cannot open {}", device.display()));
        }
        if Instant::now() > deadline {
            bail!("no virtio-serial port named '{PORT}' within {PORT_TIMEOUT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn find_port() -> Option<PathBuf> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    ports.flatten().find_map(|port| {
        let name = fs::read_to_string(port.path().join("name")).ok()?;
        let device = PathBuf::from("/dev").join(port.file_name());
        (name.trim() == PORT && device.exists()).then_some(device)
    })
}
