//! Parameters of a program with several members, as text.

use adverb_patterns::Posting;
use clap::ValueEnum;

use crate::args::ClientArgs;

/// Returns a choice as it is typed.
pub(super) fn word(choice: &impl ValueEnum) -> String {
    let value = choice.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Describes the parameters that all programs have.
pub(super) fn words(posting: Posting, qps: u32, clients: &ClientArgs) -> String {
    let threads = counted(clients.clients, "client");
    let (outstanding, qps) = (clients.outstanding, counted(qps, "queue pair"));
    let list = posting.requests();
    format!("{threads} with {outstanding} outstanding, {qps}, up to {list} a doorbell")
}

/// `1 client`, `2 clients`.
pub(super) fn counted(count: u32, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
