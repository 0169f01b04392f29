//! The program that `adverb run` starts: where it is, and whether the dynamic linker can preload a library into it.
//!
//! Source: ld.so(8), sections "Secure-execution mode" and "LD_PRELOAD"; elf(5).

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use object::elf::{ELFCLASS64, ELFMAG, FileHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, ReadCache};
use rustix::fs::{Access, access};

/// Exit status if the program is not found, as of env(1) and shells.
const NOT_FOUND: u8 = 127;
/// Exit status if the program is found but cannot be started with the library.
const NOT_STARTED: u8 = 126;

/// Why a program is not started.
#[derive(Debug, thiserror::Error)]
#[error("cannot run {}: {reason}", .path.display())]
pub struct CannotRun {
    path: PathBuf,
    reason: String,
    /// The exit status of `adverb`.
    pub status: u8,
}

impl CannotRun {
    fn not_found(path: &Path, reason: &str) -> Self {
        CannotRun {
            path: path.to_owned(),
            reason: reason.to_owned(),
            status: NOT_FOUND,
        }
    }

    /// A program could not be started, without a search for it before.
    pub fn after_spawn(path: &Path, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::not_found(path, "no such program"),
            _ => Self::not_started(path, error),
        }
    }

    /// The program was found, but cannot be started for this reason.
    pub fn not_started(path: &Path, reason: &dyn ToString) -> Self {
        CannotRun {
            path: path.to_owned(),
            reason: reason.to_string(),
            status: NOT_STARTED,
        }
    }
}

/// A program that can be started.
#[derive(Debug)]
pub struct UnmodifiedProgram {
    /// Its file.
    pub path: PathBuf,
    /// Why the dynamic linker may ignore the library.
    pub warning: Option<String>,
}

impl UnmodifiedProgram {
    /// Finds `name` as a shell does, and checks that the library can be preloaded.
    ///
    /// # Errors
    /// There is no such program, or no library can be preloaded into it.
    pub fn find(name: &OsStr, search: Option<OsString>) -> Result<Self, CannotRun> {
        let path = located(name, search)?;
        let failed = |e: io::Error| CannotRun::not_started(&path, &e);
        let meta = path.metadata().map_err(failed)?;
        // A program that may be executed but not read is not checked.
        if let Ok(file) = File::open(&path)
            && let Some(reason) = obstacle(file).map_err(failed)?
        {
            return Err(CannotRun::not_started(&path, &reason));
        }
        let warning = secure_execution(&path, &meta).map(|why| {
            format!(
                "{} {why}: the dynamic linker ignores LD_PRELOAD then, and the program sees no device; run a copy of it without",
                path.display()
            )
        });
        Ok(UnmodifiedProgram { path, warning })
    }
}

/// Returns the path of a program: `name` itself if it contains a slash, otherwise the first executable file of this
/// name in the folders of PATH.
fn located(name: &OsStr, search: Option<OsString>) -> Result<PathBuf, CannotRun> {
    let path = Path::new(name);
    if name.as_bytes().contains(&b'/') {
        return match path.metadata() {
            Ok(meta) if meta.is_dir() => Err(CannotRun::not_started(path, &"is a directory")),
            // Opening a FIFO waits for a writer.
            Ok(meta) if !meta.is_file() => {
                Err(CannotRun::not_started(path, &"is not a regular file"))
            }
            Ok(_) => Ok(path.to_owned()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(CannotRun::not_found(path, "no such file"))
            }
            Err(e) => Err(CannotRun::not_started(path, &e)),
        };
    }
    let folders = search.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let all = std::env::split_paths(&folders).map(|folder| folder.join(name));
    let found: Vec<PathBuf> = all.filter(|path| path.is_file()).collect();
    let is_executable = |path: &&PathBuf| access(*path, Access::EXEC_OK).is_ok();
    match (found.iter().find(is_executable), found.first()) {
        (Some(path), _) => Ok(path.clone()),
        (None, Some(path)) => Err(CannotRun::not_started(path, &"the file is not executable")),
        (None, None) => {
            let reason = "no program of this name is in the folders of PATH";
            Err(CannotRun::not_found(path, reason))
        }
    }
}

/// Returns why no library can be preloaded into an executable file; `None` for scripts, whose interpreter loads it.
fn obstacle(mut file: File) -> io::Result<Option<String>> {
    let mut ident = Vec::new();
    (&mut file).take(20).read_to_end(&mut ident)?;
    if !ident.starts_with(&ELFMAG) || ident.len() < 20 {
        return Ok(None);
    }
    let machine = u16::from_le_bytes([ident[18], ident[19]]);
    if ident[4] != ELFCLASS64 || machine != MACHINE {
        return Ok(Some(
            "it is for another processor or for 32 bits, and Adverb's library is not; use a program built for this machine"
                .to_owned(),
        ));
    }
    let content = ReadCache::new(file);
    let interpreter = interpreter(&content).map_err(io::Error::other)?;
    Ok(match interpreter {
        None => Some(
            "it is statically linked, so no library can be preloaded; link it dynamically, or, if it only starts other programs, use `eval \"$(adverb env)\"`"
                .to_owned(),
        ),
        Some(path) if path.windows(7).any(|part| part == b"ld-musl") => Some(
            "it is linked with musl, and Adverb's library with the GNU C library; use a program built for that"
                .to_owned(),
        ),
        Some(_) => None,
    })
}

/// The processor for which this program and the library are built.
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = object::elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = object::elf::EM_AARCH64;

/// Returns the path of the dynamic linker that an executable asks for; `None` if it is statically linked.
fn interpreter(content: &ReadCache<File>) -> Result<Option<&[u8]>, object::Error> {
    let header = FileHeader64::<Endianness>::parse(content)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, content)? {
        if let Some(path) = segment.interpreter(endian, content)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Returns why the kernel runs this program in secure-execution mode.
fn secure_execution(path: &Path, meta: &Metadata) -> Option<&'static str> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if meta.mode() & 0o4000 != 0 && meta.uid() != uid.as_raw() {
        return Some("is set-user-ID");
    }
    if meta.mode() & 0o2000 != 0 && meta.gid() != gid.as_raw() {
        return Some("is set-group-ID");
    }
    let mut size = [0; 64];
    let has_capabilities = rustix::fs::getxattr(path, "security.capability", &mut size).is_ok();
    (has_capabilities && !uid.is_root()).then_some("has file capabilities")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A file with this content, executable if `mode` says so.
    fn file(dir: &Path, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn programs_are_found_in_the_folders_of_path() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        file(dirs[0].path(), "tool", b"", 0o644);
        let tool = file(dirs[1].path(), "tool", b"#!/bin/sh\n", 0o755);
        let search = || std::env::join_paths(dirs.iter().map(tempfile::TempDir::path)).unwrap();
        let found = UnmodifiedProgram::find(OsStr::new("tool"), Some(search())).unwrap();
        assert_eq!(found.path, tool);
        assert_eq!(found.warning, None);
        fs::remove_file(&tool).unwrap();
        let refused = UnmodifiedProgram::find(OsStr::new("tool"), Some(search())).unwrap_err();
        assert_eq!(refused.status, 126, "{refused}");
        let refused = UnmodifiedProgram::find(OsStr::new("tol"), Some(search())).unwrap_err();
        assert_eq!(refused.status, 127, "{refused}");
    }

    #[test]
    fn a_program_that_loads_no_library_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let own = fs::read("/proc/self/exe").unwrap();
        let refused = |name: &str, content: &[u8]| {
            let path = file(dir.path(), name, content, 0o755);
            UnmodifiedProgram::find(path.as_os_str(), None)
                .unwrap_err()
                .to_string()
        };
        let mut is_32_bit = own.clone();
        is_32_bit[4] = object::elf::ELFCLASS32;
        assert!(refused("small", &is_32_bit).contains("32 bits"));
        let mut is_foreign = own.clone();
        is_foreign[18] = 0x28;
        assert!(refused("foreign", &is_foreign).contains("another processor"));
        // Without its first program headers, among which the one of the dynamic linker is.
        let mut is_static = own.clone();
        let headers = u64::from_le_bytes(own[32..40].try_into().unwrap()) as usize;
        is_static[headers..headers + 56 * 4].fill(0);
        assert!(refused("static", &is_static).contains("statically linked"));
        let at = own.windows(8).position(|part| part == b"ld-linux").unwrap();
        let mut is_musl = own;
        is_musl[at..at + 8].copy_from_slice(b"ld-musl-");
        assert!(refused("musl", &is_musl).contains("musl"));
    }
}
