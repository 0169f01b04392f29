//! A value that a client sends: it goes to a block of its own as it arrives, and is stored when it is complete.

use adverb_patterns::store::cache::{Condition, Pin, Place, Refusal};
use adverb_verbs::Context;

use crate::conversation::{BAD_DATA, Input, Next, Pause};
use crate::meta::{self, Flags};
use crate::shared::{Attributes, How, Shared, put};

/// A value on its way.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) pin: Pin,
    place: Place,
    filled: u32,
    /// Bytes of the end of the line that have arrived.
    end: [u8; 2],
    ended: u8,
    how: How,
    condition: Condition,
    attributes: Attributes,
    answer: Form,
}

/// The form of the answer to a command that stores.
#[derive(Debug)]
pub(crate) enum Form {
    /// Words.
    Classic,
    /// None.
    Silent,
    /// Two letters and flags.
    Meta(Box<Flags>),
}

impl Incoming {
    /// Returns a value of `length` bytes that follows, or what follows if there is no room for it.
    pub(crate) fn begin<C: Context>(
        (key, length): (&[u8], u64),
        (how, condition): (How, Condition),
        attributes: Attributes,
        answer: Form,
        (shared, out): (&Shared<C>, &mut Vec<u8>),
    ) -> Next {
        match shared.reserve(key, length, condition) {
            Ok((pin, place)) => Next::Value(Incoming {
                pin,
                place,
                filled: 0,
                end: [0; 2],
                ended: 0,
                how,
                condition,
                attributes,
                answer,
            }),
            Err(refusal) => {
                if !matches!(answer, Form::Silent) {
                    put!(out, "{}", no_room(refusal));
                }
                Next::Swallow(length + 2)
            }
        }
    }

    /// Takes what has arrived of the value.
    pub(crate) fn take<C: Context>(
        &mut self,
        input: &mut Input<'_>,
        shared: &Shared<C>,
    ) -> Result<(), Pause> {
        let rest = input.rest();
        let (left, here) = ((self.place.length - self.filled) as usize, rest.len());
        let now = left.min(here);
        shared.fill(self.place, self.filled, &rest[..now]);
        self.filled += now as u32;
        let end = (2 - usize::from(self.ended)).min(here - now);
        for byte in &rest[now..now + end] {
            self.end[usize::from(self.ended)] = *byte;
            self.ended += 1;
        }
        input.used += now + end;
        match self.ended {
            2 => Ok(()),
            _ => Err(Pause::Input),
        }
    }

    /// Stores the value, and answers.
    pub(crate) fn finish<C: Context>(self, out: &mut Vec<u8>, shared: &Shared<C>) {
        if self.end != *b"\r\n" {
            shared.abandon(self.pin);
            if !matches!(self.answer, Form::Silent) {
                put!(out, "{BAD_DATA}");
            }
            return;
        }
        let mut items = shared.items();
        let what = (self.how, self.condition);
        let stored = shared.commit(&mut items, self.pin, what, self.attributes);
        match self.answer {
            Form::Silent => {}
            Form::Meta(flags) => meta::stored(&flags, &items.cache, stored, out),
            Form::Classic => put!(
                out,
                "{}",
                match stored {
                    Ok(_) => "STORED\r\n",
                    Err(Refusal::Presence) => "NOT_STORED\r\n",
                    Err(Refusal::Changed) => "EXISTS\r\n",
                    Err(Refusal::Missing) => "NOT_FOUND\r\n",
                    Err(refusal) => no_room(refusal),
                }
            ),
        }
    }
}

/// Returns the answer to a value that does not fit.
pub(crate) fn no_room(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::TooLarge => "SERVER_ERROR object too large for cache\r\n",
        _ => "SERVER_ERROR out of memory storing object\r\n",
    }
}
