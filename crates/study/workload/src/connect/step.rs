//! The steps of a connection's life, and their times.

use std::collections::BTreeMap;

use adverb_results::LatencyRecorder;
use adverb_units::Span;
use adverb_verbs::{NotCounted, Note, Station, StreamStep};
use serde::{Deserialize, Serialize};

use super::ConnectTally;

macro_rules! steps {
    ($($(#[$doc:meta])* $step:ident, $name:literal, $label:literal;)+) => {
        /// A step of a connection's life, a sum over the steps of a phase, or the sum of all, in the order
        /// in which they are shown.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Step {
            $($(#[$doc])* $step,)+
        }

        impl Step {
            /// All steps and sums, in order.
            pub const ALL: &'static [Step] = &[$(Step::$step,)+];

            /// Returns the name in records.
            pub const fn name(self) -> &'static str {
                match self { $(Step::$step => $name,)+ }
            }

            /// Returns the name for people.
            pub const fn label(self) -> &'static str {
                match self { $(Step::$step => $label,)+ }
            }
        }
    };
}

steps! {
    /// `ibv_alloc_pd`.
    AllocPd, "alloc_pd_ns", "allocate PD";
    /// `ibv_create_comp_channel`.
    CreateChannel, "create_channel_ns", "create channel";
    /// `ibv_create_cq`.
    CreateCq, "create_cq_ns", "create CQ";
    /// Allocates memory and registers it (`ibv_reg_mr`).
    RegisterMr, "register_mr_ns", "register memory";
    /// `ibv_create_qp`.
    CreateQp, "create_qp_ns", "create QP";
    /// RESET to INIT.
    ToInit, "to_init_ns", "RESET to INIT";
    /// `ibv_post_recv`.
    PostReceives, "post_receives_ns", "post receives";
    /// `rdma_listen`, at the passive side.
    Listen, "listen_ns", "rdma_cm: listen";
    /// `socket` with its options, over TCP.
    Socket, "socket_ns", "socket";
    /// `bind`, over TCP.
    Bind, "bind_ns", "bind";
    /// `listen`, at the passive side over TCP.
    TcpListen, "tcp_listen_ns", "listen";
    /// Sends the own address and waits for the peer's.
    Exchange, "exchange_ns", "exchange addresses";
    /// INIT to RTR.
    ToRtr, "to_rtr_ns", "INIT to RTR";
    /// RTR to RTS.
    ToRts, "to_rts_ns", "RTR to RTS";
    /// INIT to RTS by the connection manager.
    Connect, "connect_ns", "rdma_cm: connect";
    /// `connect`, at the active side over TCP.
    TcpConnect, "tcp_connect_ns", "connect";
    /// Waits for the next connection and accepts it (`accept`), at the passive side over TCP.
    Accept, "accept_ns", "accept";
    /// Sum of the steps above.
    SetUp, "setup_ns", "set-up";
    /// The first SEND, until its completion; over TCP until the peer's answer.
    FirstMessage, "first_message_ns", "first message";
    /// A further SEND, until its completion.
    FurtherMessage, "further_message_ns", "further message";
    /// The SEND with the number of messages, until its completion.
    Finished, "finished_ns", "finished";
    /// Sum of all messages.
    Use, "use_ns", "use";
    /// To ERR, until the receives are flushed.
    ToErr, "to_err_ns", "to ERR, flush";
    /// `ibv_destroy_qp`.
    DestroyQp, "destroy_qp_ns", "destroy QP";
    /// `ibv_destroy_cq`.
    DestroyCq, "destroy_cq_ns", "destroy CQ";
    /// `ibv_destroy_comp_channel`.
    DestroyChannel, "destroy_channel_ns", "destroy channel";
    /// `ibv_dereg_mr`, and the memory is freed.
    DeregisterMr, "deregister_mr_ns", "deregister memory";
    /// `ibv_dealloc_pd`.
    FreePd, "free_pd_ns", "free PD";
    /// `shutdown` of both directions, over TCP.
    Shutdown, "shutdown_ns", "shutdown";
    /// `close`, over TCP.
    Close, "close_ns", "close";
    /// Sum of these steps.
    BreakDown, "break_down_ns", "break-down";
    /// Sum of the three phases.
    Whole, "connection_ns", "whole connection";
}

impl Step {
    /// Whether every connection of queue pairs takes it, however it is connected.
    pub const fn is_of_all_queue_pairs(self) -> bool {
        !matches!(
            self,
            Step::Socket
                | Step::Bind
                | Step::TcpListen
                | Step::Listen
                | Step::Connect
                | Step::TcpConnect
                | Step::Accept
                | Step::FurtherMessage
                | Step::Shutdown
                | Step::Close
        )
    }

    /// Whether it is a sum of steps.
    pub const fn is_sum(self) -> bool {
        matches!(
            self,
            Step::SetUp | Step::Use | Step::BreakDown | Step::Whole
        )
    }
}

impl From<StreamStep> for Step {
    fn from(step: StreamStep) -> Self {
        match step {
            StreamStep::Socket => Step::Socket,
            StreamStep::Bind => Step::Bind,
            StreamStep::Listen => Step::TcpListen,
            StreamStep::Connect => Step::TcpConnect,
        }
    }
}

/// Times by step.
pub(super) type Steps = BTreeMap<Step, LatencyRecorder>;

/// The system calls of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// How often the step was taken.
    pub steps: u64,
    /// System calls of all of them.
    pub calls: u64,
}

impl Calls {
    /// Returns the mean number of a step.
    pub fn mean(self) -> f64 {
        self.calls as f64 / self.steps.max(1) as f64
    }
}

/// Times the steps of connections.
pub(super) struct Timings<'s, S> {
    station: &'s S,
    steps: Steps,
    /// Sum of the steps of the connection's phase so far.
    spent: Span,
    /// System calls by step; or why they are not counted.
    calls: Result<BTreeMap<Step, Calls>, NotCounted>,
    /// Number of calls in the phase, and of the connection so far.
    made: u64,
}

impl<'s, S: Station> Timings<'s, S> {
    pub(super) fn new(station: &'s S) -> Self {
        Timings {
            station,
            steps: Steps::new(),
            spent: Span::ZERO,
            calls: station.system_calls().map(|_| BTreeMap::new()),
            made: 0,
        }
    }

    /// Returns the number of system calls so far; 0 if they are not counted.
    fn count(&self) -> u64 {
        match self.calls {
            Ok(_) => self.station.system_calls().unwrap_or_default(),
            Err(_) => 0,
        }
    }

    /// Adds the system calls of a step or of a sum.
    fn add_calls(&mut self, step: Step, calls: u64) {
        if let Ok(all) = &mut self.calls {
            let of_step = all.entry(step).or_default();
            of_step.steps += 1;
            of_step.calls += calls;
        }
    }

    /// Times a step, without the time that reading the clock takes.
    pub(super) fn time<R>(&mut self, step: Step, act: impl FnOnce() -> R) -> R {
        let before = self.count();
        let begun = self.station.now();
        let result = act();
        let took = (self.station.now() - begun).saturating_sub(self.station.clock_cost());
        let calls = self.count() - before;
        self.spent += took;
        self.made += calls;
        self.record(step, took);
        self.add_calls(step, calls);
        result
    }

    /// Times the steps towards a stream: `act` calls its argument after each.
    pub(super) fn time_by_step<R>(&mut self, act: impl FnOnce(Note<'_>) -> R) -> R {
        let mut before = self.count();
        let mut begun = self.station.now();
        act(&mut |step| {
            let took = (self.station.now() - begun).saturating_sub(self.station.clock_cost());
            let calls = self.count() - before;
            before += calls;
            self.spent += took;
            self.made += calls;
            self.record(step.into(), took);
            self.add_calls(step.into(), calls);
            begun = self.station.now();
        })
    }

    /// Ends a phase of a connection: `sum` is the sum of its steps, which is added to `whole`.
    pub(super) fn end(&mut self, sum: Step, whole: &mut Span) {
        let spent = std::mem::take(&mut self.spent);
        let made = std::mem::take(&mut self.made);
        *whole += spent;
        self.record(sum, spent);
        self.add_calls(sum, made);
    }

    /// Records the time of a step or of a sum.
    pub(super) fn record(&mut self, step: Step, took: Span) {
        self.steps.entry(step).or_default().record(took);
    }

    /// Returns the times of the steps that took any, because a model does not charge for all of them, and the system
    /// calls.
    pub(super) fn into_tally(self) -> ConnectTally {
        let took_time = |(_, times): &(Step, LatencyRecorder)| times.quantile_ns(1.0) > Some(0.0);
        ConnectTally {
            steps: self.steps.into_iter().filter(took_time).collect(),
            calls: self.calls.map(|calls| calls.into_iter().collect()),
            ..ConnectTally::default()
        }
    }
}
