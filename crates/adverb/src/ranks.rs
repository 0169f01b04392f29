//! Under `mpirun` or `srun`: what this process does as one of several ranks.
//!
//! Rank 0 does what was typed, with the other ranks as its peers. Of what is typed at all ranks, one prints.

use std::process::ExitCode;

use adverb_host::{Rank, RankError};
use adverb_launch::{Event, Ranks, Usage, serve_rank_0};

use crate::args::Cli;
use crate::{failure, hosts, terminal};

/// Exit status of a rank that leaves an error to rank 0, which has the same. The launcher ends all ranks when one fails,
/// perhaps before rank 0 has said why.
pub(crate) const LEFT_TO_RANK_0: ExitCode = ExitCode::SUCCESS;

/// Whether this process prints usage errors and help: it is the first of its job.
pub(crate) fn is_first() -> bool {
    match Rank::from_env() {
        Ok(rank) => rank.is_none_or(|rank| rank.rank == 0),
        Err(RankError::Environment { rank, .. }) => rank == 0,
        Err(RankError::Pmix(_)) => true,
    }
}

/// Makes the other ranks peers of rank 0. Returns the exit status of a rank that has nothing else to do, at
/// once or after it has served rank 0; `None` for a process that runs the command.
///
/// # Errors
/// The ranks cannot find each other, or `--peer` is given.
pub(crate) fn join(points: &mut [Cli]) -> anyhow::Result<Option<ExitCode>> {
    let first = &mut points[0].command;
    if first.is_of_each_rank() {
        return Ok(None);
    }
    let done = |code| Ok(Some(code));
    let rank = match Rank::from_env() {
        Ok(Some(rank)) => rank,
        Ok(None) => return Ok(None),
        // Rank 0 reports the same error.
        Err(RankError::Environment { rank, .. }) if rank > 0 => return done(LEFT_TO_RANK_0),
        Err(error) => return Err(error.into()),
    };
    let Some(hosts) = first.hosts() else {
        return match rank.rank {
            0 => Ok(None),
            _ => done(ExitCode::SUCCESS),
        };
    };
    if let Some(peer) = hosts.place.peer.first() {
        let reason = format!(
            "--peer {peer}: the {} ranks of this job are the hosts; leave out --peer",
            rank.size
        );
        return match rank.rank {
            0 => Err(Usage(reason).into()),
            _ => done(LEFT_TO_RANK_0),
        };
    }
    if rank.rank > 0 {
        // The launcher reports that a rank ended, and rank 0 prints its own errors.
        let pinning = hosts::pinning(None, hosts.place.no_pin)?;
        let is_well = serve_rank_0(&rank, pinning, &hosts::CATALOG, quiet)?;
        let ended = || ExitCode::from(u8::from(!is_well));
        return done(failure::after_signal().unwrap_or_else(ended));
    }
    let most = hosts.most_peers;
    let ranks = Ranks::gather(&rank, hosts.device.address(), &hosts::CATALOG)?;
    let peers = ranks.addresses(most);
    if peers.len() + 1 < rank.size as usize {
        terminal::say(&format!(
            "{} of {} ranks have no role: there are two sides",
            rank.size as usize - 1 - peers.len(),
            rank.size
        ));
    }
    for hosts in points.iter_mut().filter_map(|cli| cli.command.hosts()) {
        hosts.device.meet(ranks.reached_from());
        (hosts.place.peer, hosts.place.ranks) = (peers.clone(), ranks.clone());
    }
    Ok(None)
}

/// Prints warnings only.
fn quiet(event: Event) {
    if let Event::Warning(line) = event {
        terminal::warn(&line);
    }
}
