#![no_main]

#[path = "../../crates/devices/transport/tests/it/harness/mod.rs"]
mod harness;
#[path = "../../crates/devices/transport/tests/it/lab/mod.rs"]
mod lab;

libfuzzer_sys::fuzz_target!(|data: &[u8]| harness::target::hostile(data));
