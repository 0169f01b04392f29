//! Writes what the program did: when the process exits, when SIGHUP, SIGINT or SIGTERM ends it, and, in a file, once a
//! second while it runs. A process that ends by SIGKILL or `_exit` writes no table; its file has what happened until the
//! last second.

use std::ffi::c_int;
use std::fs::OpenOptions;
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use adverb_host::Machine;
use adverb_results::{
    DeviceKind, DeviceRef, Outcome, Provenance, RUN, Record, SCHEMA, Site, Values,
};

use adverb_softnic::{RECORD_VARIABLE, Settings, StatsFormat};

use super::{Process, at_end, process, table};
use crate::object::lock;
use crate::settings::{print, settings};

/// Signals that end a program, unless it handles them.
const SIGNALS: [c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];
/// Time between two writes of the file.
const INTERVAL: libc::timespec = libc::timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// The process whose thread writes.
static WRITER: AtomicU32 = AtomicU32::new(0);
/// The signal that ends the process; 0 for none. A futex on which the writing thread sleeps, because a signal handler may
/// wake it.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Calls futex(2) on [`SIGNAL`]. A wait, which ends at once unless the value is 0, measures its time on the monotonic clock.
fn futex(operation: c_int, value: c_int, timeout: Option<&libc::timespec>) {
    let timeout = timeout.map_or(std::ptr::null(), std::ptr::from_ref);
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word lives as long as the process; the time is null or borrowed.
    unsafe { libc::syscall(libc::SYS_futex, SIGNAL.as_ptr(), operation, value, timeout) };
}

/// Starts the thread that writes at intervals and at signals.
pub(super) fn begin() {
    SIGNAL.store(0, Ordering::Relaxed);
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // The thread takes none of the program's signals.
    // SAFETY: both sets are written before they are read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let name = "adverb-stats".to_owned();
    let thread = std::thread::Builder::new().name(name).spawn(serve);
    // SAFETY: `before` has been written.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    if thread.is_ok() {
        WRITER.store(std::process::id(), Ordering::Release);
        SIGNALS.iter().for_each(|signal| handle(*signal));
    }
}

/// Handles a signal that would end the process.
fn handle(signal: c_int) {
    // SAFETY: all zeros are an action: the default one.
    let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    // SAFETY: `action` is writable.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } == 0;
    if known && action.sa_sigaction == libc::SIG_DFL {
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler only calls functions that signal handlers may call.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

/// Passes a signal on to the thread, which ends the process by it.
extern "C" fn on_signal(signal: c_int) {
    // SAFETY: the location belongs to this thread; `getpid`, `futex` and `end_by` may be called in handlers.
    unsafe {
        let errno = *libc::__errno_location();
        if WRITER.load(Ordering::Acquire) == libc::getpid() as u32 {
            SIGNAL.store(signal, Ordering::Release);
            futex(libc::FUTEX_WAKE, 1, None);
        } else {
            // A child of a fork has no such thread.
            end_by(signal);
        }
        *libc::__errno_location() = errno;
    }
}

/// Ends the process by the signal's default action, as if it had not been handled.
fn end_by(signal: c_int) {
    // SAFETY: all zeros are the default action.
    unsafe {
        let action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        libc::kill(libc::getpid(), signal);
    }
}

fn serve() {
    loop {
        futex(libc::FUTEX_WAIT, 0, Some(&INTERVAL));
        let signal = SIGNAL.swap(0, Ordering::Acquire);
        let Ok(settings) = settings() else { return };
        let Some(process) = &*process() else { return };
        match signal {
            0 => write_file(process, settings, "interval"),
            _ => {
                write(process, settings, &format!("signal {signal}"));
                end_by(signal);
            }
        }
    }
}

/// Writes the counters of a process that exits.
pub(crate) fn at_exit() {
    if super::is_wanted()
        && let (Ok(settings), Some(process)) = (settings(), at_end())
        && let Some(process) = &*process
    {
        write(process, settings, "exit");
    }
}

fn write(process: &Process, settings: &Settings, written_at: &str) {
    match settings.stats {
        None => {}
        Some(StatsFormat::Table) => {
            let activity = process.activity(written_at);
            let text = table::table(&program(), process.id, &activity, &process.port_counters());
            let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
        }
        Some(StatsFormat::Json) => {
            let line = line(&record(process, written_at));
            let _ = io::Write::write_all(&mut io::stderr(), line.as_bytes());
        }
    }
    write_file(process, settings, written_at);
}

/// The file of a process.
struct RecordFile {
    process: u32,
    /// Once it has been created.
    path: Option<PathBuf>,
    /// Whether a failure was reported. Later writes may succeed, and fail silently.
    has_failed: bool,
}

/// Writes the file of this process, if one is wanted.
fn write_file(process: &Process, settings: &Settings, written_at: &str) {
    static FILE: Mutex<Option<RecordFile>> = Mutex::new(None);
    let Some(folder) = &settings.record else {
        return;
    };
    let mut file = lock(&FILE);
    file.take_if(|file| file.process != process.id);
    let file = file.get_or_insert(RecordFile {
        process: process.id,
        path: None,
        has_failed: false,
    });
    let known = file.path.take();
    let is_new = known.is_none();
    let path = known.map_or_else(|| created(folder, process.id), Ok);
    let written = path.and_then(|path| {
        let written = replace(&path, &line(&record(process, written_at)));
        match &written {
            // The disk is full: no empty file stays.
            Err(_) if is_new => drop(std::fs::remove_file(&path)),
            _ => file.path = Some(path),
        }
        written
    });
    if let Err(error) = written
        && !std::mem::replace(&mut file.has_failed, true)
    {
        let folder = folder.display();
        print(&format!(
            "cannot write to {folder} ({RECORD_VARIABLE}): {error}"
        ));
    }
}

/// Replaces a file at once, so that a process that is killed leaves a complete record.
fn replace(path: &Path, content: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let written = std::fs::write(&new, content).and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}

/// Creates the file of a process. In another PID namespace there may be one with the same name.
fn created(folder: &Path, id: u32) -> io::Result<PathBuf> {
    let program = program();
    let mut suffix = String::new();
    for n in 2.. {
        let path = folder.join(format!("run-{program}-{id}{suffix}.jsonl"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                suffix = format!("-{n}");
            }
            created => return created.map(|_| path),
        }
    }
    unreachable!("a number is free")
}

/// Returns the file name of the program.
fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&path).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn line(record: &Record) -> String {
    let mut line = serde_json::to_string(record).expect("a record has only text keys");
    line.push('\n');
    line
}

fn record(process: &Process, written_at: &str) -> Record {
    let machine = Machine::this();
    let mut params = Values::new();
    params.insert("program".into(), program().into());
    let arguments = std::env::args_os().skip(1);
    let arguments: Vec<_> = arguments
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    params.insert("arguments".into(), arguments.into());
    params.insert("pid".into(), process.id.into());
    let ports = process.port_counters();
    let devices: Vec<_> = ports.keys().map(String::as_str).collect();
    Record {
        schema: SCHEMA,
        cell: format!("{RUN}/{}", program()),
        label: None,
        pass: None,
        figures: Vec::new(),
        program: RUN.to_owned(),
        device: DeviceRef {
            kind: DeviceKind::Soft,
            name: devices.join(","),
        },
        params,
        outcome: Outcome::Ok,
        metrics: Some(process.activity(written_at).metrics()),
        roles: Vec::new(),
        counters: ports,
        provenance: Provenance {
            adverb: env!("CARGO_PKG_VERSION").to_owned(),
            revision: None,
            started: process.started.clone(),
            virtual_time: false,
            active: Site {
                host: machine.host,
                kernel: machine.kernel,
                cpu: machine.cpu,
                cores: machine.cores,
                device: [("driver".to_owned(), "adverb".to_owned())].into(),
            },
            passive: None,
        },
    }
}
