//! `adverb sync`: CPU's and NIC's updates of one word.

use crate::common::Place;
use serde_json::Value;

/// The records of all four kinds of updates, in order: none, cpu, loopback, plain.
fn words(line: &str) -> Vec<Value> {
    let ended = Place::new().run(&format!("sync {line} --json")).ok();
    let words = ended
        .json()
        .into_iter()
        .map(|record| record["metrics"]["word"].clone());
    words.collect()
}

fn number(word: &Value, path: &str) -> f64 {
    let value = word.pointer(path).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("{path} in {word}"))
}

/// The user-space device adds by the CPU's atomic instructions, on its local port and on UDP.
#[test]
fn the_user_space_device_and_the_cpu_lose_no_update_of_a_word() {
    for device in ["soft", "soft@127.48.1.1,soft@127.48.1.2"] {
        let words = words(&format!(
            "--device {device} --duration 100ms --clients 2 --outstanding 4"
        ));
        let [none, cpu, loopback, plain] = &words[..] else {
            panic!("{words:?}");
        };
        for word in [none, cpu, loopback] {
            assert_eq!(word["lost"], 0, "{device}: {word}");
            assert!(number(word, "/remote/updates_per_s") > 0.0, "{word}");
        }
        assert_eq!(none["local"]["each_ns"], Value::Null);
        // On a busy machine the few updates by loopback have no sampled latency.
        let of_the_cpu = |word| number(word, "/local/updates_per_s");
        assert!(of_the_cpu(cpu) > of_the_cpu(loopback), "{words:?}");
        // A load and a store are no atomic update: that they lose some shows that losses are found.
        assert!(number(plain, "/lost") > 0.0, "{device}: {plain}");
    }
}

#[test]
fn a_model_predicts_the_price_of_loopback_and_cannot_tell_what_mixing_loses() {
    let device = "--device model:cx3_fdr_nurdma";
    let words = words(&format!("{device} --clients 4 --threads 4"));
    let lost: Vec<&Value> = words.iter().map(|word| &word["lost"]).collect();
    assert_eq!(
        lost,
        [&Value::from(0), &Value::Null, &Value::from(0), &Value::Null]
    );
    assert!(number(&words[2], "/local/each_ns") > 1000.0, "{words:?}");
    let said = Place::new().run(&format!("sync {device}")).ok().out;
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("no published value says what this adapter reports"),
        "{said}"
    );
    assert!(
        said.contains("This model cannot tell how many updates mixing loses"),
        "{said}"
    );
}

#[test]
fn one_sentence_says_what_to_do() {
    let said = Place::new()
        .run("sync --local cpu --duration 50ms")
        .ok()
        .out;
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("soft reports IBV_ATOMIC_GLOB"), "{said}");
    assert!(
        said.contains("was lost: the CPU may update the word itself."),
        "{said}"
    );
}

#[test]
fn what_has_no_atomics_is_refused() {
    let refused = |line: &str| Place::new().run(line).refused(2).to_owned();
    insta::assert_snapshot!(refused("sync --device tcp"), @"error: tcp: TCP has no atomic operations; name an RDMA device");
    insta::assert_snapshot!(refused("sync --local by-hand"), @"error: invalid --local 'by-hand': expected none, cpu, loopback or plain");
    insta::assert_snapshot!(refused("sync --duration 0"), @"error: --duration 0: nothing can be measured in no time");
    let many = refused("sync --local cpu --threads 1024 --duration 10ms");
    assert!(many.contains("1024 workers exceed the"), "{many}");
}
