//! A server core that stops answering: its clients report that within their timeout.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use crate::common::on_model;
use adverb_hwmodel::ModelStation;
use adverb_patterns::{
    Clients, Pace, PatternError, Posting, RequestBy, Rpc, Schedule, Service, Serving, Timing,
    run_rpc,
};
use adverb_units::Span;
use adverb_verbs::{Guard, Guarded, PathOptions, RoleId, Station, WaitError};

/// A station that sleeps forever after a number of waits.
struct Dozing<'s, 'y> {
    station: &'s ModelStation<'y>,
    waits: Cell<u32>,
}

impl Guard for Dozing<'_, '_> {
    fn wait<R>(
        &self,
        timeout: Span,
        mut wait: impl FnMut(Span) -> Result<R, WaitError>,
    ) -> Result<R, WaitError> {
        self.waits.set(self.waits.get().saturating_sub(1));
        if self.waits.get() == 0 {
            self.station.sleep(Span::from_secs(60));
        }
        wait(timeout)
    }
}

#[test]
fn a_client_whose_answers_do_not_come_says_how_many_it_misses() {
    for request_by in [RequestBy::Write, RequestBy::HeaderOnly] {
        let rpc = Rpc {
            service: Service::Sequencer(request_by),
            serving: Serving {
                cores: 1,
                qps_per_port: 1,
                posting: Posting::Single,
                signaled_every: 16,
            },
            clients: Clients {
                threads: 1,
                machines: 1,
                outstanding: 4,
                pace: Pace::Closed,
                timing: Timing::Whole,
                seed: 1,
            },
            path: PathOptions::default(),
        };
        let (mut ended, _) = on_model("cx3", &[0, 1], move |station, role| {
            let schedule = Schedule {
                warm_up: Span::ZERO,
                measured: Span::from_ms(1),
            };
            let waits = if role == RoleId(0) { 40 } else { u32::MAX };
            let dozing = Dozing {
                station,
                waits: Cell::new(waits),
            };
            let station = Guarded::new(station, dozing);
            run_rpc(&station, &rpc, role, &AtomicU64::new(0), schedule)
        });
        match ended.remove(1) {
            Err(PatternError::Lost { missing: 4, .. }) => {}
            other => panic!("{request_by:?}: {other:?}"),
        }
    }
}
