//! Patterns on the user-space device, a thread a member.

use crate::common::on_threads;
use adverb_patterns::{
    Inbound, Limits, Load, Opcode, Outbound, Pattern, PatternError, Schedule, Tally, Transport,
    Wait, run,
};
use adverb_units::Span;

const SCHEDULE: Schedule = Schedule {
    warm_up: Span::from_ms(2),
    measured: Span::from_ms(100),
};

fn load(op: Opcode) -> Load {
    Load {
        limits: Limits {
            per_qp: 8,
            per_member: 16,
            rd_atomic: 4,
        },
        ..Load::new(op, 32)
    }
}

const SHAPE: Outbound = Outbound {
    cores: 1,
    qps: 2,
    peers: 1,
    memory: 1 << 16,
};

fn on_soft(pattern: &Pattern) -> Vec<Result<Tally, PatternError>> {
    on_threads(pattern.members.len() as u32, |station, role| {
        run(station, pattern, role, SCHEDULE)
    })
}

#[test]
fn members_wait_by_events() {
    let inbound = Inbound {
        threads: 2,
        peers: 1,
        qps: 2,
        window: Some(6),
        receivers: 1,
        depth: 64,
        memory: 1 << 16,
    };
    for pattern in [
        Pattern::outbound(Transport::Rc, &load(Opcode::Read), SHAPE),
        Pattern::outbound(Transport::Rc, &load(Opcode::Send), SHAPE),
        Pattern::inbound(Transport::Rc, &load(Opcode::Send), &inbound),
    ] {
        let pattern = Pattern {
            wait: Wait::Event,
            ..pattern
        };
        let tallies: Vec<_> = on_soft(&pattern).into_iter().map(Result::unwrap).collect();
        let all: u64 = tallies.iter().map(|tally| tally.completed).sum();
        assert!(all > 100, "{tallies:?}");
    }
}

#[test]
fn a_second_tenant_registers_beside_the_first() {
    let victim = Pattern::outbound(Transport::Rc, &load(Opcode::Write), SHAPE);
    let both = victim.with_tenant(Pattern::churn(2, 1 << 16));
    // Long enough for each thread to get a core, whatever else runs there.
    let schedule = Schedule {
        measured: Span::from_ms(500),
        ..SCHEDULE
    };
    let tallies = on_threads(both.members.len() as u32, |station, role| {
        run(station, &both, role, schedule).unwrap()
    });
    assert!(tallies[0].completed > 0, "{tallies:?}");
}

#[test]
fn a_device_without_dc_says_so() {
    let pattern = Pattern::outbound(Transport::Dci, &load(Opcode::Read), SHAPE);
    for end in on_soft(&pattern) {
        let refusal = end.unwrap_err().to_string();
        assert_eq!(refusal, "device soft has no queue pairs of this type");
    }
}
