//! The replies to all requests that a server has received on a connection.

use std::sync::atomic::Ordering;

use adverb_verbs::{Station, Work};

use super::{Echo, Reply, content, load_request};
use crate::rpc::{COUNTER, Counter};

/// Computes replies.
pub(super) struct Service<'c> {
    content: Reply,
    /// Bytes of a request.
    request: u32,
    /// A reply.
    reply: Vec<u8>,
    /// The numbers that all cores hand out.
    counter: &'c Counter,
}

impl<'c> Service<'c> {
    pub(super) fn new(echo: &Echo, counter: &'c Counter) -> Self {
        Service {
            content: echo.content,
            request: echo.request,
            reply: vec![0; echo.reply as usize],
            counter,
        }
    }

    /// Appends the reply to each of the requests; returns their number.
    pub(super) fn reply<S: Station>(
        &mut self,
        station: &S,
        requests: &[u8],
        replies: &mut Vec<u8>,
    ) -> u64 {
        let requests = requests.chunks(self.request as usize);
        let count = requests.len() as u64;
        let first = match self.content {
            // One atomic addition for all, as an Rpc does.
            Reply::Number if count > 0 => {
                station.account(Work::Atomic { word: COUNTER });
                self.counter.fetch_add(count, Ordering::Relaxed)
            }
            Reply::Number | Reply::Digest => 0,
        };
        for (number, request) in (first..).zip(requests) {
            load_request(station, self.request);
            match self.content {
                Reply::Digest => content::fill(&mut self.reply, content::digest(request)),
                Reply::Number => self.reply.copy_from_slice(&number.to_le_bytes()),
            }
            replies.extend_from_slice(&self.reply);
        }
        count
    }
}
