//! Bare TCP between two processes over the loopback device: the socket calls that `adverb --device tcp`
//! makes, from buffers that begin at a page, too, and nothing else.
//!
//! The passive side is this program again, with the command `tcp`.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use adverb_host::pin;
use aligned_vec::avec;
use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum as _;

use crate::child::Ended;

/// A message of the ping.
const MESSAGE: usize = 64;
const WARM_UP: u32 = 2_000;
const ROUNDS: u32 = 30_000;
/// Requests of the sequencer's client that are outstanding, as many as `adverb sequencer` has.
pub(crate) const OUTSTANDING: usize = 8;
/// A request of the sequencer, and its answer.
const NUMBER: usize = 8;
const SEQUENCED: Duration = Duration::from_millis(300);
/// A message of the stream.
const LONG: usize = 1 << 20;
const STREAMED: Duration = Duration::from_millis(300);
/// A stream is not measured before: the kernel's congestion control still probes the path.
const UNMEASURED: Duration = Duration::from_secs(1);
/// A side that has waited this long ends: the other one is gone.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Calls between looks at the clock.
const CALLS: u32 = 10_000;

/// What the passive process does.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub(crate) enum Role {
    /// Sends each message back.
    Mirror,
    /// Receives a stream, and answers its end by a byte.
    Sink,
    /// The same; calls of both processes block.
    SleepingSink,
    /// Answers each request by the next number.
    Sequencer,
}

/// The options of this program as the passive side.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Side {
    role: Role,
    #[arg(long)]
    core: u32,
}

impl Side {
    /// Runs as that side.
    pub(crate) fn run(self) -> Result<()> {
        pin(self.core).context("cannot pin")?;
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
        println!("{}", listener.local_addr()?);
        std::io::stdout().flush()?;
        let mut stream = prepared(listener.accept()?.0, self.role)?;
        let mut message = [0; MESSAGE];
        match self.role {
            Role::Mirror => loop {
                if receive(&mut stream, &mut message)? < MESSAGE {
                    return Ok(());
                }
                send(&mut stream, &message)?;
            },
            Role::Sink | Role::SleepingSink => {
                let mut long = avec![[4096]| 0; LONG];
                while receive(&mut stream, &mut long)? == LONG {}
                send(&mut stream, &[1])
            }
            Role::Sequencer => hand_out(&mut stream),
        }
    }
}

/// Mean one-way time in ns of a message between two processes that poll their sockets.
pub(crate) fn ping(cores: [u32; 2]) -> Result<f64> {
    active(Role::Mirror, cores, |stream| {
        let mut message = [0; MESSAGE];
        let mut round = || -> Result<()> {
            send(stream, &message)?;
            match receive(stream, &mut message)? {
                MESSAGE => Ok(()),
                _ => bail!("the other side of the TCP ping has ended"),
            }
        };
        (0..WARM_UP).try_for_each(|_| round())?;
        let start = Instant::now();
        (0..ROUNDS).try_for_each(|_| round())?;
        Ok(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS) / 2.0)
    })
}

/// Bytes per second of a stream of messages of 1 MiB to a sink, sent from a number of buffers in turn.
pub(crate) fn stream(cores: [u32; 2], sink: Role, buffers: usize) -> Result<f64> {
    active(sink, cores, |stream| {
        let buffers = avec![[4096]| 7; buffers * LONG];
        let mut stream_for = |duration| -> Result<(usize, Instant)> {
            let (start, mut sent) = (Instant::now(), 0);
            for message in buffers.chunks(LONG).cycle() {
                send(stream, message)?;
                sent += LONG;
                if start.elapsed() >= duration {
                    break;
                }
            }
            Ok((sent, start))
        };
        stream_for(UNMEASURED)?;
        let (sent, start) = stream_for(STREAMED)?;
        stream.shutdown(std::net::Shutdown::Write)?;
        receive(stream, &mut [0])?;
        Ok(sent as f64 / start.elapsed().as_secs_f64())
    })
}

/// Numbers per second of a sequencer, whose client keeps [`OUTSTANDING`] requests outstanding.
pub(crate) fn sequencer(cores: [u32; 2]) -> Result<f64> {
    active(Role::Sequencer, cores, |stream| {
        send(stream, &[0; OUTSTANDING * NUMBER])?;
        let mut numbers = [0; OUTSTANDING * NUMBER];
        let (start, mut next, mut partial) = (Instant::now(), 0, 0);
        while start.elapsed() < SEQUENCED {
            partial += some(stream, &mut numbers[partial..])?;
            let whole = partial / NUMBER * NUMBER;
            for number in numbers[..whole].chunks(NUMBER) {
                ensure!(number == u64::to_ne_bytes(next), "not number {next}");
                next += 1;
            }
            // A request for each answer, by one call.
            send(stream, &[0; OUTSTANDING * NUMBER][..whole])?;
            numbers.copy_within(whole..partial, 0);
            partial -= whole;
        }
        Ok(next as f64 / start.elapsed().as_secs_f64())
    })
}

/// Answers each request by the next number until the client ends the stream; all that have arrived by one call.
fn hand_out(stream: &mut TcpStream) -> Result<()> {
    let mut requests = [0; OUTSTANDING * NUMBER];
    let (mut next, mut partial) = (0u64, 0);
    loop {
        let received = some(stream, &mut requests[..])?;
        if received == 0 {
            return Ok(());
        }
        partial += received;
        let first = next;
        next += (partial / NUMBER) as u64;
        partial %= NUMBER;
        let numbers: Vec<u8> = (first..next).flat_map(u64::to_ne_bytes).collect();
        send(stream, &numbers)?;
    }
}

/// Starts the passive process and runs the active side on a thread of its own, which leaves this one where
/// it is.
fn active(
    role: Role,
    cores: [u32; 2],
    run: impl FnOnce(&mut TcpStream) -> Result<f64> + Send,
) -> Result<f64> {
    let name = role.to_possible_value().context("a role has a name")?;
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let passive = Command::new(own)
        .args(["tcp", name.get_name(), "--core", &cores[1].to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the passive side over TCP")?;
    let mut passive = Ended(passive);
    let stdout = passive.0.stdout.take().context("stdout is a pipe")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let there = line.trim().parse();
    let there: SocketAddr = there.context("the passive side over TCP printed no address")?;
    let active = || {
        pin(cores[0]).context("cannot pin")?;
        run(&mut prepared(TcpStream::connect(there)?, role)?)
    };
    std::thread::scope(|scope| scope.spawn(active).join()).expect("the active side does not panic")
}

/// Sets the options of a socket of either process.
fn prepared(stream: TcpStream, role: Role) -> Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(role != Role::SleepingSink)?;
    Ok(stream)
}

/// Receives until `into` is full or the other side sends no more; returns the number of bytes received.
fn receive(stream: &mut TcpStream, into: &mut [u8]) -> Result<usize> {
    let mut received = 0;
    while received < into.len() {
        match some(stream, &mut into[received..])? {
            0 => break,
            n => received += n,
        }
    }
    Ok(received)
}

/// Receives what has arrived, at least a byte unless the other side sends no more.
fn some(stream: &mut TcpStream, into: &mut [u8]) -> Result<usize> {
    poll(|| stream.read(into))
}

fn send(stream: &mut TcpStream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        let sent = poll(|| stream.write(bytes))?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// Repeats a call until it transfers something; a call that blocks is not repeated.
fn poll(mut call: impl FnMut() -> std::io::Result<usize>) -> Result<usize> {
    let begin = Instant::now();
    loop {
        for _ in 0..CALLS {
            match call() {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                other => return other.context("TCP"),
            }
        }
        if begin.elapsed() > TIMEOUT {
            bail!("nothing moved over TCP for {} s", TIMEOUT.as_secs());
        }
    }
}
