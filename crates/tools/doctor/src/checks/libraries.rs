//! Libraries of user space and modules of the kernel.

use std::path::Path;

use adverb_sysfs::{Driver, RdmaDevice};

use super::on_machine;
use crate::finding::{Check, Finding, Subject, System, Verdict};
use crate::machine::{Access, Machine};

pub(super) fn verbs(machine: &Machine) -> Finding {
    let path = machine.libraries.verbs.as_deref();
    library(machine, Check::Libibverbs, path, Verdict::Broken)
}

pub(super) fn rdmacm(machine: &Machine) -> Finding {
    let path = machine.libraries.rdmacm.as_deref();
    library(machine, Check::Librdmacm, path, Verdict::Warning)
}

fn library(machine: &Machine, check: Check, path: Option<&Path>, missing: Verdict) -> Finding {
    if let Some(path) = path {
        return on_machine(check, Verdict::Ok, path.display().to_string());
    }
    let sudo = machine.process.sudo();
    // Debian numbers its packages of libraries.
    let name = check.id();
    let debian = match check {
        Check::Libibverbs => "libibverbs1 ibverbs-providers",
        _ => "librdmacm1",
    };
    on_machine(
        check,
        missing,
        format!("no {name}.so.1 where the loader looks"),
    )
    .run_on(System::Debian, format!("{sudo}apt install {debian}"))
    .run_on(System::Rhel, format!("{sudo}dnf install {name}"))
}

pub(super) fn verbs_module(machine: &Machine) -> Finding {
    if machine.has_uverbs {
        return on_machine(Check::VerbsModule, Verdict::Ok, "ib_uverbs is loaded");
    }
    let sudo = machine.process.sudo();
    on_machine(
        Check::VerbsModule,
        Verdict::Broken,
        "ib_uverbs is not loaded",
    )
    .run(format!("{sudo}modprobe ib_uverbs"))
}

pub(super) fn connection_manager(machine: &Machine) -> Finding {
    let finding = |verdict, found| on_machine(Check::ConnectionManager, verdict, found);
    let sudo = machine.process.sudo();
    match machine.rdma_cm {
        Access::Granted => finding(Verdict::Ok, "/dev/infiniband/rdma_cm can be opened"),
        Access::Denied => finding(
            Verdict::Warning,
            "/dev/infiniband/rdma_cm: permission denied",
        )
        .run(format!("{sudo}chmod 0666 /dev/infiniband/rdma_cm")),
        Access::Missing => finding(Verdict::Warning, "no /dev/infiniband/rdma_cm")
            .run(format!("{sudo}modprobe rdma_ucm")),
    }
}

pub(super) fn provider(machine: &Machine, device: &RdmaDevice) -> Finding {
    let subject = Subject::Device {
        device: device.name.clone(),
    };
    let finding =
        |verdict, found: String| Finding::new(Check::Provider, subject.clone(), verdict, found);
    let Some(driver) = &device.driver else {
        return finding(Verdict::Note, "its driver is not known".to_owned());
    };
    let Some(provider) = provider_of(driver) else {
        return finding(
            Verdict::Note,
            format!("its driver {driver} is not known to this version"),
        );
    };
    let installed = &machine.libraries.providers;
    if installed.iter().any(|name| name == provider) {
        return finding(Verdict::Ok, format!("{provider} for driver {driver}"));
    }
    let lost = machine.libraries.lost_providers.iter();
    let what = if lost.clone().any(|name| name == provider) {
        format!("lib{provider}-rdmav*.so is missing, though /etc/libibverbs.d names it")
    } else {
        format!("{provider} for driver {driver} is not in /etc/libibverbs.d")
    };
    let sudo = machine.process.sudo();
    finding(Verdict::Broken, what)
        .run_on(
            System::Debian,
            format!("{sudo}apt install --reinstall ibverbs-providers"),
        )
        .run_on(System::Rhel, format!("{sudo}dnf reinstall libibverbs"))
}

/// The provider of rdma-core (`providers/*`) for a driver of the kernel.
fn provider_of(driver: &Driver) -> Option<&'static str> {
    let hardware = match driver {
        Driver::Rxe => return Some("rxe"),
        Driver::Siw => return Some("siw"),
        Driver::Hardware(name) => name.as_str(),
    };
    Some(match hardware {
        "mlx5_core" => "mlx5",
        "mlx4_core" => "mlx4",
        "bnxt_en" => "bnxt_re",
        "cxgb4" => "cxgb4",
        "efa" => "efa",
        "erdma" => "erdma",
        "hfi1" => "hfi1verbs",
        "hns3" => "hns",
        "i40e" | "ice" | "idpf" => "irdma",
        "ib_mthca" => "mthca",
        "ib_qib" => "ipathverbs",
        "mana" => "mana",
        "be2net" => "ocrdma",
        "qede" => "qedr",
        "vmw_pvrdma" => "vmw_pvrdma",
        _ => return None,
    })
}
