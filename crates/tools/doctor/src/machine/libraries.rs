//! Libraries, found where the loader looks for them.

use std::fs;
use std::path::{Path, PathBuf};

use super::files::names;
use super::process::Process;

/// Libraries of user space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Libraries {
    /// `libibverbs.so.1`.
    pub verbs: Option<PathBuf>,
    /// `librdmacm.so.1`.
    pub rdmacm: Option<PathBuf>,
    /// The providers that `libibverbs` can load: named in `/etc/libibverbs.d` and there as a
    /// library. By name (`mlx5`).
    pub providers: Vec<String>,
    /// Providers named there whose library is missing.
    pub lost_providers: Vec<String>,
}

/// Where glibc looks besides its configuration; Debian's also in directories of the architecture.
const DEFAULT_DIRS: [&str; 4] = ["lib64", "usr/lib64", "lib", "usr/lib"];

impl Libraries {
    /// Looks below `root`, as the loader of `process` would.
    pub(super) fn search(root: &Path, process: &Process) -> Self {
        let dirs = loader_dirs(root, process);
        let find = |name: &str| dirs.iter().map(|d| d.join(name)).find(|p| p.is_file());
        let plugins: Vec<String> = dirs
            .iter()
            .flat_map(|dir| names(&dir.join("libibverbs")))
            .collect();
        let (providers, lost_providers) = configured(root)
            .into_iter()
            .partition(|provider| plugins.iter().any(|file| is_plugin(file, provider)));
        Libraries {
            verbs: find("libibverbs.so.1"),
            rdmacm: find("librdmacm.so.1"),
            providers,
            lost_providers,
        }
    }
}

/// `libmlx5-rdmav34.so`: the number is the version of the interface.
fn is_plugin(file: &str, provider: &str) -> bool {
    let rest = file
        .strip_prefix("lib")
        .and_then(|f| f.strip_prefix(provider));
    let version = rest.and_then(|r| r.strip_prefix("-rdmav")?.strip_suffix(".so"));
    version.is_some_and(|v| !v.is_empty() && v.bytes().all(|b| b.is_ascii_digit()))
}

/// The lines `driver NAME` of `/etc/libibverbs.d`.
fn configured(root: &Path) -> Vec<String> {
    let dir = root.join("etc/libibverbs.d");
    let texts = names(&dir)
        .into_iter()
        .filter_map(|name| fs::read_to_string(dir.join(name)).ok());
    let mut drivers: Vec<String> = texts
        .flat_map(|text| text.lines().filter_map(driver).collect::<Vec<_>>())
        .collect();
    drivers.sort_unstable();
    drivers.dedup();
    drivers
}

/// A path in place of a name has the name in its last part.
fn driver(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let name = (words.next() == Some("driver")).then(|| words.next())??;
    Some(name.rsplit('/').next().unwrap_or(name).to_owned())
}

fn loader_dirs(root: &Path, process: &Process) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = process.library_path.clone();
    let conf = root.join("etc/ld.so.conf.d");
    let mut files = vec![root.join("etc/ld.so.conf")];
    files.extend(
        names(&conf)
            .iter()
            .filter(|name| name.ends_with(".conf"))
            .map(|name| conf.join(name)),
    );
    for text in files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok())
    {
        let paths = text
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with('/'));
        dirs.extend(paths.map(|path| root.join(path.trim_start_matches('/'))));
    }
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    dirs.extend(["lib", "usr/lib"].map(|dir| root.join(dir).join(&triplet)));
    dirs.extend(DEFAULT_DIRS.map(|dir| root.join(dir)));
    dirs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_of_one_provider() {
        assert!(is_plugin("libmlx5-rdmav34.so", "mlx5"));
        assert!(!is_plugin("libmlx5-rdmav34.so", "mlx"));
        assert!(!is_plugin("libmlx5.so.1", "mlx5"));
        assert!(!is_plugin("libmlx5-rdmav.so", "mlx5"));
    }

    #[test]
    fn drivers_are_named_one_a_line() {
        assert_eq!(driver("driver mlx5").as_deref(), Some("mlx5"));
        assert_eq!(driver("driver /opt/lib/mine").as_deref(), Some("mine"));
        assert_eq!(driver("# driver mlx5"), None);
        assert_eq!(driver(""), None);
    }
}
