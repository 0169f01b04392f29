//! The configuration, which `adverb run` passes in environment variables.
//!
//! | variable | value | default |
//! |---|---|---|
//! | `ADVERB_RUN_ADDRESS` | IP address of the devices | `127.0.0.1` |
//! | `ADVERB_RUN_DEVICES` | names, comma-separated, each with an address of its own if `NAME=ADDRESS` | `adverb0` |
//! | `ADVERB_RUN_MTU` | largest path MTU of the ports, in bytes | that of the interface |
//! | `ADVERB_RUN_FAULTS` | injected faults: an [`Impairment`] in JSON | none |
//! | `ADVERB_EXPLAIN` | `1`: print the reason of each refused call to stderr | `0` |
//!
//! It is read at the first call of the library, and does not change afterwards.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;

use adverb_verbs::{Impairment, PathMtu};

/// Name of the only device, unless `ADVERB_RUN_DEVICES` names others.
pub const DEFAULT_DEVICE: &str = "adverb0";
/// The longest name of a device: `ibv_device.name` has 64 bytes, one of them for the final zero.
const MAX_NAME: usize = 63;

/// The configuration of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The devices, in the order of the device list. At least one.
    pub devices: Vec<DeviceConfig>,
    /// Largest path MTU; `None` for the largest that the interface supports.
    pub mtu: Option<PathMtu>,
    /// Injected faults.
    pub faults: Option<Impairment>,
    /// Whether refused calls print their reason.
    pub explain: bool,
}

/// A device of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Its name (`ibv_get_device_name`).
    pub name: String,
    /// The address of its port, an address of this host.
    pub address: IpAddr,
}

/// A variable has an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {variable} '{value}': expected {expected}")]
pub struct ConfigError {
    /// The variable.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// The values that it may have.
    pub expected: String,
}

impl Config {
    /// Reads the configuration from variables, which `get` returns by name.
    ///
    /// # Errors
    /// A variable has an invalid value.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let parsed = |variable, expected: &str| {
            let value = get(variable).filter(|value| !value.is_empty())?;
            Some((
                value.clone(),
                ConfigError {
                    variable,
                    value,
                    expected: expected.to_owned(),
                },
            ))
        };
        let address = match parsed("ADVERB_RUN_ADDRESS", "an IP address of this host") {
            None => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Some((text, invalid)) => text.parse().map_err(|_| invalid)?,
        };
        let devices = match parsed(
            "ADVERB_RUN_DEVICES",
            "names of at most 63 letters, digits, '_', '-' and '.', separated by commas, each with '=ADDRESS' if it has its own",
        ) {
            None => vec![DeviceConfig {
                name: DEFAULT_DEVICE.to_owned(),
                address,
            }],
            Some((text, invalid)) => parse_devices(&text, address).ok_or(invalid)?,
        };
        let mtu = match parsed("ADVERB_RUN_MTU", "256, 512, 1024, 2048 or 4096") {
            None => None,
            Some((text, invalid)) => Some(text.parse().map_err(|_| invalid)?),
        };
        let faults = match parsed(
            "ADVERB_RUN_FAULTS",
            "faults in JSON, as adverb run sets them",
        ) {
            None => None,
            Some((text, invalid)) => {
                Some(serde_json::from_str(&text).map_err(|error| ConfigError {
                    expected: format!("{} ({error})", invalid.expected),
                    ..invalid
                })?)
            }
        };
        let explain = match parsed("ADVERB_EXPLAIN", "0 or 1") {
            None => false,
            Some((text, invalid)) => match text.as_str() {
                "0" => false,
                "1" => true,
                _ => return Err(invalid),
            },
        };
        Ok(Config {
            devices,
            mtu,
            faults,
            explain,
        })
    }
}

/// Parses `NAME,NAME=ADDRESS,…`; `None` if it is invalid or a name occurs twice.
fn parse_devices(text: &str, default: IpAddr) -> Option<Vec<DeviceConfig>> {
    let mut devices: Vec<DeviceConfig> = Vec::new();
    for part in text.split(',') {
        let (name, address) = match part.split_once('=') {
            None => (part, default),
            Some((name, address)) => (name, address.parse().ok()?),
        };
        let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let is_name = (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_valid);
        if !is_name || devices.iter().any(|device| device.name == name) {
            return None;
        }
        devices.push(DeviceConfig {
            name: name.to_owned(),
            address,
        });
    }
    Some(devices)
}

/// Returns the configuration of this process.
pub(crate) fn config() -> Result<&'static Config, &'static ConfigError> {
    static CONFIG: OnceLock<Result<Config, ConfigError>> = OnceLock::new();
    let read = CONFIG.get_or_init(|| {
        let read = Config::read(|name| std::env::var(name).ok());
        if let Err(error) = &read {
            crate::call::print(&error.to_string());
        }
        read
    });
    read.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Config, String> {
        let get = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Config::read(get).map_err(|error| error.to_string())
    }

    #[test]
    fn without_variables_there_is_one_device_at_the_loopback_address() {
        let config = read(&[]).unwrap();
        let device = DeviceConfig {
            name: "adverb0".into(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        assert_eq!(
            config,
            Config {
                devices: vec![device],
                mtu: None,
                faults: None,
                explain: false
            }
        );
    }

    #[test]
    fn devices_have_the_common_address_unless_they_have_their_own() {
        let config = read(&[
            ("ADVERB_RUN_ADDRESS", "10.0.0.1"),
            ("ADVERB_RUN_DEVICES", "a,b=10.0.0.2"),
        ]);
        let devices = config.unwrap().devices;
        let described: Vec<_> = devices
            .iter()
            .map(|d| format!("{} {}", d.name, d.address))
            .collect();
        assert_eq!(described, ["a 10.0.0.1", "b 10.0.0.2"]);
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
            ("ADVERB_RUN_FAULTS", "{"),
            ("ADVERB_EXPLAIN", "yes"),
        ] {
            let error = read(&[(variable, value)]).unwrap_err();
            assert!(
                error.starts_with(&format!("invalid {variable} '{value}'")),
                "{error}"
            );
        }
    }

    #[test]
    fn faults_are_read_as_they_are_written() {
        let faults = Impairment {
            seed: 7,
            ..Impairment::default()
        };
        let text = serde_json::to_string(&faults).unwrap();
        assert_eq!(
            read(&[("ADVERB_RUN_FAULTS", &text)]).unwrap().faults,
            Some(faults)
        );
    }
}
