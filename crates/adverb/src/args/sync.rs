//! The command line of `adverb sync`.

use adverb_patterns::LocalUpdates;
use clap::Args;

use super::length::RunsArgs;
use super::target::TargetArgs;
use super::value::{count, word_of};

/// Measure whether CPU's and NIC's atomic updates of one word lose any, and what each costs
///
/// --clients on another machine update a word by FETCH_ADD. Threads of the word's
/// machine update it at the same time:
///
///   none       they do not: the NIC alone
///   cpu        by the CPU's atomic instructions
///   loopback   by FETCH_ADDs of their own NIC on a queue pair of that machine
///   plain      by a load and a store, which loses updates on every device: it
///              shows that losses are found
///
/// All updates add 1. The word's last value shows how many took effect; the others
/// are lost. A device that reports IBV_ATOMIC_HCA promises nothing about mixing its
/// atomics with the CPU's; with IBV_ATOMIC_GLOB they may be mixed.
///
///   remote   updates per second of all clients, and the mean time of one
///   local    updates per second of all threads, and the mean time of one
///   lost     updates without an effect; of a model only known without CPU updates
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb sync                                  on the user-space device
  adverb sync --device soft@127.0.0.1,soft@127.0.0.2
  adverb sync --device verbs:mlx5_0 --peer 10.0.0.2 --threads 8 --clients 8
  adverb sync --local loopback --device model:cx3_fdr_nurdma --clients 8"
)]
pub(crate) struct SyncArgs {
    /// How the word's machine updates it: none, cpu, loopback or plain [default: all, one after the other]
    #[arg(
        long,
        value_name = "HOW",
        value_parser = word_of(&LocalUpdates::ALL)
    )]
    pub(crate) local: Option<LocalUpdates>,

    /// Threads of the word's machine
    #[arg(long, value_name = "N", default_value = "1", value_parser = count::<u32, _>(1..=1024))]
    pub(crate) threads: u32,

    /// Client threads of another machine
    #[arg(long, value_name = "N", default_value = "1", value_parser = count::<u32, _>(1..=1024))]
    pub(crate) clients: u32,

    /// Outstanding FETCH_ADDs of each client, and of each thread by loopback
    #[arg(long, value_name = "N", default_value = "1", value_parser = count::<u32, _>(1..=4096))]
    pub(crate) outstanding: u32,

    #[command(flatten)]
    pub(crate) runs: RunsArgs,

    #[command(flatten)]
    pub(crate) on: TargetArgs,
}
