//! Machines built of files, examined: each check where all is well and where it is not.

#[path = "../../../devices/sysfs/tests/fixture/mod.rs"]
mod fixture;

use adverb_doctor::{
    Access, Check, Finding, Iommu, Limit, Machine, Process, Remedy, Scope, Verdict, examine, text,
};
use adverb_units::Bytes;
use fixture::{INFINIBAND, IPV4, LINK_LOCAL, PortFiles, ROCE, Root};
use insta::assert_snapshot;

/// A user's process on CPUs 16 and 17, without a limit on locked memory.
fn process() -> Process {
    Process {
        uid: 1000,
        memory_lock: Limit::default(),
        may_lock_all: false,
        affinity: [16, 17].into_iter().collect(),
        has_membarrier: true,
        has_pidfd: true,
        library_path: Vec::new(),
        shared_memory: None,
    }
}

/// What rdma-core and the kernel bring, on a host with two nodes of 16 CPUs.
fn installed() -> Root {
    let root = Root::new();
    let lib = "usr/lib/x86_64-linux-gnu";
    root.file(
        "etc/ld.so.conf.d/x86_64-linux-gnu.conf",
        "# Multiarch\n/usr/lib/x86_64-linux-gnu",
    )
    .file(&format!("{lib}/libibverbs.so.1"), "")
    .file(&format!("{lib}/librdmacm.so.1"), "")
    .file("dev/infiniband/uverbs0", "")
    .file("dev/infiniband/rdma_cm", "")
    .file("dev/shm/.keep", "");
    for provider in ["mlx5", "mlx4", "rxe"] {
        root.file(
            &format!("etc/libibverbs.d/{provider}.driver"),
            &format!("driver {provider}"),
        )
        .file(&format!("{lib}/libibverbs/lib{provider}-rdmav34.so"), "");
    }
    for cpu in [0, 16, 17] {
        let governor = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        root.file(&governor, "performance");
    }
    root.file("sys/devices/system/node/node0/cpulist", "0-15")
        .file("sys/devices/system/node/node1/cpulist", "16-31")
        .file(
            "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
            "512",
        )
        .file(
            "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
            "500",
        )
        .file(
            "sys/kernel/mm/transparent_hugepage/enabled",
            "always [madvise] never",
        );
    root
}

fn gather(root: &Root) -> Machine {
    let mut machine = Machine::gather(root.path(), process()).unwrap();
    machine.shared_memory.free = Some(Bytes::mib(1024));
    machine
}

/// As a terminal of 90 columns without colours shows it, the root's path cut out.
fn shown(root: &Root, machine: &Machine) -> String {
    let findings = examine(machine, &Scope::All).unwrap();
    let root = root.path().display().to_string();
    let findings: Vec<Finding> = findings
        .into_iter()
        .map(|finding| Finding {
            found: finding.found.replace(&root, ""),
            ..finding
        })
        .collect();
    text(&findings, 90, &|_, word| word.to_owned())
}

/// The findings of one check.
fn of(machine: &Machine, check: Check) -> Vec<Finding> {
    let findings = examine(machine, &Scope::All).unwrap();
    findings
        .into_iter()
        .filter(|finding| finding.check == check)
        .collect()
}

/// The only finding of a check: verdict, what was found, first command.
#[track_caller]
fn brief(machine: &Machine, check: Check) -> String {
    let findings = of(machine, check);
    assert_eq!(findings.len(), 1, "{findings:?}");
    let finding = &findings[0];
    let command = finding.remedies.iter().find_map(|remedy| match remedy {
        Remedy::Run { command, .. } => Some(command.as_str()),
        Remedy::Advice(_) => None,
    });
    format!(
        "{}: {} | {}",
        finding.verdict,
        finding.found,
        command.unwrap_or("-")
    )
}

fn with_mlx5() -> (Root, String) {
    let root = installed();
    let device = root.mlx5();
    (root, device)
}

#[test]
fn an_adapter_in_service() {
    let (root, _) = with_mlx5();
    assert_snapshot!(shown(&root, &gather(&root)), @r"
    machine
      ok       memory-lock             unlimited
      ok       libibverbs              /usr/lib/x86_64-linux-gnu/libibverbs.so.1
      ok       librdmacm               /usr/lib/x86_64-linux-gnu/librdmacm.so.1
      ok       verbs-module            ib_uverbs is loaded
      ok       connection-manager      /dev/infiniband/rdma_cm can be opened
      ok       huge-pages              500 of 512 free, 2 MiB each
      ok       transparent-huge-pages  madvise
      ok       cpu-governor            performance on CPUs 16-17

    soft (user-space device)
      ok       shared-memory           1 GiB free in /dev/shm, writable
      ok       membarrier              the kernel has it
      ok       pidfd                   the kernel has it

    verbs:mlx5_0
      ok       provider                mlx5 for driver mlx5_core
      ok       device-file             /dev/infiniband/uverbs0 can be opened
      ok       pcie-link               16.0 GT/s x16
      ok       iommu                   none before the device
      ok       numa-node               node 1, as CPUs 16-17 of this process

    verbs:mlx5_0 port 1
      ok       port-state              ACTIVE, Ethernet, 100 Gb/s (4X EDR)
      ok       gid                     index 3, RoCE v2, 192.168.7.5
      ok       mtu                     9000 B on ens1f0np0: path MTU 4096 B

    0 broken, 0 warnings, 0 notes, 19 ok; ready: soft, verbs:mlx5_0
    ");
}

#[test]
fn soft_roce_as_it_comes() {
    let root = installed();
    root.rxe("eth0");
    assert_snapshot!(shown(&root, &gather(&root)), @r"
    machine
      ok       memory-lock             unlimited
      ok       libibverbs              /usr/lib/x86_64-linux-gnu/libibverbs.so.1
      ok       librdmacm               /usr/lib/x86_64-linux-gnu/librdmacm.so.1
      ok       verbs-module            ib_uverbs is loaded
      ok       connection-manager      /dev/infiniband/rdma_cm can be opened
      ok       huge-pages              500 of 512 free, 2 MiB each
      ok       transparent-huge-pages  madvise
      ok       cpu-governor            performance on CPUs 16-17

    soft (user-space device)
      ok       shared-memory           1 GiB free in /dev/shm, writable
      ok       membarrier              the kernel has it
      ok       pidfd                   the kernel has it

    verbs:rxe0
      ok       provider                rxe for driver rdma_rxe
      ok       device-file             /dev/infiniband/uverbs0 can be opened
      note     software-device         Soft-RoCE
               the kernel sends the packets: results differ from RDMA hardware

    verbs:rxe0 port 1
      ok       port-state              ACTIVE, Ethernet, 2.5 Gb/s (1X)
      ok       gid                     index 1, RoCE v2, 192.168.7.5
      note     mtu                     1500 B on eth0: path MTU 1024 B
               the interface's MTU limits the path MTU, and small packets cost throughput
               $ sudo ip link set eth0 mtu 4200
               (on both ends; the switches between must carry such frames, too)

    0 broken, 0 warnings, 2 notes, 15 ok; ready: soft, verbs:rxe0
    ");
}

#[test]
fn a_bare_machine_is_not_broken() {
    let root = Root::new();
    root.file("dev/shm/.keep", "")
        .netdev("enp1s0", "sys/devices/virtual", "1500");
    let mut machine = gather(&root);
    machine.process.memory_lock.soft = Some(Bytes::kib(64));
    assert_snapshot!(shown(&root, &machine), @r"
    machine
      note     memory-lock             64 KiB, can be raised to unlimited
               registered memory is locked: beyond the limit, registering fails
               $ ulimit -l unlimited
               $ echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/90-rdma.conf
               (log in again for the latter; a systemd service needs LimitMEMLOCK=infinity)
      note     libibverbs              no libibverbs.so.1 where the loader looks
               programs reach RDMA devices through libibverbs.so.1
               $ sudo apt install libibverbs1 ibverbs-providers   # Debian
               $ sudo dnf install libibverbs   # RHEL
      note     librdmacm               no librdmacm.so.1 where the loader looks
               connecting by IP address needs librdmacm.so.1; iWARP has no other way
               $ sudo apt install librdmacm1   # Debian
               $ sudo dnf install librdmacm   # RHEL
      note     verbs-module            ib_uverbs is not loaded
               without ib_uverbs no program can open a device
               $ sudo modprobe ib_uverbs
      note     connection-manager      no /dev/infiniband/rdma_cm
               connecting by IP address needs /dev/infiniband/rdma_cm
               $ sudo modprobe rdma_ucm
      note     huge-pages              not in this kernel
               large buffers in huge pages need fewer translations in the device
      note     transparent-huge-pages  not in this kernel
               the kernel uses them for large buffers without reserving any
      ok       cpu-governor            none: the kernel does not control the frequency
      note     rdma-devices            none; a software device (Soft-RoCE) needs root and the
                                       kernel's module rdma_rxe
               verbs need an RDMA device; --device soft needs none
               $ sudo modprobe rdma_rxe && sudo rdma link add rxe0 type rxe netdev enp1s0

    soft (user-space device)
      ok       shared-memory           1 GiB free in /dev/shm, writable
      ok       membarrier              the kernel has it
      ok       pidfd                   the kernel has it

    0 broken, 0 warnings, 8 notes, 4 ok; ready: soft
    ");
}

#[test]
fn locked_memory() {
    let (root, _) = with_mlx5();
    let mut machine = gather(&root);
    let mut with = |soft: u64, hard: Option<u64>| {
        machine.process.memory_lock = Limit {
            soft: Some(Bytes::kib(soft)),
            hard: hard.map(Bytes::kib),
        };
        brief(&machine, Check::MemoryLock)
    };
    assert_snapshot!(with(64, Some(64)), @"broken: 64 KiB | echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/90-rdma.conf");
    assert_snapshot!(with(8192, None), @"warning: 8 MiB, can be raised to unlimited | ulimit -l unlimited");
    assert_snapshot!(with(8192, Some(4 << 20)), @"warning: 8 MiB, can be raised to 4 GiB | ulimit -l 4194304");
    assert_snapshot!(with(2 << 20, Some(2 << 20)), @"ok: 2 GiB | -");
    machine.process.may_lock_all = true;
    machine.process.memory_lock.soft = Some(Bytes::kib(64));
    assert_eq!(of(&machine, Check::MemoryLock)[0].verdict, Verdict::Ok);
}

#[test]
fn libraries_and_providers() {
    let (root, _) = with_mlx5();
    let lib = "usr/lib/x86_64-linux-gnu";
    root.remove(&format!("{lib}/libibverbs.so.1"))
        .remove(&format!("{lib}/librdmacm.so.1"))
        .remove(&format!("{lib}/libibverbs/libmlx5-rdmav34.so"));
    let machine = gather(&root);
    assert_snapshot!(brief(&machine, Check::Libibverbs), @"broken: no libibverbs.so.1 where the loader looks | sudo apt install libibverbs1 ibverbs-providers");
    assert_snapshot!(brief(&machine, Check::Librdmacm), @"warning: no librdmacm.so.1 where the loader looks | sudo apt install librdmacm1");
    assert_snapshot!(brief(&machine, Check::Provider), @"broken: libmlx5-rdmav*.so is missing, though /etc/libibverbs.d names it | sudo apt install --reinstall ibverbs-providers");
    root.remove("etc/libibverbs.d/mlx5.driver");
    assert_snapshot!(brief(&gather(&root), Check::Provider), @"broken: mlx5 for driver mlx5_core is not in /etc/libibverbs.d | sudo apt install --reinstall ibverbs-providers");
}

#[test]
fn libraries_of_the_users_own_path_are_found() {
    let root = Root::new();
    root.file("opt/lib/libibverbs.so.1", "");
    let process = Process {
        library_path: vec![root.at("opt/lib")],
        ..process()
    };
    let machine = Machine::gather(root.path(), process).unwrap();
    assert_eq!(of(&machine, Check::Libibverbs)[0].verdict, Verdict::Ok);
}

#[test]
fn an_unknown_driver_is_not_judged() {
    let (root, device) = with_mlx5();
    root.remove(&format!("{device}/device/driver")).link(
        &format!("{device}/device/driver"),
        "sys/bus/pci/drivers/newfangled",
    );
    assert_snapshot!(brief(&gather(&root), Check::Provider), @"note: its driver newfangled is not known to this version | -");
}

#[test]
fn device_files() {
    let (root, _) = with_mlx5();
    let mut machine = gather(&root);
    machine.devices[0].file = Access::Denied;
    machine.rdma_cm = Access::Denied;
    assert_snapshot!(brief(&machine, Check::DeviceFile), @"broken: /dev/infiniband/uverbs0: permission denied | sudo chmod 0666 /dev/infiniband/uverbs0");
    assert_snapshot!(brief(&machine, Check::ConnectionManager), @"warning: /dev/infiniband/rdma_cm: permission denied | sudo chmod 0666 /dev/infiniband/rdma_cm");
    root.remove("dev/infiniband/uverbs0")
        .remove("dev/infiniband/rdma_cm");
    let machine = gather(&root);
    assert_snapshot!(brief(&machine, Check::DeviceFile), @"broken: no /dev/infiniband/uverbs0 | sudo udevadm trigger --subsystem-match=infiniband_verbs");
    assert_snapshot!(brief(&machine, Check::ConnectionManager), @"warning: no /dev/infiniband/rdma_cm | sudo modprobe rdma_ucm");
    root.remove("sys/class/infiniband_verbs/uverbs0")
        .remove("sys/class/infiniband_verbs/abi_version");
    std::fs::remove_dir(root.at("sys/class/infiniband_verbs")).unwrap();
    let machine = gather(&root);
    assert_snapshot!(brief(&machine, Check::DeviceFile), @"broken: the kernel has no device file for it | sudo modprobe ib_uverbs");
    assert_snapshot!(brief(&machine, Check::VerbsModule), @"broken: ib_uverbs is not loaded | sudo modprobe ib_uverbs");
}

#[test]
fn pages() {
    let (root, _) = with_mlx5();
    let huge = "sys/kernel/mm/hugepages/hugepages-2048kB";
    root.file(&format!("{huge}/free_hugepages"), "0").file(
        "sys/kernel/mm/transparent_hugepage/enabled",
        "always madvise [never]",
    );
    let machine = gather(&root);
    assert_snapshot!(brief(&machine, Check::HugePages), @"note: all 512 in use | sudo sysctl vm.nr_hugepages=1024");
    assert_snapshot!(brief(&machine, Check::TransparentHugePages), @"note: never | echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
    root.file(&format!("{huge}/nr_hugepages"), "0");
    assert_snapshot!(brief(&gather(&root), Check::HugePages), @"note: none reserved | sudo sysctl vm.nr_hugepages=512");
}

#[test]
fn only_the_governors_of_usable_cpus_count() {
    let (root, _) = with_mlx5();
    let governor = |cpu| format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    root.file(&governor(0), "powersave");
    assert_snapshot!(brief(&gather(&root), Check::CpuGovernor), @"ok: performance on CPUs 16-17 | -");
    root.file(&governor(17), "schedutil");
    assert_snapshot!(brief(&gather(&root), Check::CpuGovernor), @"warning: performance on CPUs 16, schedutil on CPUs 17 | echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor");
}

#[test]
fn a_process_far_from_the_device() {
    let (root, _) = with_mlx5();
    let mut machine = gather(&root);
    machine.process.affinity = (0..32).collect();
    assert_snapshot!(brief(&machine, Check::NumaNode), @"warning: node 1 (CPUs 16-31); this process would use CPUs 0-1 | taskset -c 16-31 adverb study --device verbs:mlx5_0");
    machine.process.affinity = (14..18).collect();
    assert_snapshot!(brief(&machine, Check::NumaNode), @"warning: node 1 (CPUs 16-31); this process would use CPUs 14-15 | taskset -c 16-17 adverb study --device verbs:mlx5_0");
}

#[test]
fn a_narrow_link() {
    let (root, device) = with_mlx5();
    root.file(&format!("{device}/device/current_link_width"), "8");
    assert_snapshot!(brief(&gather(&root), Check::PcieLink), @"warning: 16.0 GT/s x8, the device can 16.0 GT/s x16 | lspci -s 0000:3b:00.0 -vv | grep LnkSta:");
}

#[test]
fn the_iommu() {
    let (root, _) = with_mlx5();
    let group = "sys/kernel/iommu_groups/12";
    root.link("sys/bus/pci/devices/0000:3b:00.0/iommu_group", group);
    assert_eq!(gather(&root).devices[0].iommu, Iommu::Translating(None));
    root.file(&format!("{group}/type"), "DMA-FQ");
    assert_snapshot!(brief(&gather(&root), Check::Iommu), @r#"note: translates (DMA-FQ) | sudo sed -i 's/^GRUB_CMDLINE_LINUX="/&iommu=pt /' /etc/default/grub && sudo update-grub"#);
    root.file(&format!("{group}/type"), "identity");
    assert_snapshot!(brief(&gather(&root), Check::Iommu), @"ok: passthrough | -");
}

/// An adapter whose port is as in `files`, on an interface with these flags and this carrier.
fn down(files: &PortFiles, flags: &str, carrier: &str) -> Root {
    let root = installed();
    let device = root.mlx5();
    root.port(&device, 1, files);
    let netdev = "sys/class/net/ens1f0np0";
    root.file(&format!("{netdev}/flags"), flags)
        .file(&format!("{netdev}/carrier"), carrier);
    root
}

#[test]
fn ports_that_carry_nothing() {
    let dead = PortFiles {
        state: "1: DOWN",
        phys_state: "3: Disabled",
        ..ROCE
    };
    let off = gather(&down(&dead, "0x1002", ""));
    assert_snapshot!(brief(&off, Check::PortState), @"broken: DOWN, Ethernet: ens1f0np0 is switched off | sudo ip link set ens1f0np0 up");
    let unplugged = gather(&down(&dead, "0x1003", "0"));
    assert_snapshot!(brief(&unplugged, Check::PortState), @"broken: DOWN, Ethernet: ens1f0np0 has no carrier | -");
    let odd = gather(&down(&dead, "0x1003", "1"));
    assert_snapshot!(brief(&odd, Check::PortState), @"broken: DOWN, Ethernet, though ens1f0np0 is up | sudo ip link set ens1f0np0 down && sudo ip link set ens1f0np0 up");
}

#[test]
fn infiniband_without_a_subnet_manager() {
    let with = |state, phys_state| {
        let files = PortFiles {
            state,
            phys_state,
            ..INFINIBAND
        };
        brief(&gather(&down(&files, "0x1003", "1")), Check::PortState)
    };
    assert_snapshot!(with("2: INIT", "5: LinkUp"), @"broken: INIT, InfiniBand, physically LinkUp | sudo apt install opensm");
    assert_snapshot!(with("1: DOWN", "2: Polling"), @"broken: DOWN, InfiniBand, physically Polling | -");
    assert_snapshot!(with("1: DOWN", "3: Disabled"), @"broken: DOWN, InfiniBand, physically Disabled | sudo ibportstate -C mlx5_0 -P 1 -D 0 1 enable");
}

#[test]
fn a_second_port_that_nobody_uses_is_not_broken() {
    let (root, device) = with_mlx5();
    let idle = PortFiles {
        state: "1: DOWN",
        phys_state: "2: Polling",
        ..INFINIBAND
    };
    root.port(&device, 2, &idle);
    let states = of(&gather(&root), Check::PortState);
    let verdicts: Vec<Verdict> = states.iter().map(|finding| finding.verdict).collect();
    assert_eq!(verdicts, [Verdict::Ok, Verdict::Warning]);
}

#[test]
fn addresses() {
    let root = installed();
    let device = root.mlx5();
    let netdev = "ens1f0np0";
    let port = root.port(&device, 1, &ROCE);
    assert_snapshot!(brief(&gather(&root), Check::Gid), @"broken: none in the table | sudo ip address add 192.168.90.1/24 dev ens1f0np0");
    root.roce_gid(&port, 0, LINK_LOCAL, "IB/RoCE v1", netdev)
        .roce_gid(&port, 1, LINK_LOCAL, "RoCE v2", netdev);
    assert_snapshot!(brief(&gather(&root), Check::Gid), @"warning: link-local only: no IP address on the interface | sudo ip address add 192.168.90.1/24 dev ens1f0np0");
    root.roce_gid(&port, 2, IPV4, "IB/RoCE v1", netdev);
    assert_snapshot!(brief(&gather(&root), Check::Gid), @"warning: RoCE v1 only, which routers do not forward | -");
    root.roce_gid(&port, 3, IPV4, "RoCE v2", netdev);
    assert_snapshot!(brief(&gather(&root), Check::Gid), @"ok: index 3, RoCE v2, 192.168.7.5 | -");
}

#[test]
fn packets() {
    let (root, _) = with_mlx5();
    let with = |mtu| {
        root.file("sys/class/net/ens1f0np0/mtu", mtu);
        brief(&gather(&root), Check::Mtu)
    };
    assert_snapshot!(with("1500"), @"note: 1500 B on ens1f0np0: path MTU 1024 B | sudo ip link set ens1f0np0 mtu 4200");
    assert_snapshot!(with("4200"), @"ok: 4200 B on ens1f0np0: path MTU 4096 B | -");
    assert_snapshot!(with("280"), @"broken: 280 B on ens1f0np0: no path MTU fits | sudo ip link set ens1f0np0 mtu 1500");
}

#[test]
fn the_user_space_device() {
    let root = installed();
    let mut machine = gather(&root);
    let mut with = |access, free, has_calls| {
        machine.shared_memory.dir = "/dev/shm".into();
        machine.shared_memory.access = access;
        machine.shared_memory.free = Some(free);
        (machine.process.has_membarrier, machine.process.has_pidfd) = (has_calls, has_calls);
        [Check::SharedMemory, Check::Membarrier, Check::Pidfd]
            .map(|check| brief(&machine, check))
            .join("\n")
    };
    assert_snapshot!(with(Access::Granted, Bytes::mib(32), true), @r"
    warning: 32 MiB free in /dev/shm | sudo mount -o remount,size=1G /dev/shm
    ok: the kernel has it | -
    ok: the kernel has it | -
    ");
    assert_snapshot!(with(Access::Granted, Bytes::kib(600), true), @r"
    broken: 600 KiB free in /dev/shm | sudo mount -o remount,size=1G /dev/shm
    ok: the kernel has it | -
    ok: the kernel has it | -
    ");
    assert_snapshot!(with(Access::Denied, Bytes::mib(32), true), @r"
    broken: /dev/shm is not writable | sudo chmod 1777 /dev/shm
    ok: the kernel has it | -
    ok: the kernel has it | -
    ");
    assert_snapshot!(with(Access::Missing, Bytes::new(0), false), @r"
    broken: no directory /dev/shm | sudo mount -t tmpfs -o mode=1777,X-mount.mkdir tmpfs /dev/shm
    broken: the kernel refuses it | -
    broken: the kernel refuses it | -
    ");
}

/// Opening the device failed where `doctor` found nothing.
#[test]
fn a_directory_that_the_user_space_device_refuses() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let root = installed();
    let dir = "dev/shm/adverb-1000@10.0.0.9-4026531999";
    root.file(&format!("{dir}/000.port"), "");
    let found = |uid, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(root.at(dir), permissions).unwrap();
        let mut machine = gather(&root);
        let owner = std::fs::metadata(root.at(dir)).unwrap().uid();
        if let Some(refused) = machine.shared_memory.refused.first_mut() {
            assert_eq!(refused.uid, owner);
            (refused.uid, refused.dir) = (uid, format!("/{dir}").into());
        }
        brief(&machine, Check::SharedMemory)
    };
    assert_snapshot!(found(1000, 0o755), @"broken: /dev/shm/adverb-1000@10.0.0.9-4026531999 (mode 755, uid 1000) is not a private directory of this user | chmod 700 /dev/shm/adverb-1000@10.0.0.9-4026531999");
    assert_snapshot!(found(0, 0o777), @"broken: /dev/shm/adverb-1000@10.0.0.9-4026531999 (mode 777, uid 0) is not a private directory of this user | sudo rm -r /dev/shm/adverb-1000@10.0.0.9-4026531999");
    root.remove(&format!("{dir}/000.port"));
    std::fs::remove_dir(root.at(dir)).unwrap();
    root.file(dir, "");
    assert_snapshot!(found(1000, 0o600), @"broken: /dev/shm/adverb-1000@10.0.0.9-4026531999 (uid 1000) is not a directory | rm /dev/shm/adverb-1000@10.0.0.9-4026531999");
}

/// The memory of processes in a deleted network namespace was never freed, and nothing showed it.
#[test]
fn memory_of_processes_that_have_ended() {
    let root = installed();
    let gone = "dev/shm/adverb-1000@10.0.0.9-4026531999";
    let alive = "dev/shm/adverb-1000";
    assert!(of(&gather(&root), Check::Leftovers).is_empty());
    root.file(&format!("{gone}/000.port"), "")
        .file(&format!("{gone}/000.m0"), &"x".repeat(3 << 20))
        .file(&format!("{alive}/000.port"), "");
    // As the process does that owns the port.
    let port = std::fs::File::open(root.at(&format!("{alive}/000.port"))).unwrap();
    rustix::fs::flock(&port, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let machine = gather(&root);
    let left: Vec<_> = machine
        .shared_memory
        .leftovers
        .iter()
        .map(|left| &left.dir)
        .collect();
    assert_eq!(left, [&root.at(gone)]);
    let found = brief(&machine, Check::Leftovers).replace(&root.path().display().to_string(), "");
    assert_snapshot!(found, @"note: 3 MiB of processes that have ended | rm -r /dev/shm/adverb-1000@10.0.0.9-4026531999");
}

#[test]
fn a_scope_leaves_the_rest_out() {
    let (root, _) = with_mlx5();
    let machine = gather(&root);
    let ids = |scope| {
        let findings = examine(&machine, &scope).unwrap();
        findings
            .iter()
            .map(|f| f.check.id())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_snapshot!(ids(Scope::Soft), @"cpu-governor shared-memory membarrier pidfd");
    assert_snapshot!(ids(Scope::Verbs("mlx5_0".to_owned())), @"memory-lock libibverbs librdmacm verbs-module connection-manager huge-pages transparent-huge-pages cpu-governor provider device-file pcie-link iommu numa-node port-state gid mtu");
    let unknown = |machine| examine(machine, &Scope::Verbs("mlx5_9".to_owned())).unwrap_err();
    assert_snapshot!(unknown(&machine), @"unknown RDMA device 'mlx5_9': choose from mlx5_0");
    assert_snapshot!(unknown(&gather(&Root::new())), @"unknown RDMA device 'mlx5_9': the kernel has none (`adverb doctor` shows how to add one)");
}

#[test]
fn findings_as_json() {
    let (root, _) = with_mlx5();
    let mut machine = gather(&root);
    machine.devices[0].file = Access::Denied;
    let findings = of(&machine, Check::DeviceFile);
    assert_snapshot!(serde_json::to_string_pretty(&findings[0]).unwrap(), @r#"
    {
      "id": "device-file",
      "subject": {
        "kind": "device",
        "device": "mlx5_0"
      },
      "verdict": "broken",
      "found": "/dev/infiniband/uverbs0: permission denied",
      "why": "programs open the device by opening this file for reading and writing",
      "remedies": [
        {
          "run": {
            "command": "sudo chmod 0666 /dev/infiniband/uverbs0"
          }
        },
        {
          "run": {
            "command": "sudo apt install rdma-core",
            "system": "Debian"
          }
        },
        {
          "run": {
            "command": "sudo dnf install rdma-core",
            "system": "RHEL"
          }
        },
        {
          "advice": "rdma-core's udev rules set 0666 from the next start on"
        }
      ]
    }
    "#);
}

#[test]
fn names_of_checks_are_unique() {
    let mut ids: Vec<&str> = Check::ALL.iter().map(|check| check.id()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), Check::ALL.len());
}

/// Commands for a user have `sudo`, commands for root do not.
#[test]
fn root_needs_no_sudo() {
    let (root, _) = with_mlx5();
    root.remove("dev/infiniband/rdma_cm");
    let mut machine = gather(&root);
    assert!(brief(&machine, Check::ConnectionManager).ends_with("| sudo modprobe rdma_ucm"));
    machine.process.uid = 0;
    assert!(brief(&machine, Check::ConnectionManager).ends_with("| modprobe rdma_ucm"));
}
