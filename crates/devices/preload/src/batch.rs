//! Batches of send requests, as `ibv_wr_start` to `ibv_wr_complete` build them.
//!
//! The functions that build requests return nothing, so the batch remembers the first error, and
//! [`Batch::complete`] returns it. A batch keeps its memory for the next one.

use std::ffi::c_void;

use adverb_units::Bytes;
use adverb_verbs::{
    Destination, Lkey, Operation, PostErrorCause, SendFlags, SendRequest, Sge, Srqn, WrId,
};

use crate::call::Refusal;

/// A request that is being built.
#[derive(Clone, Copy, Debug)]
struct Request {
    wr_id: WrId,
    operation: Operation,
    flags: SendFlags,
    to: Option<Destination<'static>>,
    remote_srqn: Srqn,
    /// Its SGEs in [`Batch::sges`].
    sges: (usize, usize),
}

/// The requests of a batch.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    requests: Vec<Request>,
    /// The addresses of inline data are places in `inline` until the batch is complete.
    sges: Vec<Sge<'static>>,
    inline: Vec<u8>,
    posted: Vec<SendRequest<'static>>,
    error: Option<Refusal>,
}

impl Batch {
    /// Discards all requests.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.inline.clear();
        self.posted.clear();
        self.error = None;
    }

    /// Adds a request without data.
    pub(crate) fn begin(&mut self, wr_id: u64, operation: Operation, flags: SendFlags) {
        let at = self.sges.len();
        self.requests.push(Request {
            wr_id: WrId(wr_id),
            operation,
            flags,
            to: None,
            remote_srqn: Srqn(0),
            sges: (at, at),
        });
    }

    /// Makes [`Batch::complete`] fail, unless it fails already.
    #[cold]
    pub(crate) fn fail(&mut self, error: Refusal) {
        self.error.get_or_insert(error);
    }

    fn last(&mut self, setter: &'static str) -> Option<&mut Request> {
        if self.requests.is_empty() {
            let reason =
                format!("{setter} before a function that begins a request (such as ibv_wr_send)");
            self.fail(Refusal::invalid(reason));
        }
        self.requests.last_mut()
    }

    /// Sets the destination of the last request.
    pub(crate) fn set_destination(&mut self, to: Destination<'static>) {
        if let Some(request) = self.last("ibv_wr_set_ud_addr") {
            request.to = Some(to);
        }
    }

    /// Sets the peer's shared receive queue of the last request.
    pub(crate) fn set_srq(&mut self, remote_srqn: Srqn) {
        if let Some(request) = self.last("ibv_wr_set_xrc_srqn") {
            request.remote_srqn = remote_srqn;
        }
    }

    /// Sets the SGEs of the last request.
    pub(crate) fn set_sges(&mut self, sges: impl IntoIterator<Item = (u64, u32, u32)>) {
        let from = self.sges.len();
        for (addr, length, lkey) in sges {
            // SAFETY: the device checks the key of an SGE that is not inline.
            self.sges
                .push(unsafe { Sge::from_raw(addr, length, Lkey(lkey)) });
        }
        let to = self.sges.len();
        if let Some(request) = self.last("ibv_wr_set_sge") {
            request.sges = (from, to);
        }
    }

    /// Copies `buffers` as the inline data of the last request. `max` is the queue pair's `max_inline_data`.
    ///
    /// # Safety
    /// The buffers are readable.
    pub(crate) unsafe fn set_inline(
        &mut self,
        buffers: impl IntoIterator<Item = (*const c_void, usize)>,
        max: u32,
    ) {
        let from = self.inline.len();
        for (addr, length) in buffers {
            let given = self.inline.len() - from + length;
            if given > max as usize {
                let (given, max) = (given as u64, u64::from(max));
                let error = PostErrorCause::InlineTooLong {
                    given: Bytes::new(given),
                    max: Bytes::new(max),
                };
                return self.fail(error.into());
            }
            if length > 0 {
                // SAFETY: as the caller promises.
                let data = unsafe { std::slice::from_raw_parts(addr.cast::<u8>(), length) };
                self.inline.extend_from_slice(data);
            }
        }
        let length = self.inline.len() - from;
        self.set_sges([(from as u64, length as u32, 0)]);
        if let Some(request) = self.requests.last_mut() {
            request.flags |= SendFlags::INLINE;
        }
    }

    /// Ends the batch: passes its requests to `post`, unless building one has failed.
    pub(crate) fn complete(
        &mut self,
        post: impl FnOnce(&[SendRequest<'_>]) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        self.place_inline();
        if let [request] = &self.requests[..] {
            return post(&[request.with_sges(&self.sges)]);
        }
        for request in &self.requests {
            let request = request.with_sges(&self.sges);
            // SAFETY: only the lifetime differs. `posted` is emptied below, before `sges` changes.
            let request =
                unsafe { std::mem::transmute::<SendRequest<'_>, SendRequest<'static>>(request) };
            self.posted.push(request);
        }
        let posted = post(&self.posted);
        self.posted.clear();
        posted
    }

    /// Replaces places of inline data by addresses. The data does not move any more.
    fn place_inline(&mut self) {
        let base = self.inline.as_ptr().expose_provenance() as u64;
        let inline = |request: &&Request| request.flags.contains(SendFlags::INLINE);
        for request in self.requests.iter().filter(inline) {
            let (from, to) = request.sges;
            for sge in &mut self.sges[from..to] {
                // SAFETY: the range is in `inline`, which is not changed before the batch is cleared.
                *sge = unsafe { Sge::from_raw(base + sge.addr(), sge.length(), sge.lkey()) };
            }
        }
    }
}

impl Request {
    fn with_sges<'a>(&self, sges: &'a [Sge<'a>]) -> SendRequest<'a> {
        let (from, to) = self.sges;
        let request = SendRequest::new(self.wr_id, self.operation, &sges[from..to]);
        let request = request.with_flags(self.flags).to_srq(self.remote_srqn);
        match self.to {
            None => request,
            Some(to) => request.to(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_INLINE: u32 = 8;

    fn completed(batch: &mut Batch) -> Result<Vec<String>, String> {
        let mut seen = Vec::new();
        let result = batch.complete(|requests| {
            for request in requests {
                let sges = request.sges.iter().map(|sge| match request.flags {
                    // SAFETY: inline data is readable while the batch is completed.
                    SendFlags::INLINE => unsafe {
                        let start = std::ptr::with_exposed_provenance(sge.addr() as usize);
                        let data = std::slice::from_raw_parts(start, sge.length() as usize);
                        String::from_utf8_lossy(data).into_owned()
                    },
                    _ => format!("{}+{}", sge.addr(), sge.length()),
                });
                let sges: Vec<_> = sges.collect();
                seen.push(format!("{}: {}", request.wr_id.0, sges.join(" ")));
            }
            Ok(())
        });
        batch.clear();
        result
            .map(|()| seen)
            .map_err(|refusal| refusal.reason().to_owned())
    }

    fn send(batch: &mut Batch, wr_id: u64) {
        batch.begin(wr_id, Operation::Send, SendFlags::empty());
    }

    fn inline(batch: &mut Batch, parts: &[&str]) {
        let parts = parts.iter().map(|part| (part.as_ptr().cast(), part.len()));
        // SAFETY: they are readable.
        unsafe { batch.set_inline(parts, MAX_INLINE) };
    }

    #[test]
    fn each_request_has_its_own_data_and_inline_data_is_copied() {
        let mut batch = Batch::default();
        for _ in 0..3 {
            send(&mut batch, 1);
            batch.set_sges([(10, 1, 0), (20, 2, 0)]);
            send(&mut batch, 2);
            let text = String::from("abcd");
            inline(&mut batch, &[&text, "ef"]);
            drop(text);
            send(&mut batch, 3);
            send(&mut batch, 4);
            inline(&mut batch, &["gh"]);
            let expected = ["1: 10+1 20+2", "2: abcdef", "3: ", "4: gh"];
            assert_eq!(completed(&mut batch).unwrap(), expected);
        }
    }

    #[test]
    fn the_first_error_fails_the_batch_and_the_next_batch_is_free_of_it() {
        let mut batch = Batch::default();
        send(&mut batch, 1);
        inline(&mut batch, &["12345678", "9"]);
        batch.fail(Refusal::invalid("later"));
        let error = completed(&mut batch).unwrap_err();
        assert_eq!(error, "9 B of inline data exceed max_inline_data 8 B");
        send(&mut batch, 2);
        assert_eq!(completed(&mut batch).unwrap(), ["2: "]);
        batch.set_sges([(1, 1, 1)]);
        let error = completed(&mut batch).unwrap_err();
        assert!(
            error.starts_with("ibv_wr_set_sge before a function"),
            "{error}"
        );
    }
}
