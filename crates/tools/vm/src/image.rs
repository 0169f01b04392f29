//! The initramfs: the guest's `/init` with its libraries, and the kernel modules that it loads. All other files come
//! from this host, over 9P.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cpio::{Kind, Writer};
use crate::error::{Error, io_error};
use crate::guest::INIT_NAME;
use crate::kernel::Module;
use crate::protocol::MODULES;

/// Prints the shared libraries of a program.
pub(crate) const LDD: &str = "ldd";

/// Writes an initramfs with this program as `/init`, which loads these modules in their order.
pub(crate) fn write(init: &Path, modules: &[Module], to: impl Write) -> Result<(), Error> {
    let mut files: BTreeMap<String, (u32, Vec<u8>)> = BTreeMap::new();
    for library in libraries(init)? {
        files.insert(library.display().to_string(), read(&library)?);
    }
    files.insert(format!("/{INIT_NAME}"), read(init)?);
    for (number, module) in modules.iter().enumerate() {
        let path = format!("{MODULES}/{number:03}-{}.ko", module.name);
        files.insert(path, (0o644, module.content.clone()));
    }
    let folders_of = |path: &str| {
        let ends = path.match_indices('/').skip(1).map(|(at, _)| at);
        ends.map(|end| path[..end].to_owned()).collect::<Vec<_>>()
    };
    let mut folders: Vec<String> = files.keys().flat_map(|path| folders_of(path)).collect();
    folders.push("/dev".to_owned());
    folders.sort_unstable();
    folders.dedup();
    let mut cpio = Writer::new(to);
    let mut put = |path: &str, kind: &Kind<'_>| {
        let entry = cpio.entry(path.trim_start_matches('/'), kind);
        entry.map_err(io_error("cannot put into the initramfs", Path::new(path)))
    };
    for folder in &folders {
        put(folder, &Kind::Folder)?;
    }
    let (major, minor) = (5, 1);
    put("/dev/console", &Kind::CharDevice { major, minor })?;
    for (path, (mode, content)) in &files {
        let mode = *mode;
        put(path, &Kind::File { mode, content })?;
    }
    let ended = cpio.finish().and_then(|mut to| to.flush());
    ended.map_err(io_error("cannot write", Path::new("the initramfs")))
}

fn read(path: &Path) -> Result<(u32, Vec<u8>), Error> {
    let meta = fs::metadata(path).map_err(io_error("cannot read", path))?;
    let content = fs::read(path).map_err(io_error("cannot read", path))?;
    Ok((meta.permissions().mode(), content))
}

/// Returns the shared libraries of a program and its loader, as the loader finds them; empty for a static program.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, Error> {
    let output = Command::new(LDD).arg(program).env("LC_ALL", "C").output();
    let output = output.map_err(io_error("cannot run ldd on", program))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if let Some(line) = printed.lines().find(|line| line.ends_with("not found")) {
        let what = line.trim().to_owned();
        return Err(Error::Missing(format!(
            "a library of {}: {what}",
            program.display()
        )));
    }
    let words = printed
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    Ok(words
        .map(PathBuf::from)
        .filter(|path| path.is_file())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_initramfs_has_init_its_libraries_and_the_modules_in_their_order() {
        let me = std::env::current_exe().unwrap();
        let module = |name: &str| Module {
            name: name.to_owned(),
            content: b"a module".to_vec(),
        };
        let mut image = Vec::new();
        write(&me, &[module("b"), module("a")], &mut image).unwrap();
        let position = |name: &str| {
            let name = [name.as_bytes(), b"\0"].concat();
            image.windows(name.len()).position(|bytes| bytes == name)
        };
        assert!(
            libraries(&me)
                .unwrap()
                .iter()
                .any(|path| path.ends_with("libc.so.6"))
        );
        assert!(position("init").is_some() && position("dev/console").is_some());
        let (b, a) = (position("modules/000-b.ko"), position("modules/001-a.ko"));
        assert!(b.is_some() && b < a);
    }

    #[test]
    fn an_init_that_is_not_there_is_named() {
        let error = write(Path::new("/no/such"), &[], Vec::new()).unwrap_err();
        assert!(error.to_string().contains("/no/such"), "{error}");
    }
}
