//! The simulation kernel: order of events, determinism, and how runs end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use adverb_sim::{
    Budget, Condition, Outcome, Pace, Resource, Role, RoleKind, Scheduler, Seed, Simulation,
    WaitsFor, Wake, World,
};
use adverb_units::{Span, Time};
use proptest::prelude::*;

/// A world that records its events, and signals a condition at each event if it has one.
#[derive(Default)]
struct Log {
    seen: Vec<(u64, u32)>,
    gate: Option<Condition>,
}

impl World for Log {
    type Event = u32;

    fn handle(&mut self, event: u32, scheduler: &mut Scheduler<u32>) {
        self.seen.push((scheduler.now().as_ps(), event));
        if let Some(gate) = self.gate {
            scheduler.signal(gate);
        }
    }
}

fn at(ps: u64) -> Time {
    Time::from_ps(ps)
}

fn with_gate() -> (Simulation<Log>, Condition) {
    let sim = Simulation::new(Log::default());
    let gate = sim.shared().with(|log, scheduler| {
        let gate = scheduler.condition("the gate");
        log.gate = Some(gate);
        gate
    });
    (sim, gate)
}

#[test]
fn events_are_handled_by_time_and_then_in_the_order_of_scheduling() {
    let mut sim = Simulation::new(Log::default());
    sim.spawn("clock", RoleKind::Work, |role: &Role<'_, Log>| {
        role.with(|_, scheduler| {
            for (time, event) in [(30, 0), (10, 1), (30, 2), (20, 3), (10, 4)] {
                scheduler.schedule(at(time), event);
            }
        });
        role.wait_until(at(100));
    });
    assert_eq!(sim.run(&Budget::NONE), Outcome::Finished);
    let seen = sim.shared().with(|log, _| log.seen.clone());
    assert_eq!(seen, [(10, 1), (10, 4), (20, 3), (30, 0), (30, 2)]);
    assert_eq!(sim.now(), at(100));
}

#[test]
fn a_role_is_busy_on_its_own_clock_until_it_syncs() {
    let mut sim = Simulation::new(Log::default());
    let times = sim.spawn("worker", RoleKind::Work, |role: &Role<'_, Log>| {
        role.with(|_, scheduler| scheduler.schedule(at(50), 1));
        role.busy(Span::from_ps(80));
        let before = role.with(|log, scheduler| (log.seen.len(), scheduler.now().as_ps()));
        let own = role.now().as_ps();
        role.sync();
        let after = role.with(|log, scheduler| (log.seen.len(), scheduler.now().as_ps()));
        (before, own, after)
    });
    assert_eq!(sim.run(&Budget::NONE), Outcome::Finished);
    assert_eq!(times.take(), Some(((0, 0), 80, (1, 80))));
}

#[test]
fn a_wait_ends_with_the_signal_or_at_its_deadline() {
    let (mut sim, gate) = with_gate();
    let woken = sim.spawn("patient", RoleKind::Work, move |role: &Role<'_, Log>| {
        role.with(|_, scheduler| {
            scheduler.schedule(at(500), 1);
            scheduler.schedule(at(2_000), 2);
        });
        let mut woken = Vec::new();
        for timeout in [1_000, 1_000, 10_000] {
            let deadline = role.now() + Span::from_ps(timeout);
            let why = role.wait(gate, Some(deadline));
            woken.push((role.now().as_ps(), why));
        }
        woken
    });
    assert_eq!(sim.run(&Budget::NONE), Outcome::Finished);
    let expected = [
        (500, Wake::Signal),
        (1_500, Wake::Deadline),
        (2_000, Wake::Signal),
    ];
    assert_eq!(woken.take().as_deref(), Some(&expected[..]));
}

#[test]
fn many_waits_with_a_distant_deadline_share_one_timer() {
    let (mut sim, gate) = with_gate();
    sim.spawn("waiter", RoleKind::Work, move |role: &Role<'_, Log>| {
        for _ in 0..1_000 {
            role.with(|_, scheduler| scheduler.schedule(scheduler.now() + Span::from_ns(1), 0));
            role.wait(gate, Some(role.now() + Span::from_secs(1)));
        }
    });
    assert_eq!(sim.run(&Budget::NONE), Outcome::Finished);
    // The start, then an event and a wake-up per wait; the timer has not fired.
    assert_eq!(sim.handled(), 1 + 2 * 1_000);
}

#[test]
fn a_deadlock_names_the_waiting_roles_and_their_conditions() {
    let (mut sim, gate) = with_gate();
    sim.spawn("client", RoleKind::Work, move |role: &Role<'_, Log>| {
        role.busy(Span::from_ns(3));
        role.sync();
        role.wait(gate, None);
    });
    sim.spawn("idler", RoleKind::Work, |_: &Role<'_, Log>| ());
    sim.spawn("server", RoleKind::Daemon, move |role: &Role<'_, Log>| {
        role.wait(gate, None);
    });
    let outcome = sim.run(&Budget::NONE);
    let Outcome::Deadlock(waiting) = &outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].what, WaitsFor::Condition("the gate".into()));
    assert_eq!(
        outcome.to_string(),
        "deadlock: nothing can happen any more; client waits for the gate since 3.00 ns"
    );
}

fn exhausted(outcome: &Outcome) -> Resource {
    match outcome {
        Outcome::Exhausted { budget, .. } => *budget,
        _ => panic!("{outcome}"),
    }
}

#[test]
fn budgets_end_a_run_that_can_be_continued() {
    let mut sim = Simulation::new(Log::default());
    let done = sim.spawn("walker", RoleKind::Work, |role: &Role<'_, Log>| {
        for _ in 0..100 {
            role.with(|_, scheduler| scheduler.schedule(scheduler.now() + Span::from_ps(5), 1));
            role.wait_until(role.now() + Span::from_ps(10));
        }
        true
    });
    let outcome = sim.run(&Budget::until(at(95)));
    assert_eq!(exhausted(&outcome), Resource::VirtualTime(at(95)));
    let few = Budget {
        events: Some(7),
        ..Budget::NONE
    };
    assert_eq!(exhausted(&sim.run(&few)), Resource::Events(7));
    assert_eq!(done.take(), None);
    assert_eq!(sim.run(&Budget::NONE), Outcome::Finished);
    assert_eq!((done.take(), sim.now()), (Some(true), at(1_000)));
}

#[test]
fn the_budget_of_real_time_ends_an_endless_run() {
    let mut sim = Simulation::new(Log::default());
    sim.spawn("restless", RoleKind::Work, |role: &Role<'_, Log>| {
        loop {
            role.with(|_, scheduler| scheduler.schedule(scheduler.now(), 0));
            role.wait_until(role.now() + Span::from_ps(1));
            role.with(|log, _| log.seen.clear());
        }
    });
    let budget = Budget {
        real: Some(Span::from_ms(20)),
        ..Budget::NONE
    };
    let resource = exhausted(&sim.run(&budget));
    assert!(matches!(resource, Resource::RealTime(_)), "{resource}");
}

#[test]
fn a_panic_in_a_role_ends_the_run_with_its_message() {
    let mut sim = Simulation::new(Log::default());
    sim.spawn("careless", RoleKind::Work, |role: &Role<'_, Log>| {
        role.wait_until(at(5));
        panic!("{} is too many", 3);
    });
    let outcome = sim.run(&Budget::NONE);
    assert_eq!(outcome.to_string(), "careless panicked: 3 is too many");
}

#[test]
fn dropping_a_simulation_unwinds_its_roles() {
    struct Guard(Rc<Cell<u32>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let dropped = Rc::new(Cell::new(0));
    let (mut sim, gate) = with_gate();
    for _ in 0..10 {
        let guard = Guard(dropped.clone());
        sim.spawn("sleeper", RoleKind::Work, move |role: &Role<'_, Log>| {
            let _guard = guard;
            role.wait(gate, None);
        });
    }
    assert!(matches!(sim.run(&Budget::NONE), Outcome::Deadlock(_)));
    assert_eq!(dropped.get(), 0);
    drop(sim);
    assert_eq!(dropped.get(), 10);
}

/// Runs many roles that wait for random spans and wake each other.
fn storm(seed: u64, roles: u64) -> (Vec<(u64, u32)>, u64) {
    let (mut sim, gate) = with_gate();
    let order = Rc::new(RefCell::new(Vec::new()));
    for index in 0..roles {
        let order = order.clone();
        sim.spawn(
            format!("role {index}"),
            RoleKind::Work,
            move |role: &Role<'_, Log>| {
                let mut random = Seed(seed).stream("storm", index);
                for _ in 0..20 {
                    match random.below(3) {
                        0 => role.wait_until(role.now() + Span::from_ps(random.below(50))),
                        1 => {
                            let when = role.now() + Span::from_ps(random.below(50));
                            role.with(|_, scheduler| scheduler.schedule(when, index as u32));
                        }
                        _ => {
                            let timeout = Span::from_ps(random.below(50));
                            role.wait(gate, Some(role.now() + timeout));
                        }
                    }
                    order.borrow_mut().push((role.now().as_ps(), index as u32));
                }
            },
        );
    }
    assert_eq!(sim.run(&Budget::NONE), Outcome::Finished);
    let mut all = order.borrow().clone();
    sim.shared().with(|log, _| all.extend(&log.seen));
    (all, sim.handled())
}

#[test]
fn thousands_of_roles_run_the_same_with_the_same_seed() {
    let first = storm(1, 3_000);
    assert_eq!(first, storm(1, 3_000));
    assert_ne!(first, storm(2, 3_000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn time_never_decreases_and_reruns_are_identical(seed in any::<u64>(), roles in 1u64..40) {
        let (all, happened) = storm(seed, roles);
        let moments: Vec<_> = all.iter().take(20 * roles as usize).map(|(t, _)| *t).collect();
        prop_assert!(moments.windows(2).all(|w| w[0] <= w[1]));
        prop_assert_eq!((all, happened), storm(seed, roles));
    }
}

#[test]
fn a_shared_core_slows_computing_but_not_waiting() {
    let mut simulation = Simulation::new(Log::default());
    let shares = simulation.spawn("shares", RoleKind::Work, |role: &Role<'_, Log>| {
        role.set_pace(Pace::slower(1.5));
        role.busy(Span::from_ns(100));
        let computed = role.now();
        role.wait_until(computed + Span::from_ns(100));
        (computed, role.now())
    });
    let alone = simulation.spawn("alone", RoleKind::Work, |role: &Role<'_, Log>| {
        role.busy(Span::from_ns(100));
        role.sync();
        role.busy(Span::from_ns(100));
        role.now()
    });
    assert!(simulation.run(&Budget::NONE).is_finished());
    let at = |ns| Time::ZERO + Span::from_ns(ns);
    assert_eq!(shares.take(), Some((at(150), at(250))));
    assert_eq!(alone.take(), Some(at(200)));
}
