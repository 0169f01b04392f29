#![no_main]

#[path = "../../crates/devices/wire/tests/it/target/mod.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::packet(data));
