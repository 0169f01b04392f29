//! Every mirrored structure, member and constant against the installed headers: a C program
//! prints what the compiler of this machine makes of them.
//!
//! `ADVERB_RDMA_CORE=FOLDER` compares with another version of the headers, `infiniband/verbs.h` and `rdma/rdma_cma.h` in
//! that folder. Versions before 44 do not compile, because they have no members for later features.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use adverb_abi::{CONSTANTS, LAYOUTS, Layout};

/// Names that cannot be the same in Rust: `priv` and `type` are reserved.
fn c_name(field: &str) -> &str {
    match field {
        "priv_" => "priv",
        "type_" => "type",
        other => other,
    }
}

/// How later versions of the headers may change a structure.
enum Growth {
    /// Not at all.
    None,
    /// By members at its end: the size is of no meaning.
    AtTheEnd,
    /// By members at its beginning: places count from the end.
    AtTheBeginning,
}

fn growth(c: &str) -> Growth {
    match c {
        "struct ibv_port_attr"
        | "struct ibv_qp_ex"
        | "struct ibv_cq_ex"
        | "struct ibv_qp_init_attr_ex"
        | "struct ibv_device_attr_ex" => Growth::AtTheEnd,
        "struct verbs_context" => Growth::AtTheBeginning,
        _ => Growth::None,
    }
}

/// What the C program has to print.
fn expected() -> String {
    let mut text = String::new();
    for Layout { c, size, fields } in layouts() {
        let growth = growth(c);
        if matches!(growth, Growth::None) {
            let _ = writeln!(text, "{c} {size}");
        }
        for field in *fields {
            let name = c_name(field.name);
            let place = match growth {
                Growth::AtTheBeginning => size - field.offset,
                _ => field.offset,
            };
            let _ = writeln!(text, "{c} {name} {place} {}", field.size);
        }
    }
    for constant in CONSTANTS {
        let _ = writeln!(text, "{} {}", constant.name, constant.value);
    }
    text
}

fn layouts() -> impl Iterator<Item = &'static Layout> {
    LAYOUTS.into_iter().flatten()
}

/// The C program.
fn program() -> String {
    let mut text = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n\
         #include <rdma/rdma_cma.h>\nint main(void) {\n",
    );
    for Layout { c, fields, .. } in layouts() {
        let growth = growth(c);
        if matches!(growth, Growth::None) {
            let _ = writeln!(text, "printf(\"{c} %zu\\n\", sizeof({c}));");
        }
        for field in *fields {
            let name = c_name(field.name);
            let base = match growth {
                Growth::AtTheBeginning => format!("sizeof({c}) -"),
                _ => String::new(),
            };
            let place = format!("{base} offsetof({c}, {name})");
            let size = format!("sizeof((({c} *)0)->{name})");
            let _ = writeln!(text, "printf(\"{c} {name} %zu %zu\\n\", {place}, {size});");
        }
    }
    for constant in CONSTANTS {
        let name = constant.name;
        let _ = writeln!(text, "printf(\"{name} %lld\\n\", (long long){name});");
    }
    text + "return 0; }\n"
}

/// Says past the test harness what could not be done.
fn not_run(reason: &str) {
    use std::io::Write as _;
    let _ = writeln!(
        std::io::stderr(),
        "\nNOT RUN: layouts against the C headers: {reason}"
    );
}

/// Returns the output of the C program; `None` if this machine cannot compile it.
fn printed_by_c(source: &Path) -> Option<String> {
    let program = source.with_extension("");
    let mut cc = Command::new("cc");
    if let Some(folder) = std::env::var_os("ADVERB_RDMA_CORE") {
        cc.arg("-I").arg(folder);
    }
    let compiled = cc.args([source, "-o".as_ref(), &program]).output();
    let compiled = match compiled {
        Ok(output) => output,
        Err(error) => {
            not_run(&format!("cc: {error} (package gcc)"));
            return None;
        }
    };
    let complaint = String::from_utf8_lossy(&compiled.stderr);
    if complaint.contains("No such file or directory") {
        let missing = complaint.lines().next().unwrap_or_default();
        not_run(&format!(
            "{missing} (packages libibverbs-dev, librdmacm-dev)"
        ));
        return None;
    }
    assert!(compiled.status.success(), "the C program: {complaint}");
    let output = Command::new(&program).output().expect("run the C program");
    Some(String::from_utf8(output.stdout).expect("ASCII"))
}

#[test]
fn every_member_lies_where_the_c_compiler_puts_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("layout.c");
    std::fs::write(&source, program()).expect("write the C program");
    let Some(printed) = printed_by_c(&source) else {
        return;
    };
    let expected = expected();
    let differing: Vec<_> = expected
        .lines()
        .zip(printed.lines())
        .filter(|(here, there)| here != there)
        .map(|(here, there)| format!("here: {here}\n   C: {there}"))
        .collect();
    assert!(differing.is_empty(), "\n{}", differing.join("\n"));
    assert_eq!(expected.lines().count(), printed.lines().count());
}
