//! The environment of a program that gets the device: what the preloaded library reads at its start.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use adverb_softnic::{CAPTURE_VARIABLE, RECORD_VARIABLE, Settings, create_capture};
use anyhow::Context as _;

use super::library;

/// Libraries that the dynamic linker loads first.
const PRELOAD: &str = "LD_PRELOAD";

/// Names and values.
#[derive(Debug)]
pub struct Variables(Vec<(&'static str, OsString)>);

impl Variables {
    /// Returns the variables for devices with these settings. Creates the capture, if one is wanted.
    ///
    /// # Errors
    /// The library is missing, or the capture or the folder of the record cannot be created.
    pub fn of(settings: &Settings, capture: Option<&Path>) -> anyhow::Result<Self> {
        let library = library::find()?;
        let earlier = std::env::var_os(PRELOAD).unwrap_or_default();
        let mut all = vec![(PRELOAD, preload(&library, &earlier))];
        all.extend(
            settings
                .variables()
                .into_iter()
                .map(|(name, value)| (name, value.into())),
        );
        if let Some(path) = capture {
            let cannot = || format!("--pcap: cannot write {}", path.display());
            create_capture(path).with_context(cannot)?;
            // The program may change its directory.
            let path = path.canonicalize().with_context(cannot)?;
            all.push((CAPTURE_VARIABLE, path.into()));
        }
        if let Some(folder) = &settings.record {
            let cannot = || format!("--record: cannot make the folder {}", folder.display());
            std::fs::create_dir_all(folder).with_context(cannot)?;
            let folder = folder.canonicalize().with_context(cannot)?;
            all.push((RECORD_VARIABLE, folder.into()));
        }
        Ok(Variables(all))
    }

    /// Returns them all.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        self.0
            .iter()
            .map(|(name, value)| (*name, value.as_os_str()))
    }
}

/// Returns the value of LD_PRELOAD: the library before those that were there.
fn preload(library: &Path, earlier: &OsStr) -> OsString {
    let mut value = library.as_os_str().as_bytes().to_vec();
    let earlier = earlier.as_bytes().split(|b| b" :".contains(b));
    for other in
        earlier.filter(|other| !other.is_empty() && *other != library.as_os_str().as_bytes())
    {
        value.push(b':');
        value.extend(other);
    }
    OsString::from_vec(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_before_others_and_only_once() {
        let library = Path::new("/lib/ours.so");
        let value = |earlier: &str| preload(library, OsStr::new(earlier)).into_string().unwrap();
        assert_eq!(value(""), "/lib/ours.so");
        assert_eq!(value("a.so /b.so"), "/lib/ours.so:a.so:/b.so");
        assert_eq!(value("/b.so:/lib/ours.so"), "/lib/ours.so:/b.so");
    }
}
