//! Ways in which programs find libibverbs and librdmacm: all of them lead to the library, and no export is missing.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{assert_empty, compiled_to, installed, library, not_run, over_adverb, printed};

#[test]
fn each_way_to_find_libibverbs_leads_to_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let built =
        |name: &str, arguments| compiled_to("binding.c", folder.path().join(name), arguments);
    let Some(linked) = built("linked", "-DPROGRAM -libverbs") else {
        return;
    };
    let plain = built("plain", "-ldl").unwrap();
    // As UCX's modules and DPDK's drivers: linked with the libraries of providers, whose private symbols are bound at once.
    let module = "-DMODULE -shared -fPIC -Wl,-z,now -lmlx5 -lefa -libverbs";
    let module = built("module.so", module).unwrap();
    let module = module.to_str().unwrap();
    let shared = folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let ways: [&[&str]; 4] = [
        &["opened"],
        &["versioned"],
        &["module", "none", module],
        &["module", "deepbind", module],
    ];
    let mut runs: Vec<_> = [&linked, &plain]
        .iter()
        .flat_map(|program| ways.map(|way| (*program, way)))
        .collect();
    runs.push((&linked, &["linked"]));
    for (program, way) in runs {
        let mut command = over_adverb(program, &shared);
        command.args(way).env("ADVERB_RUN_ADDRESS", "127.41.0.6");
        let text = printed(&command.output().unwrap());
        let is_ours = text.lines().all(|line| line == "adverb0");
        assert!(is_ours && !text.is_empty(), "{program:?} {way:?}: {text}");
    }
    assert_empty(&shared);
}

#[test]
fn python_opens_the_library_by_its_name() {
    let Some(python) = installed("python3", "python3") else {
        return;
    };
    let script = "import ctypes as c; l = c.CDLL('libibverbs.so.1'); n = c.c_int(); \
                  l.ibv_get_device_list(c.byref(n)); print(n.value)";
    let folder = tempfile::tempdir().unwrap();
    let mut command = over_adverb(python, folder.path());
    let text = printed(&command.args(["-c", script]).output().unwrap());
    assert_eq!(text, "1\n");
}

/// Symbols that later versions of rdma-core have in addition to version 44's: up to version 64.
const LATER: &str = "ibv_alloc_dmah ibv_dealloc_dmah ibv_reg_mr_ex ibv_dm_export_dmabuf_fd ibv_query_port_speed \
    ibv_alloc_buf ibv_free_buf ibv_reg_buf_mr rdma_query_addrinfo rdma_resolve_addrinfo rdma_write_cm_event";

/// Conversions of the kernel's structures, which are public by name only, for rdma-core's other libraries. They need no
/// device, so programs use rdma-core's.
const CONVERSIONS: &str = "ibv_copy_ah_attr_from_kern ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern \
    ibv_copy_qp_attr_from_kern";

/// Returns the symbols that `nm` finds in a library, with their versions; `None` if it is missing.
fn symbols(library: &Path) -> Option<BTreeSet<String>> {
    let mut nm = Command::new("nm");
    let output = nm
        .args(["-D", "--defined-only", "--with-symbol-versions"])
        .arg(library)
        .output();
    let Ok(output) = output else {
        not_run(
            "the exports of the library",
            "nm is missing (package binutils)",
        );
        return None;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let last = |line: &str| line.split_whitespace().last().map(str::to_owned);
    Some(text.lines().filter_map(last).collect())
}

/// Returns the path that the dynamic linker finds for a library.
fn found_by_linker(name: &str) -> Option<PathBuf> {
    let list = Command::new("/sbin/ldconfig").arg("-p").output().ok()?;
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let line = list.lines().find(|line| line.trim().starts_with(name))?;
    line.rsplit(' ').next().map(PathBuf::from)
}

/// A public symbol that is missing here is bound to rdma-core's library, which crashes on our objects.
#[test]
fn every_public_symbol_of_rdma_core_is_exported() {
    let Some(ours) = symbols(&library()) else {
        return;
    };
    let mut wanted: BTreeSet<String> = LATER.split_whitespace().map(str::to_owned).collect();
    for name in ["libibverbs.so.1", "librdmacm.so.1"] {
        let Some(theirs) = found_by_linker(name) else {
            not_run("the exports of the library", &format!("{name} is missing"));
            continue;
        };
        let theirs = symbols(&theirs).unwrap();
        let public = theirs.iter().filter_map(|symbol| {
            let (symbol, version) = symbol.split_once('@')?;
            let is_node = symbol.starts_with("IBVERBS_") || symbol.starts_with("RDMACM_");
            (!version.contains("PRIVATE") && !is_node).then(|| symbol.to_owned())
        });
        wanted.extend(public);
    }
    let left = CONVERSIONS.split_whitespace().collect::<BTreeSet<_>>();
    let missing: Vec<_> = wanted
        .iter()
        .filter(|symbol| !ours.contains(*symbol) && !left.contains(symbol.as_str()))
        .collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
}
