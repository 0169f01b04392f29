//! Any cell that is not refused runs, and every byte arrives.

use crate::common::run;
use adverb_results::{Completion, Opcode, Posting, Signaling, Traffic};
use adverb_softnic::SoftDevice;
use adverb_units::{Bytes, Span};
use adverb_verbs::{Context, Device};
use adverb_workload::pair::{CellSpec, Length, Request};
use proptest::prelude::*;

fn signaling() -> impl Strategy<Value = Signaling> {
    prop_oneof![
        Just(Signaling::All),
        Just(Signaling::Periodic),
        (0..80_u32).prop_map(Signaling::Every),
        Just(Signaling::WriteUnsignaled),
    ]
}

fn traffic() -> impl Strategy<Value = Traffic> {
    let qps = prop_oneof![Just(1_u32), 2..6_u32];
    (qps, any::<bool>()).prop_map(|(qps, bidirectional)| Traffic {
        qps,
        bidirectional,
        ..Traffic::default()
    })
}

prop_compose! {
    fn request()(
        op in prop::sample::select(vec![
            Opcode::Send, Opcode::WriteImm, Opcode::Write, Opcode::Read, Opcode::WriteRead,
        ]),
        size in prop_oneof![1..70_u64, 1..10_000_u64, 1..300_000_u64],
        event in any::<bool>(),
        inline in any::<bool>(),
        buffers in prop_oneof![Just(1_u32), 0..80_u32],
        list in any::<bool>(),
        signal in signaling(),
        traffic in traffic(),
        iters in 1..400_u64,
        timed in any::<bool>(),
        repetitions in 1..4_u32,
        warmup in prop::option::of(0..50_u64),
        seed in any::<u64>(),
    ) -> Request {
        Request {
            op,
            size: Bytes::new(size),
            inline,
            completion: if event { Completion::Event } else { Completion::Poll },
            buffers,
            post: if list { Posting::List } else { Posting::Single },
            signal,
            traffic,
            path: adverb_verbs::PathOptions::default(),
            verify: true,
            // Long messages are checked byte by byte: fewer of them.
            length: match timed {
                true => Length::Duration(Span::from_us(iters * 25)),
                false => Length::Iters((iters * 1000 / (size + 1000)).max(1)),
            },
            repetitions,
            warmup,
            seed,
        }
    }
}

fn runs(cell: &CellSpec) -> bool {
    let context = SoftDevice::new().open().expect("the soft device opens");
    let valid = cell.validate(context.caps()).is_ok();
    if valid {
        run(cell);
    }
    valid
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        max_global_rejects: 4096,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_blast_delivers_every_byte(request in request()) {
        prop_assume!(runs(&CellSpec::blast(request)));
    }

    #[test]
    fn any_ping_delivers_every_byte(request in request()) {
        let request = Request {
            buffers: 1,
            post: Posting::Single,
            traffic: Traffic::default(),
            ..request
        };
        prop_assume!(runs(&CellSpec::ping(request)));
    }
}
