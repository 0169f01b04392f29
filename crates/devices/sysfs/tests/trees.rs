//! Trees of real devices, read.

mod fixture;

use std::net::Ipv4Addr;

use adverb_sysfs::{Driver, NodeType, PhysState, PortState, Sysfs, SysfsError};
use adverb_units::Bytes;
use adverb_verbs::{Gid, GidType, Lid, LinkLayer, PortNum};
use fixture::{INFINIBAND, LINK_LOCAL, PortFiles, ROCE, Root};

fn only(root: &Root) -> adverb_sysfs::RdmaDevice {
    let mut devices = Sysfs::at(root.path()).devices().unwrap();
    assert_eq!(devices.len(), 1);
    devices.remove(0)
}

#[test]
fn a_machine_without_the_class_has_no_devices() {
    let root = Root::new();
    assert_eq!(Sysfs::at(root.path()).devices().unwrap(), []);
    assert_eq!(Sysfs::at(root.path()).device("mlx5_0").unwrap(), None);
}

#[test]
fn a_roce_adapter() {
    let root = Root::new();
    root.mlx5();
    let device = only(&root);
    assert_eq!(
        device.driver,
        Some(Driver::Hardware("mlx5_core".to_owned()))
    );
    assert_eq!(device.pci.unwrap().to_string(), "0000:3b:00.0");
    assert_eq!(device.numa_node, Some(1));
    assert_eq!(device.fw_version.as_deref(), Some("22.38.1002"));
    assert_eq!(device.board_id.as_deref(), Some("MT_0000000359"));
    assert_eq!(device.node_guid, "0c42:a103:00a5:0e1c");
    assert_eq!(device.uverbs.as_deref(), Some("uverbs0"));
    assert!(device.node_type.is(NodeType::ChannelAdapter));
    assert!(!device.pci_link.unwrap().is_reduced());

    let port = device.port(PortNum::ONE).unwrap();
    assert!(port.state.is(PortState::Active));
    assert!(port.phys_state.as_ref().unwrap().is(PhysState::LinkUp));
    assert!(port.link_layer.is(LinkLayer::Ethernet));
    assert_eq!(
        port.rate.as_ref().unwrap().bits_per_second(),
        100_000_000_000
    );
    assert_eq!(port.netdev.as_deref(), Some("ens1f0np0"));
    let kinds = port
        .gids
        .iter()
        .map(|e| e.gid_type.as_ref().unwrap().known().unwrap());
    let (v1, v2) = (GidType::RoceV1, GidType::RoceV2);
    assert_eq!(kinds.collect::<Vec<_>>(), [v1, v2, v1, v2]);
    assert_eq!(port.gids[3].index, 3);
    assert_eq!(
        port.gids[3].gid,
        Gid::from_ipv4(Ipv4Addr::new(192, 168, 7, 5))
    );
    assert_eq!(port.gids[3].netdev.as_deref(), Some("ens1f0np0"));

    let sysfs = Sysfs::at(root.path());
    let quick = sysfs.device_without_gids(&device.name).unwrap().unwrap();
    assert_eq!(quick.ports[0].gids, port.gids[..1]);
    let mut whole = quick;
    whole.ports.clone_from(&device.ports);
    assert_eq!(whole, device);
    assert_eq!(sysfs.driver(&device.name).unwrap(), device.driver);
    assert_eq!(sysfs.driver("mlx9_9").unwrap(), None);

    let netdev = Sysfs::at(root.path()).netdev("ens1f0np0").unwrap().unwrap();
    assert!(netdev.is_up && netdev.carrier == Some(true));
    assert_eq!(netdev.mtu, Bytes::new(9000));
    assert_eq!(netdev.address.unwrap().to_string(), "0c:42:a1:a5:0e:1c");
    assert_eq!(Sysfs::at(root.path()).netdev("eth9").unwrap(), None);
}

#[test]
fn an_infiniband_adapter_with_a_port_down() {
    let root = Root::new();
    let pci = root.pci("0000:05:00.0", "mlx4_core", "-1");
    root.netdev("ibp5s0", &pci, "2044");
    let dir = root.rdma("mlx4_0", &pci, "1: CA", "0002:c903:000b:8aac");
    root.link(&format!("{dir}/device"), &pci);
    let port = root.port(&dir, 1, &INFINIBAND);
    root.gid(
        &port,
        0,
        "fe80:0000:0000:0000:0002:c903:000b:8aad",
        "IB/RoCE v1",
    );
    root.gid(
        &port,
        1,
        "fe80:0000:0000:0000:0000:0000:0000:0000",
        "IB/RoCE v1",
    );
    let down = PortFiles {
        state: "1: DOWN",
        phys_state: "2: Polling",
        lid: "0x0",
        ..INFINIBAND
    };
    root.port(&dir, 2, &down);

    let device = only(&root);
    assert_eq!((device.numa_node, device.uverbs.as_deref()), (None, None));
    let [one, two] = &device.ports[..] else {
        panic!("{:?}", device.ports)
    };
    assert!(one.link_layer.is(LinkLayer::InfiniBand));
    assert_eq!(one.lid, Lid(0x2a));
    assert_eq!(one.gids.len(), 1);
    assert!(
        one.gids[0]
            .gid_type
            .as_ref()
            .unwrap()
            .is(GidType::InfiniBand)
    );
    assert_eq!(one.netdev.as_deref(), Some("ibp5s0"));
    assert!(two.state.is(PortState::Down));
    assert!(two.phys_state.as_ref().unwrap().is(PhysState::Polling));
    assert_eq!(two.netdev, None);
}

#[test]
fn soft_roce_has_no_place_on_a_bus() {
    let root = Root::new();
    root.rxe("eth0");
    let device = only(&root);
    assert_eq!(device.driver, Some(Driver::Rxe));
    assert_eq!(
        (device.pci, device.numa_node, device.pci_link),
        (None, None, None)
    );
    assert_eq!(device.fw_version, None);
    assert_eq!(device.ports[0].netdev.as_deref(), Some("eth0"));
    assert_eq!(device.ports[0].gids.len(), 2);
}

#[test]
fn soft_iwarp_does_not_pass_for_the_hardware_below_it() {
    let root = Root::new();
    let pci = root.pci("0000:02:00.0", "e1000e", "0");
    root.netdev("eno1", &pci, "1500");
    let dir = root.rdma("siw0", &pci, "4: RNIC", "5254:00ff:fe12:3456");
    root.link(&format!("{dir}/device"), &pci);
    let port = root.port(&dir, 1, &ROCE);
    root.gid(&port, 0, LINK_LOCAL, "IB/RoCE v1");

    let device = only(&root);
    assert_eq!(device.driver, Some(Driver::Siw));
    assert_eq!((device.pci, device.numa_node), (None, None));
    let port = &device.ports[0];
    assert!(port.link_layer.is(LinkLayer::Iwarp));
    assert_eq!(port.gids[0].gid_type, None);
    assert_eq!(port.netdev.as_deref(), Some("eno1"));
}

#[test]
fn counters_are_numbers_and_a_folder_stands_in_front_only_where_names_meet() {
    let root = Root::new();
    let device = root.mlx5();
    let sysfs = Sysfs::at(root.path());
    let names = |counters: adverb_verbs::Counters| counters.into_keys().collect::<Vec<_>>();
    assert_eq!(
        sysfs.counters("mlx5_0", PortNum::ONE).unwrap(),
        [
            ("port_rcv_data", 417),
            ("port_xmit_data", 8812),
            ("rnr_nak_retry_err", 2)
        ]
        .map(|(name, n)| (name.to_owned(), n))
        .into()
    );

    root.file(&format!("{device}/hw_counters/rnr_nak_retry_err"), "3");
    assert_eq!(
        names(sysfs.counters("mlx5_0", PortNum::ONE).unwrap()),
        [
            "device/hw_counters/rnr_nak_retry_err",
            "hw_counters/rnr_nak_retry_err",
            "port_rcv_data",
            "port_xmit_data",
        ]
    );
}

#[test]
fn unknown_words_survive() {
    let root = Root::new();
    let dir = root.rdma(
        "new0",
        "sys/devices/virtual",
        "9: Quantum",
        "0000:0000:0000:0000",
    );
    let strange = PortFiles {
        state: "7: SUPERPOSED",
        link_layer: "Entangled",
        ..ROCE
    };
    let port = root.port(&dir, 1, &strange);
    root.gid(&port, 0, LINK_LOCAL, "RoCE v3");
    let device = only(&root);
    assert_eq!(device.node_type.to_string(), "9: Quantum");
    assert_eq!(device.driver, None);
    assert_eq!(device.ports[0].state.to_string(), "7: SUPERPOSED");
    assert_eq!(device.ports[0].link_layer.to_string(), "Entangled");
    let kind = device.ports[0].gids[0].gid_type.as_ref().unwrap();
    assert_eq!(kind.to_string(), "RoCE v3");
}

#[test]
fn strange_content_names_the_file() {
    let root = Root::new();
    let device = root.mlx5();
    root.file(&format!("{device}/ports/1/lid"), "many");
    let error = Sysfs::at(root.path()).devices().unwrap_err();
    assert!(matches!(error, SysfsError::Content { .. }));
    let path = root.at("sys/class/infiniband/mlx5_0/ports/1/lid");
    let said = format!("{} contains 'many': expected a LID", path.display());
    assert_eq!(error.to_string(), said);
}

#[test]
fn a_missing_file_that_every_device_has_is_named() {
    let root = Root::new();
    let device = root.mlx5();
    root.remove(&format!("{device}/node_type"));
    let error = Sysfs::at(root.path()).device("mlx5_0").unwrap_err();
    assert!(
        error.to_string().ends_with("infiniband/mlx5_0/node_type"),
        "{error}"
    );
}
