//! Files of this host for a guest: what they need to run comes along, and so do the symbolic links
//! on the way to them.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use super::{Entry, Image};
use crate::elf;
use crate::error::{Error, io_error};
use crate::needs::find_program;
use crate::protocol::APPLETS;
use crate::script;

/// Links that a path of this host may pass before it is taken for a loop.
const MAX_LINKS: usize = 40;
/// Bytes of a file that the kernel looks at when it runs one (`BINPRM_BUF_SIZE`).
const START: u64 = 256;
/// Folders over which a guest mounts its own.
const GUESTS_OWN: [&str; 3] = ["/dev", "/proc", "/sys"];

impl Image {
    /// A file of this host, or a folder with all below it, at its own path; programs bring their
    /// shared libraries, scripts their interpreter.
    pub(crate) fn host_path(&mut self, path: &Path) -> Result<(), Error> {
        let path = std::path::absolute(path).map_err(io_error("cannot use", path))?;
        let real = self.mirror(&path)?;
        if real.is_file() && !fits(&real).map_err(io_error("cannot read", &real))? {
            let what = "a program for another machine than x86-64, which the virtual machines are";
            return Err(Error::Path { path, what });
        }
        self.needs_of(&real)
    }

    /// Puts links to busybox and its applets into the image. The applets are asked of busybox itself:
    /// those of Debian's packages `busybox` and `busybox-static` differ, and only the shell of the
    /// second finds applets that have no link.
    pub(crate) fn busybox(&mut self, busybox: &Path) -> Result<(), Error> {
        let listed = Command::new(busybox).arg("--list").output();
        let listed = listed.map_err(io_error("cannot run", busybox))?;
        self.applets(utf8(busybox)?, &String::from_utf8_lossy(&listed.stdout));
        Ok(())
    }

    fn applets(&mut self, busybox: &str, list: &str) {
        for applet in list.lines() {
            self.symlink(&format!("{APPLETS}/{applet}"), busybox);
        }
        self.symlink("/bin/sh", busybox);
    }

    /// What is below a folder, or what a file needs to run.
    fn needs_of(&mut self, real: &Path) -> Result<(), Error> {
        if !self.seen.insert(real.to_owned()) {
            return Ok(());
        }
        if !real.is_dir() {
            self.script(real)?;
            return self.libraries(real);
        }
        for entry in fs::read_dir(real).map_err(io_error("cannot read", real))? {
            let entry = entry.map_err(io_error("cannot read", real))?;
            let below = self.mirror(&entry.path())?;
            self.needs_of(&below)?;
        }
        Ok(())
    }

    /// The interpreter of an executable script, and what `env` finds for it.
    fn script(&mut self, real: &Path) -> Result<(), Error> {
        let (mode, start) = beginning(real).map_err(io_error("cannot read", real))?;
        let Some((path, name)) = script::interpreter(&start).filter(|_| mode & 0o111 != 0) else {
            return Ok(());
        };
        let absent = |interpreter: &str| Error::Interpreter {
            path: real.to_owned(),
            interpreter: interpreter.to_owned(),
        };
        let named = name.map(|name| find_program(&name).ok_or_else(|| absent(&name)));
        for program in named.into_iter().chain([Ok(path)]) {
            let program = program?;
            if !program.is_file() {
                return Err(absent(&program.to_string_lossy()));
            }
            self.host_path(&program)?;
        }
        Ok(())
    }

    /// The shared libraries of a file, and theirs. A file for another machine is data here.
    fn libraries(&mut self, real: &Path) -> Result<(), Error> {
        let read = |e| io_error("cannot read", real)(e);
        if !elf::is_elf(&beginning(real).map_err(read)?.1) {
            return Ok(());
        }
        let content = fs::read(real).map_err(read)?;
        if !elf::is_x86_64(&content) {
            return Ok(());
        }
        let linkage = elf::linkage(&content).map_err(|error| Error::Libraries {
            path: real.to_owned(),
            what: error.to_string(),
        })?;
        for library in self.loader.resolve(real, &linkage)? {
            let real = self.mirror(&library)?;
            self.needs_of(&real)?;
        }
        Ok(())
    }

    /// Puts a path of this host into the image with the symbolic links on its way, and gives the
    /// path without links.
    fn mirror(&mut self, path: &Path) -> Result<PathBuf, Error> {
        let mut rest: Vec<PathBuf> = pieces(path);
        let mut at = PathBuf::from("/");
        let mut links = 0;
        while let Some(piece) = rest.pop() {
            if piece == OsStr::new("..") {
                at.pop();
                continue;
            }
            at.push(piece);
            let meta = fs::symlink_metadata(&at).map_err(io_error("cannot find", path))?;
            let name = utf8(&at)?.to_owned();
            if meta.is_dir() {
                self.entries.entry(name).or_insert(Entry::Folder);
            } else if meta.is_symlink() {
                links += 1;
                if links > MAX_LINKS {
                    let path = path.to_owned();
                    let what = "too many symbolic links";
                    return Err(Error::Path { path, what });
                }
                let target = fs::read_link(&at).map_err(io_error("cannot read", &at))?;
                self.entries
                    .insert(name, Entry::Symlink(utf8(&target)?.to_owned()));
                at.pop();
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                rest.extend(pieces(&target));
            } else {
                if let Some(what) = unfit(&at, &meta) {
                    return Err(Error::Path { path: at, what });
                }
                self.entries.insert(name, Entry::HostFile(at.clone()));
            }
        }
        Ok(at)
    }
}

/// The components of a path, last first; a leading `/` and `.` are dropped.
fn pieces(path: &Path) -> Vec<PathBuf> {
    path.components()
        .filter(|c| matches!(c, Component::Normal(_) | Component::ParentDir))
        .map(|c| PathBuf::from(c.as_os_str()))
        .rev()
        .collect()
}

fn utf8(path: &Path) -> Result<&str, Error> {
    path.to_str().ok_or_else(|| Error::Path {
        path: path.to_owned(),
        what: "a path with bytes that are not UTF-8",
    })
}

/// Why a guest cannot have this file, which is neither a folder nor a link.
fn unfit(path: &Path, meta: &fs::Metadata) -> Option<&'static str> {
    if GUESTS_OWN.iter().any(|folder| path.starts_with(folder)) {
        return Some("cannot be put into a machine, which has a /dev, /proc and /sys of its own");
    }
    let kind = "cannot be put into a machine: neither a file, a folder nor a symbolic link";
    (!meta.is_file()).then_some(kind)
}

/// Whether the guest's processor can run a file, as far as its format says what it is for.
fn fits(path: &Path) -> io::Result<bool> {
    let (_, start) = beginning(path)?;
    Ok(!elf::is_elf(&start) || elf::is_x86_64(&start))
}

/// The mode and the first bytes of a file: its format, and the line of a script's interpreter.
fn beginning(path: &Path) -> io::Result<(u32, Vec<u8>)> {
    let mut start = Vec::new();
    let file = fs::File::open(path)?;
    let mode = file.metadata()?.permissions().mode();
    file.take(START).read_to_end(&mut start)?;
    Ok((mode, start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::Loader;

    #[test]
    fn links_on_the_way_come_along() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("real")).unwrap();
        fs::write(root.join("real/file.1"), "x").unwrap();
        std::os::unix::fs::symlink("real", root.join("alias")).unwrap();
        std::os::unix::fs::symlink("./file.1", root.join("real/file")).unwrap();
        let mut image = Image::new(Loader::default());
        let real = image.mirror(&root.join("alias/file")).unwrap();
        assert_eq!(real, root.join("real/file.1"));
        let entry = |name: &str| image.entries.get(root.join(name).to_str().unwrap());
        assert!(matches!(entry("alias"), Some(Entry::Symlink(t)) if t == "real"));
        assert!(matches!(entry("real/file"), Some(Entry::Symlink(_))));
        assert!(matches!(entry("real/file.1"), Some(Entry::HostFile(_))));
    }

    #[test]
    fn a_loop_of_links_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("b", dir.path().join("a")).unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("b")).unwrap();
        let error = Image::new(Loader::default())
            .mirror(&dir.path().join("a"))
            .unwrap_err();
        assert!(
            error.to_string().contains("too many symbolic links"),
            "{error}"
        );
    }

    fn script(dir: &Path, name: &str, first_line: &str) -> PathBuf {
        let path = dir.canonicalize().unwrap().join(name);
        fs::write(&path, format!("{first_line}\necho\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_script_brings_its_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        let inner = script(dir.path(), "inner", "#!/bin/sh -e");
        let outer = script(dir.path(), "outer", &format!("#!{}", inner.display()));
        let mut image = Image::new(Loader::of_this_host().unwrap());
        image.host_path(&outer).unwrap();
        let has = |path: &Path| image.entries.contains_key(path.to_str().unwrap());
        assert!(has(&inner) && has(&fs::canonicalize("/bin/sh").unwrap()));
    }

    #[test]
    fn each_applet_of_busybox_is_linked() {
        let mut image = Image::new(Loader::default());
        image.applets("/bin/busybox", "[\nrmmod\n");
        for link in ["/busybox/[", "/busybox/rmmod", "/bin/sh"] {
            let entry = image.entries.get(link);
            assert!(matches!(entry, Some(Entry::Symlink(to)) if to == "/bin/busybox"));
        }
    }

    #[test]
    fn an_interpreter_that_is_not_there_is_named_with_its_script() {
        let dir = tempfile::tempdir().unwrap();
        for line in ["#!/no/such/shell", "#!/usr/bin/env no-such-shell"] {
            let path = script(dir.path(), "script", line);
            let mut image = Image::new(Loader::of_this_host().unwrap());
            let error = image.host_path(&path).unwrap_err().to_string();
            let interpreter = line.rsplit(['!', ' ']).next().unwrap();
            assert!(
                error.contains("/script") && error.contains(interpreter),
                "{error}"
            );
        }
    }

    #[test]
    fn links_made_here_follow_the_folders_that_are_links() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("real")).unwrap();
        fs::write(root.join("real/taken"), "").unwrap();
        std::os::unix::fs::symlink("real", root.join("alias")).unwrap();
        let mut image = Image::new(Loader::default());
        image.mirror(&root.join("alias/taken")).unwrap();
        for name in ["taken", "free"] {
            image.symlink(&format!("{}/alias/{name}", root.display()), "/bin/busybox");
        }
        let entry = |name: &str| image.entries.get(root.join(name).to_str().unwrap());
        assert!(matches!(entry("real/taken"), Some(Entry::HostFile(_))));
        assert!(matches!(entry("real/free"), Some(Entry::Symlink(_))));
        assert!(entry("alias/free").is_none());
    }

    #[test]
    fn a_link_to_the_folder_above_ends() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        std::os::unix::fs::symlink("..", dir.path().join("below/up")).unwrap();
        let mut image = Image::new(Loader::default());
        image.host_path(dir.path()).unwrap();
        let of_dir = |path: &&String| path.starts_with(dir.path().to_str().unwrap());
        assert_eq!(image.entries.keys().filter(of_dir).count(), 3);
    }

    #[test]
    fn a_program_for_another_machine_is_refused_and_as_data_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut program = fs::read(std::env::current_exe().unwrap()).unwrap();
        const E_MACHINE: usize = 18;
        program[E_MACHINE] = object::elf::EM_AARCH64 as u8;
        fs::write(dir.path().join("program"), program).unwrap();
        let put = |path: &Path| Image::new(Loader::default()).host_path(path);
        let error = put(&dir.path().join("program")).unwrap_err().to_string();
        assert!(error.contains("another machine than x86-64"), "{error}");
        put(dir.path()).unwrap();
    }

    #[test]
    fn what_a_guest_cannot_have_is_refused() {
        let mut image = Image::new(Loader::default());
        let mut refused = |path: &str| image.host_path(Path::new(path)).unwrap_err().to_string();
        assert!(refused("/proc/version").contains("of its own"));
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(refused(socket.to_str().unwrap()).contains("neither a file"));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Image::new(Loader::default())
            .host_path(Path::new("/no/such"))
            .unwrap_err();
        assert!(
            error.to_string().contains("cannot find /no/such"),
            "{error}"
        );
    }
}
