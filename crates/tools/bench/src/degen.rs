//! A path through `degen`, and what is measured on it: when datagrams arrive, and what streams reach.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use adverb_degen::{DirectionCounts, Path, Router};
use adverb_host::pin;
use adverb_verbs::Impairment;
use anyhow::{Context as _, Result, ensure};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::row::{Pair, Setting, in_turn};
use crate::stats::{median, sorted};
use crate::{adverb, iperf, timestamp};

pub(crate) const NEEDS: &str = "a path between two network namespaces needs root and /dev/net/tun";
pub(crate) const NEEDS_IPERF: &str = "it needs root, /dev/net/tun and iperf3 (Debian: iperf3)";

const NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const MTU: u32 = 1500;
/// MTU for packets with 4 KiB of payload.
const LARGE_MTU: u32 = 4200;
const PORT: u16 = 7000;
/// Receive buffer of a socket.
const BUFFER: usize = 16 << 20;
/// Payload of a datagram.
const BYTES: usize = 64;
/// How long a datagram may take in addition to its delay.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Makes a path, if this process may.
fn path(mtu: u32) -> Option<Path> {
    Path::make_elsewhere([NEAR, FAR], mtu).ok()
}

/// Calls `work` in a thread of its own with the path through a router that does `how`.
fn behind<T: Send>(
    how: Impairment,
    work: impl FnOnce(&Path) -> Result<T> + Send,
) -> Result<Option<(T, [DirectionCounts; 2])>> {
    behind_with_mtu(MTU, how, work)
}

fn behind_with_mtu<T: Send>(
    mtu: u32,
    how: Impairment,
    work: impl FnOnce(&Path) -> Result<T> + Send,
) -> Result<Option<(T, [DirectionCounts; 2])>> {
    let Some(path) = path(mtu) else {
        return Ok(None);
    };
    let run = || Router::during(&path, how, |_| work(&path));
    let ended = thread::scope(|scope| scope.spawn(run).join());
    let (result, counts) = ended.expect("a measurement does not panic")?;
    Ok(Some((result?, counts)))
}

fn delayed(delay: Duration) -> Impairment {
    Impairment {
        delay: delay.into(),
        ..Impairment::default()
    }
}

/// Connected UDP sockets at the two ends.
fn sockets(path: &Path) -> Result<[UdpSocket; 2]> {
    let at = |end, own, peer| -> Result<UdpSocket> {
        let bound = path.within(end, || UdpSocket::bind((own, PORT)))?;
        let socket = bound.context("no socket at the path")?;
        socket.connect((peer, PORT))?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        // A receiver that waits for a core would lose datagrams that the path delivered.
        set_socket_recv_buffer_size_force(&socket, BUFFER)?;
        Ok(socket)
    };
    Ok([at(0, NEAR, FAR)?, at(1, FAR, NEAR)?])
}

/// Sends datagrams back to back; returns when each of the last [`BURST`] was sent and when it arrived, from the first of them
/// on. The [`COLD`] ones before them find cold caches and a sleeping router, and do not count. The receiving thread sleeps
/// until all have passed a router that holds them for `delay`: there may be only two cores, for the sender and the router,
/// and wake-ups would run on the router's core.
fn burst(path: &Path, delay: Duration) -> Result<Vec<[Duration; 2]>> {
    let [near, far] = sockets(path)?;
    timestamp::turn_on(&far)?;
    thread::sleep(Duration::from_millis(20)); // the kernel turns it on a little later
    let packets = COLD + BURST;
    let mut sent = Vec::with_capacity(packets as usize);
    let mut datagram = [0; BYTES];
    for n in 0..packets {
        datagram[..4].copy_from_slice(&n.to_be_bytes());
        sent.push(Instant::now());
        near.send(&datagram)?;
    }
    thread::sleep(delay + DRAINED);
    let arrived = (0..packets).map(|_| {
        let at = timestamp::receive(&far, &mut datagram);
        let n = u32::from_be_bytes([0, 1, 2, 3].map(|i| datagram[i]));
        Ok((n as usize, at.context("a datagram did not arrive")?))
    });
    let arrived: Vec<_> = arrived.collect::<Result<_>>()?;
    let (first, first_at) = arrived[COLD as usize];
    ensure!(first == COLD as usize, "datagram {first} arrived early");
    let spacing =
        |&(n, at): &(usize, Duration)| [sent[n] - sent[first], at.saturating_sub(first_at)];
    Ok(arrived[first..].iter().map(spacing).collect())
}

/// Median error in percent of the spacing of a burst: of the time from the first datagram to each other one.
fn spacing_error(spacings: &[[Duration; 2]]) -> f64 {
    let errors = spacings[1..]
        .iter()
        .map(|[sent, arrived]| 100.0 * (arrived.as_secs_f64() / sent.as_secs_f64() - 1.0).abs());
    median(&sorted(errors))
}

const BURST: u32 = 1000;
/// Datagrams before the burst: more than are sent while the router wakes up, reads what has come meanwhile, and catches up.
const COLD: u32 = 200;
/// How long after its delay a burst has arrived.
const DRAINED: Duration = Duration::from_millis(20);

/// Error of the spacing of a burst of 1,000 datagrams behind a delay in percent, and with a router that holds each packet
/// for the delay before it reads the next one. Sender and router have a core each.
pub(crate) fn spacing(setting: &Setting, delay: Duration) -> Result<Option<Pair>> {
    let [sender, router] = setting.cores;
    let send = |path: &Path| {
        pin(sender).context("cannot pin")?;
        burst(path, delay)
    };
    let measure = || {
        // The threads of the routers inherit it.
        pin(router).context("cannot pin")?;
        let Some((ours, _)) = behind(delayed(delay), send)? else {
            return Ok(None);
        };
        let path = path(MTU).context(NEEDS)?;
        let naive = chained(&path, delay, || send(&path))?;
        Ok(Some((spacing_error(&ours), spacing_error(&naive))))
    };
    let ended = thread::scope(|scope| scope.spawn(measure).join());
    ended.expect("a measurement does not panic")
}

/// Calls `work` while another thread holds each packet from near to far for `delay`, one after the other.
fn chained<T: Send>(
    path: &Path,
    delay: Duration,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let stop = std::sync::atomic::AtomicBool::new(false);
    let [near, far] = path.tuns();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut packet = [0; 1 << 16];
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                if let Ok(length) = rustix::io::read(near, &mut packet) {
                    let due = Instant::now() + delay;
                    while Instant::now() < due {
                        std::hint::spin_loop();
                    }
                    let _ = rustix::io::write(far, &packet[..length]);
                }
            }
        });
        let ended = scope.spawn(work).join().expect("a burst does not panic");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        ended
    })
}

/// Number of datagrams whose median delay is measured.
const PINGS: u32 = 300;

/// Median one-way time of a datagram that waits for none before it.
fn one_way(delay: Duration) -> Result<Option<f64>> {
    let times = behind(delayed(delay), |path| round_trips(&sockets(path)?))?;
    Ok(times.map(|(time, _)| time / 2.0))
}

/// Median round trip in ns of a datagram that the second socket's thread returns.
fn round_trips([near, far]: &[UdpSocket; 2]) -> Result<f64> {
    thread::scope(|scope| {
        let echo = scope.spawn(|| -> std::io::Result<()> {
            let mut datagram = [0; BYTES];
            for _ in 0..PINGS {
                far.recv(&mut datagram)?;
                far.send(&datagram)?;
            }
            Ok(())
        });
        let mut times = Vec::new();
        for _ in 0..PINGS {
            let start = Instant::now();
            near.send(&[0; BYTES])?;
            near.recv(&mut [0; BYTES])?;
            times.push(start.elapsed().as_nanos() as f64);
        }
        echo.join().expect("an echo does not panic")?;
        Ok(median(&sorted(times)))
    })
}

/// By how many percent a delay differs from what was asked for, and how much that is.
pub(crate) fn delay_error(round: u32, delay: Duration) -> Result<Option<Pair>> {
    let (with, without) = in_turn(round, || one_way(delay), || one_way(Duration::ZERO))?;
    let (Some(with), Some(without)) = (with, without) else {
        return Ok(None);
    };
    let (asked, late) = (delay.as_nanos() as f64, with - without);
    Ok(Some((100.0 * (late / asked - 1.0).abs(), 100.0)))
}

/// ns that the path adds to a datagram's one-way time over the loopback device, and two wake-ups: a byte that a thread
/// passes on from one pipe to another.
pub(crate) fn two_wake_ups(round: u32) -> Result<Option<Pair>> {
    let (path, wake_ups) = in_turn(round, || one_way(Duration::ZERO), relayed)?;
    let direct = direct()?;
    Ok(path.map(|path| (path - direct, wake_ups)))
}

/// Median one-way time over the loopback device.
fn direct() -> Result<f64> {
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    let sockets = [bind()?, bind()?];
    sockets[0].connect(sockets[1].local_addr()?)?;
    sockets[1].connect(sockets[0].local_addr()?)?;
    Ok(round_trips(&sockets)? / 2.0)
}

/// Median time in ns of a byte through a relay: two threads wake up.
fn relayed() -> Result<f64> {
    let pipes = || -> std::io::Result<_> {
        let ((a, to_relay), (b, to_end)) = (std::io::pipe()?, std::io::pipe()?);
        Ok(((a, to_end), (to_relay, b)))
    };
    let (
        ((mut out, mut out_end), (mut send, mut far)),
        ((mut back, mut back_end), (mut answer, mut near)),
    ) = (pipes()?, pipes()?);
    thread::scope(|scope| {
        let relay = |from: &mut std::io::PipeReader, to: &mut std::io::PipeWriter| {
            let mut byte = [0];
            while from.read_exact(&mut byte).is_ok() && to.write_all(&byte).is_ok() {}
        };
        scope.spawn(move || relay(&mut out, &mut out_end));
        scope.spawn(move || relay(&mut back, &mut back_end));
        scope.spawn(move || relay(&mut far, &mut answer));
        let mut times = Vec::new();
        for _ in 0..PINGS {
            let start = Instant::now();
            send.write_all(&[0])?;
            near.read_exact(&mut [0])?;
            times.push(start.elapsed().as_nanos() as f64);
        }
        drop(send);
        Ok(median(&sorted(times)) / 2.0)
    })
}

/// Datagrams per second that are sent for a second, and their gap.
const RATE: u32 = 100_000;

/// Percent of 100,000 datagrams in a second that the router did not pass on, and the percent of a second that sending
/// them took.
pub(crate) fn loss() -> Result<Option<Pair>> {
    let gap = Duration::from_secs(1) / RATE;
    let sent = behind(delayed(Duration::from_millis(1)), |path| {
        let [near, _far] = sockets(path)?;
        let start = Instant::now();
        for n in 0..RATE {
            while start.elapsed() < gap * n {
                std::hint::spin_loop();
            }
            near.send(&[0; BYTES])?;
        }
        let took = start.elapsed();
        // The router may be late while other programs run.
        thread::sleep(Duration::from_secs(1));
        Ok(took.as_secs_f64())
    })?;
    Ok(sent.map(|(took, [out, _])| {
        let lost = f64::from(RATE) - out.left as f64;
        (100.0 * lost.max(0.0) / f64::from(RATE), 100.0 * took)
    }))
}

/// Bytes per second of RDMA WRITEs between the UDP ports of the user-space NIC, with 64 messages of `size` in flight, and
/// of one TCP stream of iperf3 with CUBIC, behind the same path.
pub(crate) fn streams(
    setting: &Setting,
    round: u32,
    how: Impairment,
    size: &str,
) -> Result<Option<Pair>> {
    let enter = |path: &Path, end| path.enter(end).context("cannot enter a namespace");
    // Of the timeout, four times pass: more than a round trip.
    let command =
        format!("blast --op write --size {size} --buffers 64 --timeout 17ms --duration 5s");
    let rc = || {
        behind_with_mtu(LARGE_MTU, how, |path| {
            let [near, far] = [NEAR, FAR].map(|ip| ip.to_string());
            let enter = |end| enter(path, end);
            adverb::bytes_per_second_between(setting, &command, [&near, &far], &enter)
        })
    };
    let tcp = || {
        behind_with_mtu(LARGE_MTU, how, |path| {
            let (far, options) = (FAR.to_string(), ["-t", "5", "-C", "cubic"]);
            let enter = |end| enter(path, end);
            iperf::stream_between(setting.cores, (&far, "1M"), &options, &enter)
        })
    };
    let (rc, tcp) = in_turn(round, rc, tcp)?;
    Ok(match (rc, tcp) {
        (Some((rc, _)), Some((Some(tcp), _))) => Some((rc, tcp)),
        _ => None,
    })
}
