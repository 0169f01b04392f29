//! The commands of the text protocol, except retrievals.

use adverb_patterns::store::cache::{Condition, Id, MAX_KEY, Refusal};
use adverb_verbs::Context;

use crate::conversation::{BAD_LINE, BAD_TIME, ERROR, Next};
use crate::incoming::{Form, Incoming, no_room};
use crate::shared::{How, Items, Shared, number, put};
use crate::stats::{VERSION, stats};

/// Longest value that a client may announce.
const MAX_LENGTH: i32 = i32::MAX - 2;
/// Digits of the longest number.
const MAX_DIGITS: u32 = 20;

/// Executes a command; `words` has at least its name.
pub(crate) fn run<C: Context>(words: &[&[u8]], shared: &Shared<C>, out: &mut Vec<u8>) -> Next {
    let (name, words) = (words[0], &words[1..]);
    let is_silent = words.last() == Some(&&b"noreply"[..]);
    let answer = match (name, words.len()) {
        (b"set" | b"add" | b"replace" | b"append" | b"prepend", 4 | 5) | (b"cas", 5 | 6) => {
            return store(name, words, is_silent, (shared, out));
        }
        (b"incr" | b"decr", 2 | 3) => count(name == b"incr", words, shared, out),
        (b"touch", 2 | 3) => touch(words, shared),
        (b"delete", 1..=3) => delete(words, is_silent, shared),
        (b"flush_all", 0..=2) => flush(words, is_silent, shared),
        (b"stats", _) => return stats(words, shared, out),
        (b"version", _) => {
            put!(out, "VERSION {VERSION}\r\n");
            return Next::Command;
        }
        // It is not verbose in any case.
        (b"verbosity", 1 | 2) => match is_silent || number::<u32>(words[0]).is_some() {
            true => "OK\r\n",
            false => BAD_LINE,
        },
        (b"quit", _) => return Next::Close,
        _ => {
            put!(out, "{ERROR}");
            return Next::Command;
        }
    };
    if !is_silent {
        put!(out, "{answer}");
    }
    Next::Command
}

/// Returns a key, if it is not too long.
fn key(word: &[u8]) -> Option<&[u8]> {
    (word.len() <= MAX_KEY).then_some(word)
}

fn store<C: Context>(
    name: &[u8],
    words: &[&[u8]],
    is_silent: bool,
    (shared, out): (&Shared<C>, &mut Vec<u8>),
) -> Next {
    let is_cas = name == b"cas";
    let read = || {
        let cas = if is_cas { number(words[4])? } else { 0 };
        let length = number::<i32>(words[3]).filter(|length| (0..=MAX_LENGTH).contains(length))?;
        let numbers = (number(words[1])?, number::<i32>(words[2])?, length);
        Some((key(words[0])?, numbers, cas))
    };
    let Some((key, (flags, exptime, length), cas)) = read() else {
        refuse(BAD_LINE, is_silent, out);
        return Next::Command;
    };
    let how = match name {
        b"append" => How::After,
        b"prepend" => How::Before,
        _ => How::Whole,
    };
    let condition = match name {
        b"add" => Condition::Absent,
        b"replace" => Condition::Present,
        b"cas" => Condition::Unique(cas),
        _ => Condition::Always,
    };
    let answer = if is_silent {
        Form::Silent
    } else {
        Form::Classic
    };
    let attributes = (flags, shared.expires(exptime.into()));
    let value = (key, length as u64);
    Incoming::begin(value, (how, condition), attributes, answer, (shared, out))
}

fn refuse(reason: &str, is_silent: bool, out: &mut Vec<u8>) {
    if !is_silent {
        put!(out, "{reason}");
    }
}

/// Adds to or subtracts from a number.
pub(crate) enum Counted {
    /// The new value, of this item.
    Now(u64, Id),
    NotANumber,
    Refused(Refusal),
}

/// Changes a number that is stored as text. A shorter one is filled up with spaces, as memcached does.
pub(crate) fn add<C: Context>(
    (shared, items): (&Shared<C>, &mut Items),
    id: Id,
    (is_plus, by): (bool, u64),
) -> Counted {
    let item = items.cache.item(id);
    let text = match item.place.length {
        1..=MAX_DIGITS => shared.value(item.place),
        _ => return Counted::NotANumber,
    };
    let digits = text
        .split(u8::is_ascii_whitespace)
        .next()
        .unwrap_or_default();
    let Some(old) = number::<u64>(digits) else {
        return Counted::NotANumber;
    };
    let new = match is_plus {
        true => old.wrapping_add(by),
        false => old.saturating_sub(by),
    };
    let text = format!("{new:<0$}", text.len());
    let (key, attributes) = (item.key().to_vec(), (item.flags, item.expires));
    match shared.store(
        items,
        (&key, text.as_bytes()),
        attributes,
        Condition::Always,
    ) {
        Ok(id) => Counted::Now(new, id),
        Err(refusal) => Counted::Refused(refusal),
    }
}

fn count<C: Context>(
    is_plus: bool,
    words: &[&[u8]],
    shared: &Shared<C>,
    out: &mut Vec<u8>,
) -> &'static str {
    let Some(key) = key(words[0]) else {
        return BAD_LINE;
    };
    let Some(by) = number(words[1]) else {
        return "CLIENT_ERROR invalid numeric delta argument\r\n";
    };
    let mut items = shared.items();
    let Some(id) = items.cache.find(key, shared.now()) else {
        return "NOT_FOUND\r\n";
    };
    match add((shared, &mut items), id, (is_plus, by)) {
        Counted::Now(value, _) => {
            if words.last() != Some(&&b"noreply"[..]) {
                put!(out, "{value}\r\n");
            }
            ""
        }
        Counted::NotANumber => "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        Counted::Refused(refusal) => no_room(refusal),
    }
}

fn touch<C: Context>(words: &[&[u8]], shared: &Shared<C>) -> &'static str {
    let Some(key) = key(words[0]) else {
        return BAD_LINE;
    };
    let Some(exptime) = number(words[1]) else {
        return BAD_TIME;
    };
    let mut items = shared.items();
    items.counts.cmd_touch += 1;
    let now = shared.now();
    match items.cache.find(key, now) {
        None => "NOT_FOUND\r\n",
        Some(id) => {
            items.cache.mark_used(id, now);
            items.cache.item_mut(id).expires = shared.expires(exptime);
            "TOUCHED\r\n"
        }
    }
}

fn delete<C: Context>(words: &[&[u8]], is_silent: bool, shared: &Shared<C>) -> &'static str {
    let Some(key) = key(words[0]) else {
        return BAD_LINE;
    };
    // Earlier versions of the protocol had a time here; clients may still send 0.
    if !matches!(
        (&words[1..], is_silent),
        ([], _) | ([b"0"], _) | ([_], true) | ([b"0", _], true)
    ) {
        return "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
    }
    let mut items = shared.items();
    match items.cache.find(key, shared.now()) {
        None => {
            items.counts.delete_misses += 1;
            "NOT_FOUND\r\n"
        }
        Some(id) => {
            items.counts.delete_hits += 1;
            items.cache.delete(id);
            "DELETED\r\n"
        }
    }
}

fn flush<C: Context>(words: &[&[u8]], is_silent: bool, shared: &Shared<C>) -> &'static str {
    let delay = match (words, is_silent) {
        ([], _) | ([_], true) => Some(0),
        (words, _) => number(words[0]),
    };
    let Some(delay) = delay else {
        return BAD_TIME;
    };
    let mut items = shared.items();
    items.counts.cmd_flush += 1;
    let at = (delay > 0).then(|| shared.expires(delay)).flatten();
    items.cache.flush(at);
    "OK\r\n"
}
