//! Presets: TOML files of parameters, each value with its source.
//!
//! A preset may extend one that comes with Adverb, and then gives only what differs:
//!
//! ```toml
//! name = "mine"
//! summary = "ConnectX-3 behind two switches"
//! extends = "cx3"
//!
//! [link]
//! switches = { value = 2, source = "our rack" }
//! ```

mod contradiction;
mod error;
pub(crate) mod kind;
mod reader;
mod sample;
mod support;

use std::collections::BTreeMap;

use adverb_verbs::LinkLayer;
use toml_edit::ImDocument;

pub use self::error::{EntryProblem, PresetError};
pub use self::kind::{Driver, Kind};
use self::reader::Reader;
pub use self::support::Support;
use crate::params::{FIELDS, Field, Params};

/// The hardware of a model.
#[derive(Clone, Debug)]
pub struct Preset {
    /// Its name.
    pub name: String,
    /// What it is, in a line.
    pub summary: String,
    /// Its kind of hardware.
    pub kind: Kind,
    /// How its driver posts.
    pub driver: Driver,
    /// The link layer of its port.
    pub link_layer: LinkLayer,
    /// All parameters.
    pub params: Params,
    sources: BTreeMap<&'static str, String>,
}

macro_rules! presets {
    ($($name:literal,)+) => {
        /// Name and text of each preset that comes with Adverb.
        const BUILT_IN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../presets/", $name, ".toml"))),)+];
    };
}

presets! {
    "mellanox",
    "mt26428_qdr",
    "mt26428_roce10",
    "mlx4_westmere",
    "qdr_switch",
    "cx",
    "cx3",
    "connect_ib",
    "cx3_fdr_nurdma",
    "cx4_nurdma",
    "cx5",
    "cx5_skylake",
    "cx6dx",
    "cx7",
    "ammasso_gige",
    "netfpga_hsw",
    "nfp6000_hsw",
    "nfp6000_snb",
    "nfp6000_bdw",
    "kvdirect_fpga",
}

/// Returns the names of the presets that come with Adverb.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

impl Preset {
    /// Returns a preset that comes with Adverb.
    ///
    /// # Errors
    /// If none has that name.
    pub fn built_in(name: &str) -> Result<Self, PresetError> {
        let found = BUILT_IN.iter().find(|(n, _)| *n == name);
        let (name, text) = found.ok_or_else(|| PresetError::Unknown(name.into()))?;
        Preset::parse(name, text)
    }

    /// Reads a preset from `text`. Errors name `file`.
    ///
    /// # Errors
    /// If the text is not TOML, extends an unknown preset, has an unknown or impossible parameter, or parameters that
    /// contradict each other.
    pub fn parse(file: &str, text: &str) -> Result<Self, PresetError> {
        let reader = Reader { file, text };
        let document = ImDocument::parse(text).map_err(|error| {
            let problem = EntryProblem::Syntax(error.message().to_owned());
            reader.invalid(error.span(), problem)
        })?;
        let mut preset = match document.get("extends") {
            Some(base) => reader.base(base)?,
            None => Preset {
                name: String::new(),
                summary: String::new(),
                kind: Kind::default(),
                driver: Driver::default(),
                link_layer: LinkLayer::InfiniBand,
                params: Params::default(),
                sources: BTreeMap::new(),
            },
        };
        for (key, item) in document.iter() {
            reader.entry(&mut preset, key, item)?;
        }
        let missing = preset
            .fields()
            .find(|f| !preset.sources.contains_key(f.path));
        match missing {
            Some(missing) => Err(PresetError::Missing {
                file: file.into(),
                name: missing.path,
            }),
            None => preset.consistent(file),
        }
    }

    /// Returns the preset, unless parameters contradict each other. Errors name `file`.
    fn consistent(self, file: &str) -> Result<Self, PresetError> {
        match contradiction::find(&self.params) {
            None => Ok(self),
            Some(problem) => Err(PresetError::Contradiction {
                file: file.into(),
                problem,
            }),
        }
    }

    /// Returns the parameters that hardware of its kind has.
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> + use<> {
        let kind = self.kind;
        FIELDS.iter().filter(move |field| field.is_of(kind))
    }

    /// Changes the kind, and removes the parameters that such hardware does not have.
    fn become_kind(&mut self, kind: Kind) {
        self.kind = kind;
        for field in FIELDS.iter().filter(|field| !field.is_of(kind)) {
            (field.set)(&mut self.params, 0.0);
            self.sources.remove(field.path);
        }
    }

    /// Returns the source of a parameter's value.
    pub fn source(&self, path: &str) -> Option<&str> {
        self.sources.get(path).map(String::as_str)
    }

    /// Returns the preset with the given parameters changed.
    ///
    /// # Errors
    /// A parameter is unknown, or a value is impossible or contradicts others.
    pub fn with(mut self, overrides: &[(&str, f64)]) -> Result<Self, PresetError> {
        let file = "override";
        let reader = Reader { file, text: "" };
        for (path, value) in overrides {
            let found = reader.field(path, None)?;
            reader.assign(&mut self, found, *value, file, None)?;
        }
        self.consistent(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_presets_that_come_with_adverb_can_be_read() {
        for name in names() {
            let preset = Preset::built_in(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(preset.name, name);
            assert!(
                preset
                    .fields()
                    .all(|f| preset.source(f.path).is_some_and(|s| !s.is_empty()))
            );
        }
    }

    fn refusal(text: &str) -> String {
        Preset::parse("mine.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn refusals_name_file_line_and_value() {
        let nic = "name = \"mine\"\nextends = \"cx3\"\n[nic]\n";
        for (before, entry, error) in [
            (
                nic,
                "send_mopps = { value = 1, source = \"x\" }",
                "4: there is no parameter 'nic.send_mopps'; did you mean nic.send_mops?",
            ),
            (
                nic,
                "\ntx_ns = { value = -3, source = \"x\" }",
                "5: nic.tx_ns = -3 is impossible: 0 to 100000",
            ),
            (
                nic,
                "gathers = { value = 1.5, source = \"x\" }",
                "4: nic.gathers = 1.5 is impossible: a whole number, 1 to 4096",
            ),
            (
                nic,
                "tx_ns = 3",
                "4: nic.tx_ns = 3 is impossible: write { value = NUMBER, source = \"WHERE FROM\" }",
            ),
            (
                "extends = \"cx3\"\n[pcie]\n",
                "lanes = { value = 3, source = \"x\" }",
                "3: pcie.lanes = 3 is impossible: a power of two, 1 to 32",
            ),
            (
                "extends = \"netfpga_hsw\"\n[link]\n",
                "gbps = { value = 10, source = \"x\" }",
                "3: link.gbps = 10 is impossible: kind = \"bare-device\" has no such parameter",
            ),
            (
                "name = \"mine\"\n",
                "extends = \"cx33\"",
                "2: extends = 'cx33', but there is no such preset; did you mean cx3?",
            ),
        ] {
            let refused = refusal(&format!("{before}{entry}"));
            assert_eq!(refused, format!("mine.toml:{error}"));
        }
        let unlike = Preset::built_in("nothing_like_it").unwrap_err().to_string();
        assert!(
            unlike.contains("; `adverb model list` prints all."),
            "{unlike}"
        );
        assert!(refusal("name = ").starts_with("mine.toml:1: "));
        assert!(refusal("name = \"x\"").ends_with("extend a preset that has it"));
        assert_eq!(
            refusal("extends = \"cx3\"\n[memory]\nddio_ways = { value = 21, source = \"x\" }"),
            "mine.toml: memory.ddio_ways = 21 exceeds memory.llc_ways = 20, but they are ways of that cache"
        );
    }

    #[test]
    fn a_preset_changes_what_it_names_and_keeps_the_rest() {
        let text = "extends = \"cx3\"\n[link]\ngbps = { value = 10, source = \"a slow cable\" }";
        let preset = Preset::parse("mine.toml", text).unwrap();
        let base = Preset::built_in("cx3").unwrap();
        assert_eq!(preset.params.link.gbps, 10.0);
        assert_eq!(preset.source("link.gbps"), Some("a slow cable"));
        assert_eq!(preset.params.nic, base.params.nic);
    }
}
