//! Bare UDP over the loopback device, between two processes: what a RoCE port in user space is built on.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use adverb_host::pin;
use anyhow::{Context as _, Result, bail};

use crate::child::Ended;

/// The option by which this program runs as the passive process.
pub(crate) const ECHO: &str = "--udp-echo";
/// Bytes of a message: those of a SEND of 64 B (BTH, payload, ICRC) and of the acknowledgement of the
/// last one (BTH, AETH, ICRC), which leaves with it.
const SIZE: usize = (12 + 64 + 4) + (12 + 4 + 4);
const WARM_UP: u32 = 2_000;
const ROUNDS: u32 = 30_000;
/// A side that hears nothing for so long ends: the other one is gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// Spins between looks at the clock.
const SPINS: u32 = 10_000;

/// One-way time in ns of a message between two processes that poll their sockets busily.
pub(crate) fn ping(cores: [u32; 2]) -> Result<f64> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let passive = Command::new(own)
        .args([ECHO, &cores[1].to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the passive side of the UDP ping")?;
    let mut passive = Ended(passive);
    let stdout = passive.0.stdout.take().context("stdout is a pipe")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let there = line.trim().parse();
    let there: SocketAddr = there.context("the passive side of the UDP ping told no address")?;
    // A thread of its own, which keeps this one where it is.
    let active = std::thread::spawn(move || {
        pin(cores[0]).context("cannot pin")?;
        lead(there)
    });
    active.join().expect("the active side does not panic")
}

fn lead(there: SocketAddr) -> Result<f64> {
    let socket = socket("127.0.0.2:0")?;
    let mut start = Instant::now();
    for round in 0..WARM_UP + ROUNDS {
        if round == WARM_UP {
            start = Instant::now();
        }
        socket.send_to(&[0; SIZE], there)?;
        take(&socket)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS) / 2.0)
}

/// The passive process: tells its address, and sends back what comes.
pub(crate) fn echo(core: u32) -> Result<()> {
    pin(core).context("cannot pin")?;
    let socket = socket("127.0.0.1:0")?;
    println!("{}", socket.local_addr()?);
    std::io::stdout().flush()?;
    loop {
        let from = take(&socket)?;
        socket.send_to(&[0; SIZE], from)?;
    }
}

fn socket(at: &str) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(at).with_context(|| format!("cannot bind UDP at {at}"))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Spins until a message comes.
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
        if begin.elapsed() > PATIENCE {
            bail!("no UDP message came for {} s", PATIENCE.as_secs());
        }
    }
}
