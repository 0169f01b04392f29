//! Whether a program was measured for long enough.

use adverb_units::Span;
use adverb_workload::Program as _;
use adverb_workload::pattern::{Member, Schedule};

use crate::job::Job;
use crate::rpc::{Clients, Pace};

/// In steady state the queues are full. Requests that are posted while the queues fill are answered earlier or later than
/// the ones after them.
const ROUNDS: u64 = 4;
/// Number of requests for a mean, if clients send them at random times.
const ARRIVALS: u64 = 2048;
/// Times as long as before, at most: the first requests of a queue that fills say little about how many will end.
const MOST_AT_ONCE: u64 = 32;
/// The longest time that is measured instead of a shorter one.
const LONGEST: Span = Span::from_secs(1);
/// Longest waits for a retransmission in the measured time, if packets are lost: because a few losses cost most of the time,
/// and at least, however many requests end.
const WAITS: u64 = 20;
const LEAST_WAITS: u64 = 4;
/// Difference between the rates of the two halves, in percent, above which a closed loop is not steady.
const DRIFT: f64 = 2.0;
/// Times as long as before, at most, because of it.
const MOST_FOR_DRIFT: u64 = 4;
/// Requests after which only `LEAST_WAITS` are measured, and a rate may drift: some loads never become steady.
const MOST_REQUESTS: u64 = 100_000;

impl Job {
    /// Returns the number of requests that have to end in the measured time of a closed loop: the number outstanding then ends in
    /// the warm-up, which is at least a quarter as long. `None` if it is an open loop, or ends after a number of requests.
    pub fn steady_requests(&self) -> Option<u64> {
        let outstanding = match (self, self.clients()) {
            (_, Some(clients)) if clients.pace == Pace::Closed => {
                u64::from(clients.threads) * u64::from(clients.outstanding)
            }
            (Job::Pattern(pattern, _), _) => pattern.members.iter().map(Member::outstanding).sum(),
            (Job::OneSided(program, _), _) => program.outstanding(),
            _ => return None,
        };
        Some(ROUNDS * outstanding)
    }

    /// Returns this job with a longer warm-up and measured time, if the `requests` that ended in the measured time are too few
    /// for a steady state, or for a mean of random arrivals, or if it has few of the waits that lost packets cost, or if the
    /// rate of a closed loop's second half differs by `drift` percent.
    pub fn lengthened(&self, requests: u64, drift: Option<f64>) -> Option<Job> {
        let of_steady = self.steady_requests();
        let enough = match self.clients() {
            Some(clients) if clients.pace != Pace::Closed => ARRIVALS,
            _ => of_steady?,
        };
        let wait = self.longest_wait().unwrap_or_default();
        let mut longer = self.clone();
        let schedule = longer.schedule_mut()?;
        let spans = |waits| {
            (wait * waits)
                .as_ps()
                .div_ceil(schedule.measured.as_ps().max(1))
        };
        let affordable = MOST_REQUESTS / requests.max(1);
        let mut times = spans(WAITS).min(affordable).max(spans(LEAST_WAITS));
        if requests < enough && schedule.measured < LONGEST {
            times = times.max((enough / requests.max(1) + 1).min(MOST_AT_ONCE));
        }
        if of_steady.is_some() && schedule.measured < LONGEST {
            // What the first requests gain or lose counts less the longer the time is, often much less.
            let of_drift = (drift.unwrap_or_default().abs() / DRIFT).ceil() as u64;
            let most = MOST_REQUESTS.div_ceil(requests.max(1));
            times = times.max(of_drift.min(MOST_FOR_DRIFT).min(most));
        }
        if times <= 1 {
            return None;
        }
        *schedule = Schedule {
            warm_up: schedule.warm_up * times,
            measured: schedule.measured * times,
        };
        Some(longer)
    }

    /// Returns the time after which a lost packet is sent again at the latest; `None` if none is lost.
    pub fn longest_wait(&self) -> Option<Span> {
        self.path().longest_wait(self.is_stream())
    }

    /// Returns this job for one of several passes, from 1 on: each of them loses other packets.
    #[must_use]
    pub fn in_pass(&self, pass: u32) -> Job {
        let mut job = self.clone();
        if let Some(faults) = &mut job.path_mut().impairment {
            *faults = faults.in_pass(pass);
        }
        job
    }

    /// Returns how long its parameters ask it to take: to measure, to compute, or to send at a rate.
    pub fn asked(&self) -> Span {
        match self {
            Job::Pattern(_, schedule)
            | Job::Rpc(_, schedule)
            | Job::Echo(_, schedule)
            | Job::OneSided(_, schedule) => schedule.measured,
            Job::Pair(cell) => cell.longest(),
            Job::Wan(wan) => wan.asked(),
            Job::Multicast(multicast) => {
                multicast.interval.unwrap_or_default() * multicast.messages
            }
            Job::Connect(_) | Job::Store(_) | Job::Nodes(_) => Span::ZERO,
        }
    }

    /// Returns the clients of a server, which send requests in a closed loop or at random times.
    fn clients(&self) -> Option<&Clients> {
        match self {
            Job::Rpc(rpc, _) => Some(&rpc.clients),
            Job::Echo(echo, _) => Some(&echo.clients),
            _ => None,
        }
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
