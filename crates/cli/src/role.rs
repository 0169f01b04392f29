//! One side of a cell, in its own process: takes its order, takes its place, runs, answers.

use std::ffi::CString;
use std::io::{self, Write};
use std::os::fd::AsFd;

use adverb_host::{HostStation, Link, die_with_parent, pin};
use adverb_results::Impairment;
use adverb_studies::{Fault, RunError, run_active, run_passive};
use adverb_units::Span;
use adverb_verbs::{self as verbs, Counters, Device, Station};
use anyhow::{Context, bail};

use crate::device::DeviceChoice;
use crate::failure::one_line;
use crate::pair::{Answer, Details, Ended, Order, Side};

/// How long the order may take; it was written before this process began.
const ORDER_PATIENCE: Span = Span::from_secs(5);

/// Runs one side; says how it went on stdout and returns whether it went well.
pub(crate) fn run(side: Side) -> anyhow::Result<bool> {
    let answer = answer(side).unwrap_or_else(|error| Answer {
        end: failed(side, &error),
        counters: Counters::new(),
        details: Details::new(),
    });
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    io::stdout().write_all(&line)?;
    Ok(!matches!(answer.end, Ended::Failed { .. }))
}

fn failed(side: Side, error: &anyhow::Error) -> Ended {
    match error.downcast_ref::<RunError>() {
        // It names its side itself.
        Some(run) => Ended::Failed {
            reason: run.to_string(),
            peer_gone: matches!(*run.fault, Fault::Peer(_) | Fault::PeerEnded(_)),
        },
        None => Ended::Failed {
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
    let device = order.device.met_at(order.reached_at);
    let impairment = order.spec.params.impairment.as_ref();
    device
        .check_impairment(impairment)
        .map_err(anyhow::Error::msg)?;
    match device {
        DeviceChoice::Soft(address) => {
            let device = match &order.spec.params.impairment {
                None => address.device()?,
                Some(impairment) => address.impaired(of_side(impairment, side))?,
            };
            play(side, device.open()?, link, &order)
        }
        DeviceChoice::Verbs(device) => play(side, device.open()?, link, &order),
        DeviceChoice::Model(_) => bail!(
            "{} runs in virtual time, both sides in one process: it has no single side",
            order.device
        ),
    }
}

/// What a side's port does to packets: to others than the other side's.
fn of_side(impairment: &Impairment, side: Side) -> Impairment {
    let seed = impairment.seed.wrapping_mul(2);
    Impairment {
        seed: seed.wrapping_add(side.role().0.into()),
        ..*impairment
    }
}

/// Takes part on an opened device; what it counts is told even of a part that fails.
fn play<C: verbs::Context>(
    side: Side,
    context: C,
    link: Link,
    order: &Order,
) -> anyhow::Result<Answer> {
    let before = context.counters();
    let station = HostStation::new(context, [(side.peer().role(), link)]);
    let station = station.sharing_core(order.shares_core);
    let end = match side {
        Side::Active => {
            run_active(&station, &order.spec).map(|result| Ended::Measured(Box::new(result)))
        }
        Side::Passive => run_passive(&station, &order.spec).map(|()| Ended::Served),
    };
    Ok(Answer {
        end: end.unwrap_or_else(|error| failed(side, &error.into())),
        counters: moved(&before, station.context().counters()),
        details: station.context().provenance(),
    })
}

/// The counters that grew, by how much. One that shrank was reset by somebody: it says nothing.
fn moved(before: &Counters, after: Counters) -> Counters {
    let grown = after.into_iter().filter_map(|(name, count)| {
        let earlier = before.get(&name).copied().unwrap_or(0);
        let by = count.checked_sub(earlier).filter(|by| *by > 0)?;
        Some((name, by))
    });
    grown.collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counters_that_grew_are_told() {
        let counters = |all: &[(&str, u64)]| -> Counters {
            all.iter()
                .map(|(name, n)| ((*name).to_owned(), *n))
                .collect()
        };
        let before = counters(&[("still", 5), ("grown", 5), ("reset", 5)]);
        let after = counters(&[("still", 5), ("grown", 7), ("reset", 1), ("new", 2)]);
        assert_eq!(moved(&before, after), counters(&[("grown", 2), ("new", 2)]));
    }
}
