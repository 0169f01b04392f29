//! The maximum of inline data.

use adverb_verbs::{Context, QpType};

/// Maximum inline payload of WRITEs and SENDs whose WQE fits a BlueFlame register of 256 B, with the libraries of ConnectX-3
/// (mlx4) and of later NICs (mlx5): control segment 16 B, remote address 16 B, and mlx4's four inline headers of 4 B. The
/// NIC reads a longer WQE from memory after a doorbell, so that inlining saves nothing. On mlx5, which has one inline header,
/// 220 B would fit, perftest's default.
const CONNECTED: u32 = 208;
/// The same for UD: the address vector takes 48 B, and mlx4 has three inline headers.
const DATAGRAM: u32 = 180;

/// Returns the maximum inline payload of a queue pair that sends messages of up to `longest` bytes: it pays, and the device
/// accepts it.
pub(crate) fn inline_data(context: &impl Context, transport: QpType, longest: u32) -> u32 {
    let pays = match transport {
        QpType::Ud => DATAGRAM,
        _ => CONNECTED,
    };
    longest.min(pays).min(context.caps().max_inline_data)
}
