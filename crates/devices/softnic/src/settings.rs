//! The devices of a program under `adverb run`, as environment variables.
//!
//! | variable | value | default |
//! |---|---|---|
//! | `ADVERB_RUN_ADDRESS` | IP address of the devices | `127.0.0.1` |
//! | `ADVERB_RUN_DEVICES` | names, comma-separated, each with an address of its own if `NAME=ADDRESS` | `adverb0` |
//! | `ADVERB_RUN_MTU` | largest path MTU of the ports, in bytes | the interface's |
//! | `ADVERB_RUN_FAULTS` | injected faults: an [`Impairment`] in JSON | none |
//! | `ADVERB_RUN_STATS` | `table` or `json`: print at the end what the program did | nothing |
//! | `ADVERB_RUN_RECORD` | folder for a record of what each process did | none |
//! | `ADVERB_RUN_ONLY` | `1`: hide the machine's real devices | `0` |
//! | `ADVERB_EXPLAIN` | `1`: print the reason of each refused call to stderr | `0` |
//!
//! `adverb run` writes them ([`Settings::variables`]), and the library that it preloads reads them ([`Settings::read`]).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;

use adverb_verbs::{Impairment, PathMtu};

const ADDRESS: &str = "ADVERB_RUN_ADDRESS";
const DEVICES: &str = "ADVERB_RUN_DEVICES";
const MTU: &str = "ADVERB_RUN_MTU";
const FAULTS: &str = "ADVERB_RUN_FAULTS";
const STATS: &str = "ADVERB_RUN_STATS";
/// The variable that names the folder of records.
pub const RECORD_VARIABLE: &str = "ADVERB_RUN_RECORD";
const ONLY: &str = "ADVERB_RUN_ONLY";
const EXPLAIN: &str = "ADVERB_EXPLAIN";

/// The longest name of a device: `ibv_device.name` has 64 bytes, one of them for the final zero.
const MAX_NAME: usize = 63;

/// What a program under `adverb run` gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The address of the devices that have none of their own.
    pub address: IpAddr,
    /// The devices, in the order of the device list. At least one.
    pub devices: Vec<NamedDevice>,
    /// Largest path MTU; `None` for the largest that the interface supports.
    pub mtu: Option<PathMtu>,
    /// Injected faults.
    pub faults: Option<Impairment>,
    /// How counters are printed when a process ends; `None` to print none.
    pub stats: Option<StatsFormat>,
    /// The folder for a record of what each process did.
    pub record: Option<PathBuf>,
    /// Whether the machine's real devices are hidden.
    pub only_adverb: bool,
    /// Whether refused calls print their reason.
    pub explain: bool,
}

/// How counters are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsFormat {
    /// A table for people.
    Table,
    /// A record in JSON.
    Json,
}

impl StatsFormat {
    const fn word(self) -> &'static str {
        match self {
            StatsFormat::Table => "table",
            StatsFormat::Json => "json",
        }
    }

    fn named(word: &str) -> Option<Self> {
        let mut all = [StatsFormat::Table, StatsFormat::Json].into_iter();
        all.find(|format| format.word() == word)
    }
}

impl Default for Settings {
    /// One device at the loopback address.
    fn default() -> Self {
        Settings {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            devices: NamedDevice::numbered(1),
            mtu: None,
            faults: None,
            stats: None,
            record: None,
            only_adverb: false,
            explain: false,
        }
    }
}

impl Settings {
    /// Reads variables, which `get` returns by name.
    ///
    /// # Errors
    /// A variable has an invalid value.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let variables = Reader(get);
        let default = Settings::default();
        let faults = |text: &str| serde_json::from_str(text).ok();
        let address = variables.parse(ADDRESS, "an IP address of this host", parsed)?;
        let names = "different names of at most 63 letters, digits, '_', '-' and '.', separated by commas, each with '=ADDRESS' if it has its own";
        let devices = variables.parse(DEVICES, names, devices)?;
        let only_adverb = variables.parse(ONLY, "0 or 1", switch)?;
        let explain = variables.parse(EXPLAIN, "0 or 1", switch)?;
        Ok(Settings {
            address: address.unwrap_or(default.address),
            devices: devices.unwrap_or(default.devices),
            mtu: variables.parse(MTU, "256, 512, 1024, 2048 or 4096", parsed)?,
            faults: variables.parse(
                FAULTS,
                "faults in JSON, as `adverb env` prints them",
                faults,
            )?,
            stats: variables.parse(STATS, "table or json", StatsFormat::named)?,
            record: variables.parse(RECORD_VARIABLE, "a folder", parsed)?,
            only_adverb: only_adverb.unwrap_or(default.only_adverb),
            explain: explain.unwrap_or(default.explain),
        })
    }

    /// Returns the names and values of the variables for these settings, without the defaults, and without
    /// [`RECORD_VARIABLE`], whose value is a path.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let default = Settings::default();
        let devices: Vec<_> = self.devices.iter().map(NamedDevice::to_string).collect();
        let faults = self.faults.as_ref().map(serde_json::to_string);
        let all = [
            (self.address != default.address).then(|| (ADDRESS, self.address.to_string())),
            (self.devices != default.devices).then(|| (DEVICES, devices.join(","))),
            self.mtu.map(|mtu| (MTU, mtu.bytes().get().to_string())),
            faults.map(|text| (FAULTS, text.expect("faults are plain numbers"))),
            self.stats.map(|format| (STATS, format.word().to_owned())),
            self.only_adverb.then(|| (ONLY, "1".to_owned())),
            self.explain.then(|| (EXPLAIN, "1".to_owned())),
        ];
        all.into_iter().flatten().collect()
    }
}

/// A device of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDevice {
    /// Its name (`ibv_get_device_name`).
    pub name: String,
    /// The address of its port, an address of this host; `None` for the common one.
    pub address: Option<IpAddr>,
}

impl NamedDevice {
    /// Returns `count` devices: adverb0, adverb1 …
    pub fn numbered(count: u8) -> Vec<Self> {
        let named = |n| NamedDevice {
            name: format!("adverb{n}"),
            address: None,
        };
        (0..count).map(named).collect()
    }
}

impl fmt::Display for NamedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.address.map_or(Ok(()), |at| write!(f, "={at}"))
    }
}

/// The text is not a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDeviceError {
    /// The name has other characters, or is too long.
    #[error(
        "invalid name '{0}': expected 1 to {MAX_NAME} letters, digits, '_', '-' and '.', other than '.' and '..'"
    )]
    Name(String),
    /// The part after `=`.
    #[error(
        "invalid address '{0}': expected an IPv4 or IPv6 address of this host, such as 10.0.0.1"
    )]
    Address(String),
}

impl FromStr for NamedDevice {
    type Err = ParseDeviceError;

    /// Reads `NAME` or `NAME=ADDRESS`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, address) = match text.split_once('=') {
            Some((name, address)) => (name, Some(address)),
            None => (text, None),
        };
        let is_valid = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        // A directory has the name, too.
        let is_name = (1..=MAX_NAME).contains(&name.len()) && !matches!(name, "." | "..");
        if !is_name || !name.chars().all(is_valid) {
            return Err(ParseDeviceError::Name(name.to_owned()));
        }
        let parse = |text: &str| {
            let refuse = |_| ParseDeviceError::Address(text.to_owned());
            text.parse().map_err(refuse)
        };
        Ok(NamedDevice {
            name: name.to_owned(),
            address: address.map(parse).transpose()?,
        })
    }
}

/// A variable has an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {variable} '{value}': expected {expected}")]
pub struct SettingsError {
    /// The variable.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// The values that it may have.
    pub expected: &'static str,
}

/// Returns variables by name.
struct Reader<F>(F);

impl<F: Fn(&str) -> Option<String>> Reader<F> {
    /// Parses a variable; `None` if it is not set, or empty.
    fn parse<T>(
        &self,
        variable: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, SettingsError> {
        let Some(value) = (self.0)(variable).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        match parse(&value) {
            Some(parsed) => Ok(Some(parsed)),
            None => Err(SettingsError {
                variable,
                value,
                expected,
            }),
        }
    }
}

fn parsed<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// Parses `NAME,NAME=ADDRESS,…`; `None` if it is invalid or a name occurs twice.
fn devices(text: &str) -> Option<Vec<NamedDevice>> {
    let mut devices: Vec<NamedDevice> = Vec::new();
    for part in text.split(',') {
        let device: NamedDevice = part.parse().ok()?;
        if devices.iter().any(|other| other.name == device.name) {
            return None;
        }
        devices.push(device);
    }
    Some(devices)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, String> {
        let get = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::read(get).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_are_read_as_they_are_written() {
        assert_eq!(read(&[]), Ok(Settings::default()));
        assert_eq!(Settings::default().variables(), []);
        let settings = Settings {
            address: "10.0.0.1".parse().unwrap(),
            devices: ["a", "b=fd00::1"].map(|text| text.parse().unwrap()).into(),
            mtu: Some(PathMtu::B1024),
            faults: Some(Impairment {
                seed: 7,
                ..Impairment::default()
            }),
            stats: Some(StatsFormat::Json),
            record: None,
            only_adverb: true,
            explain: true,
        };
        let variables = settings.variables();
        let named: Vec<_> = variables.iter().map(|(n, v)| (*n, v.as_str())).collect();
        assert_eq!(read(&named), Ok(settings));
        assert_eq!(named[1], ("ADVERB_RUN_DEVICES", "a,b=fd00::1"));
    }

    #[test]
    fn an_invalid_value_is_named_with_its_variable() {
        assert_eq!(
            read(&[("ADVERB_RUN_MTU", "1500")]).unwrap_err(),
            "invalid ADVERB_RUN_MTU '1500': expected 256, 512, 1024, 2048 or 4096"
        );
        for (variable, value) in [
            ("ADVERB_RUN_ADDRESS", "localhost"),
            ("ADVERB_RUN_DEVICES", "a,,b"),
            ("ADVERB_RUN_DEVICES", "a,a"),
            ("ADVERB_RUN_DEVICES", "a=here"),
            ("ADVERB_RUN_DEVICES", ".."),
            ("ADVERB_RUN_FAULTS", "{"),
            ("ADVERB_RUN_STATS", "yes"),
            ("ADVERB_RUN_ONLY", "yes"),
            ("ADVERB_EXPLAIN", "yes"),
        ] {
            let error = read(&[(variable, value)]).unwrap_err();
            let start = format!("invalid {variable} '{value}'");
            assert!(error.starts_with(&start), "{error}");
        }
    }
}
