//! A bad network: options of all programs.

use adverb_results::Impairment;
use adverb_units::{BitRate, ParseSpanError, Span};
use adverb_verbs::Probability;
use clap::Args;

use super::value::count;

/// Fault injection of UDP ports.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(
    next_help_heading = "A bad or long path (`degen`; models; UDP ports: `run`, or --device soft@ADDR)"
)]
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

    /// Delay each packet by this time: 50us, 10ms
    ///
    /// In each direction, counted from the packet's own time, so that bursts stay bursts. At most 10s.
    #[arg(long, value_name = "TIME", value_parser = delay)]
    delay: Option<Span>,

    /// Vary --delay by up to this much in both directions; packets keep their order
    #[arg(long, value_name = "TIME", value_parser = delay)]
    jitter: Option<Span>,

    /// Send packets at this rate, before the delay: 10Gbit/s, 100Mbit
    #[arg(long, value_name = "RATE")]
    link_rate: Option<BitRate>,

    /// Drop packets when this number of them waits for --link-rate [default: 1000]
    #[arg(long, value_name = "PACKETS", value_parser = count::<u32, _>(1..=1_000_000), requires = "link_rate")]
    queue: Option<u32>,

    /// Seed for choosing these packets [default: 1]
    #[arg(long, value_name = "N", value_parser = count::<u64, _>(..))]
    seed: Option<u64>,
}

/// The longest delay.
const MAX_DELAY: Span = Span::from_secs(10);

fn delay(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|e: ParseSpanError| e.to_string())?;
    match span <= MAX_DELAY {
        true => Ok(span),
        false => Err(format!("{span} exceeds the longest delay, {MAX_DELAY}")),
    }
}

impl ImpairArgs {
    /// Returns the faults; `None` if none is given.
    pub(crate) fn impairment(self) -> Result<Option<Impairment>, String> {
        let shares = [self.loss, self.duplicate, self.reorder, self.corrupt];
        let spans = [self.delay, self.jitter];
        let delay = self.delay.unwrap_or_default();
        if let Some(jitter) = self.jitter.filter(|jitter| *jitter > delay) {
            return Err(format!("--jitter {jitter} exceeds --delay {delay}"));
        }
        if shares.iter().all(Option::is_none)
            && spans.iter().all(Option::is_none)
            && self.link_rate.is_none()
        {
            return match self.seed {
                None => Ok(None),
                Some(seed) => Err(format!(
                    "--seed {seed} chooses packets for --loss, --duplicate, --reorder, --corrupt or --jitter: add one of them"
                )),
            };
        }
        let [loss, duplicate, reorder, corrupt] = shares.map(Option::unwrap_or_default);
        Ok(Some(Impairment {
            loss,
            duplicate,
            reorder,
            corrupt,
            seed: self.seed.unwrap_or(1),
            delay,
            jitter: self.jitter.unwrap_or_default(),
            rate: self.link_rate,
            queue: self.queue,
        }))
    }
}
