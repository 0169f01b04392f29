//! Whether a closed loop was measured in steady state.

use adverb_units::Span;
use adverb_workload::pattern::{Member, Schedule};

use crate::job::Job;
use crate::rpc::{Clients, Pace};

/// In steady state the queues are full. They fill while the first requests are outstanding: these are answered sooner, or later,
/// than those that find full queues.
const ROUNDS: u64 = 4;
/// The longest time that is measured instead of a shorter one.
const LONGEST: Span = Span::from_secs(1);

impl Job {
    /// Returns how many requests have to end in the measured time, so that the warm-up, a quarter of it or more, has seen as
    /// many as are outstanding; `None` if the clients are no closed loop, or end after a number of requests.
    pub fn steady_requests(&self) -> Option<u64> {
        let closed = |clients: &Clients| {
            let all = u64::from(clients.threads) * u64::from(clients.outstanding);
            (clients.pace == Pace::Closed).then_some(all)
        };
        let outstanding = match self {
            Job::Pattern(pattern, _) => pattern.members.iter().map(Member::outstanding).sum(),
            Job::Rpc(rpc, _) => closed(&rpc.clients)?,
            Job::Echo(echo, _) => closed(&echo.clients)?,
            Job::OneSided(program, _) => program.outstanding(),
            _ => return None,
        };
        Some(ROUNDS * outstanding)
    }

    /// Returns the same with a longer warm-up and measured time, if the `requests` that ended in the measured time are too few
    /// for a steady state.
    pub fn lengthened(&self, requests: u64) -> Option<Job> {
        if requests >= self.steady_requests()? {
            return None;
        }
        let mut longer = self.clone();
        let schedule = longer.schedule_mut()?;
        if schedule.measured >= LONGEST {
            return None;
        }
        *schedule = Schedule {
            warm_up: schedule.warm_up * ROUNDS,
            measured: schedule.measured * ROUNDS,
        };
        Some(longer)
    }

    fn schedule_mut(&mut self) -> Option<&mut Schedule> {
        match self {
            Job::Pattern(_, schedule)
            | Job::Rpc(_, schedule)
            | Job::Echo(_, schedule)
            | Job::OneSided(_, schedule) => Some(schedule),
            _ => None,
        }
    }
}
