//! One side of a cell, in its own process: takes its order, takes its place, runs, answers.

use std::ffi::CString;
use std::io::{self, Write};
use std::os::fd::AsFd;

use adverb_host::{HostStation, Link, die_with_parent, pin};
use adverb_softnic::SoftDevice;
use adverb_studies::{CellSpec, Fault, RunError, run_active, run_passive};
use adverb_units::Span;
use adverb_verbs::{Device, Station};
use anyhow::Context;

use crate::device::DeviceChoice;
use crate::failure::one_line;
use crate::pair::{Answer, Order, Side};

/// How long the order may take; it was written before this process began.
const ORDER_PATIENCE: Span = Span::from_secs(5);

/// Runs one side; says how it went on stdout and returns whether it went well.
pub(crate) fn run(side: Side) -> anyhow::Result<bool> {
    let answer = answer(side).unwrap_or_else(|error| failed(side, &error));
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    io::stdout().write_all(&line)?;
    Ok(!matches!(answer, Answer::Failed { .. }))
}

fn failed(side: Side, error: &anyhow::Error) -> Answer {
    match error.downcast_ref::<RunError>() {
        // It names its side itself.
        Some(run) => Answer::Failed {
            reason: run.to_string(),
            peer_gone: matches!(*run.fault, Fault::Peer(_) | Fault::PeerEnded(_)),
        },
        None => Answer::Failed {
            reason: format!("{} side: {}", side.name(), one_line(error)),
            peer_gone: false,
        },
    }
}

fn answer(side: Side) -> anyhow::Result<Answer> {
    show_name(side);
    let link = link()?;
    let order = link
        .receive(side.peer().role(), ORDER_PATIENCE)
        .context("no order came")?;
    let order: Order = serde_json::from_slice(&order).context("the order cannot be read")?;
    die_with_parent(order.parent)?;
    if let Some(core) = order.core {
        pin(core).with_context(|| format!("cannot run on core {core}"))?;
    }
    match order.device {
        DeviceChoice::Soft => {
            let context = SoftDevice::new().open()?;
            let station = HostStation::new(context, [(side.peer().role(), link)]);
            play(side, &station.sharing_core(order.shares_core), &order.spec)
        }
    }
}

fn play<S: Station>(side: Side, station: &S, spec: &CellSpec) -> anyhow::Result<Answer> {
    Ok(match side {
        Side::Active => Answer::Measured(Box::new(run_active(station, spec)?)),
        Side::Passive => {
            run_passive(station, spec)?;
            Answer::Served
        }
    })
}

/// What `top` shows; without it, that would be the `exe` of `/proc/self/exe`.
fn show_name(side: Side) {
    if let Ok(name) = CString::new(format!("adverb-{}", side.name())) {
        // Only for people: nothing depends on it.
        let _ = rustix::thread::set_name(&name);
    }
}

/// The socket to the other side, which is our stdin.
fn link() -> anyhow::Result<Link> {
    let fd = io::stdin().as_fd().try_clone_to_owned();
    fd.and_then(Link::from_fd)
        .context("there is no other side: `adverb ping`, `blast` and `study` start both")
}
