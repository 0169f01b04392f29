//! Requests answered in each way, on threads over the user-space device and on the model: every byte of every reply.

use std::sync::Arc;

use crate::common::{on_model, on_threads};
use adverb_patterns::{
    Clients, Counter, Echo, EchoBy, Pace, Reply, Schedule, ServiceTally, Timing, Transport, Wait,
    run_echo,
};
use adverb_results::LatencyRecorder;
use adverb_units::Span;
use adverb_verbs::{DeviceCaps, PathOptions, RoleId};

const TRANSPORTS: [Transport; 3] = [Transport::Rc, Transport::Uc, Transport::Ud];
const HYBRID: Wait = Wait::Hybrid(Span::from_us(20));

fn echo(by: EchoBy, transport: Transport) -> Echo {
    Echo {
        by,
        content: Reply::Digest,
        transport,
        request: 64,
        reply: 64,
        cores: 1,
        clients: Clients {
            threads: 4,
            machines: 2,
            outstanding: 2,
            pace: Pace::Closed,
            timing: Timing::Each,
            seed: 7,
        },
        think: Span::ZERO,
        wait: Wait::Poll,
        path: PathOptions::default(),
    }
}

/// All ways over all transports that can carry them.
fn all() -> impl Iterator<Item = Echo> {
    let all = EchoBy::ALL.into_iter();
    let all = all.flat_map(|by| TRANSPORTS.map(|transport| echo(by, transport)));
    all.filter(|echo| echo.by.refusal(echo.transport, echo.wait).is_none())
}

fn on_soft(echo: &Echo) -> Vec<ServiceTally> {
    let schedule = Schedule {
        warm_up: Span::from_ms(2),
        measured: Span::from_ms(20),
    };
    let counter = Counter::new(0);
    on_threads(echo.cores + echo.clients.threads, |station, role| {
        run_echo(station, echo, role, &counter, schedule)
            .unwrap_or_else(|e| panic!("{role} of {echo:?}: {e}"))
    })
}

fn in_virtual_time(preset: &str, echo: &Echo) -> Vec<ServiceTally> {
    let program = *echo;
    let schedule = Schedule {
        warm_up: Span::from_us(100),
        measured: Span::from_ms(1),
    };
    let (cores, machines) = (echo.cores, echo.clients.machines);
    let clients = (0..echo.clients.threads).map(|client| 1 + client % machines);
    let machines: Vec<u32> = std::iter::repeat_n(0, cores as usize)
        .chain(clients)
        .collect();
    let counter = Arc::new(Counter::new(0));
    let (tallies, counters) = on_model(preset, &machines, move |station, role| {
        run_echo(station, &program, role, &counter, schedule)
            .unwrap_or_else(|e| panic!("{role}: {e}"))
    });
    assert_eq!(counters["dropped_messages"], 0);
    tallies
}

fn clients<'t>(echo: &Echo, tallies: &'t [ServiceTally]) -> &'t [ServiceTally] {
    &tallies[echo.cores as usize..]
}

/// Returns replies per second at all clients, and their mean latency in seconds.
fn rate_and_mean(echo: &Echo, tallies: &[ServiceTally]) -> (f64, f64) {
    let clients = clients(echo, tallies);
    let rate = clients.iter().filter_map(ServiceTally::per_second).sum();
    let waits = clients.iter().filter_map(|tally| tally.waits.as_ref());
    (
        rate,
        LatencyRecorder::merged(waits).unwrap().mean_ns().unwrap() / 1e9,
    )
}

/// Returns the share of one CPU that a member used.
fn cpu(tally: &ServiceTally) -> f64 {
    let used = tally.cpu.user + tally.cpu.system;
    used.as_ns_f64() / tally.cpu_over.as_ns_f64()
}

#[test]
fn every_reply_belongs_to_its_request_in_each_way() {
    for (number, plain) in all().enumerate() {
        let waits = [Wait::Poll, Wait::Event, HYBRID];
        let echo = Echo {
            request: [8, 64, 1000][number % 3],
            reply: [9, 700, 64][number % 3],
            cores: 1 + number as u32 % 2,
            wait: match plain.by {
                EchoBy::Write => Wait::Poll,
                _ => waits[number % 3],
            },
            ..plain
        };
        for tallies in [on_soft(&echo), in_virtual_time("cx3", &echo)] {
            let clients = clients(&echo, &tallies);
            let checked: u64 = clients.iter().map(|tally| tally.values_checked).sum();
            assert!(checked > 0, "{echo:?}");
        }
    }
}

#[test]
fn requests_in_flight_are_rate_times_mean_latency() {
    for preset in ["cx3", "connect_ib", "cx", "cx5"] {
        for plain in all() {
            for (outstanding, think) in [(1, Span::ZERO), (4, Span::ZERO), (2, Span::from_us(7))] {
                let mut echo = Echo { think, ..plain };
                echo.clients.outstanding = outstanding;
                let (rate, mean) = rate_and_mean(&echo, &in_virtual_time(preset, &echo));
                let law = rate * (mean + think.as_secs_f64());
                let in_flight = f64::from(outstanding * echo.clients.threads);
                let ratio = law / in_flight;
                assert!(
                    (0.98..1.02).contains(&ratio),
                    "{preset}, {echo:?}: {law} of {in_flight}"
                );
            }
        }
    }
}

/// Replies of 192 to 912 B were inline, which the NIC fetched after a doorbell: they were up to 2.8 times slower than longer
/// ones.
#[test]
fn a_reply_that_fits_no_blueflame_register_is_not_inline() {
    for preset in ["cx3", "cx7"] {
        for (by, transport) in [
            (EchoBy::Write, Transport::Rc),
            (EchoBy::Send, Transport::Rc),
            (EchoBy::Send, Transport::Ud),
        ] {
            let rate = |reply| {
                let mut echo = echo(by, transport);
                echo.reply = reply;
                (echo.clients.threads, echo.clients.outstanding) = (1, 16);
                rate_and_mean(&echo, &in_virtual_time(preset, &echo)).0
            };
            let long = rate(1024);
            for reply in [181, 209, 221, 256, 912] {
                let rate = rate(reply);
                assert!(
                    rate > 0.7 * long,
                    "{preset}, {by:?} over {transport}: {rate} with {reply} B, {long} with 1 KiB"
                );
            }
        }
    }
}

#[test]
fn clients_are_served_alike() {
    for preset in ["cx3", "connect_ib"] {
        for mut echo in all() {
            (echo.clients.threads, echo.clients.machines) = (20, 20);
            let tallies = in_virtual_time(preset, &echo);
            let rates = clients(&echo, &tallies)
                .iter()
                .map(|t| t.per_second().unwrap());
            let (least, most) = rates.fold((f64::MAX, 0.0), |(least, most): (f64, f64), rate| {
                (least.min(rate), most.max(rate))
            });
            assert!(least > 0.5 * most, "{preset}, {echo:?}: {least} to {most}");
        }
    }
}

#[test]
fn a_server_that_is_read_from_uses_no_cpu() {
    let read = echo(EchoBy::Read, Transport::Rc);
    let send = echo(EchoBy::Send, Transport::Rc);
    let server = |echo: &Echo| cpu(&in_virtual_time("cx3", echo)[0]);
    assert!(server(&read) < 0.01, "{}", server(&read));
    assert!(server(&send) > 0.99, "{}", server(&send));
}

/// Polling for longer than the time between messages costs and takes what polling does; for less, what events do.
#[test]
fn polling_before_sleeping_is_between_polling_and_events() {
    let offered = |wait, apart| {
        let mut echo = echo(EchoBy::Send, Transport::Rc);
        (echo.wait, echo.clients.threads) = (wait, 1);
        echo.clients.pace = Pace::Open(apart);
        let tallies = in_virtual_time("cx3", &echo);
        (rate_and_mean(&echo, &tallies).1 * 1e6, cpu(&tallies[0]))
    };
    let apart = Span::from_us(30);
    let (polled, all) = offered(Wait::Poll, apart);
    let (slept, little) = offered(Wait::Event, apart);
    let (long, much) = offered(Wait::Hybrid(Span::from_ms(1)), apart);
    let (short, less) = offered(Wait::Hybrid(Span::from_ns(100)), apart);
    let (middle, some) = offered(HYBRID, apart);
    assert!(
        polled + 3.0 < slept && all > 0.99 && little < 0.7,
        "{polled} {slept} {little}"
    );
    assert!(
        (long / polled - 1.0).abs() < 0.05 && much > 0.98,
        "{long} {polled} {much}"
    );
    assert!(
        (short / slept - 1.0).abs() < 0.1 && less < 0.75,
        "{short} {slept} {less}"
    );
    assert!(
        polled < middle && middle < slept,
        "{polled} {middle} {slept}"
    );
    assert!(little < some && some < all, "{little} {some} {all}");
}

#[test]
fn an_offered_load_is_served_at_its_rate() {
    for wait in [Wait::Poll, Wait::Event, HYBRID] {
        let mut echo = echo(EchoBy::Send, Transport::Ud);
        (echo.wait, echo.clients.outstanding) = (wait, 8);
        echo.clients.pace = Pace::Open(Span::from_us(20));
        let (rate, _) = rate_and_mean(&echo, &in_virtual_time("cx3", &echo));
        let share = rate * 20e-6 / f64::from(echo.clients.threads);
        assert!((0.8..1.2).contains(&share), "{share}, {wait}");
    }
}

#[test]
fn ways_that_cannot_exist_are_refused() {
    for (mut wrong, reason) in [
        (
            echo(EchoBy::Read, Transport::Uc),
            "read over UC: only RC has READ",
        ),
        (
            echo(EchoBy::Write, Transport::Ud),
            "write over UD: UD has no WRITE",
        ),
        (
            Echo {
                reply: 4,
                ..echo(EchoBy::Read, Transport::Rc)
            },
            "requests and replies of less than 8 B cannot be checked",
        ),
        (
            Echo {
                wait: Wait::Event,
                ..echo(EchoBy::Write, Transport::Rc)
            },
            "write over RC: both sides poll memory, which raises no events",
        ),
        (
            Echo {
                reply: 5000,
                ..echo(EchoBy::Send, Transport::Ud)
            },
            "a message of 5000 B exceeds the path MTU of 4 KiB, the maximum of a datagram; use --transport rc or uc, or a smaller size",
        ),
    ] {
        wrong.clients.threads = 1;
        let schedule = Schedule {
            warm_up: Span::ZERO,
            measured: Span::from_us(1),
        };
        let counter = Arc::new(Counter::new(0));
        let (ended, _) = on_model("cx3", &[0, 1], move |station, role| {
            run_echo(station, &wrong, role, &counter, schedule).map_err(|e| e.to_string())
        });
        assert_eq!(ended[0].as_ref().unwrap_err(), reason);
    }
    let caps = DeviceCaps {
        max_qp_wr: 16,
        ..DeviceCaps::MODEST
    };
    let mut many = echo(EchoBy::Send, Transport::Ud);
    many.clients.outstanding = 5;
    let job = adverb_patterns::Job::Echo(
        many,
        Schedule {
            warm_up: Span::ZERO,
            measured: Span::ZERO,
        },
    );
    let refused = adverb_workload::Program::check(&job, &caps).unwrap_err();
    assert_eq!(refused, "20 receives of a queue pair: expected 1 to 16");
}

#[test]
fn roles_are_placed_like_those_of_an_rpc() {
    let echo = echo(EchoBy::Send, Transport::Rc);
    let job = adverb_patterns::Job::Echo(
        echo,
        Schedule {
            warm_up: Span::ZERO,
            measured: Span::ZERO,
        },
    );
    let roles = adverb_workload::Program::roles(&job);
    let hosts: Vec<u32> = roles.iter().map(|role| role.host).collect();
    assert_eq!((roles.len(), &hosts[..]), (5, &[0, 1, 2, 1, 2][..]));
    assert_eq!(roles[RoleId(1).0 as usize].name, "client 0");
}
