//! The commands that take keys until the end of the line: `get`, `gets`, `gat`, `gats`.

use adverb_patterns::store::cache::MAX_KEY;
use adverb_verbs::Context;

use crate::conversation::{BAD_LINE, BAD_TIME, ERROR, Input, Pause};
use crate::shared::{Shared, number, put};

/// A retrieval whose keys arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retrieval {
    with_cas: bool,
    /// `gat`: the new time to live, which comes before the keys.
    touches: Option<Option<i64>>,
    keys: u64,
}

/// What the next key of a retrieval led to.
pub(crate) enum Keys {
    /// There may be another one.
    More,
    /// The line has ended.
    End,
    /// The line was refused.
    Refused,
}

impl Retrieval {
    /// Returns the retrieval that a line begins, and the length of its name.
    pub(crate) fn begins(line: &[u8]) -> Option<(Self, usize)> {
        let length = line
            .iter()
            .position(|byte| matches!(byte, b' ' | b'\r' | b'\n'))?;
        let (with_cas, touches) = match &line[..length] {
            b"get" => (false, None),
            b"gets" => (true, None),
            b"gat" => (false, Some(None)),
            b"gats" => (true, Some(None)),
            _ => return None,
        };
        let retrieval = Retrieval {
            with_cas,
            touches,
            keys: 0,
        };
        Some((retrieval, length))
    }

    /// Looks the next key up.
    pub(crate) fn next_key<C: Context>(
        &mut self,
        input: &mut Input<'_>,
        out: &mut Vec<u8>,
        shared: &Shared<C>,
    ) -> Result<Keys, Pause> {
        let rest = input.rest();
        let begin = rest.iter().position(|byte| *byte != b' ');
        let Some(begin) = begin else {
            input.used = input.bytes.len();
            return Err(Pause::Input);
        };
        input.used += begin;
        let rest = &rest[begin..];
        let length = rest.iter().position(|byte| matches!(byte, b' ' | b'\n'));
        let Some(length) = length.filter(|length| *length <= MAX_KEY + 1) else {
            if rest.len() <= MAX_KEY + 1 {
                return Err(Pause::Input);
            }
            put!(out, "{BAD_LINE}");
            return Ok(Keys::Refused);
        };
        let is_last = rest[length] == b'\n';
        let word = &rest[..length];
        let key = if is_last {
            word.strip_suffix(b"\r").unwrap_or(word)
        } else {
            word
        };
        if key.is_empty() {
            input.used += length + 1;
            let is_complete = self.keys > 0 || self.touches.flatten().is_some();
            put!(out, "{}", if is_complete { "END\r\n" } else { ERROR });
            return Ok(Keys::End);
        }
        // The space or the end of the line stays: it ends the list.
        input.used += key.len();
        if self.touches == Some(None) {
            let Some(exptime) = number(key) else {
                put!(out, "{BAD_TIME}");
                return Ok(Keys::Refused);
            };
            self.touches = Some(Some(exptime));
            return Ok(Keys::More);
        }
        if key.len() > MAX_KEY {
            put!(out, "{BAD_LINE}");
            return Ok(Keys::Refused);
        }
        self.keys += 1;
        self.look_up(key, out, shared);
        Ok(Keys::More)
    }

    fn look_up<C: Context>(&self, key: &[u8], out: &mut Vec<u8>, shared: &Shared<C>) {
        let (mut items, now) = (shared.items(), shared.now());
        items.counts.cmd_get += 1;
        let found = items.cache.get(key, now);
        if let (Some(Some(exptime)), Some(id)) = (self.touches, found) {
            items.counts.cmd_touch += 1;
            items.cache.item_mut(id).expires = shared.expires(exptime);
        }
        let Some(id) = found else {
            items.counts.get_misses += 1;
            return;
        };
        items.counts.get_hits += 1;
        let item = items.cache.item(id);
        out.extend_from_slice(b"VALUE ");
        out.extend_from_slice(key);
        put!(out, " {} {}", item.flags, item.place.length);
        if self.with_cas {
            put!(out, " {}", item.cas);
        }
        out.extend_from_slice(b"\r\n");
        shared.copy(items, id, out);
        out.extend_from_slice(b"\r\n");
    }
}
