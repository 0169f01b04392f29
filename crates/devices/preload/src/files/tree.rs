//! The tree of our devices' files, in the layout of the kernel's: `/sys/class/infiniband/NAME` is a symbolic link to a
//! folder of the parent device, which is a platform device here.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::net::IpAddr;
use std::sync::OnceLock;

use adverb_softnic::interface_index;

use super::listing::OPEN;
use crate::device::{Device, devices, uverbs};
use crate::port::{CAP_FLAGS, GIDS};

/// Major number and first minor number of `/dev/infiniband/uverbs0`.
pub(super) const UVERBS: (u32, u32) = (231, 192);
/// Versions of the kernel's interface (`IB_USER_VERBS_ABI_VERSION`), and of the driver's.
const ABI_VERSION: &str = "6";
const DRIVER_ABI_VERSION: &str = "1";

/// What is at a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A directory with files of these names, which may have others that are not ours.
    Directory(BTreeSet<String>),
    /// A symbolic link to this path.
    Link(String),
    /// A file of sysfs with this text.
    Text(String),
    /// A character device with this minor number.
    Device(u32),
}

/// How our paths begin, below directories that are the kernel's, too.
const ROOTS: [&str; 3] = [
    "/sys/class/infiniband",
    "/sys/devices/platform/adverb.",
    "/dev/infiniband",
];

/// Where a path leads: an absolute path without `.`, `..` and our symbolic links. It is not on the heap, because memory
/// allocators and signal handlers look for files, too.
pub(super) struct Resolved {
    path: [u8; LONGEST],
    length: usize,
    pub(super) entry: Option<&'static Entry>,
}

/// Maximum length of a path. Ours are shorter.
const LONGEST: usize = 256;

/// Whether a call follows a symbolic link at the end of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follow {
    Yes,
    No,
}

/// Resolves an absolute path; `None` if it is too long to be ours.
pub(super) fn resolve(path: &str, follow: Follow) -> Option<Resolved> {
    let mut resolved = Resolved {
        path: [0; LONGEST],
        length: 0,
        entry: None,
    };
    resolved.walk(path, follow)?;
    let at = resolved.path();
    // A look at the tree makes it, which allocates memory: foreign paths are recognized without.
    let is_directory = ROOTS.iter().any(|root| root.starts_with(at));
    if is_directory || is_below_root(at) {
        resolved.entry = tree().get(at);
    }
    Some(resolved)
}

fn is_below_root(path: &str) -> bool {
    ROOTS.iter().any(|root| path.starts_with(root))
}

impl Resolved {
    pub(super) fn path(&self) -> &str {
        std::str::from_utf8(&self.path[..self.length]).unwrap_or_default()
    }

    /// Goes on along `path`.
    fn walk(&mut self, path: &str, follow: Follow) -> Option<()> {
        let mut components = path.split('/').peekable();
        while let Some(component) = components.next() {
            match component {
                "" | "." => {}
                ".." => self.length = self.path().rfind('/').unwrap_or(0),
                name => {
                    let directory = self.length;
                    self.push("/")?;
                    self.push(name)?;
                    let follows = follow == Follow::Yes || components.peek().is_some();
                    if follows
                        && is_below_root(self.path())
                        && let Some(Entry::Link(target)) = tree().get(self.path())
                    {
                        self.length = directory;
                        self.walk(target, Follow::Yes)?;
                    }
                }
            }
        }
        Some(())
    }

    fn push(&mut self, text: &str) -> Option<()> {
        let end = self.length + text.len();
        let place = self.path.get_mut(self.length..end)?;
        place.copy_from_slice(text.as_bytes());
        self.length = end;
        Some(())
    }
}

/// Returns the files and directories by path.
fn tree() -> &'static BTreeMap<String, Entry> {
    static TREE: OnceLock<BTreeMap<String, Entry>> = OnceLock::new();
    if let Some(tree) = TREE.get() {
        return tree;
    }
    // Held during `fork`, so that no child inherits the tree while a thread that it does not have makes it.
    let _lock = OPEN.lock();
    TREE.get_or_init(|| {
        let mut tree = BTreeMap::new();
        let abi_version = "/sys/class/infiniband_verbs/abi_version";
        insert(&mut tree, abi_version, Entry::Text(ABI_VERSION.to_owned()));
        for device in devices() {
            insert_device(&mut tree, device);
        }
        tree
    })
}

/// Inserts a file and the directories in which it is.
fn insert(tree: &mut BTreeMap<String, Entry>, path: &str, entry: Entry) {
    tree.insert(path.to_owned(), entry);
    let mut path = path;
    while let Some((directory, name)) = path.rsplit_once('/') {
        let names = tree.entry(directory.to_owned());
        if let Entry::Directory(names) = names.or_insert_with(|| Entry::Directory(BTreeSet::new()))
        {
            names.insert(name.to_owned());
        }
        path = directory;
    }
}

/// Inserts the files of a device, each in one place, and the links to them.
fn insert_device(tree: &mut BTreeMap<String, Entry>, device: &Device) {
    let name = device.name;
    let uverbs = uverbs(name);
    let minor = UVERBS.1 + u32::from(device.index);
    let parent = format!("devices/platform/adverb.{}", device.index);
    let file = format!("/dev/infiniband/{uverbs}");
    insert(tree, &file, Entry::Device(minor));
    for (class, name) in [("infiniband", name), ("infiniband_verbs", &uverbs)] {
        let link = Entry::Link(format!("../../{parent}/{class}/{name}"));
        insert(tree, &format!("/sys/class/{class}/{name}"), link);
        let device = format!("/sys/{parent}/{class}/{name}/device");
        insert(tree, &device, Entry::Link("../..".to_owned()));
    }
    let mut texts = |folder: &str, texts: &[(&str, &str)]| {
        for (file, text) in texts {
            let path = format!("/sys/{parent}/{folder}{file}");
            insert(tree, &path, Entry::Text((*text).to_owned()));
        }
    };
    texts("", &[("local_cpus", &all_cpus()), ("numa_node", "-1")]);
    texts(
        &format!("infiniband_verbs/{uverbs}/"),
        &[
            ("abi_version", DRIVER_ABI_VERSION),
            ("dev", &format!("{}:{minor}", UVERBS.0)),
            ("ibdev", name),
        ],
    );
    let guid = in_words(&device.guid().to_ne_bytes());
    let folder = format!("infiniband/{name}/");
    texts(
        &folder,
        &[
            ("board_id", "adverb"),
            ("fw_ver", env!("CARGO_PKG_VERSION")),
            ("hca_type", "adverb"),
            ("hw_rev", "0x1"),
            ("node_desc", name),
            ("node_guid", &guid),
            ("node_type", "1: CA"),
            ("sys_image_guid", &guid),
            ("ports/1/cap_mask", &format!("{CAP_FLAGS:#010x}")),
            ("ports/1/lid", "0x0"),
            ("ports/1/lid_mask_count", "0"),
            ("ports/1/link_layer", "Ethernet"),
            ("ports/1/phys_state", "5: LinkUp"),
            ("ports/1/pkeys/0", "0xffff"),
            ("ports/1/rate", "100 Gb/sec (4X EDR)"),
            ("ports/1/sm_lid", "0x0"),
            ("ports/1/sm_sl", "0"),
            ("ports/1/state", "4: ACTIVE"),
        ],
    );
    let gid = match device.address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let gid = in_words(&gid.octets());
    let interface = interface(device.address);
    for index in 0..GIDS {
        let mut entry = |table: &str, text| {
            texts(&folder, &[(&format!("ports/1/{table}/{index}"), text)]);
        };
        entry("gids", &gid);
        entry("gid_attrs/types", "RoCE v2");
        if let Some(interface) = &interface {
            entry("gid_attrs/ndevs", interface);
        }
    }
}

/// Returns bytes as sysfs writes GUIDs and GIDs: `fe80:0000:…`.
fn in_words(bytes: &[u8]) -> String {
    let word = |word: &[u8]| format!("{:02x}{:02x}", word[0], word[1]);
    bytes.chunks(2).map(word).collect::<Vec<_>>().join(":")
}

/// Returns a mask of all CPUs, as sysfs writes it: `0000000f` or `00000001,ffffffff`.
fn all_cpus() -> String {
    // SAFETY: returns a number.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.max(1) as usize;
    let words = count.div_ceil(32);
    let word = |n: usize| match count - 32 * n {
        32.. => u32::MAX,
        rest => (1 << rest) - 1,
    };
    let all: Vec<_> = (0..words)
        .rev()
        .map(|n| format!("{:08x}", word(n)))
        .collect();
    all.join(",")
}

/// Returns the name of the interface that has an address.
fn interface(address: IpAddr) -> Option<String> {
    let index = interface_index(address).ok()?;
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the name has the size that the function needs.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the function has returned a C string.
    let name = unsafe { CStr::from_ptr(found) };
    Some(name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: &str = "/sys/class/infiniband/adverb0";

    #[test]
    fn our_devices_have_the_files_that_programs_look_for() {
        let text = |path: &str| match resolve(path, Follow::Yes).unwrap().entry {
            Some(Entry::Text(text)) => text.as_str(),
            other => panic!("{path}: {other:?}"),
        };
        let sysfs = |file: &str| text(&format!("{DEVICE}/{file}"));
        assert_eq!(sysfs("node_type"), "1: CA");
        for index in 0..GIDS {
            let gid = sysfs(&format!("ports/1/gids/{index}"));
            assert_eq!(gid, "0000:0000:0000:0000:0000:ffff:7f00:0001");
        }
        assert_eq!(sysfs("ports/1/gid_attrs/types/0"), "RoCE v2");
        assert_eq!(sysfs("ports/1/gid_attrs/ndevs/0"), "lo");
        assert!(sysfs("device/local_cpus").len() >= 8);
        assert_eq!(sysfs("../../numa_node"), "-1");
        let verbs = "/sys/class/infiniband_verbs/uverbs_adverb0";
        assert_eq!(text(&format!("{verbs}/ibdev")), "adverb0");
        assert_eq!(text(&format!("{verbs}/dev")), "231:192");
        assert_eq!(
            text(&format!("{verbs}/device/infiniband/adverb0/hw_rev")),
            "0x1"
        );
        let file = resolve("/dev/infiniband/uverbs_adverb0", Follow::Yes);
        assert_eq!(file.unwrap().entry, Some(&Entry::Device(192)));
        for foreign in [
            "/sys/class/infiniband/mlx5_0/node_type",
            "/sys/class/infiniband/adverb0/ports/1/gids/4",
            "/sys/class/infiniband/adverb0/ports/2/state",
            "/sys/class/infiniband_mad/abi_version",
            "/dev/infiniband/rdma_cm",
            "/sys/class/net",
            "/sys/class/infiniband/../net",
        ] {
            let resolved = resolve(foreign, Follow::Yes).unwrap();
            assert_eq!(resolved.entry, None, "{foreign}");
        }
        assert!(resolve(&"/sys".repeat(100), Follow::Yes).is_none());
    }

    #[test]
    fn links_lead_to_the_parent_device() {
        let path = |path: &str, follow| resolve(path, follow).unwrap().path().to_owned();
        let parent = "/sys/devices/platform/adverb.0";
        for (from, to) in [
            (DEVICE, "/infiniband/adverb0"),
            ("//sys/class/./infiniband/adverb0/", "/infiniband/adverb0"),
            ("/sys/class/infiniband/adverb0/device", ""),
            ("/sys/class/infiniband/adverb0/../..", ""),
            (
                "/sys/class/infiniband/adverb0/device/infiniband_verbs",
                "/infiniband_verbs",
            ),
        ] {
            assert_eq!(path(from, Follow::Yes), format!("{parent}{to}"), "{from}");
        }
        assert_eq!(path(DEVICE, Follow::No), DEVICE);
        assert_eq!(
            path("/sys/class/infiniband/adverb0/../../../net", Follow::Yes),
            "/sys/devices/platform/net"
        );
        assert_eq!(path("/../sys", Follow::Yes), "/sys");
        let names = |path: &str| match resolve(path, Follow::Yes).unwrap().entry {
            Some(Entry::Directory(names)) => names.iter().cloned().collect::<Vec<_>>(),
            other => panic!("{path}: {other:?}"),
        };
        assert_eq!(names("/sys/class/infiniband"), ["adverb0"]);
        assert_eq!(names("/dev/infiniband"), ["uverbs_adverb0"]);
        assert_eq!(
            names(&format!("{DEVICE}/ports/1/gids")),
            ["0", "1", "2", "3"]
        );
    }
}
