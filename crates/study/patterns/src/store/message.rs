//! Requests of clients and the server's answers, each a SEND over an RC queue pair.

use adverb_verbs::{MemoryAccessError, MemoryRegion, RemoteAddress};
use serde::{Deserialize, Serialize};

use super::cache::{Condition, MAX_KEY, Place, Refusal};

/// Bytes of a buffer for a request: a PUT with the longest key has 312 at most.
pub const REQUEST: u32 = 320;
/// Bytes of a buffer for an answer.
pub const ANSWER: u32 = 64;

/// A range of the client's memory, with a new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Where the value begins.
    pub from: RemoteAddress,
    /// Bytes of the value.
    pub length: u32,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request<'a> {
    /// Where is the value of the key?
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// READ this value and store it.
    Put {
        /// The key.
        key: &'a [u8],
        /// The client's flags.
        flags: u32,
        /// Seconds until it expires; 0 is never.
        ttl: u32,
        /// When it is stored.
        condition: Condition,
        /// The value. It must not change until the answer has arrived.
        source: Source,
    },
    /// Delete the key's item.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Answer when all clients of the program have sent this.
    Meet,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The value is here, and stays until the next request over this queue pair.
    Found {
        /// Its place in the server's region.
        place: Place,
        /// The client's flags.
        flags: u32,
        /// Unique number of this version.
        cas: u64,
    },
    /// The key has no item.
    Missing,
    /// The value was stored, under this unique number.
    Stored(u64),
    /// It was not stored.
    Refused(Refusal),
    /// The item was deleted.
    Deleted,
    /// All clients are here.
    Met,
}

/// Writes a message to a buffer; returns its length.
pub(super) fn write(
    mr: &impl MemoryRegion,
    offset: u64,
    message: &impl Serialize,
) -> Result<u32, MemoryAccessError> {
    let mut bytes = [0; REQUEST as usize];
    let used = postcard::to_slice(message, &mut bytes);
    let used = used.expect("a message with a key of at most 250 B fits its buffer");
    mr.write(offset, used)?;
    Ok(used.len() as u32)
}

/// Reads a request; `None` if it is malformed.
pub(super) fn request(bytes: &[u8]) -> Option<Request<'_>> {
    let request = postcard::from_bytes(bytes).ok()?;
    let (Request::Get { key } | Request::Put { key, .. } | Request::Delete { key }) = request
    else {
        return Some(request);
    };
    (1..=MAX_KEY).contains(&key.len()).then_some(request)
}

#[cfg(test)]
mod tests {
    use adverb_verbs::Rkey;

    use super::*;

    #[test]
    fn the_longest_messages_fit_and_malformed_ones_are_refused() {
        let put = |key| Request::Put {
            key,
            flags: u32::MAX,
            ttl: u32::MAX,
            condition: Condition::UniqueOrStale(u64::MAX),
            source: Source {
                from: RemoteAddress {
                    addr: u64::MAX,
                    rkey: Rkey(u32::MAX),
                },
                length: u32::MAX,
            },
        };
        let bytes = postcard::to_stdvec(&put(&[7; MAX_KEY])).unwrap();
        assert!(bytes.len() <= REQUEST as usize, "{}", bytes.len());
        assert_eq!(request(&bytes), Some(put(&[7; MAX_KEY])));
        for end in 0..bytes.len() {
            assert_eq!(request(&bytes[..end]), None);
        }
        for bad in [put(&[]), put(&[7; MAX_KEY + 1]), Request::Get { key: &[] }] {
            assert_eq!(request(&postcard::to_stdvec(&bad).unwrap()), None);
        }
        let found = Answer::Found {
            place: Place {
                offset: u64::MAX,
                length: u32::MAX,
            },
            flags: u32::MAX,
            cas: u64::MAX,
        };
        assert!(postcard::to_stdvec(&found).unwrap().len() <= ANSWER as usize);
    }
}
