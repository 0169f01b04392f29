//! SEND and RECV: the client sends a greeting, the server answers.
//!
//! `cargo run -p adverb-host --example send_recv`

mod common;

use adverb_host::threads;
use adverb_softnic::SoftDevice;
use adverb_verbs::{
    MemoryRegion, Operation, QueuePair, RecvRequest, RoleId, SendFlags, Station, WrId,
};
use common::{Connected, Failure};

const CLIENT: RoleId = RoleId(0);
const SERVER: RoleId = RoleId(1);

fn main() -> Result<(), Failure> {
    let roles = threads(&SoftDevice::new(), 2, |station, role| match role {
        CLIENT => client(station),
        _ => server(station),
    })?;
    roles.into_iter().collect()
}

fn client(station: &impl Station) -> Result<(), Failure> {
    let client = Connected::new(station, SERVER)?;
    // A receive has to be posted before its message arrives.
    post_receive(&client)?;
    send(&client, b"hello")?;
    println!("the client received: {}", received(&client)?);
    Ok(())
}

fn server(station: &impl Station) -> Result<(), Failure> {
    let server = Connected::new(station, CLIENT)?;
    post_receive(&server)?;
    println!("the server received: {}", received(&server)?);
    send(&server, b"welcome")
}

/// Sends inline: the payload is copied when the request is posted.
fn send<S: Station>(side: &Connected<'_, S>, text: &[u8]) -> Result<(), Failure> {
    side.mr.write(0, text)?;
    let payload = side.mr.sge(0, text.len() as u32)?;
    side.execute(Operation::Send, payload, SendFlags::INLINE)
}

fn post_receive<S: Station>(side: &Connected<'_, S>) -> Result<(), Failure> {
    let buffer = [side.mr.sge(1024, 64)?];
    Ok(side.qp.post_recv(&[RecvRequest::new(WrId(2), &buffer)])?)
}

fn received<S: Station>(side: &Connected<'_, S>) -> Result<String, Failure> {
    let mut text = vec![0; side.completion()?.byte_len as usize];
    side.mr.read(1024, &mut text)?;
    Ok(String::from_utf8(text)?)
}
