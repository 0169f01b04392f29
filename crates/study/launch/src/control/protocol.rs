//! The protocol between a caller and an agent.
//!
//! ```text
//! caller                           agent
//!   Greeting ───────────────────────▷        both at once: protocol and version
//!          ◁─────────────────────── Greeting
//!   Visit ──────────────────────────▷        device, and the caller's host
//!          ◁─────────────────────── Welcome  (or Refused): host, device, limits
//!   Run ────────────────────────────▷        a program, and the roles that the agent is to run
//!          ◁─────── messages ───────▷        between roles, out of band
//!   Ended ──────────────────────────▷        a role elsewhere has ended
//!          ◁─────────────────────── RoleEnded, for each of its roles; then RunEnded
//!   Run …
//! ```
//!
//! A frame consists of a length (see [`Wire`](adverb_host::Wire)), a byte for its kind, and a control message
//! in JSON or a message between roles. The caller opens the connection, except if the agent is a rank of the
//! caller's job: then the agent connects, and both greetings contain their ranks. The caller may send Abort at
//! any time, the agent Stopped, or Evicted between runs; both send Alive as a keepalive. Only the greeting stays the same in all
//! versions.
//!
//! There is no authentication and no encryption. A caller chooses programs and their parameters, which the
//! agent checks; it cannot send paths, commands or environment variables.

use adverb_results::{DeviceRef, Site};
use adverb_units::Bytes;
use adverb_verbs::{DeviceCaps, PathMtu, RoleId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Identity;
use crate::catalog::{Catalog, read_value};
use crate::device::DeviceChoice;
use crate::info::DeviceInfo;
use crate::local::RoleEnded;
use crate::text::printable;

/// Version of everything but the greeting.
const PROTOCOL: u32 = 4;
/// Maximum size of a greeting and of a visit, which come from an unknown sender.
pub(crate) const MAX_GREETING: Bytes = Bytes::kib(16);

/// The first message in both directions, the same in all versions.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Greeting {
    /// Version of what follows.
    adverb_protocol: u32,
    /// Version of Adverb.
    pub(crate) version: String,
    /// The sender's rank, if it belongs to a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rank: Option<RankName>,
}

/// A rank of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankName {
    pub(crate) job: String,
    pub(crate) rank: u32,
    /// Its host's name.
    pub(crate) host: String,
}

impl Greeting {
    /// Returns this program's greeting.
    pub(crate) fn ours(catalog: &Catalog, rank: Option<RankName>) -> Vec<u8> {
        let greeting = Greeting {
            adverb_protocol: PROTOCOL,
            version: catalog.version.to_owned(),
            rank,
        };
        serde_json::to_vec(&greeting).expect("a greeting has string keys")
    }

    /// Reads the greeting of `who`.
    ///
    /// # Errors
    /// It is not a greeting, or has another protocol version.
    pub(crate) fn read(bytes: &[u8], who: &str, catalog: &Catalog) -> Result<Self, String> {
        let Ok(greeting) = serde_json::from_slice::<Greeting>(bytes) else {
            return Err(format!("{who} does not speak Adverb's protocol"));
        };
        let theirs = greeting.adverb_protocol;
        if theirs == PROTOCOL {
            return Ok(greeting);
        }
        Err(format!(
            "{who} speaks protocol {theirs} (Adverb {}), this is protocol {PROTOCOL} (Adverb {}): install the same version on both hosts",
            printable(&greeting.version),
            catalog.version
        ))
    }
}

/// Numbers the runs of a connection.
pub(crate) type RunNumber = u32;

/// Control messages of the caller.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ToAgent {
    Visit(Visit),
    Run(Box<RunOrder>),
    /// A role that runs elsewhere has ended.
    Ended {
        run: RunNumber,
        role: RoleId,
    },
    /// End the roles of this run now.
    Abort {
        run: RunNumber,
    },
    Alive,
}

/// The caller's request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Visit {
    /// Its host's name.
    pub(crate) host: String,
    /// The device that it would use on the agent's host.
    pub(crate) device: DeviceChoice,
    pub(crate) identity: Identity,
}

/// The agent's part in a run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunOrder {
    pub(crate) run: RunNumber,
    /// The program, by its id.
    pub(crate) program: String,
    pub(crate) params: Value,
    /// The roles that the agent is to run.
    pub(crate) roles: Vec<RoleId>,
    /// Cores of the agent's machine that other roles of the run use: the caller's, if it is on that machine.
    pub(crate) taken: Vec<u32>,
    /// Whether the agent's machine has fewer cores than busy roles, the caller's included.
    pub(crate) shares_cores: bool,
}

/// Control messages of the agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ToCaller {
    Welcome(Box<Welcome>),
    /// The request is refused; the last message.
    Refused {
        reason: String,
    },
    RoleEnded {
        run: RunNumber,
        ended: Box<RoleEnded>,
    },
    /// All roles and processes of the run have ended.
    RunEnded {
        run: RunNumber,
    },
    Alive,
    /// The caller was idle, and another one needs its place; the last message.
    Evicted,
    /// The agent was ended; the last message.
    Stopped,
}

/// An agent's host, device and limits.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    /// The host, and its device's details for a record's provenance.
    pub site: Site,
    /// The device.
    pub device: DeviceRef,
    pub(crate) limits: Limits,
    pub(crate) identity: Identity,
    /// The cores of `--cpu`, in order; `None` if the agent chooses.
    pub(crate) cores: Option<Vec<u32>>,
    /// The cores that the agent may use.
    pub(crate) usable: Vec<u32>,
}

/// What a program is checked against ([`DeviceCaps`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    max_qp: u32,
    max_qp_wr: u32,
    max_sge: u32,
    max_cq: u32,
    max_cqe: u32,
    max_mr: u32,
    max_mr_size: Bytes,
    max_qp_rd_atom: u8,
    max_inline_data: u32,
    /// Of its port.
    pub(crate) path_mtu: PathMtu,
}

impl Limits {
    /// Returns the limits of a device, with memory regions of at most `most`.
    pub(crate) fn of(info: &DeviceInfo, most: Bytes) -> Self {
        let caps = &info.caps;
        Limits {
            max_qp: caps.max_qp,
            max_qp_wr: caps.max_qp_wr,
            max_sge: caps.max_sge,
            max_cq: caps.max_cq,
            max_cqe: caps.max_cqe,
            max_mr: caps.max_mr,
            max_mr_size: caps.max_mr_size.min(most),
            max_qp_rd_atom: caps.max_qp_rd_atom,
            max_inline_data: caps.max_inline_data,
            path_mtu: info.port.active_mtu,
        }
    }

    /// Returns the lower of these limits and `caps`.
    pub(crate) fn within(&self, caps: &DeviceCaps) -> DeviceCaps {
        DeviceCaps {
            max_qp: self.max_qp.min(caps.max_qp),
            max_qp_wr: self.max_qp_wr.min(caps.max_qp_wr),
            max_sge: self.max_sge.min(caps.max_sge),
            max_cq: self.max_cq.min(caps.max_cq),
            max_cqe: self.max_cqe.min(caps.max_cqe),
            max_mr: self.max_mr.min(caps.max_mr),
            max_mr_size: self.max_mr_size.min(caps.max_mr_size),
            max_qp_rd_atom: self.max_qp_rd_atom.min(caps.max_qp_rd_atom),
            max_inline_data: self.max_inline_data.min(caps.max_inline_data),
            // No program of this version needs the other limits of a peer.
            ..caps.clone()
        }
    }
}

/// Reads a control message, and refuses fields that this version does not know.
pub(crate) fn read_strictly<W: Serialize + DeserializeOwned>(
    bytes: &[u8],
) -> Result<W, serde_json::Error> {
    read_value(&serde_json::from_slice(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CATALOG: Catalog = Catalog {
        version: "1.2",
        programs: &[],
    };

    #[test]
    fn another_protocol_is_told_apart_from_noise() {
        let read = |bytes: &[u8]| Greeting::read(bytes, "x", &CATALOG);
        assert!(read(&Greeting::ours(&CATALOG, None)).is_ok());
        let noise = read(b"GET / HTTP/1.1").unwrap_err();
        assert_eq!(noise, "x does not speak Adverb's protocol");
        let later = read(br#"{"adverb_protocol":9,"version":"3.1","new":[]}"#);
        assert_eq!(
            later.unwrap_err(),
            "x speaks protocol 9 (Adverb 3.1), this is protocol 4 (Adverb 1.2): install the same version on both hosts"
        );
    }

    #[test]
    fn a_word_with_an_unknown_field_is_refused() {
        let order = ToAgent::Run(Box::new(RunOrder {
            run: 1,
            program: "pair".to_owned(),
            params: json!({}),
            roles: vec![RoleId(1)],
            taken: Vec::new(),
            shares_cores: false,
        }));
        let mut value = serde_json::to_value(&order).unwrap();
        assert!(read_strictly::<ToAgent>(value.to_string().as_bytes()).is_ok());
        value["run"]["command"] = json!("reboot");
        assert!(read_strictly::<ToAgent>(value.to_string().as_bytes()).is_err());
    }
}
