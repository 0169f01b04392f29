//! Codes of `enum ibv_rate` and their speeds.

use std::ffi::c_int;

/// A code, its multiple of 2.5 Gb/s (`None` if it is not a multiple), and its Mb/s.
const RATES: &[(c_int, Option<c_int>, c_int)] = &[
    (2, Some(1), 2500),
    (3, Some(4), 10000),
    (4, Some(12), 30000),
    (5, Some(2), 5000),
    (6, Some(8), 20000),
    (7, Some(16), 40000),
    (8, Some(24), 60000),
    (9, Some(32), 80000),
    (10, Some(48), 120000),
    (11, None, 14062),
    (12, None, 56250),
    (13, None, 112500),
    (14, None, 168750),
    (15, None, 25781),
    (16, None, 103125),
    (17, None, 206250),
    (18, None, 309375),
    (19, Some(11), 28125),
    (20, Some(20), 53125),
    (21, Some(160), 425000),
    (22, Some(240), 637500),
    (23, Some(320), 850000),
    (24, Some(480), 1275000),
];
/// `IBV_RATE_MAX`: also the code of speeds without a code.
const MAX: c_int = 0;

#[unsafe(no_mangle)]
extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    let found = RATES.iter().find(|(code, ..)| *code == rate);
    found.and_then(|(_, multiple, _)| *multiple).unwrap_or(-1)
}

#[unsafe(no_mangle)]
extern "C" fn mult_to_ibv_rate(multiple: c_int) -> c_int {
    let found = RATES
        .iter()
        .find(|(_, of_code, _)| *of_code == Some(multiple));
    found.map_or(MAX, |(code, ..)| *code)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    let found = RATES.iter().find(|(code, ..)| *code == rate);
    found.map_or(-1, |(.., mbps)| *mbps)
}

#[unsafe(no_mangle)]
extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    let found = RATES.iter().find(|(.., of_code)| *of_code == mbps);
    found.map_or(MAX, |(code, ..)| *code)
}
