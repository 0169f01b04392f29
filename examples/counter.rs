//! Atomics: the client draws numbers from a counter in the server's memory by FETCH_ADD. The server's
//! CPU takes no part.
//!
//! `cargo run -p adverb-host --example counter`

mod common;

use adverb_host::threads;
use adverb_softnic::SoftDevice;
use adverb_verbs::{MemoryRegion, Operation, RoleId, SendFlags, Station};
use common::{Connected, Failure, TIMEOUT};

const CLIENT: RoleId = RoleId(0);
const SERVER: RoleId = RoleId(1);
const DRAWS: u64 = 1000;

fn main() -> Result<(), Failure> {
    let roles = threads(&SoftDevice::new(), 2, |station, role| match role {
        CLIENT => client(station),
        _ => server(station),
    })?;
    roles.into_iter().collect()
}

fn client(station: &impl Station) -> Result<(), Failure> {
    let client = Connected::new(station, SERVER)?;
    for expected in 0..DRAWS {
        let result = client.mr.sge(0, 8)?;
        let add = Operation::FetchAdd(client.remote, 1);
        client.execute(add, result, SendFlags::empty())?;
        assert_eq!(number(&client)?, expected);
    }
    Ok(station.send(SERVER, b"done")?)
}

fn server(station: &impl Station) -> Result<(), Failure> {
    let server = Connected::new(station, CLIENT)?;
    station.receive(CLIENT, TIMEOUT)?;
    println!("the client drew {} numbers", number(&server)?);
    Ok(())
}

/// The number at the start of the memory of this side.
fn number<S: Station>(side: &Connected<'_, S>) -> Result<u64, Failure> {
    let mut number = [0; 8];
    side.mr.read(0, &mut number)?;
    Ok(u64::from_ne_bytes(number))
}
