//! perftest's programs, unmodified, over `adverb run`.

use anyhow::Result;

use crate::child::is_installed;
use crate::perftest::program::{self, Start};
use crate::row::{Bound, Limit, Measure, Pair, Setting, Unit};
use crate::{adverb, machine, memory, startup, ucx};

const NEEDS: &str = "perftest or ucx_perftest is not installed (Debian: perftest, ucx-utils)";
/// What the programs are run through for RoCE over UDP: client, server.
const OVER_UDP: [&str; 2] = ["--address 127.0.0.2", "--address 127.0.0.1"];

pub(crate) const ROWS: &[Bound] = &[
    Bound {
        name: "ib_write_lat, 8 B",
        what: "median one-way time of `adverb run -- ib_write_lat -s 8` over the mean of `ucx_perftest -t tag_lat -s 8`, \
               UCX_TLS=posix,self",
        unit: Unit::Nanoseconds,
        limit: Limit::AtMost(2.0),
        measure: Measure::Rounds(|s| against_tag_latency(s, "ib_write_lat")),
        needs: NEEDS,
    },
    Bound {
        name: "ib_send_lat, 8 B",
        what: "the same of `ib_send_lat -s 8`",
        unit: Unit::Nanoseconds,
        limit: Limit::AtMost(3.0),
        measure: Measure::Rounds(|s| against_tag_latency(s, "ib_send_lat")),
        needs: NEEDS,
    },
    Bound {
        name: "ib_write_bw, 64 KiB",
        what: "bytes per second of `adverb run -- ib_write_bw -s 65536` over those of memcpy between 64 KiB buffers of \
               two shared mappings",
        unit: Unit::BytesPerSecond,
        limit: Limit::AtLeast(0.7),
        measure: Measure::Rounds(|s| {
            let reference = machine::memcpy_between_mappings(s.cores[0], 64 << 10, 1)?;
            let bandwidth = bandwidth(s, "", &[], "ib_write_bw", "-s 65536 -n 20000")?;
            Ok(bandwidth.map(|ours| (ours.bytes_per_s(), reference)))
        }),
        needs: NEEDS,
    },
    Bound {
        name: "ib_send_bw, 16 B",
        what: "messages per second of `adverb run -- ib_send_bw -s 16` over those of `ucx_perftest -t tag_bw -s 16`, \
               UCX_TLS=posix,self",
        unit: Unit::PerSecond,
        limit: Limit::AtLeast(1.0),
        measure: Measure::Rounds(|s| {
            let Some(ours) = bandwidth(s, "", &[], "ib_send_bw", "-s 16 -n 1000000")? else {
                return Ok(None);
            };
            let reference = ucx::message_rate(s.cores, 16)?;
            Ok(reference.map(|reference| (ours.messages_per_s, reference)))
        }),
        needs: NEEDS,
    },
    Bound {
        name: "ib_write_bw, process_vm",
        what: "time of a message of `ADVERB_MEMORY=process_vm adverb run -- ib_write_bw -s 4096` over that of the bare \
               system call `process_vm_writev` with 4 KiB into another process",
        unit: Unit::Nanoseconds,
        limit: Limit::AtMost(1.3),
        measure: Measure::Rounds(|s| {
            let env = [("ADVERB_MEMORY", "process_vm")];
            let ours = bandwidth(s, "", &env, "ib_write_bw", "-s 4096 -n 200000")?;
            let reference = memory::process_vm_writev(s.cores[0], 4096)?;
            Ok(ours.map(|ours| (1e9 / ours.messages_per_s, reference)))
        }),
        needs: NEEDS,
    },
    Bound {
        name: "ib_send_lat, UDP, 64 B",
        what: "median one-way time of `ib_send_lat -s 64 -I 0`, each side with an address of its own (`adverb run \
               --address`), over that of `adverb ping --op send --size 64` between the same addresses",
        unit: Unit::Nanoseconds,
        limit: Limit::AtMost(1.3),
        measure: Measure::Rounds(|s| {
            against_own_ping(s, "ib_send_lat", "ping --op send --size 64")
        }),
        needs: NEEDS,
    },
    Bound {
        name: "ib_write_lat, UDP, 64 B",
        what: "the same of `ib_write_lat -s 64 -I 0` and `adverb ping --op write --size 64`",
        unit: Unit::Nanoseconds,
        limit: Limit::AtMost(1.3),
        measure: Measure::Rounds(|s| {
            against_own_ping(s, "ib_write_lat", "ping --op write --size 64")
        }),
        needs: NEEDS,
    },
    Bound {
        name: "register 1 GiB",
        what: "time in which the user-space NIC registers 1 GiB of a program's memory, without pages before, over that \
               in which the kernel locks as much (mlock), which `ibv_reg_mr` of hardware includes",
        unit: Unit::Seconds,
        limit: Limit::None,
        measure: Measure::Rounds(|s| memory::registration(s.cores[0])),
        needs: "locking 1 GiB is not permitted: raise `ulimit -l`",
    },
    Bound {
        name: "start of a program",
        what: "time of `adverb run -- ibv_devices` over that of `ibv_devices`, the least of 20",
        unit: Unit::Nanoseconds,
        limit: Limit::Above(20e6),
        measure: Measure::Rounds(startup::pair),
        needs: startup::NEEDS,
    },
];

/// Runs a bandwidth test over `adverb run`; `None` if it is not installed.
fn bandwidth(
    setting: &Setting,
    options: &str,
    env: &[(&str, &str)],
    program: &str,
    args: &str,
) -> Result<Option<program::Bandwidth>> {
    let start = start(setting, [options; 2], env);
    let run = || program::bandwidth(&start, program, args);
    is_installed(program).then(run).transpose()
}

fn against_tag_latency(setting: &Setting, program: &str) -> Result<Option<Pair>> {
    if !is_installed(program) {
        return Ok(None);
    }
    let start = start(setting, [""; 2], &[]);
    let ours = program::latency(&start, program, "-s 8 -n 300000")?;
    let reference = ucx::latency(setting.cores, 8)?;
    Ok(reference.map(|reference| (ours.median() * 1e3, reference)))
}

fn against_own_ping(setting: &Setting, program: &str, ping: &str) -> Result<Option<Pair>> {
    if !is_installed(program) {
        return Ok(None);
    }
    let start = start(setting, OVER_UDP, &[]);
    let ours = program::latency(&start, program, "-s 64 -n 50000 -I 0")?;
    let reference = adverb::median_over_udp(setting, ping)?;
    Ok(Some((ours.median() * 1e3, reference)))
}

fn start<'a>(setting: &Setting, options: [&str; 2], env: &'a [(&'a str, &'a str)]) -> Start<'a> {
    let run = |options: &str| {
        let adverb = setting.adverb.display().to_string();
        let words = options.split_whitespace().map(str::to_owned);
        let run = ["run".to_owned()].into_iter().chain(words);
        [adverb]
            .into_iter()
            .chain(run)
            .chain(["--".to_owned()])
            .collect()
    };
    Start {
        cores: setting.cores,
        device: "adverb0",
        through: options.map(run),
        env,
    }
}
