//! Runs a program on threads of this process, one for each role.

use std::thread;

use adverb_verbs::{Device, OpenError, RoleId};

use crate::clock::CpuScope;
use crate::link::Link;
use crate::process::usable_cores;
use crate::station::HostStation;

/// Opens `device` once for each of `roles` roles, runs `role` for each of them on a thread of its own, and
/// returns the results in the order of the roles.
///
/// # Errors
/// The device cannot be opened, or the sockets between the roles cannot be created.
///
/// # Panics
/// If a role panics.
pub fn threads<D, T>(
    device: &D,
    roles: u32,
    role: impl Fn(&HostStation<D::Context>, RoleId) -> T + Sync,
) -> Result<Vec<T>, OpenError>
where
    D: Device<Context: Send>,
    T: Send,
{
    let mut parts = Vec::new();
    for (links, number) in links(device, roles)?.into_iter().zip(0..) {
        parts.push((device.open()?, links, RoleId(number)));
    }
    // Roles yield their core after unsuccessful polls if they share cores.
    let shares_core = roles as usize > usable_cores().len();
    Ok(thread::scope(|scope| {
        let role = &role;
        let start = |(context, links, number): (D::Context, Vec<_>, _)| {
            scope.spawn(move || {
                let station = HostStation::new(context, links).counting(CpuScope::Thread);
                role(&station.sharing_core(shares_core), number)
            })
        };
        let threads: Vec<_> = parts.into_iter().map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, T>| {
            (thread.join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    }))
}

/// Returns the links of each role, one to every other role.
fn links(device: &impl Device, roles: u32) -> Result<Vec<Vec<(RoleId, Link)>>, OpenError> {
    let mut links: Vec<Vec<_>> = (0..roles).map(|_| Vec::new()).collect();
    for (a, b) in (0..roles).flat_map(|a| (0..a).map(move |b| (a, b))) {
        let (one, other) = Link::pair().map_err(|source| OpenError::System {
            device: device.name().0,
            action: "create a socket between two roles".to_owned(),
            source,
        })?;
        links[a as usize].push((RoleId(b), one));
        links[b as usize].push((RoleId(a), other));
    }
    Ok(links)
}
