//! What the figures show, in sentences.

mod advice;
mod buffers;
mod completion;
mod devices;
mod inline;
mod opcodes;
mod signaling;
mod speeds;

use adverb_report::findings::Topic;

pub(super) const TOPICS: [Topic; 8] = [
    Topic::advice(advice::advice),
    Topic::across_devices("Devices side by side", devices::findings),
    Topic::of_a_device("Busy polling or events", completion::findings),
    Topic::of_a_device("Inline data", inline::findings),
    Topic::of_a_device("Buffers and lists", buffers::findings),
    Topic::of_a_device("Signaling", signaling::findings),
    Topic::of_a_device("Operations", opcodes::findings),
    Topic::of_a_device("Link speeds", speeds::findings),
];
