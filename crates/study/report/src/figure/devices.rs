//! Devices side by side: lines of each device in each panel.

use super::label::Looks;
use super::{Panel, PanelSpec, line_panel};
use crate::cells::Cells;

/// Returns the panels that show at least two devices.
pub(crate) fn panels(specs: &[PanelSpec], cells: &Cells<'_>) -> Vec<Panel> {
    let mut looks = Looks::default();
    specs
        .iter()
        .filter(|spec| cells.filter(spec.shows).devices().len() > 1)
        .filter_map(|spec| line_panel(spec, cells, None, &[], &mut looks))
        .collect()
}
