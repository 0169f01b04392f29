//! `adverb serve` in the background, and a client that speaks its protocol by hand.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::wire::Lan;
use super::{Place, signal, wait_for};

/// A running server.
pub(crate) struct Server {
    child: Child,
    /// Where it listens.
    pub(crate) address: String,
    /// Where its shared memory is.
    pub(crate) memory: PathBuf,
    log: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// At a free port of the loopback device.
    pub(crate) fn start(place: &Place) -> Self {
        Server::start_with(place, "--bind 127.0.0.1:0")
    }

    /// At a free port that the kernel gives to nobody who asks for any: another server can start there later.
    pub(crate) fn start_at_lasting_port(place: &Place) -> Self {
        let first = 10_000 + std::process::id() as u16 % 20_000;
        let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let port = (first..).find(is_free).unwrap();
        Server::start_with(place, &format!("--bind 127.0.0.1:{port}"))
    }

    pub(crate) fn start_with(place: &Place, args: &str) -> Self {
        let command = place.command(&format!("serve {args}"));
        let mut server = Server::run(command);
        server.memory = place.shm().to_owned();
        server
    }

    /// At the address of a host of a switch, where others can reach it.
    pub(crate) fn on_lan(lan: &Lan, host: usize, place: &Place) -> Self {
        let command = place.command(&format!("serve --bind 10.78.0.{}", host + 1));
        let server = Server::run(lan.inside(host, &command));
        server.wait_for_line("no authentication and no encryption");
        server
    }

    /// This command, which is `adverb serve`.
    pub(crate) fn run(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (lines, into) = (BufReader::new(child.stderr.take().unwrap()), log.clone());
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                into.lock().unwrap().push(line);
            }
        });
        let mut server = Server {
            child,
            address: String::new(),
            memory: PathBuf::new(),
            log,
        };
        let line = server.wait_for_line("listening at ");
        let (address, _) = line["listening at ".len()..].split_once(", ").unwrap();
        server.address = address.to_owned();
        server
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// The first line with these words; waits for it.
    #[track_caller]
    pub(crate) fn wait_for_line(&self, words: &str) -> String {
        let mut found = None;
        let stat = format!("/proc/{}/stat", self.pid());
        wait_for(words, || {
            let has_ended = std::fs::read_to_string(&stat).is_ok_and(|s| s.contains(") Z "));
            found = self.log().into_iter().find(|line| line.contains(words));
            assert!(found.is_some() || !has_ended, "ended: {:?}", self.log());
            found.is_some()
        });
        found.unwrap()
    }

    /// The request of a client on this machine.
    pub(crate) fn visit(&self) -> Value {
        let inode = |path: &Path| {
            let meta = std::fs::metadata(path).unwrap();
            (meta.dev(), meta.ino())
        };
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let identity = json!({
            "boot_id": boot_id.trim(),
            "pid_namespace": inode(Path::new("/proc/self/ns/pid")).1,
            "uid": rustix::process::geteuid().as_raw(),
            "memory": inode(&self.memory),
        });
        json!({"visit": {"host": "liar\u{1b}[2J", "device": "soft", "identity": identity}})
    }

    /// The id of its side's process; waits for it.
    #[track_caller]
    pub(crate) fn side(&self) -> u32 {
        let pid = self.pid();
        let children = format!("/proc/{pid}/task/{pid}/children");
        let mut side = None;
        wait_for("the server's side", || {
            let text = std::fs::read_to_string(&children).unwrap_or_default();
            side = text.split_whitespace().next().and_then(|p| p.parse().ok());
            side.is_some()
        });
        side.unwrap()
    }

    /// Ends it as a service manager does; gives its exit status.
    pub(crate) fn stop(mut self) -> Option<i32> {
        signal(self.pid(), Signal::TERM);
        self.child.wait().unwrap().code()
    }

    /// Waits for its own end; gives its exit status.
    #[track_caller]
    pub(crate) fn end(mut self) -> Option<i32> {
        wait_for("the server's end", || {
            self.child.try_wait().unwrap().is_some()
        });
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One end of a connection, by hand.
pub(crate) struct Hand(pub(crate) TcpStream);

impl Hand {
    pub(crate) fn connect(address: &str) -> Self {
        Hand::over(TcpStream::connect(address).unwrap())
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        let timeout = Some(Duration::from_secs(20));
        stream.set_read_timeout(timeout).unwrap();
        Hand(stream)
    }

    pub(crate) fn send(&mut self, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
        let frame = [&length, payload].concat();
        // The other end may have hung up, which is what the test then sees.
        let _ = self.0.write_all(&frame);
    }

    pub(crate) fn greet(&mut self, protocol: u32) {
        let greeting = json!({"adverb_protocol": protocol, "version": "9.9.9"});
        self.send(greeting.to_string().as_bytes());
    }

    /// Sends a control message.
    pub(crate) fn say(&mut self, word: &Value) {
        self.send(&[b"W", word.to_string().as_bytes()].concat());
    }

    /// The next frame; none if the other end hung up.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).ok()?;
        let mut payload = vec![0; u32::from_le_bytes(length) as usize];
        self.0.read_exact(&mut payload).ok()?;
        Some(payload)
    }

    /// Returns the next control message that is not a keepalive.
    pub(crate) fn word(&mut self) -> Option<Value> {
        loop {
            let frame = self.next()?;
            if let [b'W', json @ ..] = &frame[..] {
                let word: Value = serde_json::from_slice(json).unwrap();
                if word != "alive" {
                    return Some(word);
                }
            }
        }
    }

    /// Says nothing until the other end hangs up.
    #[track_caller]
    pub(crate) fn wait_for_end(&mut self) {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(e) => panic!("it did not hang up: {e}"),
        }
    }
}

/// An order of run number `run`, whose side waits for the greeting of the other.
pub(crate) fn order(run: u32) -> Value {
    json!({"run": {
        "run": run,
        "program": "pair",
        "params": {
            "id": "blast/write/64/plain/poll/b1/single/all",
            "figures": [],
            "program": "blast",
            "params": {
                "op": "write", "size": 64, "inline": false, "completion": "poll", "buffers": 1,
                "post": "single", "signal": "all", "qps": 1, "verify": false,
                "path": {
                    "path_mtu": null, "ack_timeout": null, "retries": null,
                    "traffic_class": null, "service_level": null, "impairment": null,
                },
                "length": {"iters": 10}, "repetitions": 1, "warmup": null, "seed": 1,
            },
        },
        "roles": [1],
        "taken": [],
        "shares_cores": false,
    }})
}
