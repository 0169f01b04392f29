//! Kernel TCP of a model, through plain Ethernet NICs of the port's speed, as the streams of a station.
//!
//! A connection needs no key: on a model's network there are no strangers.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use adverb_sim::{Condition, Wake};
use adverb_units::{Span, Time};
use adverb_verbs::{Note, StreamAddress, StreamError, StreamStep, StreamWait, Streams, WaitError};

use crate::host::pcie::LINE;
use crate::host::tcp::{End, EndState, Flag, Listener};
use crate::rate::ns;
use crate::station::ModelStation;
use crate::world::fabric::{Fabric, SharedFabric};

/// Port of the first listener; the next one has the next number.
const FIRST_PORT: u16 = 1024;

/// A listening socket of a model. Dropping it closes it.
pub struct ModelListener {
    fabric: SharedFabric,
    number: u32,
}

/// One end of a TCP connection between two machines of a model. Dropping it closes it.
pub struct ModelStream {
    fabric: SharedFabric,
    end: u32,
    is_closed: Cell<bool>,
}

impl Drop for ModelListener {
    fn drop(&mut self) {
        self.fabric
            .with(|fabric, _| fabric.listeners[self.number as usize].connected = None);
    }
}

impl ModelStream {
    fn new(station: &ModelStation<'_>, end: u32) -> Self {
        ModelStream {
            fabric: station.role().shared().clone(),
            end,
            is_closed: Cell::new(false),
        }
    }

    /// Sends the end of the stream, once.
    fn close(&self) {
        if !self.is_closed.replace(true) {
            self.fabric.with(|fabric, events| {
                fabric.transmit(self.end, (0, Flag::Fin), events.clock.now(), events);
            });
        }
    }
}

impl Drop for ModelStream {
    fn drop(&mut self) {
        self.close();
    }
}

impl ModelStation<'_> {
    fn system_call(&self) {
        self.in_kernel(self.times().syscall_ns);
    }

    /// The kernel's work for a piece: it copies `bytes` from the program.
    fn send_piece(&self, end: u32, bytes: &[u8], flag: Flag) {
        let (machine, doorbell) = (self.machine(), self.times().doorbell_ns);
        let tcp = self
            .role()
            .with(|fabric, _| fabric.machines[machine].preset.params.tcp);
        self.in_kernel(self.copying(bytes.len()) + tcp.process_ns + doorbell);
        self.role().with(|fabric, events| {
            fabric.push(end, bytes);
            fabric.transmit(end, (bytes.len() as u32, flag), events.clock.now(), events);
        });
    }

    /// Returns how long the kernel copies `bytes` from or to the program. It moves each line twice: one side reads it, the
    /// other one writes it.
    fn copying(&self, bytes: usize) -> Span {
        let machine = self.machine();
        let byte = self
            .role()
            .with(|fabric, _| fabric.machines[machine].preset.params.tcp.copy_byte_ns);
        ns(byte * bytes as f64) + self.move_lines(2 * (bytes as u64).div_ceil(LINE))
    }

    /// Waits for `condition`; returns false at the deadline.
    fn wait_for(&self, condition: Condition, how: StreamWait, deadline: Option<Time>) -> bool {
        match how {
            StreamWait::Sleep => {
                let woken = self.idle_for(condition, deadline);
                if woken {
                    self.wake_up();
                }
                woken
            }
            StreamWait::Poll => {
                if self.poll_in_kernel(condition, deadline) == Wake::Deadline {
                    return false;
                }
                // It happens in the middle of a call that comes too early; the next one finds it.
                self.in_kernel(self.times().syscall_ns / 2);
                self.system_call();
                true
            }
        }
    }

    /// Adds both ends of a connection to a listener; returns the active one.
    fn make_ends(&self, listener: u32) -> u32 {
        self.role().with(|fabric, events| {
            let first = fabric.ends.len() as u32;
            let there = fabric.listeners[listener as usize].machine;
            let sides = [
                (self.machine(), EndState::Connecting),
                (there, EndState::Asked { listener }),
            ];
            for (number, (machine, state)) in (first..).zip(sides) {
                let conditions = ["data of", "room of"]
                    .map(|what| events.condition(format!("{what} socket {number}")));
                fabric.ends.push(End::new(machine, conditions, state));
            }
            first
        })
    }
}

/// Listener at an address, if there is one.
fn listener_at(fabric: &Fabric, to: SocketAddr) -> Option<u32> {
    let number = to.port().checked_sub(FIRST_PORT)?;
    let listener = fabric.listeners.get(usize::from(number))?;
    listener.connected.as_ref().map(|_| number.into())
}

fn timed_out(what: &'static str, timeout: Span) -> WaitError {
    WaitError::TimedOut { what, timeout }
}

impl Streams for ModelStation<'_> {
    type Listener = ModelListener;
    type Stream = ModelStream;

    fn listen_by_step(
        &self,
        note: Note<'_>,
    ) -> Result<(ModelListener, StreamAddress), StreamError> {
        for step in [StreamStep::Socket, StreamStep::Bind, StreamStep::Listen] {
            self.system_call();
            note(step);
        }
        let machine = self.machine();
        let number = self.role().with(|fabric, events| {
            let number = fabric.listeners.len() as u32;
            fabric.listeners.push(Listener {
                machine,
                connected: Some(VecDeque::new()),
                condition: events.condition(format!("a connection to listener {number}")),
            });
            number
        });
        let ip = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 1).to_bits() + machine.0);
        let port = u16::try_from(number)
            .ok()
            .and_then(|n| n.checked_add(FIRST_PORT));
        let in_use = |at| StreamError::Listen {
            at,
            source: io::ErrorKind::AddrInUse.into(),
        };
        let port = port.ok_or_else(|| in_use(SocketAddr::from((ip, 0))))?;
        let fabric = self.role().shared().clone();
        let address = StreamAddress {
            at: SocketAddr::from((ip, port)),
            key: [0; 16],
        };
        Ok((ModelListener { fabric, number }, address))
    }

    fn accept(&self, listener: &ModelListener, timeout: Span) -> Result<ModelStream, WaitError> {
        let deadline = self.deadline(timeout);
        self.system_call();
        loop {
            self.role().sync();
            let (end, condition) = self.role().with(|fabric, _| {
                let this = &mut fabric.listeners[listener.number as usize];
                let first = this.connected.as_mut().and_then(VecDeque::pop_front);
                (first, this.condition)
            });
            if let Some(end) = end {
                return Ok(ModelStream::new(self, end));
            }
            if !self.wait_for(condition, StreamWait::Sleep, deadline) {
                return Err(timed_out("connection", timeout));
            }
        }
    }

    fn connect_by_step(
        &self,
        to: StreamAddress,
        timeout: Span,
        note: Note<'_>,
    ) -> Result<ModelStream, WaitError> {
        let deadline = self.deadline(timeout);
        for step in [StreamStep::Socket, StreamStep::Bind] {
            self.system_call();
            note(step);
        }
        self.system_call();
        let refused = || StreamError::Connect {
            to: to.at,
            source: io::ErrorKind::ConnectionRefused.into(),
        };
        let listener = self.role().with(|fabric, _| listener_at(fabric, to.at));
        let end = self.make_ends(listener.ok_or_else(refused)?);
        self.send_piece(end, &[], Flag::Syn);
        let stream = ModelStream::new(self, end);
        loop {
            self.role().sync();
            let (state, condition) = self.role().with(|fabric, _| {
                let this = &fabric.ends[end as usize];
                (this.state, this.room)
            });
            if state != EndState::Connecting {
                note(StreamStep::Connect);
                return Ok(stream);
            }
            if !self.wait_for(condition, StreamWait::Sleep, deadline) {
                return Err(timed_out("connection", timeout));
            }
        }
    }

    fn shutdown(&self, stream: &ModelStream) -> Result<(), StreamError> {
        self.system_call();
        stream.close();
        Ok(())
    }

    fn send_some(
        &self,
        stream: &ModelStream,
        bytes: &[u8],
        how: StreamWait,
        timeout: Span,
    ) -> Result<usize, WaitError> {
        let deadline = self.deadline(timeout);
        let end = stream.end;
        self.system_call();
        let mut sent = 0;
        while sent < bytes.len() {
            let largest = self.role().with(|fabric, _| fabric.largest_piece(end)) as usize;
            let piece = &bytes[sent..][..largest.min(bytes.len() - sent)];
            self.role().sync();
            let (has_room, ended, condition) = self.role().with(|fabric, _| {
                let this = &fabric.ends[end as usize];
                let ended = this.state == EndState::Ended;
                (fabric.has_room(end, piece.len() as u64), ended, this.room)
            });
            if ended {
                return Err(StreamError::Closed.into());
            }
            if has_room {
                self.send_piece(end, piece, Flag::None);
                sent += piece.len();
            } else if sent > 0 && how == StreamWait::Poll {
                break;
            } else if !self.wait_for(condition, how, deadline) {
                match sent {
                    0 => return Err(timed_out("room on the connection", timeout)),
                    _ => break,
                }
            }
        }
        Ok(sent)
    }

    fn receive_some(
        &self,
        stream: &ModelStream,
        into: &mut [u8],
        how: StreamWait,
        timeout: Span,
    ) -> Result<usize, WaitError> {
        let deadline = self.deadline(timeout);
        self.system_call();
        loop {
            self.role().sync();
            let (taken, ended, condition, interrupts) = self.role().with(|fabric, events| {
                let this = &mut fabric.ends[stream.end as usize];
                let interrupts = std::mem::take(&mut this.interrupts);
                let (ended, condition) = (this.state == EndState::Ended, this.data);
                let taken = this.readable.min(into.len() as u64) as usize;
                if taken > 0 {
                    fabric.pull(stream.end, &mut into[..taken], events);
                }
                (taken, ended, condition, interrupts)
            });
            if how == StreamWait::Sleep {
                self.not_idle(interrupts);
            }
            if taken > 0 {
                self.in_kernel(self.copying(taken));
                return Ok(taken);
            }
            if ended {
                return Err(StreamError::Closed.into());
            }
            if !self.wait_for(condition, how, deadline) {
                return Err(timed_out("data on the connection", timeout));
            }
        }
    }
}
