//! Bare UDP between two processes: what a RoCE port in user space is built on. Over the loopback device, and
//! in the virtual machines over their link.
//!
//! Each side is this program again, with the command `udp`.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use adverb_host::pin;
use anyhow::{Context as _, Result, bail};
use rustix::net::sockopt;

use crate::child::{Ended, on_core};

/// Bytes of a SEND of 64 B (BTH, payload, ICRC), and of the acknowledgement of the last one (BTH, AETH, ICRC).
const SEND: usize = 12 + 64 + 4;
const ACKNOWLEDGEMENT: usize = 12 + 4 + 4;
/// Size of both together.
const SIZE: usize = SEND + ACKNOWLEDGEMENT;
const WARM_UP: u32 = 2_000;
const ROUNDS: u32 = 30_000;
/// The same on an emulated processor.
const FEW_WARM_UP: u32 = 50;
const FEW_ROUNDS: u32 = 1_000;
/// Timeout after which a side ends because the other one is gone.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Polls between clock readings.
const SPINS: u32 = 10_000;

/// A packet in the middle of a WRITE, of the path MTU that the link's MTU of 9000 gives.
const PACKET: usize = 12 + 4096 + 4;
const PAYLOAD: u64 = 4096;
/// Packets of a message of 64 KiB. Each message is acknowledged.
const MESSAGE: u64 = 16;
/// Packets of four messages, as many as `adverb blast` has in flight.
const IN_FLIGHT: u64 = 4 * MESSAGE;
/// Socket buffer size, as in the user-space NIC.
const BUFFER: usize = 8 << 20;
const STREAMED: Duration = Duration::from_secs(2);
/// A message counts as lost without an acknowledgement within this time.
const LOST: Duration = Duration::from_millis(200);

/// The role of a process in a measurement.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Role {
    /// Acknowledges and answers each message, as the link's interface takes them: in two datagrams.
    Echo,
    /// Sends each message back in one datagram.
    Mirror,
    /// Acknowledges messages.
    Sink,
    /// Prints the median one-way time in ns to an echo and back.
    Ping,
    /// Prints the bytes per second to a sink.
    Stream,
}

/// The options of this program as one side.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Side {
    role: Role,
    #[arg(long)]
    core: u32,
    /// Its own address
    #[arg(long)]
    at: SocketAddr,
    /// The other side's
    #[arg(long)]
    to: Option<SocketAddr>,
}

impl Side {
    /// Runs as one side.
    pub(crate) fn run(self) -> Result<()> {
        let Side { role, core, at, to } = self;
        pin(core).context("cannot pin")?;
        let there = || to.context("the active side needs the other one's address");
        match role {
            Role::Echo => answer(at),
            Role::Mirror => echo(at),
            Role::Sink => sink(at),
            Role::Ping => median((at, there()?)).map(|time| println!("{time}")),
            Role::Stream => stream(at, there()?).map(|rate| println!("{rate}")),
        }
    }
}

/// One-way time in ns of a message between two processes that poll their sockets busily.
pub(crate) fn ping(cores: [u32; 2]) -> Result<f64> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let passive = Command::new(own)
        .args(["udp", "mirror", "--at", "127.0.0.1:0"])
        .args(["--core", &cores[1].to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the passive side of the UDP ping")?;
    let mut passive = Ended(passive);
    let stdout = passive.0.stdout.take().context("stdout is a pipe")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let there = line.trim().parse();
    let there: SocketAddr =
        there.context("the passive side of the UDP ping reported no address")?;
    let here = SocketAddr::from(([127, 0, 0, 2], 0));
    on_core(cores[0], || lead((here, there)))
}

/// Mean one-way time in ns.
fn lead((here, there): (SocketAddr, SocketAddr)) -> Result<f64> {
    let socket = socket(here)?;
    (0..WARM_UP).try_for_each(|_| round(&socket, there))?;
    let start = Instant::now();
    (0..ROUNDS).try_for_each(|_| round(&socket, there))?;
    Ok(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS) / 2.0)
}

/// Returns the median one-way time in ns, on machines where a clock reading is negligible compared with a
/// round. As in RC, a message is answered when it has arrived and the previous one is acknowledged.
fn median((here, there): (SocketAddr, SocketAddr)) -> Result<f64> {
    let socket = socket(here)?;
    socket.send_to(&[0; SEND], there)?;
    let mut times = Vec::new();
    for _ in 0..FEW_WARM_UP + FEW_ROUNDS {
        let start = Instant::now();
        take(&socket)?;
        take(&socket)?;
        send_and_acknowledge(&socket, there)?;
        times.push(start.elapsed());
    }
    let times = &mut times[FEW_WARM_UP as usize..];
    times.sort_unstable();
    Ok(times[times.len() / 2].as_nanos() as f64 / 2.0)
}

/// The passive process of that ping.
fn answer(at: SocketAddr) -> Result<()> {
    let socket = socket(at)?;
    let _ready = tell(&socket, at)?;
    let mut from = take(&socket)?;
    loop {
        send_and_acknowledge(&socket, from)?;
        take(&socket)?;
        from = take(&socket)?;
    }
}

fn send_and_acknowledge(socket: &UdpSocket, there: SocketAddr) -> Result<()> {
    socket.send_to(&[0; SEND], there)?;
    socket.send_to(&[0; ACKNOWLEDGEMENT], there)?;
    Ok(())
}

fn round(socket: &UdpSocket, there: SocketAddr) -> Result<()> {
    socket.send_to(&[0; SIZE], there)?;
    take(socket).map(drop)
}

/// The passive process: reports its address and sends messages back.
fn echo(at: SocketAddr) -> Result<()> {
    let socket = socket(at)?;
    let _ready = tell(&socket, at)?;
    loop {
        let from = take(&socket)?;
        socket.send_to(&[0; SIZE], from)?;
    }
}

/// Returns the bytes per second of packets with the sizes of a stream of WRITEs, sent one by one: without ICRC,
/// copies by user space, and retransmissions.
fn stream(here: SocketAddr, there: SocketAddr) -> Result<f64> {
    let socket = socket(here)?;
    socket.connect(there).context("cannot connect UDP")?;
    let packet = [7; PACKET];
    let start = Instant::now();
    let (mut sent, mut done, mut acknowledged) = (0, 0, 0);
    let mut heard = start;
    while start.elapsed() < STREAMED {
        while sent - done < IN_FLIGHT {
            match socket.send(&packet) {
                Ok(_) => sent += 1,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e).context("UDP stream"),
            }
        }
        if socket.recv(&mut [0; SIZE]).is_ok() {
            (acknowledged, done) = (acknowledged + MESSAGE, sent.min(done + MESSAGE));
            heard = Instant::now();
        } else if heard.elapsed() > LOST {
            (done, heard) = (sent, Instant::now());
        }
    }
    let bytes = acknowledged * PAYLOAD;
    Ok(bytes as f64 / start.elapsed().as_secs_f64())
}

/// The passive process of a stream: sleeps until packets arrive, as the engine does when no program polls.
fn sink(at: SocketAddr) -> Result<()> {
    let socket = socket(at)?;
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    let _ready = tell(&socket, at)?;
    let mut packet = [0; PACKET];
    for count in 1_u64.. {
        let (_, from) = socket.recv_from(&mut packet).context("UDP stream")?;
        if count.is_multiple_of(MESSAGE) {
            socket.send_to(&[0; ACKNOWLEDGEMENT], from)?;
        }
    }
    Ok(())
}

/// Reports the address of the ready socket, and listens on TCP there if the address was given.
fn tell(socket: &UdpSocket, at: SocketAddr) -> Result<Option<TcpListener>> {
    println!("{}", socket.local_addr()?);
    std::io::stdout().flush()?;
    let listens = at.port() != 0;
    let listener = listens.then(|| TcpListener::bind(at)).transpose();
    listener.with_context(|| format!("cannot listen at {at}"))
}

fn socket(at: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(at).with_context(|| format!("cannot bind UDP at {at}"))?;
    socket.set_nonblocking(true)?;
    // For a stream; without the privilege the default size is used.
    let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER);
    Ok(socket)
}

/// Polls until a message arrives.
fn take(socket: &UdpSocket) -> Result<SocketAddr> {
    let mut message = [0; SIZE];
    let begin = Instant::now();
    loop {
        for _ in 0..SPINS {
            match socket.recv_from(&mut message) {
                Ok((_, from)) => return Ok(from),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e).context("UDP ping"),
            }
        }
        if begin.elapsed() > TIMEOUT {
            bail!("no UDP message within {} s", TIMEOUT.as_secs());
        }
    }
}
