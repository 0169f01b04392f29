//! The server of the program: a core that polls.

use adverb_units::{Bytes, Span, Time};
use adverb_verbs::{Level, Station, Work, WorkCompletion};
use adverb_workload::attend::Members;
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

/// Serves until all clients have met twice: before and after the measured time.
pub(super) fn serve<S: Station>(
    members: &Members<'_, S>,
    ends: &Objects<S>,
    store: &Store,
) -> Result<ServiceTally, PatternError> {
    let station = members.station();
    let mut cache = Cache::new(Limits {
        memory: store.memory,
        max_value: Bytes::new(MAX_VALUE.into()),
        evicts: true,
    });
    let mut sessions = Vec::with_capacity(ends.qps.len());
    for number in 0..ends.qps.len() as u32 {
        let buffers = store.memory.get() + u64::from(number) * Session::BUFFERS;
        sessions.push(Session::new(number, buffers, &ends.of(number))?);
    }
    members.meet()?;
    let mut tally = ServiceTally::default();
    let (mut begun, mut cpu) = (station.now(), station.cpu());
    let mut waiting = Vec::new();
    let mut meetings = 0;
    let mut reaper = ends.queue.reaper();
    let mut completions = [WorkCompletion::default(); BATCH];
    while meetings < 2 {
        let n = reaper.reap(station, members, &mut completions)?;
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
        if waiting.len() == store.clients as usize {
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
