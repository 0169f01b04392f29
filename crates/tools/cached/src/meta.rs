//! The meta commands: two letters, a key, and flags of one letter each, some with a token. An answer repeats the flags
//! that ask for something, in their order.

use adverb_patterns::store::cache::{Cache, Condition, Id, Item, MAX_KEY, Refusal, Seconds};
use adverb_verbs::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::classic::{Counted, add};
use crate::conversation::{BAD_LINE, ERROR, Next};
use crate::incoming::{Form, Incoming, no_room};
use crate::shared::{How, Shared, number, put};

const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format\r\n";
const BAD_FLAG: &str = "CLIENT_ERROR invalid flag\r\n";
/// Longest token that is returned (`O`).
const MAX_OPAQUE: usize = 32;

/// The flags of a command.
#[derive(Debug)]
pub(crate) struct Flags {
    key: Vec<u8>,
    /// Flags with their tokens, in order.
    all: Vec<(u8, Vec<u8>)>,
}

impl Flags {
    /// Reads key and flags; the command takes these flags.
    fn read(words: &[&[u8]], taken: &[u8]) -> Result<Self, &'static str> {
        let (key, flags) = words.split_first().ok_or(ERROR)?;
        let mut all: Vec<(u8, Vec<u8>)> = Vec::with_capacity(flags.len());
        for flag in flags {
            let (letter, token) = flag.split_first().expect("words are not empty");
            if all.iter().any(|(earlier, _)| earlier == letter) {
                return Err("CLIENT_ERROR duplicate flag\r\n");
            }
            if !taken.contains(letter) {
                return Err(BAD_FLAG);
            }
            if *letter == b'O' && token.len() > MAX_OPAQUE {
                return Err("CLIENT_ERROR opaque token too long\r\n");
            }
            all.push((*letter, token.to_vec()));
        }
        let mut key = key.to_vec();
        if key.len() > MAX_KEY {
            return Err(BAD_LINE);
        }
        let is_binary = all.iter().any(|(letter, _)| *letter == b'b');
        if is_binary {
            key = STANDARD
                .decode(&key)
                .map_err(|_| "CLIENT_ERROR error decoding key\r\n")?;
        }
        if key.is_empty() || key.len() > MAX_KEY {
            return Err(BAD_LINE);
        }
        Ok(Flags { key, all })
    }

    fn has(&self, letter: u8) -> bool {
        self.token(letter).is_some()
    }

    fn token(&self, letter: u8) -> Option<&[u8]> {
        let found = self.all.iter().find(|(flag, _)| *flag == letter);
        found.map(|(_, token)| &token[..])
    }

    /// Reads the number of a flag; `None` if there is no such flag.
    fn number<T: std::str::FromStr>(&self, letter: u8) -> Result<Option<T>, &'static str> {
        let token = self.token(letter);
        token
            .map(|token| number(token).ok_or(BAD_TOKEN))
            .transpose()
    }

    /// Appends what the flags ask for, and ends the line. Without an item only key and opaque token are known.
    fn give(&self, item: Option<(&Item, Before)>, out: &mut Vec<u8>) {
        for (letter, token) in &self.all {
            match (letter, item) {
                (b'O', _) => {
                    out.extend_from_slice(b" O");
                    out.extend_from_slice(token);
                }
                (b'k', _) => {
                    out.extend_from_slice(b" k");
                    match self.has(b'b') {
                        true => put!(out, "{} b", STANDARD.encode(&self.key)),
                        false => out.extend_from_slice(&self.key),
                    }
                }
                (b'c', Some((item, _))) => put!(out, " c{}", item.cas),
                (b'f', Some((item, _))) => put!(out, " f{}", item.flags),
                (b's', Some((item, _))) => put!(out, " s{}", item.place.length),
                (b't', Some((item, before))) => match item.expires {
                    None => put!(out, " t-1"),
                    Some(at) => put!(out, " t{}", at.saturating_sub(before.now)),
                },
                (b'h', Some((_, before))) => put!(out, " h{}", u8::from(before.was_read)),
                (b'l', Some((_, before))) => {
                    put!(out, " l{}", before.now.saturating_sub(before.used));
                }
                _ => {}
            }
        }
    }
}

/// The state of an item before a command counted as its use.
#[derive(Clone, Copy, Debug)]
struct Before {
    now: Seconds,
    was_read: bool,
    used: Seconds,
}

impl Before {
    fn of(item: &Item, now: Seconds) -> Self {
        Before {
            now,
            was_read: item.was_read,
            used: item.used,
        }
    }
}

/// Executes a command of two letters.
pub(crate) fn run<C: Context>(words: &[&[u8]], shared: &Shared<C>, out: &mut Vec<u8>) -> Next {
    shared.items().counts.cmd_meta += 1;
    let (name, words) = (words[0], &words[1..]);
    let done = match name {
        b"mg" => get(words, shared, out),
        b"ms" => return set(words, (shared, out)),
        b"md" => delete(words, shared, out),
        b"ma" => count(words, shared, out),
        b"me" => debug(words, shared, out),
        b"mn" => {
            put!(out, "MN\r\n");
            Ok(())
        }
        _ => Err(ERROR),
    };
    if let Err(reason) = done {
        put!(out, "{reason}");
    }
    Next::Command
}

fn get<C: Context>(
    words: &[&[u8]],
    shared: &Shared<C>,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let flags = Flags::read(words, b"bcfhklOqstvTNR")?;
    let (vivify, recache) = (flags.number::<i64>(b'N')?, flags.number::<i64>(b'R')?);
    let ttl = flags.number::<i64>(b'T')?;
    let (mut items, now) = (shared.items(), shared.now());
    items.counts.cmd_get += 1;
    let found = items.cache.find(&flags.key, now);
    // The client that a miss told to make the value.
    let mut won = false;
    let id = match (found, vivify) {
        (Some(id), _) => {
            items.counts.get_hits += 1;
            id
        }
        (None, Some(ttl)) => {
            items.counts.get_misses += 1;
            let attributes = (0, shared.expires(ttl));
            let made = shared.store(&mut items, (&flags.key, b""), attributes, Condition::Always);
            let id = made.map_err(no_room)?;
            won = true;
            items.cache.item_mut(id).is_awaited = true;
            id
        }
        (None, None) => {
            items.counts.get_misses += 1;
            if !flags.has(b'q') {
                out.extend_from_slice(b"EN");
                flags.give(None, out);
                out.extend_from_slice(b"\r\n");
            }
            return Ok(());
        }
    };
    let before = Before::of(items.cache.item(id), now);
    let wants_use = flags
        .all
        .iter()
        .any(|(letter, _)| b"hlvtT".contains(letter));
    if wants_use && !won {
        items.cache.get(&flags.key, now);
    }
    let item = items.cache.item_mut(id);
    if let Some(ttl) = ttl {
        item.expires = shared.expires(ttl);
    }
    let was_awaited = item.is_awaited && !won;
    let left = item.expires.map(|at| at.saturating_sub(now) as i64);
    let is_due =
        item.is_stale || recache.is_some_and(|below| left.is_some_and(|left| left < below));
    if is_due && !item.is_awaited {
        (won, item.is_awaited) = (true, true);
    }
    let is_stale = item.is_stale;
    let item = items.cache.item(id);
    match flags.has(b'v') {
        true => put!(out, "VA {}", item.place.length),
        false => out.extend_from_slice(b"HD"),
    }
    flags.give(Some((item, before)), out);
    for (is_so, mark) in [(was_awaited, b" Z"), (is_stale, b" X"), (won, b" W")] {
        if is_so {
            out.extend_from_slice(mark);
        }
    }
    out.extend_from_slice(b"\r\n");
    if flags.has(b'v') {
        shared.copy(items, id, out);
        out.extend_from_slice(b"\r\n");
    }
    Ok(())
}

fn set<C: Context>(words: &[&[u8]], (shared, out): (&Shared<C>, &mut Vec<u8>)) -> Next {
    // Key, length, flags. The length is read first: the value follows in any case.
    let length = words.get(1).and_then(|word| number::<i32>(word));
    let Some(length) = length.and_then(|length| u64::try_from(length).ok()) else {
        put!(out, "{}", if words.is_empty() { ERROR } else { BAD_LINE });
        return Next::Command;
    };
    let key_and_flags: Vec<&[u8]> = words[..1].iter().chain(&words[2..]).copied().collect();
    let read = || {
        let flags = Flags::read(&key_and_flags, b"bcCFIkMOqT")?;
        let client_flags = flags.number::<u32>(b'F')?.unwrap_or(0);
        let expires = shared.expires(flags.number::<i64>(b'T')?.unwrap_or(0));
        let mode = flags.token(b'M').unwrap_or(b"S");
        let (how, condition) = match mode {
            b"S" | b"s" => (How::Whole, Condition::Always),
            b"E" | b"e" => (How::Whole, Condition::Absent),
            b"R" | b"r" => (How::Whole, Condition::Present),
            b"A" | b"a" => (How::After, Condition::Always),
            b"P" | b"p" => (How::Before, Condition::Always),
            _ => return Err("CLIENT_ERROR invalid mode for ms M token\r\n"),
        };
        let condition = match flags.number(b'C')? {
            Some(cas) if flags.has(b'I') => Condition::UniqueOrStale(cas),
            Some(cas) => Condition::Unique(cas),
            None => condition,
        };
        Ok((flags, (how, condition), (client_flags, expires)))
    };
    match read() {
        Ok((flags, what, attributes)) => {
            let key = flags.key.clone();
            let answer = Form::Meta(Box::new(flags));
            Incoming::begin((&key, length), what, attributes, answer, (shared, out))
        }
        Err(reason) => {
            put!(out, "{reason}");
            Next::Swallow(length + 2)
        }
    }
}

/// Answers an `ms` whose value has arrived.
pub(crate) fn stored(flags: &Flags, cache: &Cache, stored: Result<Id, Refusal>, out: &mut Vec<u8>) {
    let word = match stored {
        Ok(_) if flags.has(b'q') => return,
        Ok(_) => "HD",
        Err(Refusal::Presence) => "NS",
        Err(Refusal::Changed) => "EX",
        Err(Refusal::Missing) => "NF",
        Err(refusal) => return put!(out, "{}", no_room(refusal)),
    };
    out.extend_from_slice(word.as_bytes());
    let item = stored.ok().map(|id| cache.item(id));
    flags.give(item.map(|item| (item, Before::of(item, item.used))), out);
    out.extend_from_slice(b"\r\n");
}

fn delete<C: Context>(
    words: &[&[u8]],
    shared: &Shared<C>,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let flags = Flags::read(words, b"bCIkOqT")?;
    let (cas, ttl) = (flags.number::<u64>(b'C')?, flags.number::<i64>(b'T')?);
    let mut items = shared.items();
    let found = items.cache.find(&flags.key, shared.now());
    let word = match found {
        None => {
            items.counts.delete_misses += 1;
            "NF"
        }
        Some(id) if cas.is_some_and(|cas| cas != items.cache.item(id).cas) => "EX",
        Some(id) => {
            items.counts.delete_hits += 1;
            match flags.has(b'I') {
                false => items.cache.delete(id),
                true => {
                    let cas = items.cache.next_cas();
                    let item = items.cache.item_mut(id);
                    (item.is_stale, item.is_awaited, item.cas) = (true, false, cas);
                    if let Some(ttl) = ttl {
                        item.expires = shared.expires(ttl);
                    }
                }
            }
            "HD"
        }
    };
    if !(flags.has(b'q') && word == "HD") {
        out.extend_from_slice(word.as_bytes());
        flags.give(None, out);
        out.extend_from_slice(b"\r\n");
    }
    Ok(())
}

fn count<C: Context>(
    words: &[&[u8]],
    shared: &Shared<C>,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let flags = Flags::read(words, b"bcCDJkMNOqtTv")?;
    let is_plus = match flags.token(b'M').unwrap_or(b"I") {
        b"I" | b"i" | b"+" => true,
        b"D" | b"d" | b"-" => false,
        _ => return Err("CLIENT_ERROR invalid mode for ma M token\r\n"),
    };
    let delta = flags.number::<u64>(b'D')?;
    let (vivify, first) = (
        flags.number::<i64>(b'N')?,
        flags.number::<u64>(b'J')?.unwrap_or(0),
    );
    let (cas, ttl) = (flags.number::<u64>(b'C')?, flags.number::<i64>(b'T')?);
    let (mut items, now) = (shared.items(), shared.now());
    let counted = match (items.cache.find(&flags.key, now), vivify) {
        (None, None) => Err("NF"),
        (None, Some(ttl)) => {
            let attributes = (0, shared.expires(ttl));
            let text = first.to_string();
            let made = (&flags.key[..], text.as_bytes());
            let id = shared.store(&mut items, made, attributes, Condition::Always);
            Ok((first, id.map_err(no_room)?))
        }
        (Some(id), _) if cas.is_some_and(|cas| cas != items.cache.item(id).cas) => Err("EX"),
        (Some(id), _) => match add((shared, &mut items), id, (is_plus, delta.unwrap_or(1))) {
            Counted::Now(value, id) => Ok((value, id)),
            Counted::NotANumber => {
                return Err("CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
            }
            Counted::Refused(refusal) => return Err(no_room(refusal)),
        },
    };
    let (value, id) = match counted {
        Ok(counted) => counted,
        Err(word) => {
            out.extend_from_slice(word.as_bytes());
            flags.give(None, out);
            out.extend_from_slice(b"\r\n");
            return Ok(());
        }
    };
    if let Some(ttl) = ttl {
        items.cache.item_mut(id).expires = shared.expires(ttl);
    }
    if flags.has(b'q') {
        return Ok(());
    }
    let item = items.cache.item(id);
    let text = value.to_string();
    match flags.has(b'v') {
        true => put!(out, "VA {}", text.len()),
        false => out.extend_from_slice(b"HD"),
    }
    flags.give(Some((item, Before::of(item, now))), out);
    out.extend_from_slice(b"\r\n");
    if flags.has(b'v') {
        put!(out, "{text}\r\n");
    }
    Ok(())
}

/// Lists an item's attributes.
fn debug<C: Context>(
    words: &[&[u8]],
    shared: &Shared<C>,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let flags = Flags::read(words, b"b").map_err(|_| BAD_LINE)?;
    let (mut items, now) = (shared.items(), shared.now());
    let Some(id) = items.cache.find(&flags.key, now) else {
        put!(out, "EN\r\n");
        return Ok(());
    };
    let item = items.cache.item(id);
    out.extend_from_slice(b"ME ");
    out.extend_from_slice(words[0]);
    match item.expires {
        None => put!(out, " exp=-1"),
        Some(at) => put!(out, " exp={}", at.saturating_sub(now)),
    }
    let fetch = if item.was_read { "yes" } else { "no" };
    let (la, cas) = (now.saturating_sub(item.used), item.cas);
    put!(
        out,
        " la={la} cas={cas} fetch={fetch} size={}\r\n",
        item.place.length
    );
    Ok(())
}
