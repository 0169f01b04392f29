//! The guest's kernel and its modules in load order.
//!
//! A kernel is `vmlinuz-RELEASE` and a folder of modules. Dependencies are read from the modules
//! themselves (section `.modinfo`), because `modules.dep` exists only where the package was
//! installed, not where it was unpacked.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection};

use crate::error::{Error, io_error};

/// Modules without which a kernel is of no use: RDMA, and this host's files in the guest.
const NEEDED: [&str; 3] = ["rdma_rxe", "9p", "overlay"];

/// A kernel with the modules that RDMA needs.
#[derive(Clone, Debug)]
pub struct Kernel {
    release: String,
    image: PathBuf,
    modules: Modules,
}

/// Module files by module name (with `_` for `-`).
#[derive(Clone, Debug, Default)]
struct Modules(BTreeMap<String, PathBuf>);

/// A module to load.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
}

impl Kernel {
    /// The newest kernel that has `rdma_rxe`, 9P and overlayfs: installed (`/boot`, `/lib/modules`), else in the
    /// cache that `scripts/test-deps` fills (see [`cache`]).
    ///
    /// # Errors
    /// [`Error::Missing`] if there is none.
    pub fn find() -> Result<Self, Error> {
        let installed = kernels_in(Path::new("/"));
        let cached = cache().map(|dir| kernels_in(&dir)).unwrap_or_default();
        let newest = |mut found: Vec<Kernel>| {
            found.sort_by_key(|kernel| version_key(&kernel.release));
            found.pop()
        };
        newest(installed).or_else(|| newest(cached)).ok_or_else(|| {
            Error::Missing(
                "a kernel with rdma_rxe, 9p and overlay, in /boot and /lib/modules or unpacked by \
                 scripts/test-deps (package linux-image-amd64)"
                    .to_owned(),
            )
        })
    }

    /// Returns its release, as printed by `uname -r`.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// Its compressed image.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// Whether it has this module.
    pub(crate) fn has(&self, module: &str) -> bool {
        self.modules.0.contains_key(module)
    }

    /// Returns these modules and their dependencies in load order. Names without a module are left out: they are
    /// built in, or `rdma link add` reports that they are missing.
    pub(crate) fn load_order(&self, names: &[&str]) -> Result<Vec<Module>, Error> {
        let mut order = Vec::new();
        let mut seen = HashSet::new();
        for name in names {
            self.visit(&canonical(name), &mut seen, &mut order)?;
        }
        Ok(order)
    }

    fn visit(
        &self,
        name: &str,
        seen: &mut HashSet<String>,
        order: &mut Vec<Module>,
    ) -> Result<(), Error> {
        let Some(path) = self.modules.0.get(name) else {
            return Ok(());
        };
        if !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let content = read_module(path)?;
        for needed in dependencies(&content).map_err(|what| Error::Module {
            path: path.clone(),
            what,
        })? {
            self.visit(&needed, seen, order)?;
        }
        order.push(Module {
            name: name.to_owned(),
            content,
        });
        Ok(())
    }
}

/// Where `scripts/test-deps` unpacks a kernel: `${XDG_CACHE_HOME:-~/.cache}/adverb/kernel`. Not
/// below `target`, so that it outlives `cargo clean` and serves all working trees.
pub fn cache() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").filter(|v| !v.is_empty());
    Some(base.map(PathBuf::from).or_else(home)?.join("adverb/kernel"))
}

/// The kernels below a root folder that can be read and have what is needed.
fn kernels_in(root: &Path) -> Vec<Kernel> {
    let entries = fs::read_dir(root.join("boot")).into_iter().flatten();
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let release = name.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
            fs::File::open(entry.path()).ok()?;
            let folder = ["lib/modules", "usr/lib/modules"]
                .map(|dir| root.join(dir).join(&release))
                .into_iter()
                .find(|dir| dir.is_dir())?;
            let mut modules = Modules::default();
            collect(&folder.join("kernel"), &mut modules);
            let kernel = Kernel {
                release,
                image: entry.path(),
                modules,
            };
            NEEDED.iter().all(|name| kernel.has(name)).then_some(kernel)
        })
        .collect()
}

fn collect(dir: &Path, into: &mut Modules) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            collect(&path, into);
        } else if let Some(name) = module_name(&path) {
            into.0.insert(name, path);
        }
    }
}

fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let (stem, suffix) = file.split_once(".ko")?;
    matches!(suffix, "" | ".xz" | ".gz" | ".zst").then(|| canonical(stem))
}

fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

/// Numbers in a release compare as numbers: 6.1.0-9 is before 6.1.0-56.
fn version_key(release: &str) -> Vec<u64> {
    release
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse().ok())
        .collect()
}

/// A module as the kernel loads it; compressed ones are unpacked by their program.
fn read_module(path: &Path) -> Result<Vec<u8>, Error> {
    let unpacker = match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => "xz",
        Some("gz") => "gzip",
        Some("zst") => "zstd",
        _ => return fs::read(path).map_err(io_error("cannot read", path)),
    };
    let output = Command::new(unpacker)
        .arg("-dc")
        .arg(path)
        .output()
        .map_err(io_error("cannot run the unpacker of", path))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Error::Module {
        path: path.to_owned(),
        what: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// What a module needs: `depends=a,b` in its `.modinfo`.
fn dependencies(module: &[u8]) -> Result<Vec<String>, String> {
    let file = object::File::parse(module).map_err(|e| e.to_string())?;
    let section = file.section_by_name(".modinfo").ok_or("no .modinfo")?;
    let info = section.data().map_err(|e| e.to_string())?;
    let depends = info
        .split(|b| *b == 0)
        .find_map(|field| field.strip_prefix(b"depends="))
        .unwrap_or_default();
    let depends = std::str::from_utf8(depends).map_err(|e| e.to_string())?;
    let names = depends.split(',').filter(|name| !name.is_empty());
    Ok(names.map(canonical).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_ordered_by_number() {
        assert!(version_key("6.1.0-9-amd64") < version_key("6.1.0-56-amd64"));
        assert!(version_key("6.12.1-amd64") > version_key("6.1.0-56-amd64"));
    }

    #[test]
    fn module_files_have_names_with_underscores() {
        let name = |file| module_name(Path::new(file));
        assert_eq!(name("a/crc32-pclmul.ko").as_deref(), Some("crc32_pclmul"));
        assert_eq!(name("a/siw.ko.xz").as_deref(), Some("siw"));
        assert_eq!(name("modules.order"), None);
        assert_eq!(name("a/b.ko.bak"), None);
    }
}
