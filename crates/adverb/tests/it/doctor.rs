//! `doctor` on this machine, whatever it has: what holds on every machine.

use crate::common::Place;
use serde_json::Value;

/// The findings of `doctor --json` with these further arguments.
fn findings(place: &Place, args: &str) -> (Value, Vec<Value>) {
    let ended = place.run(&format!("doctor --json {args}"));
    assert_eq!(ended.talk, "");
    let objects = ended.json();
    assert_eq!(objects.len(), 1, "{}", ended.out);
    let object = objects.into_iter().next().unwrap();
    let broken = object["broken"].as_u64().unwrap();
    assert_eq!(ended.code, Some(i32::from(broken > 0)), "{object}");
    let findings = object["findings"].as_array().unwrap().clone();
    (object, findings)
}

fn with_id<'f>(findings: &'f [Value], id: &str) -> Vec<&'f Value> {
    findings.iter().filter(|f| f["id"] == id).collect()
}

fn has_rdma() -> bool {
    std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
}

#[test]
fn the_user_space_device_is_well_where_it_measures() {
    let place = Place::new();
    place.run("ping --op send --iters 50").ok();
    let (object, findings) = findings(&place, "--device soft");
    assert_eq!(object["broken"], 0, "{object}");
    let shm = with_id(&findings, "shared-memory");
    assert_eq!(shm.len(), 1);
    let found = shm[0]["found"].as_str().unwrap();
    assert!(found.contains(place.shm().to_str().unwrap()), "{found}");
    let text = place.run("doctor --device soft").ok().out;
    assert!(text.starts_with("machine\n"), "{text}");
    assert!(text.trim_end().ends_with("ready: soft"), "{text}");
}

#[test]
fn a_missing_shared_memory_is_broken() {
    let place = Place::new();
    let mut command = place.command("doctor --device soft");
    let ended: crate::common::Ended = command
        .env("ADVERB_SHM", "/nowhere")
        .output()
        .unwrap()
        .into();
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.out.contains("broken   shared-memory"),
        "{}",
        ended.out
    );
    assert!(ended.out.contains("no directory /nowhere"), "{}", ended.out);
    assert!(
        ended.out.ends_with("fix what is broken first\n"),
        "{}",
        ended.out
    );
}

#[test]
fn a_machine_without_rdma_devices_hears_how_to_get_one() {
    if has_rdma() {
        return crate::common::not_run("doctor without RDMA devices", "this machine has some");
    }
    let place = Place::new();
    let (object, findings) = findings(&place, "");
    assert_eq!(object["broken"], 0, "{object}");
    assert_eq!(object["warnings"], judged(&findings, "warning"));
    let none = with_id(&findings, "rdma-devices");
    assert_eq!(none.len(), 1);
    assert_eq!(none[0]["verdict"], "note");
    let command = none[0]["remedies"][0]["run"]["command"].as_str().unwrap();
    assert!(
        command.contains("rdma link add rxe0 type rxe netdev"),
        "{command}"
    );
}

fn judged(findings: &[Value], verdict: &str) -> usize {
    findings.iter().filter(|f| f["verdict"] == verdict).count()
}

#[test]
fn colours_are_for_terminals() {
    let place = Place::new();
    let plain = place.run("doctor --device soft").ok().out;
    assert!(!plain.contains('\u{1b}'), "{plain}");
    let colored = place.run("--color always doctor --device soft").ok().out;
    assert!(colored.contains("\u{1b}[32mok"), "{colored}");
}

#[test]
fn devices_that_cannot_be_are_refused() {
    let place = Place::new();
    let refused = |device: &str| {
        let ended = place.run(&format!("doctor --device {device}"));
        ended.refused(2).to_owned()
    };
    insta::assert_snapshot!(refused("mlx5_0"), @"error: --device: invalid device 'mlx5_0': expected soft, soft@ADDR, verbs:NAME[:PORT[:GID]], model:PRESET or tcp (see `adverb devices`)");
    insta::assert_snapshot!(refused("verbs:"), @"error: --device 'verbs:': invalid device '': expected NAME[:PORT[:GID]], such as mlx5_0:1:3; ibv_devices lists the names");
    assert!(refused("verbs:no-such").starts_with("error: --device: unknown RDMA device 'no-such'"),);
}

#[test]
fn the_page_describes_every_check() {
    let path = format!("{}/../../docs/doctor.md", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    for check in adverb_doctor::Check::ALL {
        let row = format!("| `{}` | {} |", check.id(), check.why());
        assert!(page.contains(&row), "docs/doctor.md lacks: {row}");
    }
}
