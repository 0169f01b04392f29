//! NUMA placement, and threads that load a machine while a program is measured.
//!
//! Nodes are named relative to the NIC, because that is what decides the path of its accesses: within the socket, or
//! over the interconnect.

use std::fmt;
use std::str::FromStr;

use adverb_units::{Bytes, Span};
use serde::{Deserialize, Serialize};

use crate::probability::Probability;

/// The NUMA node on which threads run or memory is allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum NodeChoice {
    /// Any node: threads are not bound, memory is where the kernel puts it. On models buffers are on the NIC's node,
    /// and threads of a load on both nodes in turn.
    #[default]
    Any,
    /// The node that the NIC is attached to.
    Nic,
    /// The first other node.
    Other,
    /// The node with this number.
    Number(u32),
}

/// The text is not a choice of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid NUMA node '{0}': expected nic, other, any or the number of a node")]
pub struct ParseNodeChoiceError(String);

impl FromStr for NodeChoice {
    type Err = ParseNodeChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "any" => Ok(NodeChoice::Any),
            "nic" => Ok(NodeChoice::Nic),
            "other" => Ok(NodeChoice::Other),
            number => number
                .parse()
                .map(NodeChoice::Number)
                .map_err(|_| ParseNodeChoiceError(text.to_owned())),
        }
    }
}

impl fmt::Display for NodeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeChoice::Any => f.pad("any"),
            NodeChoice::Nic => f.pad("nic"),
            NodeChoice::Other => f.pad("other"),
            NodeChoice::Number(number) => number.fmt(f),
        }
    }
}

impl From<NodeChoice> for String {
    fn from(node: NodeChoice) -> String {
        node.to_string()
    }
}

impl TryFrom<String> for NodeChoice {
    type Error = ParseNodeChoiceError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// The nodes of a role: of its thread, and of the memory that it registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NumaPlacement {
    /// Where its thread runs.
    pub threads: NodeChoice,
    /// Where its memory is.
    pub memory: NodeChoice,
}

/// Threads of a machine that work while a program runs ([`crate::Station::under_load`]).
///
/// If there are more threads than the node has CPUs, they take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuLoad {
    /// Number of threads.
    pub threads: u32,
    /// The node that they run on.
    pub node: NodeChoice,
    /// What each thread does.
    pub work: LoadWork,
}

/// What a thread of a load does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LoadWork {
    /// It computes without accessing memory.
    Compute,
    /// It accesses words of 8 B at random places of an array of its own.
    Independent {
        /// Size of the array.
        bytes: Bytes,
        /// Share of writes.
        writes: Probability,
        /// Node of the array: by default the thread's own.
        memory: NodeChoice,
    },
    /// It walks through the beginning of a memory region that peers access, byte by byte.
    Buffer {
        /// Number of bytes that it walks through.
        bytes: Bytes,
        /// What it does at each place.
        access: Access,
        /// Time for which it computes after each access.
        think: Span,
    },
    /// It flushes the lines at the beginning of that region from the caches, again and again.
    Flush {
        /// Number of bytes whose lines it flushes.
        bytes: Bytes,
    },
}

/// What a walking thread does at each place. A real CPU accesses the whole word of 8 B that the place is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Reads or writes.
    Mixed {
        /// Share of writes.
        writes: Probability,
    },
    /// Compares and swaps 8 bytes until it succeeds.
    CompareSwap,
    /// Adds 1 to 8 bytes by an atomic instruction.
    FetchAdd,
    /// Loads 8 bytes, adds 1 and stores them: not atomic.
    Increment,
}

impl Access {
    /// Whether each access adds 1, so that the words count the accesses.
    pub const fn adds(self) -> bool {
        matches!(self, Access::FetchAdd | Access::Increment)
    }
}

/// What the threads of a load did. Models do not count it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadTally {
    /// Accesses.
    pub accesses: u64,
    /// Words of the region that were read and checked.
    pub words: WordCount,
}

/// Words of 8 B in which all bytes are equal unless they are torn: a mixture of two writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WordCount {
    /// Checked words.
    pub checked: u64,
    /// Torn words.
    pub torn: u64,
}

impl WordCount {
    /// Counts a word that was read.
    #[inline]
    pub fn check(&mut self, word: u64) {
        self.checked += 1;
        self.torn += u64::from(word != word.rotate_left(8));
    }

    /// Adds another count.
    pub fn add(&mut self, other: WordCount) {
        self.checked += other.checked;
        self.torn += other.torn;
    }
}

/// Sizes of the arrays that [`crate::Station::memory_times`] accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrays {
    /// One that the last-level cache holds.
    #[serde(rename = "cached_bytes")]
    pub cached: Bytes,
    /// One that is larger than it.
    #[serde(rename = "large_bytes")]
    pub large: Bytes,
}

/// Accesses of a CPU of one node to memory and caches of one node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryTimes {
    /// The arrays.
    #[serde(flatten)]
    pub arrays: Arrays,
    /// Latency of dependent loads at random places of the cached array, in ns.
    pub cached_ns: f64,
    /// The same of the large array.
    pub memory_ns: f64,
    /// Sequential reading of the large array by one thread, in bytes per second.
    pub read_bytes_per_s: f64,
    /// Half of the round trip of a cache line between two CPUs of these nodes, in ns; `None` if they have only one CPU.
    pub line_ns: Option<f64>,
}

/// Threads or memory cannot be placed as asked for, or a load cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlacementError(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_as_they_are_written() {
        for text in ["any", "nic", "other", "0", "17"] {
            let node: NodeChoice = text.parse().unwrap();
            assert_eq!(node.to_string(), text);
            assert_eq!(serde_json::to_value(node).unwrap(), text);
        }
        for bad in ["", "near", "-1", "1.5"] {
            assert!(bad.parse::<NodeChoice>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_mixture_of_two_words_is_torn() {
        let mut words = WordCount::default();
        words.check(0);
        words.check(0x2121_2121_2121_2121);
        assert_eq!((words.checked, words.torn), (2, 0));
        words.check(0x2121_2121_4242_4242);
        words.check(0x2121_2121_2121_2142);
        assert_eq!((words.checked, words.torn), (4, 2));
    }
}
