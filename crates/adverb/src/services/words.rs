//! Parameters of a program with several members, as text and as JSON.

use adverb_patterns::Posting;
use adverb_results::Values;
use adverb_units::Span;
use adverb_verbs::{AckTimeout, PathMtu, PathOptions, RetryCount};
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::args::ClientArgs;

/// Returns a choice as it is typed.
pub(super) fn word(choice: &impl ValueEnum) -> String {
    let value = choice.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

pub(super) fn with_common(
    mut params: Value,
    posting: Posting,
    qps: u32,
    clients: &ClientArgs,
) -> Value {
    params["clients"] = clients.clients.into();
    params["outstanding"] = clients.outstanding.into();
    params["machines"] = clients.machines().into();
    params["qps"] = qps.into();
    params["batch"] = list(posting).into();
    params
}

/// Returns the chosen options of the path by their names in records.
pub(super) fn of_path(path: &PathOptions) -> Values {
    let all = json!({
        "path_mtu_bytes": path.path_mtu.map(PathMtu::bytes),
        "ack_timeout_ns": path.ack_timeout.and_then(AckTimeout::span).map(Span::as_ns),
        "retry_cnt": path.retries.map(RetryCount::get),
        "rnr_retry_cnt": path.rnr_retries.map(RetryCount::get),
        "traffic_class": path.traffic_class,
        "service_level": path.service_level,
        "rate": path.rate,
        "api": path.api,
        "impairment": path.impairment,
    });
    let mut asked = all.as_object().cloned().unwrap_or_default();
    asked.retain(|_, value| !value.is_null());
    asked
}

pub(super) fn list(posting: Posting) -> u32 {
    match posting {
        Posting::Single => 1,
        Posting::List(n) => n,
    }
}

/// Describes the parameters that all programs have.
pub(super) fn words(posting: Posting, qps: u32, clients: &ClientArgs) -> String {
    let threads = counted(clients.clients, "client");
    let (outstanding, qps) = (clients.outstanding, counted(qps, "queue pair"));
    let list = list(posting);
    format!("{threads} with {outstanding} outstanding, {qps}, up to {list} a doorbell")
}

/// `1 client`, `2 clients`.
pub(super) fn counted(count: u32, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
