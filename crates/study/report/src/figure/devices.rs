//! Devices side by side: lines of each device in each panel.

use super::{Body, Panel, PanelSpec, label, line_panel};
use crate::cells::Cells;

/// Returns the panels that show at least two devices.
pub(crate) fn panels(specs: &[PanelSpec], cells: &Cells<'_>) -> Vec<Panel> {
    let mut panels: Vec<Panel> = specs
        .iter()
        .filter(|spec| cells.filter(spec.shows).devices().len() > 1)
        .filter_map(|spec| line_panel(spec, cells, None, &[]))
        .collect();
    let mut names: Vec<String> = Vec::new();
    for series in panels.iter_mut().filter_map(series_of).flatten() {
        let known = names.iter().position(|name| *name == series.name);
        let index = known.unwrap_or(names.len());
        if known.is_none() {
            names.push(series.name.clone());
        }
        series.style = label::by_order(index);
    }
    panels
}

fn series_of(panel: &mut Panel) -> Option<&mut Vec<super::Series>> {
    match &mut panel.body {
        Body::Lines(lines) => Some(&mut lines.series),
        Body::Bars { .. } | Body::Table(_) => None,
    }
}
