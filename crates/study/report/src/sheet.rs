//! A plot as one SVG file that needs no other: paper, title, a line below it, the style of the plots.

use maud::{Markup, PreEscaped, html};

/// Colours and type of the plots, as in `assets/report.css`.
const STYLE: &str = "
svg { --paper: #ffffff; --ink: #1b1b1b; --soft: #5a5a5a; --faint: #ececec; color-scheme: light dark;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b5568f; --c4: #c78500; --c5: #3a9fd6; --c6: #1b1b1b; --c7: #8a8100;
  font: 11.5px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif; background: var(--paper); }
@media (prefers-color-scheme: dark) {
  svg { --paper: #16181b; --ink: #e8e6e3; --soft: #a5a8ac; --faint: #272a2f;
    --c0: #4aa3df; --c1: #f08a3c; --c2: #2fc79a; --c3: #dd92bd; --c4: #e8b030; --c5: #8fd0f5; --c6: #e8e6e3; --c7: #d9d04a; }
}
.paper { fill: var(--paper); }
text { fill: var(--soft); } .title { fill: var(--ink); font-size: 14px; font-weight: 600; } .name { fill: var(--ink); }
.grid path { fill: none; stroke: var(--faint); } .grid .frame { stroke: var(--soft); stroke-opacity: .55; }
.c0 { fill: var(--c0); } .c1 { fill: var(--c1); } .c2 { fill: var(--c2); } .c3 { fill: var(--c3); }
.c4 { fill: var(--c4); } .c5 { fill: var(--c5); } .c6 { fill: var(--c6); } .c7 { fill: var(--c7); }
";

/// The paper around a drawing, which begins below [`Sheet::TOP`].
pub(crate) struct Sheet<'t> {
    pub(crate) title: &'t str,
    /// What else a reader must know, in a line.
    pub(crate) note: &'t str,
    /// Width and height.
    pub(crate) size: (f64, f64),
    /// What the drawing needs in addition to the plots' style.
    pub(crate) style: &'t str,
}

impl Sheet<'_> {
    /// Where title and note end.
    pub(crate) const TOP: f64 = 58.0;

    /// The file, for light and dark paper.
    pub(crate) fn svg(&self, drawing: &Markup) -> String {
        let (width, height) = self.size;
        let picture = html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {width} {height}"))
                width=(width) height=(height) role="img" aria-labelledby="t d" {
                title id="t" { (self.title) }
                desc id="d" { (self.note) }
                style { (PreEscaped(STYLE)) (PreEscaped(self.style)) }
                rect class="paper" width=(width) height=(height) {}
                text class="title" x="16" y="22" { (self.title) }
                text x="16" y="40" { (self.note) }
                (drawing)
            }
        };
        picture.into_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_those_of_the_report() {
        let report = include_str!("../assets/report.css");
        let palettes: Vec<&str> = STYLE
            .lines()
            .map(|line| line.trim().trim_end_matches(" }"))
            .filter(|line| line.starts_with("--c0"))
            .collect();
        assert_eq!(palettes.len(), 2);
        for palette in palettes {
            assert!(report.contains(palette), "{palette}");
        }
    }
}
