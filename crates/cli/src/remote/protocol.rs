//! What client and server say to each other.
//!
//! ```text
//! client                          server
//!   Greeting ───────────────────────▷        both at once: protocol and version
//!          ◁─────────────────────── Greeting
//!   Visit ──────────────────────────▷        device, who asks
//!          ◁─────────────────────── Welcome  (or Refused): host, device, limits
//!   Order ──────────────────────────▷        a cell
//!          ◁──────── pieces ────────▷        what the roles say out of band
//!          ◁─────────────────────── SideEnded
//!   Order …
//! ```
//!
//! A frame is a length (see [`Wire`](adverb_host::Wire)), a byte that tells its kind, and a word in
//! JSON or a piece of what a role said. The client may say Abort at any time, the server Stopped;
//! both say Alive when they have had nothing else to say for a while. Only the greeting is the same
//! in all versions, for ever.
//!
//! There is no authentication and no encryption. A client orders cells by their parameters, which
//! the server checks; no path, command or environment comes from it.

use adverb_results::{DeviceRef, Site};
use adverb_studies::CellSpec;
use adverb_units::Bytes;
use adverb_verbs::{Counters, DeviceCaps, PathMtu};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Identity;
use crate::device::{DeviceChoice, DeviceInfo};
use crate::pair::{Details, End};

/// Version of everything but the greeting.
const PROTOCOL: u32 = 3;
/// Longest greeting and visit that is read from somebody unknown.
pub(crate) const MAX_GREETING: Bytes = Bytes::kib(16);

/// The first word of both: the same in all versions.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Greeting {
    /// Version of what follows.
    adverb_protocol: u32,
    /// Version of Adverb.
    pub(crate) version: String,
}

impl Greeting {
    /// This program's.
    pub(crate) fn ours() -> Vec<u8> {
        let greeting = Greeting {
            adverb_protocol: PROTOCOL,
            version: crate::VERSION.to_owned(),
        };
        serde_json::to_vec(&greeting).expect("a greeting has string keys")
    }

    /// Reads what `who` said first.
    ///
    /// # Errors
    /// In words: it is no greeting, or that of another protocol.
    pub(crate) fn read(bytes: &[u8], who: &str) -> Result<Self, String> {
        let Ok(greeting) = serde_json::from_slice::<Greeting>(bytes) else {
            return Err(format!("{who} does not speak Adverb's protocol"));
        };
        let theirs = greeting.adverb_protocol;
        if theirs == PROTOCOL {
            return Ok(greeting);
        }
        Err(format!(
            "{who} speaks protocol {theirs} (Adverb {}), this is protocol {PROTOCOL} (Adverb {}): install the same version on both hosts",
            super::printable(&greeting.version),
            crate::VERSION
        ))
    }
}

/// Numbers the cells of a connection.
pub(crate) type CellNumber = u32;

/// What the client says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ToServer {
    Visit(Visit),
    Order(Box<CellOrder>),
    /// End this cell's side now.
    Abort {
        cell: CellNumber,
    },
    Alive,
}

/// Who asks, and for what.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Visit {
    /// Its host's name.
    pub(crate) host: String,
    /// What it would use if it were the server's host.
    pub(crate) device: DeviceChoice,
    pub(crate) identity: Identity,
}

/// A cell.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CellOrder {
    pub(crate) cell: CellNumber,
    pub(crate) spec: CellSpec,
    /// Whether both sides run on one core, which only happens on one machine.
    pub(crate) shares_core: bool,
}

/// What the server says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ToClient {
    Welcome(Box<Welcome>),
    /// Not welcome; nothing else follows.
    Refused {
        reason: String,
    },
    SideEnded(Box<SideEnded>),
    Alive,
    /// Somebody ended the server; nothing else follows.
    Stopped,
}

/// Where the passive side will run, and within which limits.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Welcome {
    pub(crate) site: Site,
    pub(crate) device: DeviceRef,
    pub(crate) limits: Limits,
    pub(crate) identity: Identity,
    /// Where its side is pinned.
    pub(crate) core: Option<u32>,
    pub(crate) numa_node: Option<u32>,
}

/// How the server's side of a cell ended.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SideEnded {
    pub(crate) cell: CellNumber,
    pub(crate) end: End,
    pub(crate) counters: Counters,
    /// What its device says of itself.
    pub(crate) details: Details,
}

/// What a cell is checked against ([`DeviceCaps`]).
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
    /// Those of a device, with regions of at most `most`.
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

    /// What is within these limits and those of `caps`.
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
            // What no program of this version asks of a peer.
            ..caps.clone()
        }
    }
}

/// A word that says nothing beyond what this version knows: fields that a nested type would ignore
/// are refused, too, because they may ask for what would not be done.
pub(crate) fn read_strictly<W: Serialize + DeserializeOwned>(
    bytes: &[u8],
) -> Result<W, serde_json::Error> {
    use serde::de::Error;
    let said: serde_json::Value = serde_json::from_slice(bytes)?;
    let word: W = serde_json::from_value(said.clone())?;
    if serde_json::to_value(&word)? == said {
        Ok(word)
    } else {
        Err(serde_json::Error::custom(
            "it has fields that this version does not know",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adverb_results::Opcode;
    use adverb_studies::Request;
    use serde_json::json;

    #[test]
    fn another_protocol_is_told_apart_from_noise() {
        assert!(Greeting::read(&Greeting::ours(), "x").is_ok());
        let noise = Greeting::read(b"GET / HTTP/1.1", "x").unwrap_err();
        assert_eq!(noise, "x does not speak Adverb's protocol");
        let later = br#"{"adverb_protocol":9,"version":"3.1","new":[]}"#;
        let later = Greeting::read(later, "x").unwrap_err();
        let told = "x speaks protocol 9 (Adverb 3.1), this is protocol 3 (Adverb ";
        assert!(later.starts_with(told), "{later}");
    }

    #[test]
    fn an_order_with_an_unknown_field_at_any_depth_is_refused() {
        let order = ToServer::Order(Box::new(CellOrder {
            cell: 1,
            spec: CellSpec::ping(Request::new(Opcode::Send, Bytes::new(8))),
            shares_core: false,
        }));
        let text = serde_json::to_vec(&order).unwrap();
        assert!(read_strictly::<ToServer>(&text).is_ok());
        let mut value = serde_json::to_value(&order).unwrap();
        value["order"]["spec"]["params"]["encrypt"] = json!(true);
        let text = serde_json::to_vec(&value).unwrap();
        assert!(read_strictly::<ToServer>(&text).is_err());
    }
}
