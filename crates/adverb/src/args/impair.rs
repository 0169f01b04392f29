//! A bad network: options of all programs.

use adverb_results::Impairment;
use adverb_verbs::Probability;
use clap::Args;

use super::value::count;

/// Fault injection of UDP ports.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "A bad network (UDP ports only: `run`, or --device soft@ADDR)")]
pub(crate) struct ImpairArgs {
    /// Drop this share of packets, in each direction: 1% or 0.01
    ///
    /// Each side drops this share of the packets that it sends. This forces UDP even between two sides at
    /// one address (also with `--loss 0`), such as soft@127.0.0.1.
    #[arg(long, value_name = "SHARE")]
    loss: Option<Probability>,

    /// Send this share of the packets twice
    #[arg(long, value_name = "SHARE")]
    duplicate: Option<Probability>,

    /// Send this share of the packets after one to three later ones, or 1 ms later
    #[arg(long, value_name = "SHARE")]
    reorder: Option<Probability>,

    /// Flip a bit in this share of the packets, so that the receiver drops them
    #[arg(long, value_name = "SHARE")]
    corrupt: Option<Probability>,

    /// Seed for choosing these packets [default: 1]
    #[arg(long, value_name = "N", value_parser = count::<u64, _>(..))]
    seed: Option<u64>,
}

impl ImpairArgs {
    /// Returns the faults; `None` if none is given.
    pub(crate) fn impairment(self) -> Result<Option<Impairment>, String> {
        let all = [self.loss, self.duplicate, self.reorder, self.corrupt];
        if all.iter().all(Option::is_none) {
            return match self.seed {
                None => Ok(None),
                Some(seed) => Err(format!(
                    "--seed {seed} chooses packets for --loss, --duplicate, --reorder or --corrupt: add one of them"
                )),
            };
        }
        let [loss, duplicate, reorder, corrupt] = all.map(Option::unwrap_or_default);
        Ok(Some(Impairment {
            loss,
            duplicate,
            reorder,
            corrupt,
            seed: self.seed.unwrap_or(1),
        }))
    }
}
