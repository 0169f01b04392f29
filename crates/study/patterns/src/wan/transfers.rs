//! `rendezvous`: two peers send each other messages in turn, by one protocol.

use adverb_verbs::{PathOptions, RoleId, Station};
use adverb_workload::attend::Members;
use adverb_workload::error::Fault;

use super::WanTally;
use super::content::{check, message};
use crate::rendezvous::{Channel, Protocol};

const FIRST: RoleId = RoleId(0);
/// Rounds that are not measured.
const WARM_UP: u32 = 3;

/// Runs one peer. The first one measures half of each round.
pub(super) fn run<S: Station>(
    members: &Members<'_, S>,
    (me, path): (RoleId, PathOptions),
    (protocol, size, iters): (Protocol, u32, u32),
) -> Result<WanTally, Fault> {
    let station = members.station();
    let is_first = me == FIRST;
    let peer = RoleId(1 - me.0);
    let mut channel = Channel::connect(members, (me, peer), (protocol, size), path)?;
    members.meet()?;
    let mut tally = WanTally::default();
    let (mut begun, mut cpu) = (station.now(), station.cpu());
    let mut received = vec![0; size as usize];
    for round in 0..WARM_UP + iters {
        if round == WARM_UP {
            (begun, cpu) = (station.now(), station.cpu());
        }
        channel.store(&message(round.into(), size))?;
        let start = station.now();
        let length = match is_first {
            true => {
                channel.send(size)?;
                channel.receive()?
            }
            false => {
                let length = channel.receive()?;
                channel.send(size)?;
                length
            }
        };
        let took = (station.now() - start).saturating_sub(station.clock_cost());
        if length != size {
            return Err(Fault::Wrong("a message of another length"));
        }
        channel.load(&mut received)?;
        check(round.into(), &received)?;
        // Before the wait for the own message's end: the peer may need the buffer for its next one.
        channel.release()?;
        tally.checked += 1;
        if is_first && round >= WARM_UP {
            tally.whole.record(took / 2);
        }
    }
    tally.elapsed = station.now() - begun;
    tally.cpu = station.cpu().since(cpu);
    (tally.messages, tally.bytes) = (iters.into(), u64::from(iters) * u64::from(size));
    tally.traffic = channel.traffic();
    let expected = protocol.traffic(size, (WARM_UP + iters).into());
    if tally.traffic != expected {
        return Err(Fault::Wrong(
            "another number of requests than the protocol has",
        ));
    }
    channel.finish()?;
    // No role ends while another one still looks whether it is there.
    members.meet()?;
    Ok(tally)
}
