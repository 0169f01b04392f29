//! Parameters of a program with several members, as text.

use adverb_patterns::Posting;
use clap::ValueEnum;

use crate::args::ClientArgs;

/// Returns a choice as it is typed.
pub(super) fn word(choice: &impl ValueEnum) -> String {
    let value = choice.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Describes the parameters of clients of server cores, each with `qps` queue pairs at a port.
pub(super) fn words_of_served(posting: Posting, qps: u32, clients: &ClientArgs) -> String {
    words(
        posting,
        clients,
        &format!(", {}", counted(qps, "queue pair")),
    )
}

/// Describes the parameters of clients with `qps` queue pairs each.
pub(super) fn words_of_one_sided(posting: Posting, qps: u32, clients: &ClientArgs) -> String {
    let queues = match qps {
        1 => " on a queue pair".to_owned(),
        n => format!(" on each of {n} queue pairs"),
    };
    words(posting, clients, &queues)
}

fn words(posting: Posting, clients: &ClientArgs, queues: &str) -> String {
    let threads = counted(clients.clients, "client");
    let outstanding = clients.outstanding;
    let list = match posting.requests() {
        1 => "one".to_owned(),
        n => format!("up to {n}"),
    };
    format!("{threads} with {outstanding} outstanding{queues}, {list} a doorbell")
}

/// `1 client`, `2 clients`.
pub(super) fn counted(count: u32, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
