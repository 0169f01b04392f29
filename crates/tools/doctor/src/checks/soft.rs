//! Requirements of the user-space device.

use adverb_units::Bytes;

use crate::finding::{Check, Finding, Subject, Verdict};
use crate::machine::{Access, Machine, RefusedDir};

/// Enough space for the buffers of a study.
const ROOMY: Bytes = Bytes::mib(64);
/// Too little space for a port and its queues.
const SCANT: Bytes = Bytes::mib(1);

pub(super) fn shared_memory(machine: &Machine) -> Finding {
    let shm = &machine.shared_memory;
    let dir = shm.dir.display();
    let finding =
        |verdict, found: String| Finding::new(Check::SharedMemory, Subject::Soft, verdict, found);
    let sudo = machine.process.sudo();
    match (shm.access, shm.free) {
        (Access::Missing, _) => finding(Verdict::Broken, format!("no directory {dir}")).run(
            format!("{sudo}mount -t tmpfs -o mode=1777,X-mount.mkdir tmpfs {dir}"),
        ),
        (Access::Denied, _) => finding(Verdict::Broken, format!("{dir} is not writable"))
            .run(format!("{sudo}chmod 1777 {dir}")),
        (Access::Granted, _) if !shm.refused.is_empty() => refused(machine, &shm.refused[0]),
        (Access::Granted, Some(free)) if free < ROOMY => {
            let verdict = match free < SCANT {
                true => Verdict::Broken,
                false => Verdict::Warning,
            };
            finding(verdict, format!("{} free in {dir}", rounded(free)))
                .run(format!("{sudo}mount -o remount,size=1G {dir}"))
                .advise("in a container: docker run --shm-size=1g")
        }
        (Access::Granted, free) => {
            let free = free.map_or(String::new(), |free| format!("{} free in ", rounded(free)));
            finding(Verdict::Ok, format!("{free}{dir}, writable"))
        }
    }
}

/// The finding that the device refuses a directory.
fn refused(machine: &Machine, RefusedDir { dir, uid, mode }: &RefusedDir) -> Finding {
    let dir = dir.display();
    let found = match mode {
        Some(mode) => {
            format!("{dir} (mode {mode:o}, uid {uid}) is not a private directory of this user")
        }
        None => format!("{dir} (uid {uid}) is not a directory"),
    };
    let finding = Finding::new(Check::SharedMemory, Subject::Soft, Verdict::Broken, found);
    let is_own = *uid == machine.process.uid;
    match (is_own, mode) {
        (true, Some(_)) => finding.run(format!("chmod 700 {dir}")),
        (true, None) => finding.run(format!("rm {dir}")),
        (false, _) => finding.run(format!("{}rm -r {dir}", machine.process.sudo())),
    }
}

/// Rounds to whole MiB, from 1 MiB on.
fn rounded(bytes: Bytes) -> Bytes {
    let mib = Bytes::mib(1).get();
    if bytes.get() < mib {
        bytes
    } else {
        Bytes::mib(bytes.get() / mib)
    }
}

/// `None` if there are none.
pub(super) fn leftovers(machine: &Machine) -> Option<Finding> {
    let leftovers = &machine.shared_memory.leftovers;
    let bytes: u64 = leftovers.iter().map(|left| left.bytes.get()).sum();
    let dirs = leftovers.iter().map(|left| left.dir.display().to_string());
    let dirs: Vec<String> = dirs.collect();
    let found = format!(
        "{} of processes that have ended",
        rounded(Bytes::new(bytes))
    );
    (!dirs.is_empty()).then(|| {
        Finding::new(Check::Leftovers, Subject::Soft, Verdict::Note, found)
            .run(format!("rm -r {}", dirs.join(" ")))
    })
}

pub(super) fn pidfd(machine: &Machine) -> Finding {
    let finding = |verdict, found| Finding::new(Check::Pidfd, Subject::Soft, verdict, found);
    if machine.process.has_pidfd {
        finding(Verdict::Ok, "the kernel has it")
    } else {
        finding(Verdict::Broken, "the kernel refuses it").advise(
            "use Linux 5.3 or later; in a container, allow pidfd_open in its seccomp profile",
        )
    }
}

pub(super) fn membarrier(machine: &Machine) -> Finding {
    let finding = |verdict, found| Finding::new(Check::Membarrier, Subject::Soft, verdict, found);
    if machine.process.has_membarrier {
        finding(Verdict::Ok, "the kernel has it")
    } else {
        finding(Verdict::Broken, "the kernel refuses it").advise(
            "use Linux 4.16 or later; in a container, allow membarrier in its seccomp profile",
        )
    }
}
