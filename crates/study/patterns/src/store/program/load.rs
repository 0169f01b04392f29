//! A client of the program: its items, its operations, and the checks of their results.

use adverb_units::Time;
use adverb_verbs::{MemoryRegion, Station, WorkCompletion};
use adverb_workload::attend::Members;
use adverb_workload::pattern::PatternError;
use adverb_workload::random::Random;
use adverb_workload::reap::BATCH;

use super::super::cache::Condition;
use super::super::client::{Connection, Reply};
use super::super::message::Request;
use super::{Objects, Store};
use crate::rpc::table;
use crate::tally::ServiceTally;

/// An operation in progress.
#[derive(Clone, Copy, Debug)]
struct Asked {
    item: u64,
    is_put: bool,
    at: Option<Time>,
}

/// The state of a running client.
pub(super) struct Client<'w, S: Station> {
    members: &'w Members<'w, S>,
    ends: &'w Objects<S>,
    store: &'w Store,
    connections: Vec<Connection>,
    random: Random,
    value: Vec<u8>,
    tally: ServiceTally,
}

impl<'w, S: Station> Client<'w, S> {
    pub(super) fn new(
        members: &'w Members<'w, S>,
        ends: &'w Objects<S>,
        store: &'w Store,
        client: u32,
    ) -> Self {
        let connections = ends.remotes.iter().zip(0..).map(|(remote, number)| {
            let buffers = u64::from(number) * Connection::buffers(store.value);
            Connection::new((number, buffers), store.value, *remote)
        });
        Client {
            members,
            ends,
            store,
            connections: connections.collect(),
            random: Random::new(store.seed.wrapping_mul(1_000_003) + u64::from(client)),
            value: vec![0; store.value as usize],
            tally: ServiceTally::default(),
        }
    }

    /// PUTs this client's share of the items, then runs the operations.
    pub(super) fn run(mut self, client: u32) -> Result<ServiceTally, PatternError> {
        self.members.meet()?;
        let (store, station) = (self.store, self.members.station());
        let shares = (0..store.connections).map(|connection| store.share(client, connection));
        let shares: Vec<_> = shares.collect();
        let mut puts: Vec<_> = shares.iter().map(|share| share.puts()).collect();
        self.work(|_, connection| Some((puts[connection].next()?, true)))?;
        self.meet_clients()?;
        let (begun, cpu) = (station.now(), station.cpu());
        self.tally = ServiceTally::timed(store.timing);
        let mut left = vec![store.requests; self.connections.len()];
        self.work(|random, connection| {
            left[connection] = left[connection].checked_sub(1)?;
            let item = shares[connection].random(random);
            Some((item, random.chance(store.put_ratio)))
        })?;
        self.tally.elapsed = station.now() - begun;
        self.tally.cpu = station.cpu().since(cpu);
        self.tally.cpu_over = self.tally.elapsed;
        self.meet_clients()?;
        Ok(self.tally)
    }

    /// Keeps an operation outstanding on each connection until `next` has no more for it; an operation is an item, and
    /// whether it is a PUT.
    fn work(
        &mut self,
        mut next: impl FnMut(&mut Random, usize) -> Option<(u64, bool)>,
    ) -> Result<(), PatternError> {
        let station = self.members.station();
        let mut reaper = self.ends.queue.reaper();
        let mut asked = vec![None; self.connections.len()];
        let mut outstanding = 0;
        let mut now = station.now();
        for (connection, asked) in asked.iter_mut().enumerate() {
            let operation = next(&mut self.random, connection);
            *asked = self.ask(connection, operation, now)?;
            outstanding += u32::from(asked.is_some());
        }
        while outstanding > 0 {
            let mut completions = [WorkCompletion::default(); BATCH];
            let n = reaper.reap(station, self.members, &mut completions)?;
            if self.tally.waits.is_some() {
                now = station.now();
            }
            for wc in &completions[..n] {
                let number = Connection::number(wc);
                let ends = self.ends.of(number);
                let connection = number as usize;
                let Some(reply) = self.connections[connection].completed(wc, &ends)? else {
                    continue;
                };
                let done =
                    asked[connection].ok_or(PatternError::Wrong("an answer to no request"))?;
                self.done(connection, done, (reply, now))?;
                let operation = next(&mut self.random, connection);
                asked[connection] = self.ask(connection, operation, now)?;
                outstanding -= u32::from(asked[connection].is_none());
            }
        }
        Ok(())
    }

    /// Starts an operation, if there is one.
    fn ask(
        &mut self,
        connection: usize,
        operation: Option<(u64, bool)>,
        now: Time,
    ) -> Result<Option<Asked>, PatternError> {
        let Some((item, is_put)) = operation else {
            return Ok(None);
        };
        let key = table::key(item);
        let mr = &self.ends.mr;
        let ends = self.ends.of(connection as u32);
        let connection = &mut self.connections[connection];
        let request = match is_put {
            false => Request::Get { key: &key },
            true => {
                table::fill(&mut self.value, item, self.random.below(256) as u8);
                mr.write(connection.value(), &self.value)?;
                let value = (&key[..], self.store.value);
                connection.put(mr, value, (0, 0), Condition::Always)
            }
        };
        connection.ask(&request, &ends)?;
        let at = self.tally.waits.is_some().then_some(now);
        Ok(Some(Asked { item, is_put, at }))
    }

    /// Checks the result of an operation.
    fn done(
        &mut self,
        connection: usize,
        asked: Asked,
        (reply, now): (Reply, Time),
    ) -> Result<(), PatternError> {
        match (reply, asked.is_put) {
            (Reply::Stored(_), true) => {}
            (Reply::Missing, false) => self.tally.misses += 1,
            (Reply::Value { length, .. }, false) => {
                let offset = self.connections[connection].value();
                self.ends.mr.read(offset, &mut self.value)?;
                if length != self.store.value || !table::is_right(&self.value, asked.item) {
                    return Err(PatternError::Wrong("a value that belongs to another key"));
                }
                self.tally.values_checked += 1;
            }
            (Reply::Refused(_), true) => {
                return Err(PatternError::Wrong("a PUT that the store has no room for"));
            }
            _ => return Err(PatternError::Wrong("an answer to another request")),
        }
        self.tally.requests += 1;
        if let (Some(at), Some(waits)) = (asked.at, &mut self.tally.waits) {
            waits.record(now - at);
        }
        Ok(())
    }

    /// Waits for the other clients. The workers do so, too, and learn thereby when the measured time begins and ends.
    fn meet_clients(&mut self) -> Result<(), PatternError> {
        if self.store.server.is_some() {
            return self.members.meet();
        }
        // The first connections are to different workers.
        let workers = self.store.connections.min(self.store.workers);
        for number in 0..workers {
            self.connections[number as usize].ask(&Request::Meet, &self.ends.of(number))?;
        }
        let mut reaper = self.ends.queue.reaper();
        let mut completion = [WorkCompletion::default()];
        let mut met = 0;
        while met < workers {
            reaper.reap_untimed(self.members.station(), self.members, &mut completion)?;
            let number = Connection::number(&completion[0]);
            let ends = self.ends.of(number);
            let reply = self.connections[number as usize].completed(&completion[0], &ends)?;
            met += u32::from(reply == Some(Reply::Met));
        }
        Ok(())
    }
}
