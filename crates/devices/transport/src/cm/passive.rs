//! The passive side: requests of peers, and their answers.

use adverb_units::{Span, Time};
use adverb_wire::cm::{
    CmMessage, MsgType, Rej, RejectReason, Rep, Req, ServiceId, SidrRep, SidrReq, SidrStatus,
};

use super::connection::{Connection, NO_QP, State};
use super::{CmEvent, ConnId, MAX_CONNECTIONS, Manager, Peer, WrongState, padded};

/// How long the name of a refused or resolved request is kept: longer than its sender waits before it repeats it. The
/// kernel waits 4.3 s.
const LINGER: Span = Span::from_secs(10);

/// The decision on a new request.
enum Admission {
    /// It becomes a connection.
    Admitted,
    /// It is dropped; the peer repeats it.
    Dropped,
    /// It is refused.
    Refused(RejectReason),
}

impl<P: Peer> Manager<P> {
    /// Accepts a request: sends a REP, whose names of the connection are set here.
    ///
    /// # Errors
    /// There is no REQ to answer.
    pub fn accept(&mut self, now: Time, id: ConnId, rep: Rep) -> Result<(), WrongState> {
        let connection = self.expect(id, &[State::ReqReceived], "waiting for an answer")?;
        connection.state = State::RepSent;
        let message = CmMessage::Rep(Rep {
            local_id: id.0,
            remote_id: connection.remote_id,
            ..rep
        });
        self.leave_backlog(id.0);
        self.ask(now, id.0, &message);
        Ok(())
    }

    /// Answers a SIDR_REQ; its name is set here.
    ///
    /// # Errors
    /// There is none.
    pub fn answer_sidr(&mut self, now: Time, id: ConnId, rep: SidrRep) -> Result<(), WrongState> {
        let expected = "waiting for an answer";
        let connection = self.expect(id, &[State::SidrReqReceived], expected)?;
        let message = CmMessage::SidrRep(SidrRep {
            request_id: connection.remote_id,
            ..rep
        });
        self.leave_backlog(id.0);
        self.close(now, id.0, &message);
        Ok(())
    }

    pub(super) fn take_req(&mut self, now: Time, (from, transaction): (P, u64), req: &Req) {
        if self.repeats(from, req.local_id) {
            return;
        }
        match self.admission(req.service) {
            Admission::Dropped => {}
            Admission::Refused(reason) => {
                let message = CmMessage::Rej(Rej {
                    local_id: 0,
                    remote_id: req.local_id,
                    of: MsgType::Req,
                    additional_length: 0,
                    reason,
                    additional: [0; Rej::ADDITIONAL],
                    private_data: [0; Rej::PRIVATE],
                });
                self.out.push_back((from, message.to_mad(transaction)));
            }
            Admission::Admitted => {
                let id = self.add((from, req.local_id, transaction), State::ReqReceived);
                self.enter_backlog(id, req.service);
                self.keep_mra(id, MsgType::Req);
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.remote_qpn = req.qpn;
                    // A program that never answers must not hold the request indefinitely.
                    connection.deadline = Some(now + self.params.unanswered());
                }
                let (id, peer, req) = (ConnId(id), from, *req);
                self.events.push_back(CmEvent::Request { id, peer, req });
            }
        }
    }

    pub(super) fn take_sidr_req(
        &mut self,
        now: Time,
        (from, transaction): (P, u64),
        req: &SidrReq,
    ) {
        if self.repeats(from, req.request_id) {
            return;
        }
        match self.admission(req.service) {
            Admission::Dropped => {}
            Admission::Refused(_) => {
                let rep = sidr_refusal(req.request_id, req.service, SidrStatus::UNSUPPORTED);
                let message = CmMessage::SidrRep(rep);
                self.out.push_back((from, message.to_mad(transaction)));
            }
            Admission::Admitted => {
                let id = self.add((from, req.request_id, transaction), State::SidrReqReceived);
                self.enter_backlog(id, req.service);
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.deadline = Some(now + self.params.unanswered());
                }
                let (id, peer, req) = (ConnId(id), from, *req);
                self.events
                    .push_back(CmEvent::SidrRequest { id, peer, req });
            }
        }
    }

    /// Answers a message that the peer repeats; returns whether it was one.
    fn repeats(&mut self, from: P, request_id: u32) -> bool {
        match self.by_request.get(&(from, request_id)).copied() {
            Some(id) => {
                let is_settled = |c: &Connection<P>| c.state == State::Established;
                if !self.connections.get(&id).is_some_and(is_settled) {
                    self.repeat(id);
                }
                true
            }
            None => false,
        }
    }

    fn admission(&self, service: ServiceId) -> Admission {
        match self.listeners.get(&service) {
            None => Admission::Refused(RejectReason::INVALID_SERVICE_ID),
            Some(listener) if listener.waiting >= listener.backlog => Admission::Dropped,
            Some(_) if self.connections.len() >= MAX_CONNECTIONS => {
                Admission::Refused(RejectReason::NO_RESOURCES)
            }
            Some(_) => Admission::Admitted,
        }
    }

    fn add(&mut self, (peer, request_id, transaction): (P, u32, u64), state: State) -> u32 {
        let id = self.new_id();
        let connection = Connection {
            remote_id: request_id,
            request_id,
            transaction,
            is_passive: true,
            ..Connection::active(peer, id, state)
        };
        self.connections.insert(id, connection);
        self.by_request.insert((peer, request_id), id);
        id
    }

    fn enter_backlog(&mut self, id: u32, service: ServiceId) {
        if let Some(listener) = self.listeners.get_mut(&service) {
            listener.waiting += 1;
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.service = Some(service);
            connection.is_in_backlog = true;
        }
    }

    /// The program has taken the request: it makes room for another one. So the kernel counts; a program may take several
    /// requests before it answers the first one.
    pub fn taken(&mut self, id: ConnId) {
        self.leave_backlog(id.0);
    }

    /// The program has taken the request, or it is gone.
    pub(super) fn leave_backlog(&mut self, id: u32) {
        let connection = self.connections.get_mut(&id);
        let connection = connection.filter(|c| c.is_in_backlog);
        let service = connection.and_then(|connection| {
            connection.is_in_backlog = false;
            connection.service
        });
        if let Some(listener) = service.and_then(|service| self.listeners.get_mut(&service)) {
            listener.waiting = listener.waiting.saturating_sub(1);
        }
    }

    /// Refuses a connection with a REJ, and keeps its name.
    pub(super) fn refuse(
        &mut self,
        now: Time,
        id: u32,
        (of, reason, private_data): (MsgType, RejectReason, &[u8]),
    ) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let message = CmMessage::Rej(Rej {
            local_id: id,
            remote_id: connection.remote_id,
            of,
            additional_length: 0,
            reason,
            additional: [0; Rej::ADDITIONAL],
            private_data: padded(private_data),
        });
        self.leave_backlog(id);
        self.close(now, id, &message);
    }

    pub(super) fn refuse_sidr(&mut self, now: Time, id: u32) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let service = connection.service.unwrap_or(ServiceId(0));
        let rep = sidr_refusal(connection.remote_id, service, SidrStatus::REJECTED);
        self.leave_backlog(id);
        self.close(now, id, &CmMessage::SidrRep(rep));
    }

    /// Sends the last message of a connection that never was, and keeps its name without telling the program.
    pub(super) fn close(&mut self, now: Time, id: u32, message: &CmMessage) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.settle(State::TimeWait);
            connection.is_orphan = true;
            connection.deadline = Some(now + LINGER);
            self.answer(id, message);
        }
    }
}

fn sidr_refusal(request_id: u32, service: ServiceId, status: SidrStatus) -> SidrRep {
    SidrRep {
        request_id,
        status,
        additional_length: 0,
        qpn: NO_QP,
        service,
        qkey: 0,
        additional: [0; SidrRep::ADDITIONAL],
        private_data: [0; SidrRep::PRIVATE],
    }
}
