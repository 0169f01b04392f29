//! How fast the kernel is: plain events and role switches a second on this machine.
#![allow(clippy::disallowed_macros, clippy::print_stdout)]

use std::time::Instant;

use adverb_sim::{Agenda, Budget, Duty, Role, Simulation, World};
use adverb_units::Span;

/// Each event schedules its successor.
struct Relay {
    left: u64,
}

impl World for Relay {
    type Event = u64;

    fn happen(&mut self, event: u64, agenda: &mut Agenda<u64>) {
        if self.left > 0 {
            self.left -= 1;
            let after = Span::from_ps(1 + (event * 7919 + self.left) % 1_000);
            agenda.schedule(agenda.now() + after, event);
        }
    }
}

fn main() {
    const EVENTS: u64 = 20_000_000;
    const SWITCHES: u64 = 10_000_000;
    for pending in [16, 256] {
        let mut sim = Simulation::new(Relay { left: EVENTS });
        sim.shared().with(|_, agenda| {
            (0..pending).for_each(|event| agenda.schedule(agenda.now(), event));
        });
        sim.spawn("keeper", Duty::Work, |role: &Role<'_, Relay>| {
            while role.with(|relay, _| relay.left > 0) {
                role.wait_until(role.now() + Span::from_us(10));
            }
        });
        let start = Instant::now();
        sim.run(&Budget::NONE);
        let rate = EVENTS as f64 / start.elapsed().as_secs_f64();
        println!("{:.1} M events/s with {pending} pending", rate / 1e6);
    }
    for roles in [2, 64] {
        let mut sim = Simulation::new(Relay { left: 0 });
        for index in 0..roles {
            sim.spawn("walker", Duty::Work, move |role: &Role<'_, Relay>| {
                for _ in 0..SWITCHES / roles {
                    role.wait_until(role.now() + Span::from_ps(100 + index));
                }
            });
        }
        let start = Instant::now();
        sim.run(&Budget::NONE);
        let rate = SWITCHES as f64 / start.elapsed().as_secs_f64();
        println!("{:.1} M role switches/s among {roles} roles", rate / 1e6);
    }
}
