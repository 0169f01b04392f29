//! Which cells a claim needs, by the parameters of their programs.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use adverb_results::{
    Completion, LinkRate, Opcode, PairRecord, Posting, Program, Signaling, Traffic,
};
use adverb_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::cells::{Cell, Cells};
use crate::format;

/// Parameters of cells. A missing one is that of `adverb ping` and `adverb blast`: not inline, busy polling, one
/// buffer, single posts, every request signaled, the link's own rate; program, operation and size have to be named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Pick {
    /// Program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// Operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<Opcode>,
    /// Message sizes in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Places>,
    /// Payload in the work request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline: Option<bool>,
    /// Busy polling or events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion: Option<Completion>,
    /// Messages in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffers: Option<Places>,
    /// Single posts or lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post: Option<Posting>,
    /// Which requests are signaled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<Signaling>,
    /// Speed that the link was limited to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<LinkRate>,
    /// Link layer of the device, where a claim compares two devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
}

/// A link layer, as far as claims distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE.
    Ethernet,
}

impl Link {
    /// Returns the link layer of a record's device; `None` for others, and if the record has none.
    pub(super) fn of(record: &PairRecord) -> Option<Self> {
        match record.link_layer()? {
            "InfiniBand" => Some(Link::InfiniBand),
            "Ethernet" => Some(Link::Ethernet),
            _ => None,
        }
    }
}

/// One size or number of buffers, or all that were measured in a range that includes both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "PlacesText", into = "String")]
pub struct Places {
    first: u64,
    last: u64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PlacesText {
    One(u64),
    Text(String),
}

/// The text is neither a number nor a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsePlacesError(String);

impl fmt::Display for ParsePlacesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invalid place '{}': expected a number or a range, such as 64, 4K or 1..128",
            self.0
        )
    }
}

impl TryFrom<PlacesText> for Places {
    type Error = ParsePlacesError;

    fn try_from(text: PlacesText) -> Result<Self, Self::Error> {
        match text {
            PlacesText::One(n) => Ok(Places { first: n, last: n }),
            PlacesText::Text(text) => text.parse(),
        }
    }
}

impl FromStr for Places {
    type Err = ParsePlacesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let number = |part: &str| part.parse::<Bytes>().map(Bytes::get);
        match (number(first), number(last)) {
            (Ok(first), Ok(last)) if first <= last => Ok(Places { first, last }),
            _ => Err(ParsePlacesError(text.to_owned())),
        }
    }
}

impl From<Places> for String {
    fn from(places: Places) -> String {
        places.words(|n| n.to_string()).replace(" to ", "..")
    }
}

impl Places {
    const ONE: Places = Places { first: 1, last: 1 };

    fn holds(self, n: u64) -> bool {
        (self.first..=self.last).contains(&n)
    }

    /// Returns whether `n` is not beyond the last place.
    pub(super) fn reaches(self, n: u64) -> bool {
        n <= self.last
    }

    /// Returns whether `n` is before the first place.
    pub(super) fn exceeds(self, n: u64) -> bool {
        n < self.first
    }

    fn is_range(self) -> bool {
        self.first < self.last
    }

    pub(super) fn words(self, show: impl Fn(u64) -> String) -> String {
        match self.is_range() {
            true => format!("{} to {}", show(self.first), show(self.last)),
            false => show(self.first),
        }
    }
}

impl Pick {
    /// Returns these parameters where `own` has none.
    #[must_use]
    pub fn with(&self, own: &Pick) -> Pick {
        Pick {
            program: own.program.or(self.program),
            op: own.op.or(self.op),
            size: own.size.or(self.size),
            inline: own.inline.or(self.inline),
            completion: own.completion.or(self.completion),
            buffers: own.buffers.or(self.buffers),
            post: own.post.or(self.post),
            signal: own.signal.or(self.signal),
            rate: own.rate.or(self.rate),
            link: own.link.or(self.link),
        }
    }

    /// Returns whether program, operation and size are named, and at most one parameter is a range.
    pub fn is_whole(&self) -> bool {
        let ranges = [self.size, self.buffers].into_iter().flatten();
        let is_named = self.program.is_some() && self.op.is_some() && self.size.is_some();
        is_named && ranges.filter(|places| places.is_range()).count() <= 1
    }

    fn takes(&self, r: &PairRecord) -> bool {
        let p = &r.params;
        let is_plain = p.traffic == Traffic::default() && p.impairment.is_none();
        let is_plain = is_plain && p.rate == self.rate && !p.verify;
        // WRITEs into the memory that a ping polls are signaled in one way only.
        let is_signaled = p.signal == self.signal.unwrap_or(Signaling::All)
            || (r.program, p.op) == (Program::Ping, Opcode::Write);
        is_plain
            && is_signaled
            && self.program == Some(r.program)
            && self.op == Some(p.op)
            && self
                .size
                .is_some_and(|sizes| sizes.holds(p.size_bytes.get()))
            && p.inline == self.inline.unwrap_or(false)
            && p.completion == self.completion.unwrap_or(Completion::Poll)
            && self.buffers.unwrap_or(Places::ONE).holds(p.buffers.into())
            && p.post == self.post.unwrap_or(Posting::Single)
            && self.link.is_none_or(|link| Link::of(r) == Some(link))
    }

    /// Returns the cells by the parameter that is a range.
    pub(super) fn series<'a>(&self, cells: &Cells<'a>) -> BTreeMap<u64, Cell<'a>> {
        cells.filter(|r| self.takes(r)).by(|cell| match () {
            () if self.is_over_sizes() => cell.size(),
            () if self.is_over_buffers() => cell.params().buffers.into(),
            () => 0,
        })
    }

    fn is_over_sizes(&self) -> bool {
        self.size.is_some_and(Places::is_range)
    }

    fn is_over_buffers(&self) -> bool {
        self.buffers.is_some_and(Places::is_range)
    }

    /// Returns a place of the series in words that follow a figure; empty if no parameter is a range.
    pub(super) fn place(&self, n: u64) -> String {
        match () {
            () if self.is_over_sizes() => format!(" at {}", format::size(n)),
            () if self.is_over_buffers() => format!(" with {}", buffers(n.to_string())),
            () => String::new(),
        }
    }
}

fn buffers(n: String) -> String {
    match n.as_str() {
        "1" => "1 buffer".to_owned(),
        _ => n + " buffers",
    }
}

impl fmt::Display for Pick {
    /// The named parameters: `blast write, 64 B, inline, 8 to 16 buffers, list`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = [
            self.program.map(|program| program.to_string()),
            self.op.map(|op| op.to_string()),
        ];
        let what: Vec<String> = what.into_iter().flatten().collect();
        let inline = |inline| if inline { "inline" } else { "not inline" };
        let words = [
            Some(what.join(" ")).filter(|what| !what.is_empty()),
            self.size.map(|sizes| sizes.words(format::size)),
            self.inline.map(|is| inline(is).to_owned()),
            self.completion.map(|completion| completion.to_string()),
            self.buffers.map(|n| buffers(n.words(|n| n.to_string()))),
            self.post.map(|post| post.to_string()),
            self.signal.map(|signal| format!("signal {signal}")),
            self.rate.map(|rate| rate.to_string().to_uppercase()),
            self.link.map(|link| match link {
                Link::InfiniBand => "over InfiniBand".to_owned(),
                Link::Ethernet => "over RoCE".to_owned(),
            }),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        f.write_str(&words.join(", "))
    }
}
