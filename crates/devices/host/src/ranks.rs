//! Ranks: processes that a cluster's launcher (`mpirun`, `srun`) started as one job.
//!
//! Each rank is a host of the program. Rank 0 publishes its address, and the others look it up: by PMIx if the
//! launcher supports it (Open MPI, Slurm with its pmix plugin), otherwise by Slurm's list of nodes, the first
//! of which runs rank 0.

use std::env;
use std::io;

use crate::pmix::Pmix;

/// Key under which rank 0 publishes its addresses.
const KEY: &str = "adverb.caller";
/// Ports for ranks without PMIx: the first, and their number. Job and step select one.
const PORTS: (u32, u32) = (20_000, 10_000);

/// A process's rank in its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Number of this process, from 0.
    pub rank: u32,
    /// Number of processes.
    pub size: u32,
    /// The job's name, which no other job of the launcher has while this one runs.
    pub job: String,
    /// How the ranks find each other.
    rendezvous: Rendezvous,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rendezvous {
    /// In the launcher's key-value store.
    Pmix,
    /// At this host and port, which each rank computes from its environment.
    Known { host: String, port: u16 },
}

/// The ranks cannot find each other.
#[derive(Debug, thiserror::Error)]
pub enum RankError {
    /// The launcher's environment names a rank but not how to reach the others.
    #[error(
        "rank {rank} of {size}: {missing} is not set: start adverb by Open MPI's mpirun or Slurm's srun"
    )]
    Environment {
        /// This process.
        rank: u32,
        /// Number of processes.
        size: u32,
        /// The variable.
        missing: &'static str,
    },
    /// PMIx failed.
    #[error("PMIx: {0}")]
    Pmix(#[from] io::Error),
}

impl Rank {
    /// Returns this process's rank, if a launcher started several; `None` otherwise.
    ///
    /// # Errors
    /// The environment names a rank but not how to reach the others.
    pub fn from_env() -> Result<Option<Self>, RankError> {
        Self::from_variables(&|name| env::var(name).ok())
    }

    fn from_variables(get: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, RankError> {
        let number = |name: &str| get(name)?.trim().parse::<u32>().ok();
        // A batch script of Slurm has SLURM_PROCID, too; only a step has the number of its tasks.
        let pairs = [
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
            ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
            ("PMI_RANK", "PMI_SIZE"),
        ];
        let found = pairs
            .iter()
            .find_map(|(rank, size)| number(rank).zip(number(size)));
        let Some((rank, size)) = found.filter(|(_, size)| *size > 1) else {
            return Ok(None);
        };
        let (job, rendezvous) = if let Some(namespace) = get("PMIX_NAMESPACE") {
            (namespace, Rendezvous::Pmix)
        } else {
            let missing = |missing| RankError::Environment {
                rank,
                size,
                missing,
            };
            let nodes = get("SLURM_STEP_NODELIST").or_else(|| get("SLURM_NODELIST"));
            let nodes = nodes.ok_or_else(|| missing("PMIX_NAMESPACE"))?;
            let job = number("SLURM_JOB_ID").ok_or_else(|| missing("SLURM_JOB_ID"))?;
            let step = number("SLURM_STEP_ID").unwrap_or(0);
            let place = job.wrapping_mul(7919).wrapping_add(step) % PORTS.1;
            let rendezvous = Rendezvous::Known {
                host: first_node(&nodes),
                port: (PORTS.0 + place) as u16,
            };
            (format!("{job}.{step}"), rendezvous)
        };
        Ok(Some(Rank {
            rank,
            size,
            job,
            rendezvous,
        }))
    }

    /// Returns the port on which rank 0 must listen; `None` for any port.
    pub fn port(&self) -> Option<u16> {
        match &self.rendezvous {
            Rendezvous::Pmix => None,
            Rendezvous::Known { port, .. } => Some(*port),
        }
    }

    /// Publishes `addresses` (`HOST:PORT`, separated by spaces) on which rank 0 listens. Keep the result until
    /// the other ranks have connected.
    ///
    /// # Errors
    /// PMIx fails.
    pub fn publish(&self, addresses: &str) -> Result<Published, RankError> {
        let Rendezvous::Pmix = self.rendezvous else {
            return Ok(Published(None));
        };
        let pmix = Pmix::init()?;
        pmix.publish(KEY, addresses)?;
        Ok(Published(Some(pmix)))
    }

    /// Waits until rank 0 has published its addresses, and returns them.
    ///
    /// # Errors
    /// PMIx fails.
    pub fn look_up(&self) -> Result<Vec<String>, RankError> {
        match &self.rendezvous {
            Rendezvous::Known { host, port } => Ok(vec![format!("{host}:{port}")]),
            Rendezvous::Pmix => {
                let addresses = Pmix::init()?.get_from_rank_0(KEY)?;
                Ok(addresses.split(' ').map(str::to_owned).collect())
            }
        }
    }
}

/// Keeps the addresses of rank 0 published.
pub struct Published(
    #[expect(dead_code, reason = "its end withdraws what was published")] Option<Pmix>,
);

/// The first node of Slurm's compact list, such as `a[07-09,12],b`.
fn first_node(list: &str) -> String {
    let Some((prefix, rest)) = list.split_once('[').filter(|(p, _)| !p.contains(',')) else {
        return list.split(',').next().unwrap_or(list).to_owned();
    };
    let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let after = rest.split_once(']').map_or("", |(_, after)| after);
    let suffix = after.split(',').next().unwrap_or("");
    format!("{prefix}{number}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(variables: &[(&str, &str)]) -> Result<Option<Rank>, String> {
        let get = |name: &str| {
            let found = variables.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Rank::from_variables(&get).map_err(|e| e.to_string())
    }

    #[test]
    fn launchers_are_told_by_their_variables() {
        let ompi = [
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "8"),
            ("PMIX_NAMESPACE", "x"),
        ];
        let found = rank(&ompi).unwrap().unwrap();
        assert_eq!((found.rank, found.size, found.port()), (3, 8, None));
        assert_eq!(found.job, "x");
        assert_eq!(rank(&[]), Ok(None));
        assert_eq!(
            rank(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")]),
            Ok(None)
        );
        let batch = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")];
        assert_eq!(rank(&batch), Ok(None), "a batch script is not a step");
    }

    #[test]
    fn without_pmix_slurm_ranks_meet_at_the_first_node() {
        let step = [
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_STEP_NODELIST", "n[07-08],m1"),
            ("SLURM_JOB_ID", "5"),
        ];
        let found = rank(&step).unwrap().unwrap();
        let port = found.port().unwrap();
        assert_eq!(found.look_up().unwrap(), [format!("n07:{port}")]);
        assert_eq!(found.job, "5.0");
        let missing = rank(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]).unwrap_err();
        assert!(missing.contains("PMIX_NAMESPACE is not set"), "{missing}");
    }

    #[test]
    fn the_first_node_of_a_list() {
        for (list, first) in [
            ("a", "a"),
            ("a,b", "a"),
            ("a[1-3]", "a1"),
            ("a[07,9]-x,b", "a07-x"),
            ("a,b[1-2]", "a"),
        ] {
            assert_eq!(first_node(list), first, "{list}");
        }
    }
}
