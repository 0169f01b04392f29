//! Two peers move a message of 1 MiB by rendezvous: the receiver READs it from the sender's buffer.
//!
//! `cargo run -p adverb-patterns --example rendezvous`

use adverb_host::threads;
use adverb_patterns::rendezvous::{Channel, Protocol};
use adverb_softnic::SoftDevice;
use adverb_verbs::{PathOptions, RoleId, Station};
use adverb_workload::attend::Members;
use adverb_workload::error::Fault;

const SENDER: RoleId = RoleId(0);
const RECEIVER: RoleId = RoleId(1);
const LENGTH: u32 = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ends = threads(&SoftDevice::new(), 2, |station, role| match role {
        SENDER => send(station),
        _ => receive(station),
    })?;
    Ok(ends.into_iter().collect::<Result<_, Fault>>()?)
}

fn send<S: Station>(station: &S) -> Result<(), Fault> {
    let members = Members::new(station, (SENDER, 2), [RECEIVER]);
    let (what, path) = ((Protocol::Read, LENGTH), PathOptions::default());
    let mut channel = Channel::connect(&members, (SENDER, RECEIVER), what, path)?;
    members.meet()?;
    channel.store(&vec![7; LENGTH as usize])?;
    // Returns when the receiver has read the message: the buffer can be used again.
    channel.send(LENGTH)?;
    println!("requests of the sender: {:?}", channel.traffic());
    members.meet()
}

fn receive<S: Station>(station: &S) -> Result<(), Fault> {
    let members = Members::new(station, (RECEIVER, 2), [SENDER]);
    let (what, path) = ((Protocol::Read, LENGTH), PathOptions::default());
    let mut channel = Channel::connect(&members, (RECEIVER, SENDER), what, path)?;
    members.meet()?;
    let mut message = vec![0; channel.receive()? as usize];
    channel.load(&mut message)?;
    let is_whole = message.iter().all(|byte| *byte == 7);
    println!("received {} bytes, whole: {is_whole}", message.len());
    members.meet()
}
