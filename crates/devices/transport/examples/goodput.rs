//! Prints how much payload a connection carries over a link that loses packets: the table of
//! `docs/transport.md`.
//!
//! `cargo run -p adverb-transport --example goodput`

#[path = "../tests/it/lab/mod.rs"]
mod lab;

fn main() {
    println!("{}", lab::goodput::table(&lab::goodput::figures()));
}
