//! `ibv_devices` and `ibv_devinfo` of rdma-core list the configured devices.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use common::{compiled, installed, over_adverb, printed};

const PACKAGE: &str = "ibverbs-utils";

#[test]
fn ibv_devices_lists_the_configured_devices() {
    let Some(program) = installed("ibv_devices", PACKAGE) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let list = |devices: &str| {
        let mut command = over_adverb(&program, folder.path());
        let output = command.env("ADVERB_RUN_DEVICES", devices).output().unwrap();
        let text = printed(&output);
        let rows = text
            .lines()
            .skip(2)
            .map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "));
        rows.collect::<Vec<_>>()
    };
    assert_eq!(list(""), ["adverb0 02adfe007f000001"]);
    assert_eq!(
        list("a,b=127.0.0.2"),
        ["a 02adfe007f000001", "b 02adfe017f000002"]
    );
}

#[test]
fn ibv_devinfo_shows_an_active_roce_port() {
    let Some(program) = installed("ibv_devinfo", PACKAGE) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut command = over_adverb(program, folder.path());
    let output = command
        .arg("-v")
        .env("ADVERB_RUN_ADDRESS", "127.0.0.5")
        .env("ADVERB_RUN_MTU", "1024")
        .output();
    let text = printed(&output.unwrap());
    let rows: Vec<_> = text
        .lines()
        .map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for row in [
        "hca_id: adverb0",
        "state: PORT_ACTIVE (4)",
        "active_mtu: 1024 (3)",
        "port_lid: 5",
        "link_layer: Ethernet",
        "GID[ 0]: ::ffff:127.0.0.5, RoCE v2",
    ] {
        assert!(
            rows.iter().any(|found| found == row),
            "no row '{row}' in\n{text}"
        );
    }
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "files remain"
    );
}

#[test]
fn an_invalid_variable_is_named_on_stderr_and_there_is_no_device() {
    let Some(program) = installed("ibv_devices", PACKAGE) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let output = over_adverb(program, folder.path())
        .env("ADVERB_RUN_ADDRESS", "here")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let expected =
        "adverb: invalid ADVERB_RUN_ADDRESS 'here': expected an IP address of this host\n";
    assert!(errors.starts_with(expected), "{errors}");
    assert!(!output.status.success());
}

// Programs such as perftest look at the number alone, and crashed on the list that was not there.
#[test]
fn a_refused_device_list_has_no_entries() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("no_devices.c", folder.path()) else {
        return;
    };
    let output = over_adverb(program, folder.path())
        .env("ADVERB_RUN_ADDRESS", "here")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "(nil) 0\n");
}

#[test]
fn programs_find_the_files_of_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let program = installed(program, "coreutils").unwrap();
        let mut command = over_adverb(program, folder.path());
        printed(&command.args(arguments).output().unwrap())
    };
    let device = "/sys/class/infiniband/adverb0";
    let types = format!("{device}/ports/1/gid_attrs/types/0");
    assert_eq!(run("cat", &[&types]), "RoCE v2\n");
    let file = "/dev/infiniband/uverbs_adverb0";
    for (kind, path) in [("-c", file), ("-d", device), ("-f", &types)] {
        run("test", &[kind, path]);
    }
    let parent = "/sys/devices/platform/adverb.0";
    let link = "../../devices/platform/adverb.0/infiniband/adverb0";
    let gids = format!("{device}/ports/1/gids");
    for (program, arguments, expected) in [
        ("ls", &["/sys/class/infiniband"][..], "adverb0"),
        ("ls", &["/dev/infiniband/"], "uverbs_adverb0"),
        ("ls", &[&gids], "0\n1\n2\n3"),
        ("readlink", &[device], link),
        ("readlink", &["-f", &format!("{device}/device")], parent),
        ("realpath", &[&format!("{device}/../..")], parent),
        ("stat", &["-c", "%F", device], "symbolic link"),
        ("stat", &["-c", "%F", &types], "regular file"),
    ] {
        assert_eq!(run(program, arguments), format!("{expected}\n"));
    }
    // Their classes are listed with the kernel's.
    let classes = run("ls", &["/sys/class"]);
    let is_listed = |class: &&str| classes.lines().any(|listed| listed == *class);
    assert!(
        ["infiniband", "infiniband_verbs", "net"]
            .iter()
            .all(is_listed),
        "{classes}"
    );
    // Nobody else sees them.
    assert!(!std::path::Path::new(file).exists());
}

#[test]
fn looking_for_a_file_of_the_kernel_allocates_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("allocator.c", folder.path()) else {
        return;
    };
    let status = over_adverb(program, folder.path()).status().unwrap();
    assert_eq!(status.code(), Some(1));
}
