//! The virtual machines of the rows that need them.

use std::sync::OnceLock;

use adverb_vm::{Lab, LabSpec, missing};
use anyhow::{Context as _, Result};

use crate::child::find;

/// The machines, booted when a row first asks for them; `None` where this host cannot.
#[derive(Default)]
pub(crate) struct LazyLab(OnceLock<Option<Lab>>);

impl LazyLab {
    pub(crate) fn get(&self) -> Result<Option<&Lab>> {
        if self.0.get().is_none() {
            let lab = match missing()[..] {
                [] => Some(boot()?),
                _ => None,
            };
            let _ = self.0.set(lab);
        }
        Ok(self.0.get().and_then(Option::as_ref))
    }
}

fn boot() -> Result<Lab> {
    let spec = LabSpec::two().init(find("adverb-vm")?);
    spec.boot().context("the virtual machines did not boot")
}
