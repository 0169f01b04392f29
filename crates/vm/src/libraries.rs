//! Where this host's loader finds shared libraries (ld.so(8)): the folders that a program names,
//! the loader's cache, the default folders. Variables of the environment such as `LD_LIBRARY_PATH`
//! do not count: the guest does not have them. A `DT_RPATH` counts only for the file that has it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::elf::Linkage;
use crate::error::{Error, io_error};
use crate::needs::find_program;

/// Prints the loader's cache.
pub(crate) const LDCONFIG: &str = "ldconfig";
const DEFAULT_FOLDERS: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// The loader's cache: libraries of x86-64 by name.
#[derive(Debug, Default)]
pub(crate) struct Loader(HashMap<String, PathBuf>);

impl Loader {
    /// Reads the cache of this host.
    pub(crate) fn of_this_host() -> Result<Self, Error> {
        let program = find_program(LDCONFIG).unwrap_or_else(|| PathBuf::from(LDCONFIG));
        let output = Command::new(&program)
            .arg("-p")
            .env("LC_ALL", "C")
            .output()
            .map_err(io_error("cannot run", &program))?;
        Ok(Loader::read(&String::from_utf8_lossy(&output.stdout)))
    }

    fn read(printed: &str) -> Self {
        Loader(printed.lines().filter_map(listed).collect())
    }

    /// The libraries that the file at `path` (without symbolic links) needs, and the loader.
    pub(crate) fn resolve(&self, path: &Path, linkage: &Linkage) -> Result<Vec<PathBuf>, Error> {
        let origin = path.parent().unwrap_or(Path::new("/"));
        let folders: Vec<_> = linkage
            .folders
            .iter()
            .map(|folder| with_origin(folder, origin))
            .collect();
        let libraries = linkage.needed.iter().map(|name| {
            self.find(name, &folders).ok_or_else(|| Error::Libraries {
                path: path.to_owned(),
                what: format!("{name} is not where the loader looks; install its package"),
            })
        });
        let loader = linkage.interpreter.iter().cloned().map(Ok);
        loader.chain(libraries).collect()
    }

    fn find(&self, name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
        let in_folder = |folder: &Path| Some(folder.join(name)).filter(|path| path.is_file());
        if name.contains('/') {
            return in_folder(Path::new("/"));
        }
        let named = folders.iter().find_map(|folder| in_folder(folder));
        named
            .or_else(|| self.0.get(name).cloned())
            .or_else(|| DEFAULT_FOLDERS.iter().find_map(|f| in_folder(Path::new(f))))
    }
}

fn with_origin(folder: &str, origin: &Path) -> PathBuf {
    let origin = origin.to_string_lossy();
    PathBuf::from(
        folder
            .replace("${ORIGIN}", &origin)
            .replace("$ORIGIN", &origin),
    )
}

/// A line of `ldconfig -p`: `libc.so.6 (libc6,x86-64) => /lib/libc.so.6`. Libraries for certain
/// processors (`hwcap`) stay away: the general ones run everywhere.
fn listed(line: &str) -> Option<(String, PathBuf)> {
    let (left, path) = line.trim().split_once(" => ")?;
    let (name, kind) = left.split_once(" (")?;
    let ours = kind.contains("x86-64") && !kind.contains("hwcap");
    ours.then(|| (name.to_owned(), PathBuf::from(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "3 libs found in cache `/etc/ld.so.cache'\n\
        \tlibc.so.6 (libc6,x86-64, OS ABI: Linux 3.2.0) => /lib/x/libc.so.6\n\
        \tlibc.so.6 (libc6, OS ABI: Linux 3.2.0) => /lib/i386/libc.so.6\n\
        \tlibz.so.1 (libc6,x86-64, hwcap: \"x86-64-v3\") => /lib/x/glibc-hwcaps/libz.so.1\n";

    fn linkage(needed: &str, folders: &[&str]) -> Linkage {
        Linkage {
            interpreter: Some("/lib64/ld.so".into()),
            needed: vec![needed.to_owned()],
            folders: folders.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn the_cache_of_the_loader_is_read() {
        let loader = Loader::read(PRINTED);
        let libraries = loader.resolve(Path::new("/bin/x"), &linkage("libc.so.6", &[]));
        let expected = ["/lib64/ld.so", "/lib/x/libc.so.6"].map(PathBuf::from);
        assert_eq!(libraries.unwrap(), expected);
        assert_eq!(loader.0.len(), 1, "{loader:?}");
    }

    #[test]
    fn folders_that_the_program_names_come_first() {
        let dir = tempfile::tempdir().unwrap();
        let near = dir.path().join("libc.so.6");
        std::fs::write(&near, "").unwrap();
        let loader = Loader::read(PRINTED);
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        let program = dir.path().join("bin/program");
        let wanted = linkage("libc.so.6", &["/no/such", "$ORIGIN/.."]);
        let libraries = loader.resolve(&program, &wanted).unwrap();
        assert_eq!(
            libraries[1].canonicalize().unwrap(),
            near.canonicalize().unwrap()
        );
    }

    #[test]
    fn a_library_that_is_not_there_is_named_with_its_program() {
        let error = Loader::default()
            .resolve(Path::new("/opt/x"), &linkage("libno.so.7", &[]))
            .unwrap_err();
        let line = error.to_string();
        assert!(
            line.contains("/opt/x") && line.contains("libno.so.7"),
            "{line}"
        );
    }
}
