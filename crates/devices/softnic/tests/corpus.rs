//! Replays what fuzzing has found (`scripts/fuzz port`).

mod common;
mod hostile;

use std::path::Path;

use common::{Random, isolated};
use hostile::Lab;

#[test]
fn datagrams_that_fuzzing_found() {
    isolated("datagrams_that_fuzzing_found", || {
        let lab = Lab::new(201);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/port");
        let inputs = std::fs::read_dir(folder).expect("the corpus is in the repository");
        let mut paths: Vec<_> = inputs.map(|input| input.unwrap().path()).collect();
        paths.sort();
        assert!(paths.len() >= 20, "{} inputs", paths.len());
        for path in paths {
            println!("{}", path.display());
            lab.run(&std::fs::read(&path).unwrap());
        }
    });
}

#[test]
fn datagrams_of_seeds() {
    isolated("datagrams_of_seeds", || {
        let lab = Lab::new(202);
        for seed in 0..300 {
            println!("seed {seed}, packets from {}", lab.peer());
            lab.run(&Random(seed).bytes(400));
        }
    });
}
