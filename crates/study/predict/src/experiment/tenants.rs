//! `shared_nic`: a measured tenant, and a second tenant on the same machines.

use adverb_patterns::{Load, Opcode, Pattern, Places};
use adverb_validate::{Budget, Experiment, Interferer, Refusal};
use adverb_verbs::QpType;

use super::measuring::{Counted, WINDOW, measure, posts};
use super::patterns::to_peers;
use super::posting::{load, transport};

/// Memory of each tenant, in pages. With 1024 cached translations, 17.2 % of the accesses miss, as
/// parameters.csv gives for an undisturbed tenant.
const PAGES: u64 = 1237;
/// Size of the regions that the second tenant registers.
const REGION: u64 = 1 << 20;

/// Predicts the figure of the measured tenant.
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
            alone.with_tenant(Pattern::churn(machines, REGION))
        }
        Interferer::Cas => {
            let swaps = other(Opcode::Cas);
            // One word per queue pair, so that each swap finds the value of the one before.
            let swaps = Load {
                places: Places::Own(64),
                ..swaps
            };
            alone.with_tenant(Pattern::outbound(QpType::Rc, &swaps, shape))
        }
        Interferer::Rnr => alone.with_tenant(Pattern::stranded(&other(Opcode::Send), shape)),
    };
    let counted = Counted::Members(posts, victims);
    measure(experiment, &all, counted, WINDOW, budget)
}
