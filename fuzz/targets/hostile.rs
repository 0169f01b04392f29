#![no_main]

#[path = "../../crates/transport/tests/harness/mod.rs"]
mod harness;
#[path = "../../crates/transport/tests/lab/mod.rs"]
mod lab;

libfuzzer_sys::fuzz_target!(|data: &[u8]| harness::target::hostile(data));
