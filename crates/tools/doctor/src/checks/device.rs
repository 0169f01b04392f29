//! A device: its file, slot and driver.

use adverb_sysfs::Driver;

use super::{cpu, libraries};
use crate::finding::{Check, Finding, Subject, System, Verdict};
use crate::machine::{Access, DeviceFacts, Iommu, Machine};

pub(super) fn checks(machine: &Machine, facts: &DeviceFacts) -> Vec<Finding> {
    let sudo = machine.process.sudo();
    let mut findings = vec![libraries::provider(machine, &facts.rdma), file(facts, sudo)];
    findings.extend(software(facts));
    findings.extend(pcie(facts));
    findings.extend(iommu(facts, sudo));
    findings.extend(cpu::numa(machine, &facts.rdma));
    findings
}

fn finding(
    facts: &DeviceFacts,
    check: Check,
    verdict: Verdict,
    found: impl Into<String>,
) -> Finding {
    let subject = Subject::Device {
        device: facts.rdma.name.clone(),
    };
    Finding::new(check, subject, verdict, found)
}

fn file(facts: &DeviceFacts, sudo: &str) -> Finding {
    let finding = |verdict, found| finding(facts, Check::DeviceFile, verdict, found);
    let Some(name) = &facts.rdma.uverbs else {
        return finding(
            Verdict::Broken,
            "the kernel has no device file for it".to_owned(),
        )
        .run(format!("{sudo}modprobe ib_uverbs"));
    };
    let path = format!("/dev/infiniband/{name}");
    match facts.file {
        Access::Granted => finding(Verdict::Ok, format!("{path} can be opened")),
        Access::Denied => finding(Verdict::Broken, format!("{path}: permission denied"))
            .run(format!("{sudo}chmod 0666 {path}"))
            .run_on(System::Debian, format!("{sudo}apt install rdma-core"))
            .run_on(System::Rhel, format!("{sudo}dnf install rdma-core"))
            .advise("rdma-core's udev rules set 0666 from the next start on"),
        Access::Missing => finding(Verdict::Broken, format!("no {path}"))
            .run(format!(
                "{sudo}udevadm trigger --subsystem-match=infiniband_verbs"
            ))
            .advise("in a container: docker run --device /dev/infiniband --ulimit memlock=-1"),
    }
}

fn software(facts: &DeviceFacts) -> Option<Finding> {
    let what = match facts.rdma.driver.as_ref()? {
        Driver::Rxe => "Soft-RoCE",
        Driver::Siw => "Soft-iWARP",
        Driver::Hardware(_) => return None,
    };
    Some(finding(facts, Check::SoftwareDevice, Verdict::Note, what))
}

fn pcie(facts: &DeviceFacts) -> Option<Finding> {
    let link = facts.rdma.pci_link?;
    let is = format!("{} x{}", link.speed, link.width);
    if !link.is_reduced() {
        return Some(finding(facts, Check::PcieLink, Verdict::Ok, is));
    }
    let found = format!(
        "{is}, the device can {} x{}",
        link.max_speed, link.max_width
    );
    let finding = finding(facts, Check::PcieLink, Verdict::Warning, found);
    let address = facts.rdma.pci?;
    Some(
        finding
            .run(format!("lspci -s {address} -vv | grep LnkSta:"))
            .advise("put the card into a slot of this width and speed; an idle link may also save power"),
    )
}

fn iommu(facts: &DeviceFacts, sudo: &str) -> Option<Finding> {
    facts.rdma.pci?;
    let finding = |verdict, found: String| finding(facts, Check::Iommu, verdict, found);
    let kind = match &facts.iommu {
        Iommu::Absent => return Some(finding(Verdict::Ok, "none before the device".to_owned())),
        Iommu::Passthrough => return Some(finding(Verdict::Ok, "passthrough".to_owned())),
        Iommu::Translating(kind) => kind.as_deref().unwrap_or("unknown kind"),
    };
    Some(
        finding(Verdict::Note, format!("translates ({kind})"))
            .run_on(
                System::Debian,
                format!(
                    "{sudo}sed -i 's/^GRUB_CMDLINE_LINUX=\"/&iommu=pt /' /etc/default/grub && \
                     {sudo}update-grub"
                ),
            )
            .run_on(
                System::Rhel,
                format!("{sudo}grubby --update-kernel=ALL --args=iommu=pt"),
            )
            .advise("iommu=pt takes effect at the next start"),
    )
}
