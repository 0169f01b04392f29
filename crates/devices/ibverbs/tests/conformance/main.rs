//! The conformance suite on a device of libibverbs.
//!
//! ```console
//! $ cargo test -p adverb-ibverbs --test conformance                       # `adverb run`; Soft-RoCE, in a VM
//! $ cargo test -p adverb-ibverbs --test conformance -- --device mlx5_0    # a device of this host
//! ```
//!
//! Cases run in a process of their own, each with a time limit, so that one that fails ends no other.
//! What a driver is known to lack and where it departs from the rules stands in `known`; anything
//! else that fails, and anything listed that passes, fails the run.

mod args;
mod boundaries;
mod either;
mod known;
mod mixed;
mod one;
mod preloaded;
mod runner;
mod suite;
mod virtual_machine;

use std::process::ExitCode;

use args::Mode;

fn main() -> ExitCode {
    let first = std::env::args().next().unwrap_or_default();
    if first.rsplit('/').next() == Some(adverb_vm::INIT_NAME) {
        return adverb_vm::run_init();
    }
    match args::parse(std::env::args().skip(1)) {
        Ok(Mode::All) => {
            let is_as_expected = [preloaded::run(), virtual_machine::run()] == [true; 2];
            ExitCode::from(u8::from(!is_as_expected))
        }
        Ok(Mode::Device(subject, filters)) => suite::run(&subject, &filters),
        Ok(Mode::Cases(subject)) => one::run(&subject),
        Ok(Mode::Nothing) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
