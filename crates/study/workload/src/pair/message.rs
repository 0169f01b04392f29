//! Out-of-band messages between the two sides.
//!
//! ```text
//! active                        passive
//!   Hello ------------------------>        both: objects made, receives posted
//!         <------------------------ Hello
//!   Connected -------------------->        both: queue pair in RTS
//!         <------------------------ Connected
//!   Prepare{iters} --------------->        for each run (warm-up, repetition)
//!         <------------------------ Ready
//!   ~~~~~~~~~~ the run ~~~~~~~~~~~~
//!   Stop{iters} ------------------>        the active side is done, after `iters`
//!         <------------------------ Done{usage, ...}
//!   Finish ----------------------->
//! ```
//! Either side may send `Abort` at any time. Messages are JSON.

use adverb_results::Usage;
use adverb_units::Span;
use adverb_verbs::{Endpoint, Rkey, StreamAddress};
use serde::{Deserialize, Serialize};

use crate::error::Fault;
use crate::pair::spec::{CellSpec, Request};

/// Version of the messages and of what the programs do between them.
const VERSION: u32 = 6;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Message {
    Hello(Box<Hello>),
    Connected,
    /// A run with a maximum number of messages or rounds: the warm-up (0) or a repetition, from 1.
    Prepare {
        repetition: u32,
        iters: u64,
    },
    Ready,
    /// The run has ended, with fewer messages than prepared if its time was over.
    Stop {
        iters: u64,
        /// Messages over each queue pair since the beginning; empty from `ping`, which has one.
        carried: Vec<u64>,
    },
    /// Results of the passive side: CPU time, the duration of its own sends or (unreliable transports) of the
    /// arrivals, and, if it sends, its messages over each queue pair since the beginning.
    Done {
        usage: Usage,
        ran: Span,
        carried: Vec<u64>,
        /// Messages that arrived in the run, if some may be lost.
        received: Option<u64>,
    },
    Finish,
    Abort {
        reason: String,
    },
}

/// Endpoints and memory of a side.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) program: String,
    pub(crate) params: Request,
    /// Its queue pairs.
    pub(crate) endpoints: Vec<Endpoint>,
    /// Where it accepts the connection, if it is the passive side of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) listens_at: Option<StreamAddress>,
    /// Largest packet of its port, bytes.
    pub(crate) mtu: u64,
    /// Outstanding READs that it supports as the responder.
    pub(crate) max_rd_atomic: u8,
    /// Its buffers.
    pub(crate) addr: u64,
    pub(crate) rkey: Rkey,
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    version: u32,
    message: Message,
}

#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

impl Message {
    pub(crate) fn encode(self) -> Vec<u8> {
        let envelope = Envelope {
            version: VERSION,
            message: self,
        };
        serde_json::to_vec(&envelope).expect("messages have string keys and no foreign serializer")
    }

    pub(crate) fn decode(bytes: &[u8], expected: &'static str) -> Result<Message, Fault> {
        let strange = |_| Fault::Protocol {
            expected,
            found: String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned(),
        };
        let VersionOnly { version } = serde_json::from_slice(bytes).map_err(strange)?;
        if version != VERSION {
            return Err(Fault::Version {
                ours: VERSION,
                theirs: version,
            });
        }
        let envelope: Envelope = serde_json::from_slice(bytes).map_err(strange)?;
        Ok(envelope.message)
    }

    /// Returns the error that this is not the `expected` message.
    pub(crate) fn unexpected(&self, expected: &'static str) -> Fault {
        Fault::Protocol {
            expected,
            found: format!("{self:?}"),
        }
    }
}

impl Hello {
    /// Checks that the other side runs the same cell.
    pub(crate) fn check(&self, spec: &CellSpec) -> Result<(), Fault> {
        if self.program == spec.program.to_string() && self.params == spec.params {
            return Ok(());
        }
        Err(Fault::OtherCell {
            ours: format!("{} {:?}", spec.program, spec.params),
            theirs: format!("{} {:?}", self.program, self.params),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_way() {
        let sent = || Message::Prepare {
            repetition: 1,
            iters: u64::MAX,
        };
        let received = Message::decode(&sent().encode(), "a run").unwrap();
        assert_eq!(received, sent());
    }

    #[test]
    fn another_version_is_refused_whatever_it_says() {
        let error = Message::decode(br#"{"version":99,"message":{"news":1}}"#, "a greeting");
        assert!(matches!(
            error,
            Err(Fault::Version {
                ours: VERSION,
                theirs: 99
            })
        ));
        let error = Message::decode(b"hello?", "a greeting").unwrap_err();
        assert_eq!(
            error.to_string(),
            "expected a greeting out of band, got hello?"
        );
    }
}
