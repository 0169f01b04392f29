//! Replays what fuzzing has found (`scripts/fuzz`), and tries hostile networks of random seeds.

use std::path::Path;

use crate::harness::hostile::Hostile;
use crate::harness::target;

/// Runs every input that was kept for a target.
fn replay(name: &str, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus");
    let inputs = std::fs::read_dir(folder.join(name)).expect("the corpus is in the repository");
    let mut count = 0;
    for input in inputs {
        let path = input.unwrap().path();
        let data = std::fs::read(&path).unwrap();
        println!("{}", path.display());
        run(&data);
        count += 1;
    }
    assert!(count >= 20, "{count} inputs in {name}");
}

#[test]
fn operations_that_fuzzing_found() {
    replay("operations", target::operations);
}

#[test]
fn hostile_packets_that_fuzzing_found() {
    replay("hostile", target::hostile);
}

#[test]
fn hostile_networks_of_random_seeds() {
    for seed in 0..2000 {
        println!("seed {seed}");
        Hostile::new(crate::lab::Random::new(seed)).run(150);
    }
}
