//! A ranking: horizontal bars from zero, the name above each, the value behind it.

use maud::{Markup, html};

use super::mark::at;
use crate::cells::Quantity;
use crate::figure::Bar;

const WIDTH: f64 = 440.0;
const ROW: f64 = 34.0;
const BAR: f64 = 12.0;
/// Room behind the longest bar for its value.
const VALUE: f64 = 78.0;

/// The bars as SVG.
pub(crate) fn draw(title: &str, quantity: Quantity, bars: &[Bar]) -> Markup {
    let longest = bars
        .iter()
        .map(|b| b.value.high)
        .fold(f64::MIN_POSITIVE, f64::max);
    let place = |value: f64| (value / longest).clamp(0.0, 1.0) * (WIDTH - VALUE);
    let height = ROW * bars.len() as f64 + 6.0;
    html! {
        svg class="plot bars" viewBox=(format!("0 0 {WIDTH} {height}")) role="img" tabindex="0"
            aria-label=(description(title, quantity, bars)) data-points=(bars.len()) {
            @for (row, bar) in bars.iter().enumerate() {
                @let top = ROW * row as f64 + 16.0;
                @let middle = top + BAR / 2.0;
                @let (low, high) = (place(bar.value.low), place(bar.value.high));
                text class="name" x="0" y=(at(top - 4.0)) { (bar.name) }
                g class="pt" data-y=(bar.value.y) {
                    title { (bar.value.text) }
                    rect class={ "bar c" (bar.style.color % 8) } x="0" y=(at(top)) width=(at(place(bar.value.y).max(1.0))) height=(at(BAR)) {}
                }
                @if high - low > 2.0 {
                    path class="whisker" d=(format!("M{low:.1} {middle:.1}H{high:.1}M{low:.1} {0:.1}v6M{high:.1} {0:.1}v6", middle - 3.0)) {}
                }
                text class="value" x=(at(high.max(1.0) + 5.0)) y=(at(top + 10.0)) { (quantity.show(bar.value.y)) }
            }
        }
    }
}

fn description(title: &str, quantity: Quantity, bars: &[Bar]) -> String {
    let rows: Vec<String> = bars
        .iter()
        .map(|b| format!("{}: {}", b.name, quantity.show(b.value.y)))
        .collect();
    format!("{title}, smallest first. {}", rows.join("; "))
}
