#![no_main]

use std::sync::LazyLock;

#[path = "../../crates/devices/softnic/tests/common/mod.rs"]
mod common;
#[path = "../../crates/devices/softnic/tests/hostile/mod.rs"]
mod hostile;

/// One device for all inputs. Each of them has queue pairs of its own.
static LAB: LazyLock<hostile::Lab> = LazyLock::new(|| hostile::Lab::new(200));

libfuzzer_sys::fuzz_target!(|data: &[u8]| LAB.run(data));
