//! Tells optimised builds where Cargo has built the library that `adverb run` preloads, so that they contain it. Others
//! find it next to the program; in them, incremental compilation would keep an old one.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(embed_preload)");
    let variable = |name| std::env::var(name).expect("Cargo sets it");
    if variable("PROFILE") == "release" {
        let out = variable("OUT_DIR");
        println!("cargo::rustc-cfg=embed_preload");
        // OUT_DIR is <profile>/build/<package>/out.
        println!(
            "cargo::rustc-env=ADVERB_PRELOAD_LIBRARY={out}/../../../deps/libadverb_preload.so"
        );
    }
}
