//! The words for parameters, equal on the command line, in records and in tables.

use std::fmt;
use std::str::FromStr;

use adverb_units::Span;

use crate::{Completion, DeviceKind, DeviceRef, Opcode, Posting, Program, Signaling, Transport};

/// A choice whose values have words: equal on the command line, in records and in tables.
pub trait Word: Copy + Send + Sync + 'static {
    /// Returns the word of this value.
    fn word(self) -> &'static str;

    /// Returns other words for it on the command line.
    fn aliases(self) -> &'static [&'static str];
}

/// Gives enums their words: `words! { Kind { Variant => "word" or "alias", Other => "other" } }`.
#[macro_export]
macro_rules! words {
    ($($type:ident { $($variant:ident => $word:literal $(or $alias:literal)?),+ })+) => {$(
        impl $crate::Word for $type {
            fn word(self) -> &'static str {
                match self { $($type::$variant => $word),+ }
            }

            fn aliases(self) -> &'static [&'static str] {
                match self { $($type::$variant => &[$($alias)?]),+ }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad($crate::Word::word(*self))
            }
        }
    )+};
}

words! {
    Program { Ping => "ping", Blast => "blast" }
    DeviceKind { Soft => "soft", Verbs => "verbs", Model => "model", Tcp => "tcp" }
    Opcode {
        Send => "send", WriteImm => "write-imm", Write => "write", Read => "read",
        WriteRead => "write-read", FetchAdd => "fetch-add", Cas => "cas" or "cmp-swap",
        SendImm => "send-imm"
    }
    Posting { Single => "single", List => "list" }
    Transport { Rc => "rc", Uc => "uc", Ud => "ud", Tcp => "tcp" }
}

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = match self {
            Completion::Poll => return f.pad("poll"),
            Completion::Event => return f.pad("event"),
            Completion::Hybrid(span) => span.as_ps(),
        };
        let (unit, name) = match span {
            whole if whole % 1_000_000 == 0 => (1_000_000, "us"),
            whole if whole % 1000 == 0 => (1000, "ns"),
            _ => (1, "ps"),
        };
        f.pad(&format!("hybrid:{}{name}", span / unit))
    }
}

impl From<Completion> for String {
    fn from(completion: Completion) -> Self {
        completion.to_string()
    }
}

impl FromStr for Completion {
    type Err = String;

    /// Reads `poll`, `event` and `hybrid:20us`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let polling = |span: &Span| *span > Span::ZERO && *span <= Completion::MOST_POLLING;
        let hybrid = || text.strip_prefix("hybrid:")?.parse().ok().filter(polling);
        match text {
            "poll" => Ok(Completion::Poll),
            "event" => Ok(Completion::Event),
            _ => hybrid().map(Completion::Hybrid).ok_or_else(|| {
                format!(
                    "invalid completion '{text}': expected poll, event, or hybrid:TIME with a time up to {}, such as hybrid:20us",
                    Completion::MOST_POLLING
                )
            }),
        }
    }
}

impl TryFrom<String> for Completion {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for Signaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Signaling::All => f.pad("all"),
            Signaling::Periodic => f.pad("periodic"),
            Signaling::Every(n) => f.pad(&format!("every={n}")),
            Signaling::WriteUnsignaled => f.pad("write-unsignaled"),
        }
    }
}

impl fmt::Display for DeviceRef {
    /// As the command line takes it: `soft`, `soft@10.0.0.1`, `verbs:mlx5_0`, `model:connect_ib`, `tcp`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            // Its name says the kind already.
            DeviceKind::Soft | DeviceKind::Tcp => f.pad(&self.name),
            kind => f.pad(&format!("{kind}:{}", self.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;

    fn same<T: fmt::Display + Serialize, const N: usize>(words: [T; N]) {
        for word in words {
            assert_eq!(serde_json::to_value(&word).unwrap(), word.to_string());
        }
    }

    #[test]
    fn words_are_those_of_the_record() {
        use {DeviceKind::*, Opcode::*, Signaling::*};
        same([Program::Ping, Program::Blast]);
        same([Soft, Verbs, Model, DeviceKind::Tcp]);
        same([
            Send, WriteImm, Write, Read, WriteRead, FetchAdd, Cas, SendImm,
        ]);
        let [short, long] = [Span::from_ns(1500), Span::from_ms(2)].map(Completion::Hybrid);
        same([Completion::Poll, Completion::Event, short, long]);
        for completion in [Completion::Poll, Completion::Event, short, long] {
            assert_eq!(completion.to_string().parse(), Ok(completion));
        }
        for bad in ["", "hybrid", "hybrid:0", "hybrid:6ms", "hybrid:20"] {
            assert!(bad.parse::<Completion>().is_err(), "{bad}");
        }
        same([Posting::Single, Posting::List]);
        same([Transport::Rc, Transport::Uc, Transport::Ud, Transport::Tcp]);
        same([All, Periodic, WriteUnsignaled]);
    }

    #[test]
    fn a_device_is_named_as_on_the_command_line() {
        let device = |kind, name: &str| {
            let name = name.to_owned();
            DeviceRef { kind, name }.to_string()
        };
        assert_eq!(device(DeviceKind::Soft, "soft"), "soft");
        assert_eq!(device(DeviceKind::Soft, "soft@::1"), "soft@::1");
        assert_eq!(device(DeviceKind::Verbs, "mlx5_0"), "verbs:mlx5_0");
    }
}
