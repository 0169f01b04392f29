//! The initramfs: files of this host at their own paths, and what the guest's `/init` needs.

mod host;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::cpio::{Kind, Writer};
use crate::error::{Error, io_error};
use crate::kernel::Module;
use crate::libraries::Loader;
use crate::protocol::BOOT_FILE;

enum Entry {
    Folder,
    /// Read when the image is written.
    HostFile(PathBuf),
    File {
        mode: u32,
        content: Vec<u8>,
    },
    Symlink(String),
    CharDevice {
        major: u32,
        minor: u32,
    },
}

/// A file tree under construction. Keys are absolute paths; their order puts folders first.
pub(crate) struct Image {
    entries: BTreeMap<String, Entry>,
    loader: Loader,
    /// Files and folders of this host, without links, whose needs have been looked at.
    seen: HashSet<PathBuf>,
}

impl Image {
    /// The folders and the device node that the kernel and `/init` expect. Shared libraries are
    /// found as `loader` does.
    pub(crate) fn new(loader: Loader) -> Self {
        let mut image = Image {
            entries: BTreeMap::new(),
            loader,
            seen: HashSet::new(),
        };
        for folder in ["/dev", "/proc", "/sys", "/tmp", "/run", "/root", "/etc"] {
            image.folder(folder);
        }
        let (major, minor) = (5, 1);
        image.entries.insert(
            "/dev/console".to_owned(),
            Entry::CharDevice { major, minor },
        );
        image
    }

    /// A file made here, unless the path is taken.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: Vec<u8>) {
        self.made(path, Entry::File { mode, content });
    }

    /// A symbolic link, unless the path is taken.
    pub(crate) fn symlink(&mut self, path: &str, target: &str) {
        self.made(path, Entry::Symlink(target.to_owned()));
    }

    fn made(&mut self, path: &str, entry: Entry) {
        let path = self.place(path);
        self.parents(&path);
        self.entries.entry(path).or_insert(entry);
    }

    /// Where a path leads when a folder on its way is a link; links to folders are this host's.
    fn place(&self, path: &str) -> String {
        let is_link = |folder: &Path| {
            let entry = folder.to_str().and_then(|name| self.entries.get(name));
            matches!(entry, Some(Entry::Symlink(_)))
        };
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        let linked = Path::new(folder).ancestors().any(is_link);
        let real = linked.then(|| fs::canonicalize(folder).ok()).flatten();
        real.map_or_else(
            || path.to_owned(),
            |real| format!("{}/{file}", real.display()),
        )
    }

    /// Kernel modules, as files; gives their paths in the same order.
    pub(crate) fn modules(&mut self, modules: Vec<Module>) -> Vec<String> {
        let mut paths = Vec::new();
        for Module { name, content } in modules {
            let path = format!("{BOOT_FILE}-modules/{name}.ko");
            self.file(&path, 0o644, content);
            paths.push(path);
        }
        paths
    }

    fn folder(&mut self, path: &str) {
        self.parents(path);
        self.entries.insert(path.to_owned(), Entry::Folder);
    }

    fn parents(&mut self, path: &str) {
        for (slash, _) in path.match_indices('/').skip(1) {
            self.entries
                .entry(path[..slash].to_owned())
                .or_insert(Entry::Folder);
        }
    }

    /// Writes the archive.
    pub(crate) fn write(&self, to: impl Write) -> Result<(), Error> {
        let mut cpio = Writer::new(to);
        for (path, entry) in &self.entries {
            let name = path.trim_start_matches('/');
            let host;
            let kind = match entry {
                Entry::Folder => Kind::Folder,
                Entry::HostFile(file) => {
                    let read = io_error("cannot read", file);
                    host = read_with_mode(file).map_err(read)?;
                    Kind::File {
                        mode: host.0,
                        content: &host.1,
                    }
                }
                Entry::File { mode, content } => Kind::File {
                    mode: *mode,
                    content,
                },
                Entry::Symlink(target) => Kind::Symlink { target },
                Entry::CharDevice { major, minor } => Kind::CharDevice {
                    major: *major,
                    minor: *minor,
                },
            };
            cpio.entry(name, &kind)
                .map_err(io_error("cannot put into the image", Path::new(path)))?;
        }
        let mut to = cpio
            .finish()
            .map_err(io_error("cannot write", Path::new("the image")))?;
        to.flush()
            .map_err(io_error("cannot write", Path::new("the image")))
    }
}

fn read_with_mode(path: &Path) -> io::Result<(u32, Vec<u8>)> {
    let mode = fs::metadata(path)?.permissions().mode();
    Ok((mode, fs::read(path)?))
}
