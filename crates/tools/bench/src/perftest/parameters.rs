//! Parameters of a run, as its program reports them: runs with different parameters are not compared.

use anyhow::{Result, ensure};

/// The parameters that both programs report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// Payload of a message in bytes.
    pub(crate) size: u64,
    /// Messages (bandwidth) or rounds (latency), all that were measured.
    pub(crate) iterations: u64,
    /// Requests in flight at most.
    pub(crate) in_flight: u64,
    /// Signaling period.
    pub(crate) signaled_every: u64,
    /// Path MTU in bytes; `None` if the transport has none (iWARP).
    pub(crate) path_mtu: Option<u64>,
}

impl Parameters {
    /// Checks that both programs measured the same.
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

/// Checks that a figure is finite and positive.
pub(crate) fn ensure_figure(who: &str, figure: f64) -> Result<()> {
    ensure!(
        figure.is_finite() && figure > 0.0,
        "{who} measured {figure}: expected a positive number"
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
    fn only_positive_numbers_are_figures() {
        assert!(ensure_figure("adverb", 0.5).is_ok());
        for figure in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(ensure_figure("adverb", figure).is_err(), "{figure}");
        }
    }
}
