//! Who holds a UDP port that this device cannot have.

use std::fs;
use std::net::{IpAddr, SocketAddr};

/// A line of `/proc/net/udp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row<'a> {
    user: &'a str,
    /// Of the socket's file.
    inode: &'a str,
}

/// Describes what holds the UDP port `at` of the calling thread's network namespace. `None` if it is not listed.
pub(crate) fn holder(at: SocketAddr) -> Option<String> {
    let tables = ["udp", "udp6"].map(|name| {
        let path = format!("/proc/thread-self/net/{name}");
        fs::read_to_string(path).unwrap_or_default()
    });
    let row = tables.iter().find_map(|table| find(table, at))?;
    Some(process_with(row.inode).unwrap_or_else(|| {
        let user = row.user;
        format!("a process of user {user} or the kernel (Soft-RoCE)")
    }))
}

/// Returns the row of a table whose socket has the UDP port `at`.
fn find(table: &str, at: SocketAddr) -> Option<Row<'_>> {
    let port = format!("{:04X}", at.port());
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (ip, own_port) = fields.next()?.split_once(':')?;
        let is_it = own_port == port && (is_any(ip) || ip.ends_with(&*listed(at.ip())));
        let mut fields = fields.skip(5);
        let (user, inode) = (fields.next()?, fields.nth(1)?);
        is_it.then_some(Row { user, inode })
    })
}

fn is_any(ip: &str) -> bool {
    ip.bytes().all(|digit| digit == b'0')
}

/// Returns an address in the form of the tables: 32-bit words in the byte order of this machine. An IPv4 address that is
/// mapped to IPv6 ends in it.
fn listed(ip: IpAddr) -> String {
    let bytes = match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let words = bytes.as_chunks::<4>().0.iter();
    words
        .map(|word| format!("{:08X}", u32::from_ne_bytes(*word)))
        .collect()
}

/// Returns the name and number of a process that has the socket with this inode open, among those that this one may
/// look at.
fn process_with(inode: &str) -> Option<String> {
    let socket = format!("socket:[{inode}]");
    let has_it = |process: &fs::DirEntry| {
        let open = fs::read_dir(process.path().join("fd"))
            .into_iter()
            .flatten();
        let mut links = open
            .flatten()
            .filter_map(|fd| fs::read_link(fd.path()).ok());
        links.any(|link| link.as_os_str() == &*socket)
    };
    let number = |entry: &fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let mut entries = fs::read_dir("/proc").ok()?.flatten();
    let process = entries.find(|entry| number(entry).is_some() && has_it(entry))?;
    let name = fs::read_to_string(process.path().join("comm")).ok()?;
    Some(format!("{} (process {})", name.trim(), number(&process)?))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn the_holder_of_a_port_is_named() {
        for ip in ["127.0.0.1", "0.0.0.0", "::1", "::"] {
            let Ok(socket) = UdpSocket::bind((ip.parse::<IpAddr>().unwrap(), 0)) else {
                continue; // a machine without IPv6
            };
            let port = socket.local_addr().unwrap().port();
            let local = if ip.contains(':') { "::1" } else { "127.0.0.1" };
            let address = SocketAddr::new(local.parse().unwrap(), port);
            // The kernel can leave out a row if other tests open and close sockets while the table is read.
            let found = (0..10).find_map(|_| holder(address)).unwrap();
            let own = format!("(process {})", std::process::id());
            assert!(found.ends_with(&own), "{ip}: {found}");
        }
        assert_eq!(holder(([127, 0, 0, 1], 1).into()), None);
    }

    #[test]
    fn rows_are_found_by_address_and_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n \
            77: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 4711 2 0 0\n";
        let row = Row {
            user: "1000",
            inode: "4711",
        };
        assert_eq!(find(table, ([127, 0, 0, 1], 4791).into()), Some(row));
        assert_eq!(find(table, ([127, 0, 0, 2], 4791).into()), None);
        assert_eq!(find(table, ([127, 0, 0, 1], 4792).into()), None);
    }
}
