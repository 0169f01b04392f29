//! A child process that is killed or stopped at any instruction, and its tracer.
#![allow(unsafe_code)]
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{Random, child, not_run};

/// Tells the survivor a line.
pub fn tell(line: &str) {
    println!("\n@{line}");
    std::io::stdout().flush().unwrap();
}

/// The next line from the survivor; ends this process with the survivor's.
pub fn hear() -> String {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).unwrap() == 0 {
        std::process::exit(0);
    }
    line
}

#[inline(always)]
pub fn mark() {
    // SAFETY: a breakpoint trap; the survivor traces this thread, which continues after the trap.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("int3");
    }
}

/// A child in its role, and the lines between it and us.
pub struct Victim {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    traced: Option<Traced>,
}

impl Victim {
    pub fn start(role: &str) -> Self {
        Self::start_as(role, |command| command)
    }

    /// One whose command differs.
    pub fn start_as(role: &str, change: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut child = change(&mut child(role))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Victim {
            to: child.stdin.take().unwrap(),
            from: BufReader::new(child.stdout.take().unwrap()),
            child,
            traced: None,
        }
    }

    /// Traces the thread that the hello line names last; the error is the reason if that is not possible.
    pub fn trace(&mut self, hello: &str) -> Result<Traced, String> {
        let traced = Traced::seize(hello.rsplit(' ').next().unwrap().parse().unwrap())?;
        self.traced = Some(traced);
        Ok(traced)
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let length = self.from.read_line(&mut line).unwrap();
            assert!(length != 0, "the victim ended: {:?}", self.child.wait());
            if let Some(told) = line.strip_prefix('@') {
                return told.trim().to_owned();
            }
        }
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.to, "{line}").unwrap();
    }

    /// Kills it; it must have lived until now.
    pub fn kill(&mut self) {
        let status = self.end();
        assert_eq!(
            status.signal(),
            Some(libc::SIGKILL),
            "the victim failed: {status}"
        );
    }

    /// Kills it `most` instructions after its first mark, or at its second. Returns the number of instructions
    /// between the two marks if it reached the second.
    pub fn kill_after(&mut self, traced: Traced, most: Option<u64>) -> Option<u64> {
        let length = match most {
            Some(k) => {
                traced.step(k);
                None
            }
            None => Some(traced.step_to_end()),
        };
        self.kill();
        length
    }

    pub fn end(&mut self) -> ExitStatus {
        let _ = self.child.kill();
        // The tracer has to take note of its thread's end before there is one of the process.
        if let Some(traced) = self.traced.take() {
            traced.wait_end();
        }
        self.child.wait().unwrap()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.end();
    }
}

/// A traced thread of a victim.
#[derive(Clone, Copy)]
pub struct Traced(libc::pid_t);

impl Traced {
    /// Starts tracing; the error is the reason if that is not possible.
    pub fn seize(thread: libc::pid_t) -> Result<Self, String> {
        if !cfg!(target_arch = "x86_64") {
            return Err("only x86-64 steps over its breakpoints".into());
        }
        let null = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: SEIZE reads and writes no memory of ours.
        let failed = unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, null, null) } != 0;
        if failed {
            let why = std::io::Error::last_os_error();
            return Err(format!("ptrace is not permitted here ({why})"));
        }
        Ok(Traced(thread))
    }

    /// Waits for the next stop.
    pub fn wait(&self) {
        let mut status = 0;
        // SAFETY: `status` is ours to write.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) };
        assert_eq!(waited, self.0, "{}", std::io::Error::last_os_error());
        assert!(libc::WIFSTOPPED(status), "the victim ended: {status:#x}");
        assert_eq!(libc::WSTOPSIG(status), libc::SIGTRAP, "{status:#x}");
    }

    /// Whether the last stop was at a mark.
    pub fn is_at_mark(&self) -> bool {
        let null = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: siginfo_t is plain data, for which zero is valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: GETSIGINFO fills the siginfo_t that it is given.
        let got = unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, self.0, null, &raw mut info) };
        assert_eq!(got, 0, "{}", std::io::Error::last_os_error());
        const SI_KERNEL: i32 = 0x80; // int3, as against TRAP_TRACE
        info.si_code == SI_KERNEL
    }

    /// Returns the number of the system call that it has last begun.
    #[cfg(target_arch = "x86_64")]
    pub fn system_call(&self) -> libc::c_long {
        let null = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: user_regs_struct is plain data, for which zero is valid.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: GETREGS fills the structure that it is given.
        let got = unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.0, null, &raw mut registers) };
        assert_eq!(got, 0, "{}", std::io::Error::last_os_error());
        registers.orig_rax as libc::c_long
    }

    /// Waits until it has ended. It is not the main thread: the harness has that.
    pub fn wait_end(&self) {
        let mut status = 0;
        loop {
            // SAFETY: `status` is ours to write.
            let waited = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) };
            if waited != self.0 || !libc::WIFSTOPPED(status) {
                return;
            }
        }
    }

    pub fn go_on(&self, request: libc::c_uint) {
        let null = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: CONT, SINGLESTEP and DETACH access no memory of ours.
        let done = unsafe { libc::ptrace(request, self.0, null, null) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// Carries out `k` instructions after the first mark.
    pub fn step(&self, k: u64) {
        self.wait();
        assert!(self.is_at_mark());
        for _ in 0..k {
            self.go_on(libc::PTRACE_SINGLESTEP);
            self.wait();
        }
    }

    /// Carries everything out up to the second mark; how many instructions.
    pub fn step_to_end(&self) -> u64 {
        self.step(0);
        for steps in 0.. {
            self.go_on(libc::PTRACE_SINGLESTEP);
            self.wait();
            if self.is_at_mark() {
                return steps;
            }
        }
        unreachable!("nothing has so many instructions")
    }
}

/// Keeps this thread and its children on one CPU: a step is a switch between two threads, and ten
/// times as dear between two CPUs.
pub fn stay_on_this_cpu() {
    // SAFETY: a zeroed set is valid; both calls only read and write it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// What became of one killing.
pub struct Killing {
    /// The act's length, if its end was reached.
    pub length: Option<u64>,
    /// Messages that arrived during the act.
    pub arrived: usize,
}

/// Kills victims all along an act, which takes `arrivals` messages to us, for about `budget`: first at
/// its end and before its begin.
pub fn kill_all_along(
    act: &str,
    arrivals: usize,
    (budget, random): (Duration, &mut Random),
    mut kill: impl FnMut(Option<u64>) -> Result<Killing, String>,
) {
    let begin = Instant::now();
    let whole = match kill(None) {
        Ok(whole) => whole,
        Err(why) => return not_run(&format!("kill at any instruction of {act}: {why}")),
    };
    let length = whole.length.expect("stepped to the end");
    assert!(length > 10, "{act} has {length} instructions");
    assert_eq!(whole.arrived, arrivals, "{act}, killed at its end");
    let none = kill(Some(0)).unwrap();
    assert_eq!(none.arrived, 0, "{act}, killed before its begin");
    let each = begin.elapsed() / 2;
    let instants = instants(length, each, budget, random);
    let count = instants.len();
    let killings = instants.into_iter().map(|k| kill(Some(k)).unwrap());
    let arrived: usize = killings.map(|killing| killing.arrived).sum();
    println!(
        "{act}: {length} instructions, {count} killings, {arrived} messages arrived, {:.1} s",
        begin.elapsed().as_secs_f64()
    );
}

/// The instructions of an act of `length` after which to kill: one at random out of each of as many
/// stretches as fit into `budget`, at `each` a killing, eight at least. `ADVERB_KILL_ALL=1`: every one.
fn instants(length: u64, each: Duration, budget: Duration, random: &mut Random) -> Vec<u64> {
    let count = if std::env::var_os("ADVERB_KILL_ALL").is_some() {
        length
    } else {
        (budget.as_micros() / each.as_micros().max(1)).clamp(8, length.into()) as u64
    };
    let stretch = |n| (n * length / count, (n + 1) * length / count);
    (0..count)
        .map(stretch)
        .map(|(from, to)| random.within(from..to.max(from + 1)))
        .collect()
}
