//! Presets: files of parameters, each with its source.
//!
//! A preset is a TOML file. It may extend another one that comes with Adverb and then names only
//! what differs:
//!
//! ```toml
//! name = "mine"
//! summary = "ConnectX-3 behind two switches"
//! extends = "cx3"
//!
//! [link]
//! switches = { value = 2, source = "our rack" }
//! ```

mod error;
pub(crate) mod kind;
mod reader;

use std::collections::BTreeMap;

use adverb_verbs::LinkLayer;
use toml_edit::ImDocument;

pub use self::error::PresetError;
pub use self::kind::{Driver, Kind};
use self::reader::{Reader, line};
use crate::params::{FIELDS, Field, Params};

/// Hardware that the model can be.
#[derive(Clone, Debug)]
pub struct Preset {
    /// Its name.
    pub name: String,
    /// What it is, in a line.
    pub summary: String,
    /// What kind of hardware it is.
    pub kind: Kind,
    /// How the driver posts.
    pub driver: Driver,
    /// What carries the packets.
    pub link_layer: LinkLayer,
    /// All parameters.
    pub params: Params,
    sources: BTreeMap<&'static str, String>,
}

const BUILT_IN: &[(&str, &str)] = &[
    ("mellanox", include_str!("../../presets/mellanox.toml")),
    (
        "mt26428_qdr",
        include_str!("../../presets/mt26428_qdr.toml"),
    ),
    (
        "mt26428_roce10",
        include_str!("../../presets/mt26428_roce10.toml"),
    ),
    (
        "mlx4_westmere",
        include_str!("../../presets/mlx4_westmere.toml"),
    ),
    ("qdr_switch", include_str!("../../presets/qdr_switch.toml")),
    ("cx", include_str!("../../presets/cx.toml")),
    ("cx3", include_str!("../../presets/cx3.toml")),
    ("connect_ib", include_str!("../../presets/connect_ib.toml")),
    (
        "cx3_fdr_nurdma",
        include_str!("../../presets/cx3_fdr_nurdma.toml"),
    ),
    ("cx4_nurdma", include_str!("../../presets/cx4_nurdma.toml")),
    ("cx5", include_str!("../../presets/cx5.toml")),
    (
        "cx5_skylake",
        include_str!("../../presets/cx5_skylake.toml"),
    ),
    (
        "ammasso_gige",
        include_str!("../../presets/ammasso_gige.toml"),
    ),
    (
        "netfpga_hsw",
        include_str!("../../presets/netfpga_hsw.toml"),
    ),
    (
        "nfp6000_hsw",
        include_str!("../../presets/nfp6000_hsw.toml"),
    ),
    (
        "nfp6000_snb",
        include_str!("../../presets/nfp6000_snb.toml"),
    ),
    (
        "nfp6000_bdw",
        include_str!("../../presets/nfp6000_bdw.toml"),
    ),
    (
        "kvdirect_fpga",
        include_str!("../../presets/kvdirect_fpga.toml"),
    ),
];

/// The presets that come with Adverb.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

impl Preset {
    /// A preset that comes with Adverb.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn built_in(name: &str) -> Result<Self, PresetError> {
        let found = BUILT_IN.iter().find(|(n, _)| *n == name);
        let (name, text) = found.ok_or_else(|| PresetError::Unknown { name: name.into() })?;
        Preset::parse(name, text)
    }

    /// Reads a preset from the text of `file`, whose name appears in errors.
    ///
    /// # Errors
    /// The text is no TOML, extends an unknown preset, or has an unknown or impossible parameter.
    pub fn parse(file: &str, text: &str) -> Result<Self, PresetError> {
        let document = ImDocument::parse(text).map_err(|error| PresetError::Syntax {
            file: file.into(),
            line: line(text, error.span()),
            message: error.message().to_owned(),
        })?;
        let reader = Reader { file, text };
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
            None => Ok(preset),
        }
    }

    /// The parameters that hardware of its kind has.
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> + use<> {
        let kind = self.kind;
        FIELDS.iter().filter(move |field| field.is_of(kind))
    }

    /// Makes it of that kind; parameters that such hardware does not have are gone.
    fn become_kind(&mut self, kind: Kind) {
        self.kind = kind;
        for field in FIELDS.iter().filter(|field| !field.is_of(kind)) {
            (field.set)(&mut self.params, 0.0);
            self.sources.remove(field.path);
        }
    }

    /// Where the value of a parameter comes from.
    pub fn source(&self, path: &str) -> Option<&str> {
        self.sources.get(path).map(String::as_str)
    }

    /// Gives a parameter another value.
    ///
    /// # Errors
    /// There is no such parameter, or the value is impossible.
    pub fn set(&mut self, path: &str, value: f64, source: &str) -> Result<(), PresetError> {
        let reader = Reader {
            file: "override",
            text: "",
        };
        let found = reader.field(path, None)?;
        reader.assign(self, found, value, source, None)
    }

    /// The same preset with other parameters.
    ///
    /// # Errors
    /// As of [`Preset::set`].
    pub fn with(mut self, overrides: &[(&str, f64)]) -> Result<Self, PresetError> {
        for (path, value) in overrides {
            self.set(path, *value, "override")?;
        }
        Ok(self)
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
        let start = "name = \"mine\"\nextends = \"cx3\"\n[nic]\n";
        assert_eq!(
            refusal(&format!(
                "{start}send_mopps = {{ value = 1, source = \"x\" }}"
            )),
            "mine.toml:4: there is no parameter 'nic.send_mopps'; did you mean nic.send_mops?"
        );
        assert_eq!(
            refusal(&format!(
                "{start}\ntx_ns = {{ value = -3, source = \"x\" }}"
            )),
            "mine.toml:5: nic.tx_ns = -3 is impossible: 0 to 100000"
        );
        assert_eq!(
            refusal(&format!(
                "{start}gathers = {{ value = 1.5, source = \"x\" }}"
            )),
            "mine.toml:4: nic.gathers = 1.5 is impossible: a whole number, 1 to 4096"
        );
        assert_eq!(
            refusal("extends = \"cx3\"\n[pcie]\nlanes = { value = 3, source = \"x\" }"),
            "mine.toml:3: pcie.lanes = 3 is impossible: a power of two, 1 to 32"
        );
        assert_eq!(
            refusal("extends = \"cx3\"\n[link]\nmtu_bytes = { value = 1000, source = \"x\" }"),
            "mine.toml:3: link.mtu_bytes = 1000 is impossible: a power of two, 256 to 4096"
        );
        assert_eq!(
            refusal(&format!("{start}tx_ns = 3")),
            "mine.toml:4: nic.tx_ns = 3 is impossible: write { value = NUMBER, source = \"WHERE FROM\" }"
        );
        assert_eq!(
            refusal("extends = \"netfpga_hsw\"\n[link]\ngbps = { value = 10, source = \"x\" }"),
            "mine.toml:3: link.gbps = 10 is impossible: kind = \"bare-device\" has no such parameter"
        );
        assert_eq!(
            refusal("name = \"mine\"\nextends = \"cx33\""),
            "mine.toml:2: extends = 'cx33', but there is no such preset; did you mean cx3?"
        );
        let unlike = Preset::built_in("nothing_like_it").unwrap_err().to_string();
        assert!(unlike.contains("; presets: mellanox, "), "{unlike}");
        assert!(refusal("name = ").starts_with("mine.toml:1: "));
        assert!(refusal("name = \"x\"").ends_with("extend a preset that has it"));
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
