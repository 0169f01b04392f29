//! Sizes of an rsocket's queues and buffers: the defaults, the files in which an administrator sets others, and their
//! bounds.
//!
//! Defaults and bounds are from `librdmacm/rsocket.c` in rdma-core, the names of the files from rsocket(7).

use std::sync::OnceLock;
use std::time::Duration;

use super::wire::rounded_iomaps;

/// Folder of the files.
const FOLDER: &str = "/etc/rdma/rsocket";

/// Minimum free space in the send buffer with which an rsocket is writable, and the part of a buffer for which its queue
/// has one request (`RS_SNDLOWAT`).
pub(super) const LOW_WATER: u32 = 2048;
const QUEUE: (u32, u32) = (16, 0xfffe);
/// Control messages that are in flight at a time; they have room in the send queue in addition to the data.
pub(super) const CONTROL: u32 = 4;
/// The largest buffer.
const MAX_BUFFER: u32 = 1 << 30;
/// The largest inline data of the device, and the smallest with which a control message is inline.
const INLINE: (u32, u32) = (16, 1024);

/// Sizes, as set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Requests.
    pub(super) send_queue: u32,
    pub(super) recv_queue: u32,
    /// Bytes.
    pub(super) send_buffer: u32,
    pub(super) recv_buffer: u32,
    pub(super) inline: u32,
    /// Number of buffers that the peer may map.
    pub(super) iomaps: u32,
}

/// Returns the number in a file; `None` without the file.
fn configured(file: &str) -> Option<u32> {
    let text = std::fs::read_to_string(format!("{FOLDER}/{file}")).ok()?;
    text.trim().parse().ok()
}

pub(super) fn clamp_queue(entries: u32) -> u32 {
    entries.clamp(QUEUE.0, QUEUE.1)
}

pub(super) fn clamp_inline(bytes: u32) -> u32 {
    bytes.clamp(INLINE.0, INLINE.1)
}

pub(super) fn clamp_buffer(bytes: u32) -> u32 {
    bytes.clamp(QUEUE.0 * LOW_WATER, MAX_BUFFER)
}

impl Sizes {
    /// Returns the sizes of a new rsocket.
    pub(super) fn configured() -> Self {
        static SIZES: OnceLock<Sizes> = OnceLock::new();
        *SIZES.get_or_init(|| Sizes {
            send_queue: clamp_queue(configured("sqsize_default").unwrap_or(384)),
            recv_queue: clamp_queue(configured("rqsize_default").unwrap_or(384)),
            send_buffer: clamp_buffer(configured("wmem_default").unwrap_or(1 << 17)),
            recv_buffer: clamp_buffer(configured("mem_default").unwrap_or(1 << 17)),
            inline: clamp_inline(configured("inline_default").unwrap_or(64)),
            iomaps: rounded_iomaps(
                configured("iomap_size").map_or(0, |n| n.try_into().unwrap_or(u16::MAX)),
            ),
        })
    }

    /// Returns the sizes of a connection: buffers of whole pages, and queues that are not longer than the buffers have
    /// room for.
    pub(super) fn of_connection(self) -> Self {
        let send_buffer = self.send_buffer.next_multiple_of(8192);
        let recv_buffer = self.recv_buffer.next_multiple_of(8192);
        Sizes {
            send_queue: self.send_queue.min(send_buffer / LOW_WATER),
            recv_queue: self.recv_queue.min(recv_buffer / LOW_WATER),
            send_buffer,
            recv_buffer,
            ..self
        }
    }
}

/// Returns for how long a call polls before it sleeps (`polling_time`, in microseconds).
pub(super) fn polling_time() -> Duration {
    static TIME: OnceLock<Duration> = OnceLock::new();
    *TIME.get_or_init(|| Duration::from_micros(configured("polling_time").unwrap_or(10).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_fit_the_buffers() {
        let sizes = Sizes {
            send_queue: 384,
            recv_queue: 16,
            send_buffer: 1 << 17,
            recv_buffer: 100_000,
            inline: 64,
            iomaps: 0,
        };
        let fitted = sizes.of_connection();
        assert_eq!(fitted.send_queue, 64);
        assert_eq!(fitted.recv_queue, 16);
        assert_eq!(fitted.recv_buffer, 106_496);
    }
}
