//! `shared_nic`: a victim that posts, and a second tenant on the same machines.

use adverb_patterns::{Load, Opcode, Pattern, Places};
use adverb_validate::{Budget, Experiment, Interferer, Refusal};
use adverb_verbs::QpType;

use super::measuring::{Counted, WINDOW, figure, measure, posts};
use super::patterns::to_peers;
use super::posting::{load, transport};

/// Memory of each tenant, in pages: of a NIC that keeps 1024 translations it misses the 17.2 % that
/// parameters.csv gives for an undisturbed one.
const PAGES: u64 = 1237;
/// What the second tenant registers at a time.
const REGION: u64 = 1 << 20;

/// The victim's figure.
pub(super) fn victim(experiment: &Experiment, budget: &Budget) -> Result<f64, Refusal> {
    let transport = transport(experiment)?;
    let memory = PAGES * 4096;
    let load = Load {
        places: Places::Random {
            align: 64,
            within: memory - u64::from(load(experiment)?.size).max(64),
        },
        ..load(experiment)?
    };
    let mut shape = to_peers(experiment);
    shape.memory = memory;
    let alone = Pattern::outbound(transport, &load, shape);
    let victims = alone.members.len();
    let interferer = experiment.parameters.interferer;
    let other = |op| Load {
        op,
        size: 8,
        inline: false,
        ..load.clone()
    };
    let all = match interferer.unwrap_or(Interferer::None) {
        Interferer::None => alone,
        Interferer::MrChurn => {
            let machines = alone.machines();
            alone.beside(Pattern::churn(machines, REGION))
        }
        Interferer::Cas => {
            let swaps = other(Opcode::Cas);
            // As many words as queue pairs: each swap finds what the one before has left.
            let swaps = Load {
                places: Places::Own(64),
                ..swaps
            };
            alone.beside(Pattern::outbound(QpType::Rc, &swaps, shape))
        }
        Interferer::Rnr => alone.beside(Pattern::stranded(&other(Opcode::Send), shape)),
    };
    let counted = Counted::Members(posts, victims);
    let measured = measure(experiment, &all, counted, WINDOW, budget)?;
    figure(experiment, &measured)
}
