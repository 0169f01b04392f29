//! Sockets at both ends of a path.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use adverb_degen::{DirectionCounts, Ends, Path, Router};
use adverb_verbs::Impairment;

const NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const MTU: u32 = 1500;
/// Longer than anything takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Calls `work` with a path; prints a line and returns `None` where there can be none.
fn behind<T>(how: Impairment, work: impl FnOnce(&Path) -> T) -> Option<(T, [DirectionCounts; 2])> {
    match Path::make_elsewhere([NEAR, FAR], MTU) {
        Ok(path) => Some(Router::during(&path, how, |_| work(&path)).unwrap()),
        Err(error) => {
            eprintln!("NOT RUN: a path between two network namespaces: {error}");
            None
        }
    }
}

/// UDP sockets at the near and the far end.
fn sockets(path: &Path) -> [UdpSocket; 2] {
    let bind = |end, ip| path.within(end, || UdpSocket::bind((ip, 7000))).unwrap();
    let sockets = [bind(0, NEAR).unwrap(), bind(1, FAR).unwrap()];
    sockets[0].connect((FAR, 7000)).unwrap();
    sockets[1].connect((NEAR, 7000)).unwrap();
    sockets
}

/// Receives until nothing has arrived for `quiet`.
fn received(socket: &UdpSocket, quiet: Duration) -> u64 {
    socket.set_read_timeout(Some(quiet)).unwrap();
    let mut buffer = [0; 2000];
    (0..).find(|_| socket.recv(&mut buffer).is_err()).unwrap()
}

fn how(change: impl Fn(&mut Impairment)) -> Impairment {
    let mut how = Impairment::default();
    change(&mut how);
    how
}

#[test]
fn datagrams_pass_unchanged_in_both_directions() {
    behind(Impairment::default(), |path| {
        let sockets = sockets(path);
        for (from, to) in [(0, 1), (1, 0)] {
            let sent: Vec<u8> = (0..1400).map(|n| (n % 251) as u8).collect();
            sockets[from].send(&sent).unwrap();
            let mut arrived = [0; 2000];
            sockets[to].set_read_timeout(Some(TIMEOUT)).unwrap();
            let length = sockets[to].recv(&mut arrived).unwrap();
            assert_eq!(arrived[..length], sent);
        }
    });
}

#[test]
fn the_delays_of_a_burst_do_not_add_up() {
    const PACKETS: u32 = 100;
    let delay = Duration::from_millis(200);
    let found = behind(how(|how| how.delay = delay.into()), |path| {
        let [near, far] = sockets(path);
        far.set_read_timeout(Some(TIMEOUT)).unwrap();
        let began = Instant::now();
        for _ in 0..PACKETS {
            near.send(&[0; 100]).unwrap();
        }
        let mut first = None;
        for _ in 0..PACKETS {
            far.recv(&mut [0; 200]).unwrap();
            first.get_or_insert_with(|| began.elapsed());
        }
        assert!(first.unwrap() >= delay);
        began.elapsed()
    });
    if let Some((took, _)) = found {
        assert!(took < delay * PACKETS / 2, "{took:?}");
    }
}

#[test]
fn lost_and_duplicated_packets_are_counted() {
    let share = "20%".parse().unwrap();
    let how = how(|how| (how.loss, how.duplicate) = (share, share));
    let found = behind(how, |path| {
        let [near, far] = sockets(path);
        for _ in 0..200 {
            near.send(&[0; 100]).unwrap();
        }
        received(&far, Duration::from_secs(2))
    });
    if let Some((received, [out, _])) = found {
        let [lost, duplicated] =
            ["impaired_lost_pkts", "impaired_duplicated_pkts"].map(|name| out.impaired[name]);
        assert!((10..=70).contains(&lost), "{lost}");
        assert!((10..=70).contains(&duplicated), "{duplicated}");
        assert_eq!(out.left + lost, out.arrived + duplicated);
        // Neighbour and router discovery may pass, too.
        assert!(received <= out.left, "{received}");
        assert!(received > 130, "{received}");
    }
}

#[test]
fn further_packets_are_treated_as_the_router_is_told() {
    let Ok(path) = Path::make_elsewhere([NEAR, FAR], MTU) else {
        return drop(behind(Impairment::default(), |_| ()));
    };
    let all = how(|how| how.loss = "100%".parse().unwrap());
    let delay = Duration::from_secs(1);
    let late = how(|how| how.delay = delay.into());
    let (_, [out, _]) = Router::during(&path, all, |router| {
        let [near, far] = sockets(&path);
        near.send(&[1; 100]).unwrap();
        assert_eq!(received(&far, Duration::from_millis(100)), 0);
        let began = Instant::now();
        router.send(late).unwrap();
        near.send(&[2; 100]).unwrap();
        assert_eq!(received(&far, Duration::from_millis(20)), 0);
        router.send(Impairment::default()).unwrap();
        near.send(&[3; 100]).unwrap();
        far.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut packet = [0; 100];
        for number in [2, 3] {
            far.recv(&mut packet).unwrap();
            assert_eq!(packet[0], number);
        }
        // The second one does not overtake the first one.
        assert!(began.elapsed() >= delay);
    })
    .unwrap();
    assert!(out.impaired["impaired_lost_pkts"] > 0);
}

#[test]
fn a_full_queue_drops_packets_at_a_low_rate() {
    let how = how(|how| {
        how.rate = "100kbit".parse().ok();
        how.queue = Some(5);
    });
    let found = behind(how, |path| {
        let [near, far] = sockets(path);
        for _ in 0..50 {
            near.send(&[0; 1000]).unwrap();
        }
        received(&far, Duration::from_secs(2))
    });
    if let Some((received, [out, _])) = found {
        let overflow = out.impaired["impaired_overflow_pkts"];
        assert!(received >= 5 && overflow > 0, "{received}, {out:?}");
        assert_eq!(out.left + overflow, out.arrived);
    }
}

#[test]
fn tcp_delivers_every_byte_over_a_bad_path() {
    let percent = "1%".parse().unwrap();
    let how = how(|how| {
        (how.loss, how.duplicate, how.reorder, how.corrupt) = (percent, percent, percent, percent);
        how.delay = Duration::from_micros(200).into();
    });
    behind(how, |path| {
        let listener = path.within(1, || TcpListener::bind((FAR, 7000))).unwrap();
        let listener = listener.unwrap();
        let sent: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut read = Vec::new();
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_to_end(&mut read).unwrap();
                read
            });
            let connected = path.within(0, || TcpStream::connect((FAR, 7000)));
            let mut stream = connected.unwrap().unwrap();
            stream.write_all(&sent).unwrap();
            drop(stream);
            assert!(reader.join().unwrap() == sent);
        });
    });
}

#[test]
fn a_namespace_that_does_not_exist_is_named() {
    let ends = Ends::Existing(["no-such".to_owned(), "/no/such".to_owned()]);
    match Path::make(&ends, [NEAR, FAR], MTU) {
        Err(error @ adverb_degen::PathError::Tun(_)) => {
            eprintln!("NOT RUN: a path between two network namespaces: {error}");
        }
        other => assert_eq!(
            other.unwrap_err().to_string(),
            "network namespace 'no-such': /run/netns/no-such: No such file or directory (os error 2); \
             `ip netns` lists names"
        ),
    }
}
