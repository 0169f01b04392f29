//! The environment of a program that gets the device: what the preloaded library reads at its start. Their definition is
//! `adverb_preload::Config`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use adverb_launch::Usage;
use adverb_softnic::{CAPTURE_VARIABLE, create_capture};
use anyhow::Context as _;

use super::library;
use crate::args::NicArgs;

/// Libraries that the dynamic linker loads first.
const PRELOAD: &str = "LD_PRELOAD";

/// Names and values.
#[derive(Debug)]
pub(super) struct Variables(Vec<(&'static str, OsString)>);

impl Variables {
    /// Returns the variables for these devices. Creates the capture, if one is wanted.
    pub(super) fn of(nic: &NicArgs) -> anyhow::Result<Self> {
        let library = library::find()?;
        let earlier = std::env::var_os(PRELOAD).unwrap_or_default();
        let mut all = vec![(PRELOAD, preload(&library, &earlier))];
        all.extend(settings(nic)?);
        if let Some(path) = &nic.pcap {
            let cannot = || format!("--pcap: cannot write {}", path.display());
            create_capture(path).with_context(cannot)?;
            // The program may change its directory.
            let path = path.canonicalize().with_context(cannot)?;
            all.push((CAPTURE_VARIABLE, path.into()));
        }
        Ok(Variables(all))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
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

/// Returns the variables of the library's configuration that are not left to their defaults.
fn settings(nic: &NicArgs) -> Result<Vec<(&'static str, OsString)>, Usage> {
    let mut all: Vec<(&str, String)> = Vec::new();
    if let Some(address) = nic.address {
        all.push(("ADVERB_RUN_ADDRESS", address.to_string()));
    }
    let numbered = nic
        .devices
        .map(|count| (0..count).map(|n| format!("adverb{n}")).collect());
    let names: Vec<String> = numbered.unwrap_or_else(|| nic.device_name.clone());
    if !names.is_empty() {
        all.push(("ADVERB_RUN_DEVICES", names.join(",")));
    }
    if let Some(mtu) = nic.mtu {
        all.push(("ADVERB_RUN_MTU", mtu.bytes().get().to_string()));
    }
    if let Some(faults) = nic.faults()? {
        let text = serde_json::to_string(&faults).expect("faults are plain numbers");
        all.push(("ADVERB_RUN_FAULTS", text));
    }
    if nic.explain {
        all.push(("ADVERB_EXPLAIN", "1".to_owned()));
    }
    Ok(all
        .into_iter()
        .map(|(name, value)| (name, value.into()))
        .collect())
}

#[cfg(test)]
mod tests {
    use adverb_preload::config::Config;
    use adverb_verbs::{Impairment, PathMtu};
    use clap::FromArgMatches as _;

    use super::*;
    use crate::args::RunArgs;

    /// The configuration that the library reads for these arguments of `adverb run`.
    fn config(options: &str) -> Config {
        let line = format!("adverb run {options} true");
        let matches = crate::args::command().get_matches_from(line.split_whitespace());
        let run = RunArgs::from_arg_matches(matches.subcommand().unwrap().1).unwrap();
        let variables = settings(&run.nic).unwrap();
        let get = |wanted: &str| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| value.to_str().unwrap().to_owned())
        };
        Config::read(get).unwrap()
    }

    #[test]
    fn the_library_reads_the_options_as_they_were_given() {
        assert_eq!(config(""), Config::read(|_| None).unwrap());
        let some = config(
            "--address 10.0.0.1 --device-name a --device-name b=fd00::1 --mtu 1024 --explain",
        );
        let described: Vec<_> = some
            .devices
            .iter()
            .map(|d| format!("{} {}", d.name, d.address))
            .collect();
        assert_eq!(described, ["a 10.0.0.1", "b fd00::1"]);
        assert_eq!(some.mtu, Some(PathMtu::B1024));
        assert!(some.explain);
        assert_eq!(some.faults, None);
        assert_eq!(config("--devices 3").devices[2].name, "adverb2");
    }

    #[test]
    fn faults_and_udp_only_force_udp() {
        assert_eq!(config("--udp-only").faults, Some(Impairment::default()));
        let faults = config("--udp-only --loss 1% --seed 7").faults.unwrap();
        assert_eq!(faults.to_string(), "loss 1 % (seed 7)");
    }

    #[test]
    fn the_library_comes_before_others_and_only_once() {
        let library = Path::new("/lib/ours.so");
        let value = |earlier: &str| preload(library, OsStr::new(earlier)).into_string().unwrap();
        assert_eq!(value(""), "/lib/ours.so");
        assert_eq!(value("a.so /b.so"), "/lib/ours.so:a.so:/b.so");
        assert_eq!(value("/b.so:/lib/ours.so"), "/lib/ours.so:/b.so");
    }
}
