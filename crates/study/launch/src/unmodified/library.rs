//! Where `libadverb_preload.so` is: next to the program, as Cargo and `make install` put it, or in the program itself.

use std::fs::{self, DirBuilder, File};
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::{Endianness, ReadCache};
use rustix::fs::StatVfsMountFlags;

/// The file name of the library.
const NAME: &str = "libadverb_preload.so";
/// The section of `adverb` that contains the library, in optimised builds.
const SECTION: &str = ".adverb.preload";

/// Returns the path of the library.
///
/// # Errors
/// It is nowhere, or no folder takes a copy of the library in the program.
pub(super) fn find() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find the path of adverb")?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    // Cargo updates the library in `deps` whenever it builds the program.
    let places = [
        folder.join("deps"),
        folder.to_owned(),
        folder.join("../lib/adverb"),
    ];
    let files = places.iter().map(|place| place.join(NAME));
    if let Some(found) = files.into_iter().find(|file| is_loadable(file)) {
        return found.canonicalize().context("cannot find the library");
    }
    match embedded(&program)? {
        Some(library) => written(&library),
        None => {
            let places = places.map(|place| place.display().to_string()).join(", ");
            bail!(
                "{NAME} is not in {places}, or the path has a space, a colon or $: install it with `make install`, or build adverb with `cargo build --release`"
            )
        }
    }
}

/// Whether LD_PRELOAD can name this file: its separators are spaces and colons, and the loader replaces `$LIB` and others.
fn is_loadable(file: &Path) -> bool {
    let path = file.canonicalize();
    path.is_ok_and(|path| {
        !path
            .as_os_str()
            .as_bytes()
            .iter()
            .any(|b| b" :$".contains(b))
    })
}

/// The library in a program.
struct Embedded {
    program: File,
    /// Its place in the file.
    offset: u64,
    size: u64,
}

impl Embedded {
    /// Returns a number that differs between builds of the program. The library itself, 20 MB with debug information,
    /// would take longer to read than most programs take to start.
    fn build(&self) -> io::Result<u64> {
        let meta = self.program.metadata()?;
        let mut hasher = DefaultHasher::new();
        for part in [meta.dev(), meta.ino(), meta.len(), self.offset, self.size] {
            hasher.write_u64(part);
        }
        hasher.write_i64(meta.mtime());
        hasher.write_i64(meta.mtime_nsec());
        Ok(hasher.finish())
    }

    fn content(&self) -> io::Result<Vec<u8>> {
        let mut content = vec![0; self.size as usize];
        self.program.read_exact_at(&mut content, self.offset)?;
        Ok(content)
    }
}

/// Returns the library in the program; `None` if this build has none.
fn embedded(program: &Path) -> anyhow::Result<Option<Embedded>> {
    let cannot_read = || format!("cannot read {}", program.display());
    let program = File::open("/proc/self/exe").with_context(cannot_read)?;
    let range = section(&program).with_context(cannot_read)?;
    Ok(range.map(|(offset, size)| Embedded {
        program,
        offset,
        size,
    }))
}

/// Returns where the section of the library is in an ELF file.
fn section(program: &File) -> object::Result<Option<(u64, u64)>> {
    let content = ReadCache::new(program);
    let header = FileHeader64::<Endianness>::parse(&content)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, &content)?;
    let section = sections.section_by_name(endian, SECTION.as_bytes());
    Ok(section.and_then(|(_, section)| section.file_range(endian)))
}

/// Writes the library into a folder of this user, unless it is there.
fn written(library: &Embedded) -> anyhow::Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let home = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let folders = [
        home("XDG_CACHE_HOME").map(|folder| Path::new(&folder).join("adverb")),
        home("HOME").map(|folder| Path::new(&folder).join(".cache/adverb")),
        Some(std::env::temp_dir().join(format!("adverb-{user}"))),
    ];
    let mut refusals = Vec::new();
    for folder in folders.into_iter().flatten() {
        match written_into(&folder, library) {
            Ok(file) => return Ok(file),
            Err(e) => refusals.push(format!("{}: {e}", folder.display())),
        }
    }
    bail!(
        "no folder takes {NAME}, which is part of adverb ({}); set XDG_CACHE_HOME to a folder of yours on a file system without noexec",
        refusals.join("; ")
    )
}

/// Writes the library into a folder that only this user can change.
fn written_into(folder: &Path, library: &Embedded) -> io::Result<PathBuf> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let folder = folder.canonicalize()?;
    check_owner(&folder)?;
    if rustix::fs::statvfs(&folder)?
        .f_flag
        .contains(StatVfsMountFlags::NOEXEC)
    {
        return Err(io::Error::other("the file system is mounted noexec"));
    }
    let file = folder.join(format!("libadverb_preload-{:016x}.so", library.build()?));
    if !is_loadable(&folder) {
        return Err(io::Error::other(
            "LD_PRELOAD takes no path with a space, a colon or $",
        ));
    }
    if fs::metadata(&file).is_ok_and(|there| there.len() == library.size) {
        check_owner(&file)?;
        return Ok(file);
    }
    // Renamed when it is complete, because other processes may be loading or writing the same file.
    let new = folder.join(format!(".new-{}", std::process::id()));
    let mut options = fs::OpenOptions::new();
    let output = options.write(true).create(true).truncate(true).mode(0o600);
    let result = output.open(&new).and_then(|mut out| {
        io::Write::write_all(&mut out, &library.content()?)?;
        fs::rename(&new, &file)
    });
    if result.is_err() {
        let _ = fs::remove_file(&new);
    }
    result.map(|()| file)
}

/// Refuses what another user owns or may change.
fn check_owner(path: &Path) -> io::Result<()> {
    let meta = path.symlink_metadata()?;
    let user = rustix::process::geteuid().as_raw();
    if meta.uid() != user || meta.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!(
            "another user can change {} (owner {}, mode {:o})",
            path.display(),
            meta.uid(),
            meta.mode() & 0o7777
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Returns a program that is all library.
    fn program(folder: &Path, content: &str) -> Embedded {
        let path = folder.join(content);
        fs::write(&path, content).unwrap();
        Embedded {
            program: File::open(&path).unwrap(),
            offset: 0,
            size: content.len() as u64,
        }
    }

    #[test]
    fn the_library_is_written_once_and_again_when_it_is_not_complete() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("cache/adverb");
        let library = program(home.path(), "library");
        let file = written_into(&folder, &library).unwrap();
        let inode = || fs::metadata(&file).unwrap().ino();
        let first = inode();
        assert_eq!(written_into(&folder, &library).unwrap(), file);
        assert_eq!(inode(), first);
        fs::write(&file, b"broken").unwrap();
        assert_eq!(written_into(&folder, &library).unwrap(), file);
        assert_eq!(fs::read(&file).unwrap(), b"library");
        let another = program(home.path(), "another");
        assert_ne!(written_into(&folder, &another).unwrap(), file);
    }

    #[test]
    fn a_folder_that_others_can_change_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let library = program(home.path(), "library");
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let refused = written_into(home.path(), &library).unwrap_err();
        assert!(refused.to_string().contains("mode 777"), "{refused}");
    }

    #[test]
    fn a_path_with_a_separator_of_ld_preload_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let library = program(home.path(), "library");
        let refused = written_into(&home.path().join("a b"), &library).unwrap_err();
        assert!(refused.to_string().contains("space"), "{refused}");
    }
}
