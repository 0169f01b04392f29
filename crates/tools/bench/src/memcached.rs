//! The load of memslap on servers of memcached's protocol over TCP: Debian's memcached and `adverb store serve`.
//!
//! One client thread keeps an operation outstanding on each of its connections, 90 % GETs and 10 % sets of 67 B, as
//! `adverb store` does with its own protocol; the server has one thread. Both have a core of their own.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::adverb;
use crate::child::{Ended, free_port, is_installed, on_core, spawn_on};
use crate::row::Setting;

pub(crate) const NEEDS: &str = "memcached is not installed (Debian: memcached)";

/// Connections of the client.
pub(crate) const CONNECTIONS: usize = 8;
/// Items, and bytes of a value: the defaults of `adverb store`.
const ITEMS: u64 = 10_000;
const VALUE: usize = 67;
/// One in ten operations is a set.
const SET_EVERY: u64 = 10;
/// How long the load is measured, and before it not.
const MEASURED: Duration = Duration::from_millis(600);
const WARM_UP: Duration = Duration::from_millis(100);

/// Operations per second of memcached; `None` if it is not installed.
pub(crate) fn theirs(setting: &Setting) -> Result<Option<f64>> {
    if !is_installed("memcached") {
        return Ok(None);
    }
    let port = free_port()?;
    let mut command = Command::new("memcached");
    let port_text = port.to_string();
    command.args([
        "-t",
        "1",
        "-l",
        "127.0.0.1",
        "-U",
        "0",
        "-u",
        "root",
        "-p",
        &port_text,
    ]);
    of(setting, command, port).map(Some)
}

/// Operations per second of `adverb store serve`.
pub(crate) fn ours(setting: &Setting) -> Result<f64> {
    let port = free_port()?;
    let mut command = Command::new(&setting.adverb);
    let listen = format!("127.0.0.1:{port}");
    command.args(["store", "serve", "--threads", "1", "--listen", &listen]);
    of(setting, command, port)
}

/// Operations per second of `adverb store`, whose clients READ values.
pub(crate) fn by_rdma(setting: &Setting) -> Result<f64> {
    let command = format!("store --connections {CONNECTIONS} --requests 100000");
    let printed = adverb::run(setting, &command, Some(&adverb::both(setting)))?;
    adverb::figure_in(&printed, "/metrics/requests_per_s")
}

fn of(setting: &Setting, mut command: Command, port: u16) -> Result<f64> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let name = command.get_program().to_string_lossy().into_owned();
    let mut server = Ended(spawn_on(setting.cores[1], command)?);
    server.wait_until_it_listens(port, &name)?;
    on_core(setting.cores[0], || load(port))
}

/// A connection and what it waits for.
struct Lane {
    stream: TcpStream,
    expected: Vec<u8>,
}

fn value(item: u64) -> String {
    format!("{item:0>VALUE$}")
}

impl Lane {
    fn ask(&mut self, item: u64, is_set: bool) -> Result<()> {
        let (key, value) = (format!("key{item:013}"), value(item));
        let (asked, expected) = match is_set {
            true => (
                format!("set {key} 0 0 {VALUE}\r\n{value}\r\n"),
                "STORED\r\n".to_owned(),
            ),
            false => (
                format!("get {key}\r\n"),
                format!("VALUE {key} 0 {VALUE}\r\n{value}\r\nEND\r\n"),
            ),
        };
        self.expected = expected.into_bytes();
        Ok(self.stream.write_all(asked.as_bytes())?)
    }

    fn answered(&mut self) -> Result<()> {
        let mut answer = [0; 256];
        let answer = &mut answer[..self.expected.len()];
        self.stream.read_exact(answer)?;
        ensure!(
            answer == self.expected,
            "a wrong answer: {}",
            String::from_utf8_lossy(answer)
        );
        Ok(())
    }
}

/// Stores all items, then measures.
fn load(port: u16) -> Result<f64> {
    let lane = |_| -> Result<Lane> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Lane {
            stream,
            expected: Vec::new(),
        })
    };
    let mut lanes = (0..CONNECTIONS).map(lane).collect::<Result<Vec<_>>>()?;
    for item in 0..ITEMS {
        lanes[0].ask(item, true)?;
        lanes[0].answered()?;
    }
    // A step of a generator of full period: items in no order that a cache could use.
    let mut number = 0u64;
    let mut next = || {
        number += 1;
        (
            number.wrapping_mul(7919) % ITEMS,
            number.is_multiple_of(SET_EVERY),
        )
    };
    for lane in &mut lanes {
        let (item, is_set) = next();
        lane.ask(item, is_set)?;
    }
    let began = Instant::now();
    let (mut from, mut done) = (None, 0u64);
    loop {
        for lane in &mut lanes {
            lane.answered()?;
            let (item, is_set) = next();
            lane.ask(item, is_set)?;
        }
        done += CONNECTIONS as u64;
        let elapsed = began.elapsed();
        match from {
            None if elapsed >= WARM_UP => from = Some((elapsed, done)),
            Some((since, before)) if elapsed >= since + MEASURED => {
                return Ok((done - before) as f64 / (elapsed - since).as_secs_f64());
            }
            _ => {}
        }
    }
}
