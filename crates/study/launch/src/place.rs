//! Assigns hosts and cores to roles.

use std::str::FromStr;

use adverb_host::usable_cores;
use adverb_verbs::RoleId;
use adverb_workload::{Role, RoleLoad};

use crate::role::Seat;
use crate::text::Usage;

/// Hosts chosen by the user for roles: `server=1,client=0`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement(Vec<(String, u32)>);

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = |part: &str| {
            let (role, host) = part.split_once('=')?;
            let role = role.trim();
            (!role.is_empty()).then_some((role.to_owned(), host.trim().parse().ok()?))
        };
        let parts: Option<Vec<_>> = text.split(',').map(part).collect();
        parts.map(Placement).ok_or_else(|| {
            format!("invalid placement '{text}': expected ROLE=HOST[,ROLE=HOST…], such as server=1,client=0")
        })
    }
}

impl Placement {
    /// Places roles, by the beginnings of their names, on hosts.
    pub fn new<const N: usize>(parts: [(&str, u32); N]) -> Self {
        let parts = parts.map(|(role, host)| (role.to_owned(), host));
        Placement(parts.to_vec())
    }

    /// Returns the host that the user chose for this role.
    fn of(&self, role: &Role) -> Option<u32> {
        let matching = self
            .0
            .iter()
            .filter(|(name, _)| role.name.starts_with(name));
        let best = matching.max_by_key(|(name, _)| name.len());
        best.map(|(_, host)| *host)
    }
}

/// The host of each role.
///
/// Hosts are numbered: 0 is the host where the program is started, 1 and up are the hosts of `--peer` in their
/// order (or, without peers, the further addresses of `--device soft@ADDR,soft@ADDR`). A program
/// numbers the hosts that it asks for, and names one of them as its home: the active side of
/// `ping`, the clients of `kv`. Its home is host 0, and its other hosts are 1, 2 and up, in their order.
/// If there are fewer hosts than it would like to have, they are used in turn. `--place ROLE=HOST`
/// overrides the host of all roles whose names begin with ROLE.
///
/// # Errors
/// The placement names a role or a host that there is not.
pub fn place(
    roles: &[Role],
    home: u32,
    hosts: u32,
    placement: &Placement,
) -> Result<Vec<u32>, Usage> {
    let refused = |given: &str| {
        let mut names: Vec<&str> = roles.iter().map(|role| kind(&role.name)).collect();
        names.dedup();
        let names = names.join(", ");
        let last = hosts.saturating_sub(1);
        Usage(format!(
            "role '{given}' has no place: expected ROLE=HOST with ROLE one of {names}, HOST 0 to {last}"
        ))
    };
    for (name, host) in &placement.0 {
        if *host >= hosts || !roles.iter().any(|role| role.name.starts_with(name)) {
            return Err(refused(&format!("{name}={host}")));
        }
    }
    let turn = |role: &Role| match role.host {
        host if host == home => 0,
        host if host < home => host + 1,
        host => host,
    };
    let host = |role: &Role| placement.of(role).unwrap_or(turn(role) % hosts.max(1));
    Ok(roles.iter().map(host).collect())
}

/// The name of a role without its number.
fn kind(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == ' ')
}

/// Which cores roles are pinned to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pinning {
    /// To the first usable ones, if there is one for each busy role.
    #[default]
    Automatic,
    /// To these in turn.
    Cores(Vec<u32>),
    /// To none: the kernel chooses.
    None,
}

/// The cores of this machine, as far as a run may use them.
#[derive(Debug, Default)]
pub(crate) struct Cores {
    usable: Vec<u32>,
    /// Those that nobody else of the run, and no other run of this process, is pinned to.
    free: Vec<u32>,
    /// Busy roles of this machine for which somebody else chooses a core.
    others: usize,
}

impl Cores {
    pub(crate) fn new(taken: &[u32], others: usize) -> Self {
        Cores::of(usable_cores(), taken, others)
    }

    /// Of a process that may use these cores.
    pub(crate) fn of(usable: Vec<u32>, taken: &[u32], others: usize) -> Self {
        let free = usable.iter().filter(|core| !taken.contains(core));
        Cores {
            free: free.copied().collect(),
            usable,
            others,
        }
    }

    /// The seats of these roles of this machine, and whether there are fewer cores than busy roles.
    pub(crate) fn seat(&self, roles: &[(RoleId, RoleLoad)], how: &Pinning) -> (Vec<Seat>, bool) {
        let is_busy = |(_, load): &&(RoleId, RoleLoad)| *load == RoleLoad::Busy;
        let busy = roles.iter().filter(is_busy).count();
        let is_crowded = busy + self.others > self.free.len();
        let mut cores: Box<dyn Iterator<Item = u32>> = match how {
            Pinning::Cores(cores) => Box::new(cores.iter().copied().cycle()),
            Pinning::Automatic if !is_crowded => Box::new(self.free.iter().copied()),
            Pinning::Automatic | Pinning::None => Box::new(std::iter::empty()),
        };
        // Idle ones take what is left over.
        let own = |load| load != RoleLoad::Preempting;
        let fits_all =
            roles.iter().filter(|(_, load)| own(*load)).count() + self.others <= self.free.len();
        let gets_core = |load| {
            let has_choice = load == RoleLoad::Busy || fits_all;
            own(load) && (has_choice || matches!(how, Pinning::Cores(_)))
        };
        let mut seats: Vec<Seat> = roles
            .iter()
            .map(|(role, load)| Seat {
                role: *role,
                core: gets_core(*load).then(|| cores.next()).flatten(),
                shares_core: busy + self.others > self.usable.len(),
            })
            .collect();
        let first_busy = roles.iter().position(|role| is_busy(&role));
        let its_core = first_busy.and_then(|at| seats[at].core);
        for (seat, (_, load)) in seats.iter_mut().zip(roles) {
            if !own(*load) {
                seat.core = its_core;
            }
        }
        for at in 0..seats.len() {
            let core = seats[at].core;
            let is_alone = |core: u32| {
                let same = seats.iter().filter(|seat| seat.core == Some(core));
                same.count() == 1 && self.free.contains(&core)
            };
            seats[at].shares_core |= core.is_some_and(|core| !is_alone(core));
        }
        (seats, is_crowded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, host: u32) -> Role {
        Role {
            name: name.to_owned(),
            host,
            process: 0,
            load: RoleLoad::Busy,
        }
    }

    #[test]
    fn the_home_of_a_program_is_the_callers_host_and_the_others_are_used_in_turn() {
        let store = [role("server", 0), role("client 0", 1), role("client 1", 2)];
        let at = |hosts| place(&store, 1, hosts, &Placement::default()).unwrap();
        assert_eq!(at(1), [0, 0, 0]);
        assert_eq!(at(2), [1, 0, 0]);
        assert_eq!(at(3), [1, 0, 2]);
        let pair = [role("active", 0), role("passive", 1)];
        let at = place(&pair, 0, 2, &Placement::default()).unwrap();
        assert_eq!(at, [0, 1]);
    }

    #[test]
    fn a_placement_overrides_the_rule_and_is_checked() {
        let store = [role("server", 0), role("client 0", 1), role("client 1", 2)];
        let at = |text: &str| {
            let placement: Placement = text.parse().map_err(Usage)?;
            place(&store, 1, 3, &placement)
        };
        assert_eq!(at("server=0,client=1,client 1=2").unwrap(), [0, 1, 2]);
        for (bad, role) in [("sever=1", "sever=1"), ("server=3", "server=3")] {
            assert_eq!(
                at(bad).unwrap_err().0,
                format!(
                    "role '{role}' has no place: expected ROLE=HOST with ROLE one of server, client, HOST 0 to 2"
                )
            );
        }
        for bad in ["", "server", "server=", "=1", "server=x"] {
            assert!(at(bad).unwrap_err().0.starts_with("invalid placement"));
        }
    }

    #[test]
    fn busy_roles_get_cores_of_their_own_or_all_share() {
        use RoleLoad::{Busy, Idle, Preempting};
        let seat = |free: &[u32], loads: &[RoleLoad], how: Pinning| {
            let cores = Cores {
                usable: free.to_vec(),
                free: free.to_vec(),
                others: 0,
            };
            let roles: Vec<_> = (0..).map(RoleId).zip(loads.iter().copied()).collect();
            let (seats, is_crowded) = cores.seat(&roles, &how);
            let seats: Vec<_> = seats.iter().map(|s| (s.core, s.shares_core)).collect();
            (seats, is_crowded)
        };
        let auto = || Pinning::Automatic;
        let own = |core| (Some(core), false);
        let both = |core| (Some(core), true);
        let free = (None, false);
        let shared = (None, true);
        assert_eq!(
            seat(&[3, 5, 7], &[Busy, Busy], auto()),
            (vec![own(3), own(5)], false)
        );
        assert_eq!(
            seat(&[3, 5], &[Busy, Idle], auto()),
            (vec![own(3), own(5)], false)
        );
        assert_eq!(
            seat(&[3, 5], &[Idle, Busy, Idle], auto()),
            (vec![free, own(3), free], false)
        );
        assert_eq!(
            seat(&[3], &[Busy, Busy], auto()),
            (vec![shared, shared], true)
        );
        assert_eq!(
            seat(&[0, 1], &[Busy, Busy], Pinning::None),
            (vec![free, free], false)
        );
        assert_eq!(
            seat(&[3, 5], &[Preempting, Busy, Idle, Preempting], auto()),
            (vec![both(3), both(3), own(5), both(3)], false)
        );
        let one = Pinning::Cores(vec![1]);
        let all = vec![both(1), both(1)];
        assert_eq!(seat(&[0, 1], &[Busy, Busy], one), (all, false));
    }
}
