//! A connection of a client: its socket and what is on the way in both directions.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use adverb_verbs::Context;
use rustix::event::epoll::EventFlags;

use crate::conversation::{Conversation, Pause};
use crate::shared::Shared;

/// Bytes that a thread reads at once.
pub(crate) const READ: usize = 1 << 16;
/// Reads until other connections have their turn.
const READS: usize = 16;
/// Buffers larger than this are freed when they are empty.
const KEPT: usize = 1 << 14;

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    conversation: Conversation,
    /// Received and not consumed.
    input: Vec<u8>,
    output: Vec<u8>,
    /// Bytes of the output that were sent.
    sent: usize,
    /// Whether input was not consumed because of much output.
    is_stalled: bool,
    is_closing: bool,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Connection {
            stream,
            conversation: Conversation::default(),
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            is_stalled: false,
            is_closing: false,
        }
    }

    /// Reads, executes and writes as far as possible. Returns what it waits for; `None` if it has ended.
    pub(crate) fn turn<C: Context>(
        &mut self,
        shared: &Shared<C>,
        buffer: &mut [u8],
    ) -> Option<EventFlags> {
        for _ in 0..READS {
            match self.flush() {
                Ok(true) => {}
                Ok(false) => return Some(EventFlags::OUT),
                Err(_) => return None,
            }
            if self.is_closing {
                return None;
            }
            if self.is_stalled {
                self.execute_kept(shared);
                continue;
            }
            match self.stream.read(buffer) {
                Ok(0) => return None,
                Ok(n) => {
                    self.receive(&buffer[..n], shared);
                    if n < buffer.len()
                        && !self.is_stalled
                        && !self.is_closing
                        && self.flush().is_ok_and(|all| all)
                    {
                        // The socket is empty, or epoll reports it again.
                        return Some(EventFlags::IN);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Some(EventFlags::IN),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        Some(EventFlags::IN | EventFlags::OUT)
    }

    /// Executes received bytes together with earlier ones, and keeps the rest.
    fn receive<C: Context>(&mut self, bytes: &[u8], shared: &Shared<C>) {
        if self.input.is_empty() {
            let used = self.execute(bytes, shared);
            self.input.extend_from_slice(&bytes[used..]);
        } else {
            self.input.extend_from_slice(bytes);
            self.execute_kept(shared);
        }
    }

    fn execute_kept<C: Context>(&mut self, shared: &Shared<C>) {
        let mut input = std::mem::take(&mut self.input);
        let used = self.execute(&input, shared);
        input.drain(..used);
        self.input = input;
    }

    fn execute<C: Context>(&mut self, bytes: &[u8], shared: &Shared<C>) -> usize {
        let (used, pause) = self.conversation.advance(bytes, &mut self.output, shared);
        self.is_stalled = pause == Pause::Output;
        self.is_closing |= pause == Pause::Close;
        used
    }

    /// Sends output; returns whether all was sent.
    fn flush(&mut self) -> io::Result<bool> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.sent = 0;
        self.output.clear();
        if self.output.capacity() > KEPT {
            self.output = Vec::new();
        }
        Ok(true)
    }

    /// Releases what it holds.
    pub(crate) fn end<C: Context>(self, shared: &Shared<C>) {
        self.conversation.end(shared);
    }
}
