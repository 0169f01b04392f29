//! The replies that a client has checked.

use adverb_units::Time;
use adverb_verbs::Station;
use adverb_workload::pattern::{Meter, PatternError, Schedule};

use super::{Echo, Reply, content};
use crate::due::Asked;
use crate::tally::ServiceTally;

/// Counts replies and measures their latencies.
pub(super) struct Answers {
    content: Reply,
    count: u64,
    meter: Meter,
    tally: ServiceTally,
}

impl Answers {
    pub(super) fn new(echo: &Echo, now: Time, schedule: Schedule) -> Self {
        Answers {
            content: echo.content,
            count: 0,
            meter: Meter::new(now, schedule),
            tally: ServiceTally::timed(echo.clients.timing),
        }
    }

    /// Returns the number of replies so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Checks the bytes of the reply to a request, which was seen at `now`, or takes its number.
    pub(super) fn take(
        &mut self,
        reply: &[u8],
        asked: Asked,
        now: Time,
    ) -> Result<(), PatternError> {
        match (self.content, reply.try_into()) {
            (Reply::Number, Ok(number)) => self.tally.handed.add(u64::from_le_bytes(number)),
            (Reply::Digest, _) if content::is_of(reply, asked.seed) => {
                self.tally.values_checked += 1;
            }
            _ => return Err(PatternError::Wrong("a reply to another request")),
        }
        self.count += 1;
        if let (true, Some(waits)) = (self.meter.is_open(now), &mut self.tally.waits) {
            waits.record(now - asked.at);
        }
        Ok(())
    }

    pub(super) fn look<S: Station>(&mut self, station: &S, now: Time) {
        self.meter.look(station, now, self.count);
    }

    pub(super) fn into_tally(self) -> ServiceTally {
        self.tally.measured_by(&self.meter)
    }
}
