//! Running members on the user-space device, as threads, and on the model, as coroutines.

use adverb_host::HostStation;
use adverb_hwmodel::{Cluster, ModelStation, Placement, Preset};
use adverb_sim::Budget;
use adverb_softnic::{SoftContext, SoftDevice};
use adverb_verbs::RoleId;
use adverb_workload::RoleLoad;

/// Each member is a thread of its own, and opens the user-space device itself.
pub(crate) fn on_threads<T: Send>(
    members: u32,
    body: impl Fn(&HostStation<SoftContext>, RoleId) -> T + Sync,
) -> Vec<T> {
    adverb_host::threads(&SoftDevice::new(), members, body).unwrap()
}

/// Each member is a coroutine; machine 0 has its buffers in the cache.
pub(crate) fn on_model<T: 'static>(
    preset: &str,
    machines: &[u32],
    body: impl for<'y> Fn(&ModelStation<'y>, RoleId) -> T + Clone + 'static,
) -> (Vec<T>, adverb_verbs::Counters) {
    let members: Vec<_> = machines.iter().map(|m| (*m, RoleLoad::Busy)).collect();
    on_model_as(preset, &members, body)
}

/// The same for members that may also sleep on the core of a computation.
pub(crate) fn on_model_as<T: 'static>(
    preset: &str,
    members: &[(u32, RoleLoad)],
    body: impl for<'y> Fn(&ModelStation<'y>, RoleId) -> T + Clone + 'static,
) -> (Vec<T>, adverb_verbs::Counters) {
    let preset = Preset::built_in(preset).unwrap();
    let most = members.iter().map(|(machine, _)| machine).max().unwrap() + 1;
    let mut cluster = Cluster::new(&preset, &vec![Placement::Cached; most as usize]);
    let members: Vec<_> = members
        .iter()
        .zip((0..).map(RoleId))
        .map(|((machine, load), role)| {
            let (machine, body) = (cluster.machine(*machine), body.clone());
            let name = role.to_string();
            let body = move |station: &ModelStation<'_>| body(station, role);
            match load {
                RoleLoad::Preempting => cluster.spawn_preempting(machine, &name, body),
                _ => cluster.spawn(machine, &name, body),
            }
        })
        .collect();
    let outcome = cluster.run(&Budget::NONE);
    assert!(outcome.is_finished(), "{outcome}");
    let ended = members.iter().map(|member| member.take().unwrap());
    let counters = cluster.counters(cluster.machine(0));
    (ended.collect(), counters)
}
