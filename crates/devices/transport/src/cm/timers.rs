//! Sending, repeating, and timeouts.

use adverb_units::{Span, Time};
use adverb_wire::cm::{CmMessage, Mra, MsgType, RejectReason};

use super::connection::State;
use super::{CmEvent, CmParams, ConnId, Manager, Peer};

/// Timeout if the parameters have none.
const LONGEST: Span = Span::from_secs(8796);

impl CmParams {
    fn response(&self) -> Span {
        self.response_timeout.span().unwrap_or(LONGEST)
    }

    /// How long a request waits for the program: as long as the peer waits after a MRA, with all its repetitions.
    pub(super) fn unanswered(&self) -> Span {
        let granted = self.service_timeout.span().unwrap_or(LONGEST);
        granted + self.response() * (u64::from(self.retries) + 1)
    }
}

impl<P: Peer> Manager<P> {
    /// Sends a message and repeats it until the state changes.
    pub(super) fn ask(&mut self, now: Time, id: u32, message: &CmMessage) {
        self.answer(id, message);
        let (timeout, retries) = (self.params.response(), self.params.retries);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.deadline = Some(now + timeout);
            connection.retries_left = retries;
        }
    }

    /// Sends a message, and again when the peer repeats its own.
    pub(super) fn answer(&mut self, id: u32, message: &CmMessage) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let mad = message.to_mad(connection.transaction);
            connection.last = Some(Box::new(mad));
            self.out.push_back((connection.peer, mad));
        }
    }

    /// Answers a repeated message with a MRA until the program has decided.
    pub(super) fn keep_mra(&mut self, id: u32, of: MsgType) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let message = CmMessage::Mra(Mra {
                local_id: id,
                remote_id: connection.remote_id,
                of,
                service_timeout: self.params.service_timeout,
                private_data: [0; Mra::PRIVATE],
            });
            connection.last = Some(Box::new(message.to_mad(connection.transaction)));
        }
    }

    /// Sends the last message of a connection again.
    pub(super) fn repeat(&mut self, id: u32) {
        if let Some(connection) = self.connections.get(&id)
            && let Some(last) = &connection.last
        {
            self.out.push_back((connection.peer, **last));
        }
    }

    pub(super) fn take_mra(
        &mut self,
        now: Time,
        (from, id, remote_id): (P, u32, u32),
        granted: Span,
    ) {
        let response = self.params.response();
        if let Some(connection) = self.peers_connection(from, id)
            && matches!(connection.state, State::ReqSent | State::RepSent)
        {
            if connection.state == State::ReqSent {
                connection.remote_id = remote_id;
            }
            connection.deadline = Some(now + granted + response);
        }
    }

    /// Repeats messages that were not answered in time, or gives up.
    pub fn handle_timeout(&mut self, now: Time) {
        let is_due = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        let due = self.connections.iter().filter(|(_, c)| is_due(c.deadline));
        let due: Vec<u32> = due.map(|(id, _)| *id).collect();
        due.into_iter().for_each(|id| self.time_out(now, id));
    }

    fn time_out(&mut self, now: Time, id: u32) {
        let response = self.params.response();
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let asks = matches!(
            connection.state,
            State::ReqSent | State::RepSent | State::DreqSent | State::SidrReqSent
        );
        if asks && connection.retries_left > 0 {
            connection.retries_left -= 1;
            connection.deadline = Some(now + response);
            self.repeat(id);
            return;
        }
        self.give_up(now, id);
    }

    fn give_up(&mut self, now: Time, id: u32) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let is_orphan = connection.is_orphan;
        let unreachable = CmEvent::Unreachable { id: ConnId(id) };
        let event = match connection.state {
            State::ReqSent => {
                self.refuse(now, id, (MsgType::Req, RejectReason::TIMEOUT, &[]));
                unreachable
            }
            State::RepSent => {
                self.refuse(now, id, (MsgType::Rep, RejectReason::TIMEOUT, &[]));
                unreachable
            }
            State::ReqReceived => {
                self.refuse(now, id, (MsgType::Req, RejectReason::TIMEOUT, &[]));
                unreachable
            }
            State::SidrReqSent => {
                self.remove(id);
                unreachable
            }
            State::SidrReqReceived => {
                self.refuse_sidr(now, id);
                return;
            }
            State::DreqSent => return self.end(now, id),
            State::TimeWait => {
                self.remove(id);
                CmEvent::TimewaitExit { id: ConnId(id) }
            }
            State::RepReceived | State::Established => return,
        };
        if !is_orphan {
            self.events.push_back(event);
        }
    }

    /// Returns the time of the next timeout.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.connections.values().filter_map(|c| c.deadline).min()
    }
}
