//! The hardware that is modelled: a built-in preset, or a user's file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use adverb_hwmodel::params::Field;
use adverb_hwmodel::{Cluster, Kind, Placement, Preset, PresetError, Support, names};
use adverb_results::{DeviceKind, DeviceRef};
use adverb_sim::{Budget, Seed};
use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AccessFlags, Context, CpuLoad, DeviceCaps, Level, LinkRate, NumaPlacement, PortCaps, PortNum,
    Station, Work,
};
use adverb_workload::{HardwareChanges, Program};
use anyhow::{Context as _, anyhow, bail};

/// Seed of a model's random numbers.
const SEED: Seed = Seed(0);
/// The detail of a record with what supports its prediction ([`Hardware::support`]).
pub const SUPPORT: &str = "support";
/// File name extension of presets.
const EXTENSION: &str = ".toml";
/// Parameters that the summary of a changed preset names.
const MOST_NAMED: usize = 3;
/// Size of the largest preset file.
const MOST_BYTES: u64 = 1 << 20;

/// A preset, as named by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresetChoice {
    /// A built-in preset.
    BuiltIn(String),
    /// A file; its path is absolute, so that a study can be resumed in any folder.
    File(PathBuf),
}

impl PresetChoice {
    /// Returns the preset in a file of any name.
    pub fn file(path: &Path) -> Self {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        PresetChoice::File(absolute)
    }
}

impl FromStr for PresetChoice {
    type Err = String;

    /// Parses the name of a preset, also as a device (`model:cx3`), or a path, which contains a `/` or ends in `.toml`.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix("model:").unwrap_or(text);
        if text.contains('/') || text.ends_with(EXTENSION) {
            return Ok(PresetChoice::file(Path::new(text)));
        }
        match Preset::built_in(text) {
            Ok(_) => Ok(PresetChoice::BuiltIn(text.to_owned())),
            Err(e) => Err(e.to_string()),
        }
    }
}

impl fmt::Display for PresetChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PresetChoice::BuiltIn(name) => f.pad(name),
            PresetChoice::File(path) => path.display().fmt(f),
        }
    }
}

/// A preset that was read.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// Its name in records.
    pub name: String,
    /// Its parameters.
    pub preset: Preset,
    /// Values that differ from the base preset, by parameter.
    changed: BTreeMap<&'static str, f64>,
}

/// Limits of a modelled device.
pub struct Limits {
    /// Its limits.
    pub caps: DeviceCaps,
    /// Number of its port.
    pub port_num: PortNum,
    /// Capabilities of the port.
    pub port: PortCaps,
}

impl Hardware {
    /// Reads a preset.
    ///
    /// # Errors
    /// The preset does not exist, or the file is invalid; the error names the line, the parameter and the value.
    pub fn load(choice: &PresetChoice) -> anyhow::Result<Self> {
        match choice {
            PresetChoice::BuiltIn(name) => Ok(Self::built_in(Preset::built_in(name)?)),
            PresetChoice::File(path) => Self::from_file(path),
        }
    }

    /// Returns all built-in presets.
    pub fn all() -> impl Iterator<Item = Self> {
        names().into_iter().map(|name| {
            let preset = Preset::built_in(name).expect("the model's own tests read all of these");
            Self::built_in(preset)
        })
    }

    fn built_in(preset: Preset) -> Self {
        Hardware {
            name: preset.name.clone(),
            preset,
            changed: BTreeMap::new(),
        }
    }

    fn from_file(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display().to_string();
        let text =
            read_preset(path).with_context(|| format!("cannot read the preset file {shown}"))?;
        let preset = Preset::parse(&shown, &text)?;
        let base = base(&preset, &text);
        let is_changed = |field: &&Field| {
            let value = (field.get)(&preset.params);
            base.as_ref()
                .is_none_or(|base| (field.get)(&base.params) != value)
        };
        let changed = preset.fields().filter(is_changed);
        let mut hardware = Hardware {
            name: own_name(&preset, path),
            changed: changed
                .map(|field| (field.path, (field.get)(&preset.params)))
                .collect(),
            preset,
        };
        if let Some(base) = base.filter(|base| base.summary == hardware.preset.summary) {
            hardware.preset.summary = hardware.as_changed(&base);
        }
        Ok(hardware)
    }

    /// Describes a preset without a summary of its own by its base: `cx3 with link.gbps = 100 (ConnectX-3, …)`.
    fn as_changed(&self, base: &Preset) -> String {
        let changed = self.changed.iter();
        let mut changed: Vec<String> = changed.map(|(path, v)| format!("{path} = {v}")).collect();
        match changed.len() {
            0 => return format!("as {} ({})", base.name, base.summary),
            1..=MOST_NAMED => {}
            n => changed = vec![format!("{n} other parameters")],
        }
        format!(
            "{} with {} ({})",
            base.name,
            changed.join(", "),
            base.summary
        )
    }

    /// The same hardware with a link of this rate; unchanged without one.
    pub fn at_rate(&self, rate: Option<LinkRate>) -> Cow<'_, Self> {
        let Some(rate) = rate else {
            return Cow::Borrowed(self);
        };
        let mut changed = self.clone();
        changed.preset.params.link.gbps = f64::from(rate.usable_mbps()) / 1e3;
        Cow::Owned(changed)
    }

    /// Returns the device as records name it.
    pub fn reference(&self) -> DeviceRef {
        DeviceRef {
            kind: DeviceKind::Model,
            name: self.name.clone(),
        }
    }

    /// Returns the details for a record: preset, driver, and each value that differs from the base preset.
    pub fn details(&self) -> Vec<(String, String)> {
        let mut details = vec![
            ("preset".to_owned(), self.name.clone()),
            ("hardware".to_owned(), self.preset.summary.clone()),
            ("driver".to_owned(), self.preset.driver.name().to_owned()),
            ("seed".to_owned(), SEED.0.to_string()),
            ("link layer".to_owned(), self.preset.link_layer.to_string()),
            (SUPPORT.to_owned(), self.support().to_string()),
        ];
        let changed = self.changed.iter();
        details.extend(changed.map(|(path, value)| ((*path).to_owned(), value.to_string())));
        details
    }

    /// Returns how well published values support its predictions. Those of the base preset do not support a changed one.
    pub fn support(&self) -> Support {
        Support::of(&self.name)
    }

    /// Returns a cluster of `machines` with this hardware, with their buffers in the cache.
    pub fn cluster(&self, machines: u32) -> Cluster {
        let placements = vec![Placement::Cached; machines as usize];
        Cluster::seeded(&self.preset, &placements, SEED)
    }

    /// Returns a cluster for a program, with the buffers of each host on the node that the program chooses.
    pub(crate) fn cluster_of(&self, program: &impl Program) -> Cluster {
        let placements = (0..program.hosts()).map(|host| program.memory_node(host));
        let placements: Vec<_> = placements.map(Placement::cached_on).collect();
        let changes = program.hardware();
        let preset = self.changed_by(&changes);
        let preset = preset.expect("the program was checked for this hardware");
        let mut cluster = Cluster::seeded(&preset, &placements, SEED);
        if changes.one_context {
            cluster.share_contexts();
        }
        if changes.polls_apart {
            cluster.poll_apart();
        }
        cluster
    }

    /// Checks that a program's changes of the hardware contradict no other parameter.
    ///
    /// # Errors
    /// One does.
    pub fn check(&self, program: &impl Program) -> Result<(), PresetError> {
        self.changed_by(&program.hardware()).map(drop)
    }

    fn changed_by(&self, changes: &HardwareChanges) -> Result<Preset, PresetError> {
        let mtu = changes.link_mtu.map(|mtu| mtu.bytes().get() as f64);
        let switches = self.preset.params.link.switches;
        let switches = switches.saturating_sub(changes.fewer_switches);
        let mut values = vec![("link.switches", f64::from(switches))];
        values.extend(changes.without_ddio.then_some(("memory.ddio_ways", 0.0)));
        values.extend(mtu.map(|mtu| ("link.mtu_bytes", mtu)));
        self.preset.clone().with(&values)
    }

    /// Whether it can be a device of `ping`, `blast` and `study`.
    pub fn is_nic(&self) -> bool {
        self.preset.kind == Kind::Nic
    }

    /// Opens the device in a separate simulation and queries its limits.
    ///
    /// # Errors
    /// It is not a NIC, or the query failed.
    pub fn limits(&self) -> anyhow::Result<Limits> {
        if !self.is_nic() {
            let name = &self.name;
            bail!(
                "{name} is a bare PCIe device, without queue pairs: no verbs run on it, only the DMA programs of `adverb model validate`"
            );
        }
        let mut cluster = self.cluster(1);
        let machine = cluster.machine(0);
        let limits = cluster.spawn(machine, "limits", |station| {
            let context = station.context();
            let port_num = context.port_num();
            context.port(port_num).map(|port| Limits {
                caps: context.caps().clone(),
                port_num,
                port,
            })
        });
        let outcome = cluster.run(&Budget::NONE);
        let limits = limits.take().ok_or_else(|| anyhow!("{outcome}"))?;
        Ok(limits?)
    }

    /// Returns the time in which a thread loads a line of `working_set`: from the last-level cache if it fits, else from
    /// memory. Other threads load the machine at the same time.
    ///
    /// # Errors
    /// The simulation failed.
    pub fn line_time(
        &self,
        numa: NumaPlacement,
        working_set: Bytes,
        others: &[CpuLoad],
    ) -> anyhow::Result<Span> {
        let cache = self.preset.params.memory.llc_mib * Bytes::mib(1).get() as f64;
        let from = match working_set.get() as f64 <= cache {
            true => Level::Cache,
            false => Level::Memory,
        };
        let mut cluster = Cluster::seeded(&self.preset, &[Placement::cached_on(numa.memory)], SEED);
        let machine = cluster.machine(0);
        let others = others.to_vec();
        let took = cluster.spawn_sleeper(machine, "line", move |station| {
            station.bind(numa)?;
            let context = station.context();
            let mr =
                context.alloc_mr(&context.alloc_pd()?, Bytes::new(64), AccessFlags::empty())?;
            let (span, _) = station.under_load(&others, &mr, || {
                let start = station.now();
                station.account(Work::Load { lines: 1, from });
                (station.now() - start).saturating_sub(station.clock_cost())
            })?;
            anyhow::Ok(span)
        });
        let outcome = cluster.run(&Budget::NONE);
        took.take().ok_or_else(|| anyhow!("{outcome}"))?
    }
}

/// Returns the built-in preset that this one is based on: named by `extends`, or, in a copy, by its own name.
fn base(preset: &Preset, text: &str) -> Option<Preset> {
    let document = text.parse::<toml_edit::DocumentMut>().ok()?;
    let extended = document.get("extends").and_then(|name| name.as_str());
    Preset::built_in(extended.unwrap_or(&preset.name)).ok()
}

/// Returns the name of a file's preset. A copy with the name of a built-in preset gets the file's name, so
/// that its records cannot be mistaken for records of the original.
fn own_name(preset: &Preset, path: &Path) -> String {
    if !preset.name.is_empty() && !names().contains(&preset.name.as_str()) {
        return preset.name.clone();
    }
    let file = path.file_name().unwrap_or_default();
    file.to_string_lossy().into_owned()
}

/// Reads a preset file, which may be a device or a pipe that never ends.
fn read_preset(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = fs::File::open(path)?;
    file.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(io::Error::other(format!(
            "it has more than {MOST_BYTES} bytes"
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was described as the preset that it extends.
    #[test]
    fn a_changed_preset_is_described_by_what_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fast.toml");
        let described = |text: &str| {
            fs::write(&path, text).unwrap();
            Hardware::from_file(&path).unwrap().preset.summary
        };
        let base = Preset::built_in("cx3").unwrap().summary;
        let changed = "extends = \"cx3\"\n[link]\ngbps = { value = 100, source = \"what if\" }\n";
        let expected = format!("cx3 with link.gbps = 100 ({base})");
        assert_eq!(described(changed), expected);
        let own = format!("summary = \"mine\"\n{changed}");
        assert_eq!(described(&own), "mine");
        assert_eq!(described("extends = \"cx3\"\n"), format!("as cx3 ({base})"));
    }
}
