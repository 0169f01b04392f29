//! The thread that takes the events of the connection manager for all rsockets: it carries connections through their
//! handshake, so that a listening rsocket accepts while its program does something else, and notices that peers end.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use adverb_abi::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};

use super::connection::RESOLVE_MS;
use super::functions as c;
use super::options::Options;
use super::socket::{Phase, Socket, State};
use super::stream::Stream;
use super::table;
use super::wire::ConnData;
use crate::call::{self, Refusal};
use crate::cm::agent::block_signals;
use crate::cm::event::Kind;
use crate::object::lock;

/// For how long a process that exits waits for its data to arrive.
const GOODBYE: Duration = Duration::from_secs(1);
/// Most that the kernel's connection manager accepts, too.
const RETRIES: u8 = 7;

/// `RDMA_PS_TCP`.
const PORT_SPACE_TCP: u32 = 0x0106;

/// The channel on which the events of all rsockets arrive.
#[derive(Debug)]
struct Service(AtomicPtr<rdma_event_channel>);

impl Service {
    fn channel(&self) -> *mut rdma_event_channel {
        self.0.load(Ordering::Relaxed)
    }
}

/// Starts the thread at the first call.
fn start() -> Result<&'static Service, Refusal> {
    static SERVICE: Mutex<Option<&Service>> = Mutex::new(None);
    table::check_not_child()?;
    let mut service = lock(&SERVICE);
    if let Some(service) = *service {
        return Ok(service);
    }
    // SAFETY: takes no argument.
    let channel = unsafe { c::rdma_create_event_channel() };
    if channel.is_null() {
        return Err(c::failed("an event channel"));
    }
    let started: &'static Service = Box::leak(Box::new(Service(AtomicPtr::new(channel))));
    std::thread::Builder::new()
        .name("adverb-rsocket".into())
        .spawn(move || serve(started))?;
    table::watch_forks();
    // SAFETY: the function takes no argument and does not unwind. It runs before the agents end their connections, which
    // were started before.
    unsafe { libc::atexit(say_goodbye) };
    *service = Some(started);
    Ok(started)
}

/// Creates an rsocket with an id of its own.
pub(super) fn create(family: c_int) -> Result<Arc<Socket>, Refusal> {
    let service = start()?;
    let mut id = null_mut();
    // SAFETY: the channel is the service's, and `id` a place for the pointer. The id is new.
    unsafe {
        match c::rdma_create_id(service.channel(), &raw mut id, null_mut(), PORT_SPACE_TCP) {
            0 => Ok(Socket::of_id(id, family, Options::default())),
            _ => Err(c::failed("an id")),
        }
    }
}

fn serve(service: &'static Service) {
    block_signals();
    loop {
        let mut event = null_mut();
        // SAFETY: the channel is never destroyed, and `event` a place for the pointer. The event was taken if the call
        // succeeds, and is acknowledged once.
        unsafe {
            if c::rdma_get_cm_event(service.channel(), &raw mut event) == 0 {
                handle(event);
            }
        }
    }
}

/// What is to be done with an rsocket's connection after its event was acknowledged.
enum After {
    Nothing,
    /// The rsocket was never accepted, and ends.
    Close(Arc<Socket>),
    /// The request has no rsocket.
    Reject(*mut rdma_cm_id),
}

/// Handles an event, and acknowledges it.
///
/// # Safety
/// The event was taken from the channel of the service.
unsafe fn handle(event: *mut rdma_cm_event) {
    // SAFETY: the caller's; the event is valid until it is acknowledged, as its ids are.
    let after = unsafe {
        let (kind, id, listener) = ((*event).event, (*event).id, (*event).listen_id);
        let of = match kind == Kind::ConnectRequest as u32 {
            true => listener,
            false => id,
        };
        match table::by_key((*of).context.addr()) {
            Some(socket) if kind == Kind::ConnectRequest as u32 => request(&socket, id, &*event),
            Some(socket) => {
                let after = advance(&socket, kind, &*event);
                socket.sleepers.wake_others();
                after
            }
            None if kind == Kind::ConnectRequest as u32 => After::Reject(id),
            None => After::Nothing,
        }
    };
    // SAFETY: as above. Ids are destroyed after their events were acknowledged.
    unsafe {
        c::rdma_ack_cm_event(event);
        match after {
            After::Nothing => {}
            After::Reject(id) => {
                c::rdma_reject(id, std::ptr::null(), 0);
                c::rdma_destroy_id(id);
            }
            After::Close(socket) => socket.close(),
        }
    }
}

/// Returns the peer's private data.
///
/// # Safety
/// The event is valid, and has parameters of a connection.
unsafe fn conn_data(event: &rdma_cm_event) -> Option<ConnData> {
    // SAFETY: the caller's.
    unsafe {
        let param = &event.param.conn;
        if param.private_data.is_null() {
            return None;
        }
        let length = usize::from(param.private_data_len);
        let bytes = std::slice::from_raw_parts(param.private_data.cast::<u8>(), length);
        ConnData::parse(bytes)
    }
}

/// Makes the parameters of a connection, with private data that lives as long as `data`.
fn conn_param(data: &[u8; ConnData::SIZE]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: data.as_ptr().cast::<c_void>(),
        private_data_len: ConnData::SIZE as u8,
        flow_control: 1,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES,
        ..rdma_conn_param::zeroed()
    }
}

/// A peer wants to connect: creates the rsocket, and accepts.
///
/// # Safety
/// `id` is the new id of the event.
unsafe fn request(listener: &Arc<Socket>, id: *mut rdma_cm_id, event: &rdma_cm_event) -> After {
    // SAFETY: the caller's.
    let Some(data) = (unsafe { conn_data(event) }) else {
        call::note("rlisten", "a peer that is not an rsocket was rejected");
        return After::Reject(id);
    };
    let options = {
        let state = listener.lock();
        if !Socket::has_room(&state) {
            return After::Reject(id);
        }
        state.options.clone()
    };
    // SAFETY: the id is new.
    let child = unsafe { Socket::of_id(id, listener.family, options) };
    // SAFETY: as above.
    let accepted = unsafe { accept(&mut child.lock(), id, &data) };
    if let Err(refusal) = accepted {
        call::refuse("rlisten", &refusal);
        return After::Close(child);
    }
    child.lock().listener = Some(listener.key);
    let mut state = listener.lock();
    // It may have been closed.
    if state.phase != Phase::Listening {
        return After::Close(child);
    }
    state.queue.push_back(child);
    After::Nothing
}

/// # Safety
/// `id` is alive, has no queue pair, and is the state's.
unsafe fn accept(state: &mut State, id: *mut rdma_cm_id, data: &ConnData) -> Result<(), Refusal> {
    // SAFETY: the caller's; the parameters live during the call.
    unsafe {
        let mut stream = Stream::new(id, &state.options.sizes)?;
        stream.set_peer(data);
        let own = stream.conn_data().to_bytes();
        let mut param = conn_param(&own);
        state.stream = Some(stream);
        state.phase = Phase::Connecting;
        match c::rdma_accept(id, &raw mut param) {
            0 => Ok(()),
            _ => Err(Refusal::new(
                c::errno(),
                "the connection could not be accepted",
            )),
        }
    }
}

/// Carries an rsocket through its handshake, or ends its connection.
///
/// # Safety
/// The event is valid, and of the rsocket's id.
unsafe fn advance(socket: &Arc<Socket>, kind: u32, event: &rdma_cm_event) -> After {
    let mut state = socket.lock();
    let id = state.id;
    if id.is_null() {
        return After::Nothing;
    }
    if kind == Kind::Disconnected as u32 {
        state.progress();
        if let Some(stream) = &mut state.stream {
            stream.disconnected();
        }
    }
    if state.phase != Phase::Connecting {
        return After::Nothing;
    }
    // SAFETY: the id is alive while the state is locked.
    let result = unsafe {
        if kind == Kind::AddrResolved as u32 {
            match c::rdma_resolve_route(id, RESOLVE_MS) {
                0 => Ok(()),
                _ => Err(c::errno()),
            }
        } else if kind == Kind::RouteResolved as u32 {
            connect(&mut state, id).map_err(|refusal| call::refuse("rconnect", &refusal))
        } else if kind == Kind::Established as u32 {
            established(&mut state, event)
        } else {
            Err(failure(kind, event.status))
        }
    };
    if let Err(errno) = result {
        state.phase = Phase::Failed;
        state.error = errno;
    }
    let Some(listener) = state.listener else {
        return After::Nothing;
    };
    let has_failed = state.phase == Phase::Failed;
    drop(state);
    let Some(listener) = table::by_key(listener) else {
        return After::Nothing;
    };
    if has_failed {
        listener
            .lock()
            .queue
            .retain(|child| !Arc::ptr_eq(child, socket));
        return After::Close(socket.clone());
    }
    listener.sleepers.wake_others();
    After::Nothing
}

/// # Safety
/// `id` is alive, has no queue pair, and is the state's.
unsafe fn connect(state: &mut State, id: *mut rdma_cm_id) -> Result<(), Refusal> {
    // SAFETY: the caller's; the parameters live during the call.
    unsafe {
        let stream = Stream::new(id, &state.options.sizes)?;
        let data = stream.conn_data().to_bytes();
        state.stream = Some(stream);
        let mut param = conn_param(&data);
        match c::rdma_connect(id, &raw mut param) {
            0 => Ok(()),
            _ => Err(Refusal::expected(c::errno())),
        }
    }
}

/// The handshake is complete. The active side has the peer's answer.
///
/// # Safety
/// The event is valid.
unsafe fn established(state: &mut State, event: &rdma_cm_event) -> Result<(), c_int> {
    let Some(stream) = &mut state.stream else {
        return Err(libc::EIO);
    };
    if state.listener.is_none() && !stream.has_peer() {
        // SAFETY: the caller's.
        let data = unsafe { conn_data(event) };
        // The peer is not an rsocket, or one of another version.
        stream.set_peer(&data.ok_or(libc::EPROTONOSUPPORT)?);
    }
    stream.connected();
    state.phase = Phase::Connected;
    state.asked = Instant::now();
    Ok(())
}

/// Returns the errno of a handshake that has failed.
fn failure(kind: u32, status: c_int) -> c_int {
    match status.abs() {
        _ if kind == Kind::Rejected as u32 => libc::ECONNREFUSED,
        0 if kind == Kind::Unreachable as u32 => libc::ETIMEDOUT,
        0 => libc::ECONNABORTED,
        libc::ENODEV => libc::ENETUNREACH,
        errno => errno,
    }
}

/// Ends the connections of a process that exits without closing them, as the kernel does for TCP: data in flight still
/// arrives, and the peers can read all of it.
extern "C" fn say_goodbye() {
    if table::check_not_child().is_err() {
        return;
    }
    let began = Instant::now();
    let _ = std::panic::catch_unwind(|| {
        let open = table::all();
        let is_over = |socket: &Arc<Socket>| {
            let ended = |state: &mut State| {
                let stream = state
                    .stream
                    .as_mut()
                    .filter(|_| state.phase == Phase::Connected);
                let Some(stream) = stream else { return true };
                if stream.is_connected && stream.can_control() {
                    stream.shut_down(true, true);
                }
                stream.has_drained()
            };
            // A thread that holds the lock may never run again.
            socket.try_lock().is_some_and(|mut state| {
                state.progress();
                ended(&mut state)
            })
        };
        while !open.iter().all(is_over) && began.elapsed() < GOODBYE {
            std::thread::sleep(Duration::from_micros(100));
        }
    });
}
