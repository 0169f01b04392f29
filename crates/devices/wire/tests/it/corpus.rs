//! Replays what fuzzing has found (`scripts/fuzz`).

use std::path::Path;

#[test]
fn packets_that_fuzzing_found() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/packet");
    let inputs = std::fs::read_dir(folder).expect("the corpus is in the repository");
    let mut count = 0;
    for input in inputs {
        let path = input.unwrap().path();
        println!("{}", path.display());
        crate::target::packet(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= 20, "{count} inputs");
}
