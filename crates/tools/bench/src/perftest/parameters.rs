//! What a run was of, as its program itself says afterwards: two that differ there are no pair.

use anyhow::{Result, ensure};

/// The parameters that both programs tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// Payload of a message in bytes.
    pub(crate) size: u64,
    /// Messages (bandwidth) or rounds (latency), all that were measured.
    pub(crate) iterations: u64,
    /// Requests in flight at most.
    pub(crate) in_flight: u64,
    /// Every how many requests one is signaled.
    pub(crate) signaled_every: u64,
    /// Largest payload of a packet in bytes; none where there are no such packets (iWARP).
    pub(crate) path_mtu: Option<u64>,
}

impl Parameters {
    /// That both programs did the same.
    pub(crate) fn ensure_same(&self, perftest: &Parameters) -> Result<()> {
        let path_mtu = self.path_mtu.and(perftest.path_mtu);
        let theirs = Parameters {
            path_mtu,
            ..*perftest
        };
        ensure!(
            *self == theirs,
            "the two programs measured different things: adverb {self:?}, perftest {theirs:?}"
        );
        Ok(())
    }
}

/// That a figure is one: finite and above 0.
pub(crate) fn ensure_figure(who: &str, figure: f64) -> Result<()> {
    ensure!(
        figure.is_finite() && figure > 0.0,
        "{who} measured {figure}, which is no figure"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Parameters = Parameters {
        size: 64,
        iterations: 1000,
        in_flight: 1,
        signaled_every: 1,
        path_mtu: Some(4096),
    };

    #[test]
    fn programs_that_did_different_things_are_no_pair() {
        assert!(OURS.ensure_same(&OURS).is_ok());
        for theirs in [
            Parameters { size: 65, ..OURS },
            Parameters {
                iterations: 999,
                ..OURS
            },
            Parameters {
                in_flight: 2,
                ..OURS
            },
            Parameters {
                signaled_every: 8,
                ..OURS
            },
            Parameters {
                path_mtu: Some(1024),
                ..OURS
            },
        ] {
            let refused = OURS.ensure_same(&theirs).unwrap_err().to_string();
            assert!(refused.contains("different things"), "{refused}");
        }
    }

    #[test]
    fn where_there_are_no_packets_of_rdma_perftest_still_names_an_mtu() {
        let ours = Parameters {
            path_mtu: None,
            ..OURS
        };
        assert!(ours.ensure_same(&OURS).is_ok());
    }

    #[test]
    fn nothing_and_no_number_are_no_figures() {
        assert!(ensure_figure("adverb", 0.5).is_ok());
        for figure in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(ensure_figure("adverb", figure).is_err(), "{figure}");
        }
    }
}
