//! Running members on the user-space device, as threads, and on the model, as coroutines.
#![allow(dead_code)] // each test file uses its part

use std::collections::HashMap;

use adverb_host::{HostStation, Link};
use adverb_hwmodel::{Cluster, Placement, Preset};
use adverb_sim::Budget;
use adverb_softnic::{SoftContext, SoftDevice};
use adverb_verbs::{Device, RoleId};

/// A link for each two members.
fn links(members: u32) -> Vec<Vec<(RoleId, Link)>> {
    let mut ends: HashMap<(u32, u32), Link> = HashMap::new();
    for (a, b) in (0..members).flat_map(|a| (0..a).map(move |b| (a, b))) {
        let (one, other) = Link::pair().unwrap();
        ends.extend([((a, b), one), ((b, a), other)]);
    }
    let mut take = |a, b| Some((RoleId(b), ends.remove(&(a, b))?));
    (0..members)
        .map(|a| (0..members).filter_map(|b| take(a, b)).collect())
        .collect()
}

/// Each member is a thread of its own, and opens the user-space device itself.
pub(crate) fn on_threads<T: Send>(
    members: u32,
    body: impl Fn(&HostStation<SoftContext>, RoleId) -> T + Sync,
) -> Vec<T> {
    let links = links(members);
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = links
            .into_iter()
            .zip((0..).map(RoleId))
            .map(|(links, role)| {
                scope.spawn(move || {
                    let context = SoftDevice::new().open().unwrap();
                    // There are more members than cores.
                    let station = HostStation::new(context, links).sharing_core(true);
                    body(&station, role)
                })
            })
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap());
        ended.collect()
    })
}

/// Each member is a coroutine; machine 0 has its buffers in the cache.
pub(crate) fn on_model<T: 'static>(
    preset: &str,
    machines: &[u32],
    body: impl for<'y> Fn(&adverb_hwmodel::ModelStation<'y>, RoleId) -> T + Clone + 'static,
) -> (Vec<T>, adverb_verbs::Counters) {
    let preset = Preset::built_in(preset).unwrap();
    let most = machines.iter().max().unwrap() + 1;
    let mut cluster = Cluster::new(&preset, &vec![Placement::Cached; most as usize]);
    let members: Vec<_> = machines
        .iter()
        .zip((0..).map(RoleId))
        .map(|(machine, role)| {
            let (machine, body) = (cluster.machine(*machine), body.clone());
            cluster.spawn(machine, &role.to_string(), move |station| {
                body(station, role)
            })
        })
        .collect();
    let outcome = cluster.run(&Budget::NONE);
    assert!(outcome.is_finished(), "{outcome}");
    let ended = members.iter().map(|member| member.take().unwrap());
    let counters = cluster.counters(cluster.machine(0));
    (ended.collect(), counters)
}
