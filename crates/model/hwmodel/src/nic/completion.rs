//! Completion queues and completion channels.

use std::collections::VecDeque;

use adverb_sim::Condition;
use adverb_units::{Span, Time};
use adverb_verbs::{CqId, NotifyOn, Qpn, WorkCompletion};

use crate::ids::{ChannelIndex, QpIndex};
use crate::params::Params;
use crate::resource::Server;

/// The queue entries that polling a completion frees.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Frees {
    /// All send requests before this number.
    Sends(u64),
    Receive,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// When it is visible to the CPU.
    pub(crate) at: Time,
    pub(crate) completion: WorkCompletion,
    pub(crate) qp: QpIndex,
    pub(crate) life: u32,
    pub(crate) frees: Frees,
    /// Bytes of inline payload.
    pub(crate) inline: u64,
    /// Whether it completes a receive of a message with the solicited event bit.
    pub(crate) solicited: bool,
}

impl Entry {
    /// Whether it raises an event of a queue that is armed for `on`.
    pub(crate) fn raises(&self, on: NotifyOn) -> bool {
        on == NotifyOn::Any || self.solicited || !self.completion.status.is_success()
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Polled {
    pub(crate) completions: usize,
    /// Lines of inline payload that the CPU has copied into receive buffers.
    pub(crate) copied_lines: u64,
}

#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) capacity: u32,
    pub(crate) channel: Option<ChannelIndex>,
    /// Signaled when a completion is added.
    pub(crate) condition: Condition,
    pub(crate) entries: VecDeque<Entry>,
    pub(crate) armed: Option<NotifyOn>,
    pub(crate) overrun: bool,
    /// The thread that polls it, if that is not the one that posts.
    pub(crate) poller: Option<Poller>,
}

/// A thread that only polls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poller {
    thread: Server,
    /// Noticing a completion.
    see: Span,
    /// Taking it: the lines that both threads write move to this one, which then reads the clock.
    take: Span,
}

impl Poller {
    pub(crate) fn new(p: &Params, fresh_line: Span) -> Self {
        Poller {
            thread: Server::default(),
            see: p.cpu.poll_empty_ns / 2 + fresh_line,
            take: p.cpu.poll_hit_ns + p.memory.hand_over() + p.cpu.clock_ns,
        }
    }

    /// Returns when it has taken a completion that is visible from `at` on.
    pub(crate) fn take(&mut self, at: Time) -> Time {
        self.thread.serve(at + self.see, self.take)
    }
}

#[derive(Debug)]
pub(crate) struct Channel {
    /// Signaled when an event is added.
    pub(crate) condition: Condition,
    pub(crate) events: VecDeque<CqId>,
}

impl Cq {
    pub(crate) fn new(
        capacity: u32,
        (channel, poller): (Option<ChannelIndex>, Option<Poller>),
        condition: Condition,
    ) -> Self {
        Cq {
            poller,
            capacity,
            channel,
            condition,
            entries: VecDeque::new(),
            armed: None,
            overrun: false,
        }
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        self.entries.front().map(|entry| entry.at)
    }

    /// Removes the completions of a queue pair that is reset or destroyed; returns how many were of receives.
    pub(crate) fn purge(&mut self, number: Qpn) -> u32 {
        let mut received = 0;
        self.entries.retain(|entry| {
            let is_its = entry.completion.qp_num == number;
            received += u32::from(is_its && matches!(entry.frees, Frees::Receive));
            !is_its
        });
        received
    }

    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun
    }
}
