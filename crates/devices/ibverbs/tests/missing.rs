//! Errors if there is no device, or an unknown one is named.

use adverb_ibverbs::{ListError, VerbsDevice, devices};
use adverb_verbs::Device;

/// On machines with and without RDMA, the call returns the devices or what is missing.
#[test]
fn a_missing_device_is_named_with_a_remedy() {
    let device: VerbsDevice = "no_such_device0:1:3".parse().expect("a name");
    let refused = device.open().expect_err("there is no such device");
    let refused = refused.to_string();
    let begin = "cannot open device verbs:no_such_device0:1:3: ";
    assert!(refused.starts_with(begin), "{refused}");
    match devices() {
        Ok(there) => {
            assert!(!there.is_empty());
            let names: Vec<_> = there.iter().map(ToString::to_string).collect();
            let expected = format!(
                "{begin}libibverbs knows no device 'no_such_device0'; there is {}",
                names.join(", ")
            );
            assert_eq!(refused, expected);
        }
        Err(none) => {
            assert_eq!(refused, format!("{begin}{none}"));
            assert!(is_known(&none), "{none}");
        }
    }
}

/// What is missing is one of these, each with what to do.
fn is_known(none: &ListError) -> bool {
    [
        ("cannot be loaded", "libibverbs1"),
        ("no RDMA device", "load its driver"),
        ("does not offer them", "ib_uverbs"),
        ("has no driver for them", "ibverbs-providers"),
    ]
    .iter()
    .any(|(cause, remedy)| none.reason.contains(cause) && none.remedy.contains(remedy))
}
