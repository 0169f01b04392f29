//! A worker of the program's server: a core that polls.

use adverb_units::{Bytes, Span, Time};
use adverb_verbs::{Level, RoleId, Station, Work, WorkCompletion};
use adverb_workload::attend::Members;
use adverb_workload::error::Fault;
use adverb_workload::pattern::PatternError;
use adverb_workload::reap::BATCH;

use super::super::cache::{Cache, Limits};
use super::super::message::Answer;
use super::super::session::{Session, Turn};
use super::{MAX_VALUE, Objects, Store};
use crate::rpc::service::loaded;
use crate::tally::ServiceTally;

/// Lines that a lookup loads: index, item, its neighbours in the order of use.
const LINES: u32 = 4;

/// Message of a worker whose clients have met.
const MET: &[u8] = b"met";

/// Serves until all clients have met twice: before and after the measured time.
pub(super) fn serve<S: Station>(
    members: &Members<'_, S>,
    ends: &Objects<S>,
    (store, me): (&Store, RoleId),
) -> Result<ServiceTally, PatternError> {
    let station = members.station();
    let memory = store.worker_memory();
    let mut cache = Cache::new(Limits {
        memory,
        max_value: Bytes::new(MAX_VALUE.into()),
        evicts: true,
    });
    let mut sessions = Vec::with_capacity(ends.qps.len());
    for number in 0..ends.qps.len() as u32 {
        let buffers = memory.get() + u64::from(number) * Session::BUFFERS;
        sessions.push(Session::new(number, buffers, &ends.of(number))?);
    }
    members.meet()?;
    let mut tally = ServiceTally::default();
    let (mut begun, mut cpu) = (station.now(), station.cpu());
    let clients = store.clients_of(me);
    let mut waiting = Vec::new();
    let mut meetings = 0;
    let mut reaper = ends.queue.reaper();
    let mut completions = [WorkCompletion::default(); BATCH];
    while meetings < 2 {
        let n = reaper.reap_untimed(station, members, &mut completions)?;
        loaded(station, n);
        let now = (station.now() - Time::ZERO).as_ps() / Span::from_secs(1).as_ps();
        for wc in &completions[..n] {
            let number = Session::number(wc);
            let session = &mut sessions[number as usize];
            match session.completed(wc, &ends.of(number), (&mut cache, now))? {
                Turn::Nothing => {}
                Turn::Answered => {
                    tally.requests += 1;
                    station.account(Work::Load {
                        lines: LINES,
                        from: Level::Memory,
                    });
                    station.account(Work::Lookup { keys: 1 });
                }
                Turn::Meet => waiting.push(number),
            }
        }
        if waiting.len() == clients {
            meet_workers(members, (me, store.workers))?;
            meetings += 1;
            tally.elapsed = station.now() - begun;
            (tally.cpu, tally.cpu_over) = (station.cpu().since(cpu), tally.elapsed);
            if meetings < 2 {
                (tally.requests, begun, cpu) = (0, station.now(), station.cpu());
            }
            for number in waiting.drain(..) {
                sessions[number as usize].answer(&Answer::Met, &ends.of(number))?;
            }
        }
    }
    tally.evicted = cache.stats().evictions;
    Ok(tally)
}

/// Waits until the clients of all workers are there; the first worker counts them.
fn meet_workers<S: Station>(
    members: &Members<'_, S>,
    (me, workers): (RoleId, u32),
) -> Result<(), Fault> {
    const FIRST: RoleId = RoleId(0);
    if me != FIRST {
        members.send(FIRST, MET)?;
        return members.receive(FIRST).map(drop);
    }
    let others = || (1..workers).map(RoleId);
    others().try_for_each(|other| members.receive(other).map(drop))?;
    others().try_for_each(|other| members.send(other, MET))
}
