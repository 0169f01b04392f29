//! A server on a free port, and a client's socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use adverb_cached::{Rdma, Server, Shared, Stop};
use adverb_patterns::store::attach::ACCESS;
use adverb_patterns::store::cache::Limits;
use adverb_softnic::{SoftContext, SoftDevice};
use adverb_units::Bytes;
use adverb_verbs::{Context, Device};

/// Most clients of RDMA.
const CLIENTS: u32 = 4;

/// A server in threads of this process.
pub(crate) struct Ours {
    pub(crate) address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

/// Returns an empty store with this much memory.
pub(crate) fn store(memory: Bytes, evicts: bool) -> Shared<SoftContext> {
    let context = SoftDevice::new().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let region = Rdma::<SoftContext>::region(memory, CLIENTS);
    let mr = context.alloc_mr(&pd, region, ACCESS).unwrap();
    let rdma = Rdma::new(context, pd, (memory, CLIENTS, 3), 7).unwrap();
    let limits = Limits {
        memory,
        max_value: Bytes::mib(1).min(memory),
        evicts,
    };
    Shared::new(limits, mr, Some(rdma))
}

impl Ours {
    pub(crate) fn start(memory: Bytes, evicts: bool, connections: u32) -> Self {
        let shared = Arc::new(store(memory, evicts));
        let server =
            Server::bind("127.0.0.1:0".parse().unwrap(), (2, connections), shared).unwrap();
        let (address, stop) = (server.address().unwrap(), server.stop());
        let thread = std::thread::spawn(move || server.run().unwrap());
        Ours {
            address,
            stop,
            thread: Some(thread),
        }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::new(self.address)
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.stop.stop();
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

/// Debian's memcached, if it is installed.
pub(crate) struct Theirs {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl Theirs {
    pub(crate) fn start(test: &str) -> Option<Self> {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let started = Command::new("memcached")
            .args(["-u", "root", "-l", "127.0.0.1", "-U", "0", "-t", "2", "-p"])
            .arg(address.port().to_string())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = started else {
            eprintln!("NOT RUN: {test}: memcached is not installed");
            return None;
        };
        let theirs = Theirs { process, address };
        while TcpStream::connect(address).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(theirs)
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Client(stream)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Sends commands, and returns all answers: until the answer to one that no test sends. `mn` is sent by one, so that
    /// its own answer could end the wait.
    pub(crate) fn ask(&mut self, commands: &[u8]) -> Vec<u8> {
        self.send(commands);
        self.send(b"md the_end_of_the_answers Oend\r\n");
        self.until(b"NF Oend\r\n")
    }

    pub(crate) fn until(&mut self, end: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        let mut buffer = [0; 1 << 16];
        while !all.ends_with(end) {
            let n = self.0.read(&mut buffer).unwrap();
            assert!(n > 0, "closed after {:?}", String::from_utf8_lossy(&all));
            all.extend_from_slice(&buffer[..n]);
        }
        all.truncate(all.len() - end.len());
        all
    }

    /// Reads until the other end closes.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        // A reset ends it, too.
        let _ = self.0.read_to_end(&mut all);
        all
    }
}
