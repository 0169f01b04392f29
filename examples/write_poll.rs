//! RDMA WRITE: the writer stores data in the reader's memory, and the reader polls a byte of it.
//!
//! `cargo run -p adverb-host --example write_poll`

mod common;

use adverb_host::threads;
use adverb_softnic::SoftDevice;
use adverb_verbs::{MemoryRegion, Operation, RoleId, SendFlags, Station};
use common::{Connected, Failure, TIMEOUT};

const WRITER: RoleId = RoleId(0);
const READER: RoleId = RoleId(1);
/// The last byte: it becomes visible after the bytes before it.
const LAST: u64 = 63;

fn main() -> Result<(), Failure> {
    let roles = threads(&SoftDevice::new(), 2, |station, role| match role {
        WRITER => write(station),
        _ => read(station),
    })?;
    roles.into_iter().collect()
}

fn write(station: &impl Station) -> Result<(), Failure> {
    let writer = Connected::new(station, READER)?;
    let mut message = [b'.'; 64];
    message[LAST as usize] = 1;
    writer.mr.write(0, &message)?;
    let payload = writer.mr.sge(0, 64)?;
    writer.execute(
        Operation::RdmaWrite(writer.remote),
        payload,
        SendFlags::INLINE,
    )
}

fn read(station: &impl Station) -> Result<(), Failure> {
    let reader = Connected::new(station, WRITER)?;
    station.spin_memory(&reader.mr, LAST, 1, TIMEOUT)?;
    let mut message = [0; 64];
    reader.mr.read(0, &mut message)?;
    println!("found {} bytes in memory", message.len());
    Ok(())
}
