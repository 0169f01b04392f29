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
    let threads = counted(clients.clients, "client");
    let (outstanding, qps) = (clients.outstanding, counted(qps, "queue pair"));
    let list = words_of_posting(posting);
    format!("{threads} with {outstanding} outstanding, {qps}, {list}")
}

/// Describes the parameters of clients with `qps` queue pairs each.
pub(super) fn words_of_one_sided(posting: Posting, qps: u32, clients: &ClientArgs) -> String {
    let threads = counted(clients.clients, "client");
    let outstanding = clients.outstanding;
    let queues = match qps {
        1 => "a queue pair".to_owned(),
        n => format!("each of {n} queue pairs"),
    };
    let list = words_of_posting(posting);
    format!("{threads} with {outstanding} outstanding on {queues}, {list}")
}

fn words_of_posting(posting: Posting) -> String {
    match posting.requests() {
        1 => "one a doorbell".to_owned(),
        n => format!("up to {n} a doorbell"),
    }
}

/// `1 client`, `2 clients`.
pub(super) fn counted(count: u32, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
