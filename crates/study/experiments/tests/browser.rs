//! The report in a real browser: every plot has drawn its points, nothing is logged as an error, no
//! request leaves the file, and the page fits a phone.
#![allow(clippy::disallowed_methods, reason = "a browser wants a file")]

#[path = "it/common/mod.rs"]
mod common;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

const CHROMIUM: &str = "/usr/bin/chromium";

/// Whether the browser is there; says so visibly where it is not.
fn chromium_is_here(test: &str) -> bool {
    if Path::new(CHROMIUM).exists() {
        return true;
    }
    let reason = format!("{CHROMIUM} is missing (Debian package: chromium)");
    assert!(
        std::env::var_os("ADVERB_REQUIRE_CHROMIUM").is_none_or(|v| v != "1"),
        "{reason}"
    );
    // Not eprintln!, which the test runner keeps to itself when a test passes.
    let _ = writeln!(std::io::stderr(), "\nNOT RUN: {test}: {reason}");
    false
}

struct Page {
    dom: String,
    log: String,
    net_log: String,
}

/// Opens the report of the synthetic study in a window of this size.
fn open(window: &str) -> Page {
    open_html(window, &common::html(&common::study_with_failures()))
}

fn open_html(window: &str, html: &str) -> Page {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("report.html");
    let net_log = dir.path().join("net.json");
    std::fs::write(&file, html).expect("written");
    let flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync \
                 --disable-background-networking --disable-component-update --disable-default-apps \
                 --disable-extensions --disable-dev-shm-usage --enable-logging=stderr --v=0 \
                 --virtual-time-budget=5000 --dump-dom";
    let profile = dir.path().join("profile");
    let output: Output = Command::new(CHROMIUM)
        .args(flags.split_whitespace())
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--log-net-log={}", net_log.display()))
        .arg(format!("--window-size={window}"))
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("chromium starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Page {
        dom: String::from_utf8_lossy(&output.stdout).into_owned(),
        log: String::from_utf8_lossy(&output.stderr).into_owned(),
        net_log: std::fs::read_to_string(&net_log).unwrap_or_default(),
    }
}

/// Requests that the page made beyond its file, out of chromium's log of its network. Chromium's own
/// (for its updates) have no origin.
fn requests(net_log: &str) -> Vec<&str> {
    let of_page = |line: &&str| {
        line.contains("\"initiator\":") && !line.contains("\"initiator\":\"not an origin\"")
    };
    net_log
        .lines()
        .filter(|line| line.contains("\"url\":\"http"))
        .filter(of_page)
        .collect()
}

/// The value of an attribute of the root element.
fn root_attribute<'a>(page: &'a Page, name: &str) -> &'a str {
    let start = page.dom.find(&format!(" {name}=\"")).unwrap_or_else(|| {
        panic!(
            "no {name}: the page's script did not run to its end; log: {}",
            page.log
        )
    });
    page.dom[start..].split('"').nth(1).unwrap_or_default()
}

fn check(page: &Page) {
    let ready = root_attribute(page, "data-report-ready");
    let numbers: Vec<usize> = ready
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    let [drawn, expected, plots] = numbers[..] else {
        panic!("{ready}")
    };
    assert_eq!(drawn, expected, "points outside their plot: {ready}");
    assert!(drawn > 1000 && plots > 20, "{ready}");
    assert_eq!(
        root_attribute(page, "data-report-fits"),
        "yes",
        "the page scrolls sideways"
    );

    let console: Vec<&str> = page
        .log
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect();
    assert!(console.is_empty(), "{console:#?}");

    assert!(
        !page.net_log.is_empty(),
        "chromium wrote no log of its requests"
    );
    let outside = requests(&page.net_log);
    assert!(outside.is_empty(), "{outside:#?}");
}

#[test]
fn on_a_desk() {
    if chromium_is_here("on_a_desk") {
        check(&open("1280,900"));
    }
}

#[test]
fn on_a_phone() {
    if chromium_is_here("on_a_phone") {
        check(&open("360,800"));
    }
}

/// Runs after the page's own script: uses the page as a reader would, and writes down what happened.
const READER: &str = r##"<script>
const seen = [];
const plot = document.querySelector("#fig1 svg.plot");
const point = plot.querySelector(".pt").getBoundingClientRect();
const at = { clientX: point.left + 3, clientY: point.top + 3, bubbles: true, pointerType: "mouse" };
plot.dispatchEvent(new PointerEvent("pointermove", at));
const tip = document.getElementById("tip");
seen.push("tip " + (!tip.hidden && /repetitions/.test(tip.textContent)));
plot.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
seen.push("aloud " + /repetitions/.test(document.querySelector("#fig1 .readout").textContent));
const button = document.querySelector("#fig1 .legend button");
const drawn = () => document.querySelectorAll("#fig1 .series:not(.off)").length;
const before = drawn();
button.click();
seen.push("hidden " + (drawn() < before && button.getAttribute("aria-pressed") === "false"));
button.click();
seen.push("shown " + (drawn() === before && button.getAttribute("aria-pressed") === "true"));
const rows = () => [...document.querySelectorAll("#cells tbody tr")].filter((row) => !row.hidden);
const filter = document.getElementById("filter");
filter.value = "blast read event";
filter.dispatchEvent(new Event("input"));
seen.push("filtered " + rows().every((row) => /blast/.test(row.textContent) && /read/.test(row.textContent)));
filter.value = "";
filter.dispatchEvent(new Event("input"));
document.querySelectorAll("#cells th button")[11].click();
const times = rows().map((row) => row.cells[11].dataset.v).filter(Boolean).map(Number);
seen.push("sorted " + (times.length > 100 && times.every((t, i) => i === 0 || times[i - 1] <= t)));
seen.push("failed last " + (rows().at(-1).className === "bad"));
const saved = [];
window.Blob = class { constructor([text], { type }) { saved.push([type, text]); } };
URL.createObjectURL = () => "data:,";
HTMLAnchorElement.prototype.click = function () { saved.push([this.download, ""]); };
const figure = document.getElementById("fig1");
const points = figure.querySelectorAll(".pt").length;
figure.querySelectorAll(".save button").forEach((button) => button.click());
const [[svgType, svg], [svgName], [csvType, csv], [csvName]] = saved;
const drawing = new DOMParser().parseFromString(svg, svgType);
seen.push("svg " + (svgName === "fig1.svg" && drawing.querySelectorAll(".pt").length === points && !drawing.querySelector("parsererror")));
seen.push("csv " + (csvName === "fig1.csv" && csvType === "text/csv" && csv.trim().split("\n").length === points + 1));
seen.push("anchors " + [...document.querySelectorAll("section[id] > h3 > .anchor")].every((a) => document.querySelector(a.getAttribute("href"))));
document.documentElement.dataset.seen = seen.join("; ");
</script>"##;

#[test]
fn it_answers_pointer_keys_and_buttons() {
    if !chromium_is_here("it_answers_pointer_keys_and_buttons") {
        return;
    }
    let html = common::html(&common::study_with_failures());
    let html = html.replace("</body>", &format!("{READER}</body>"));
    let page = open_html("1280,900", &html);
    let all = "tip true; aloud true; hidden true; shown true; filtered true; sorted true; failed last true; \
               svg true; csv true; anchors true";
    assert_eq!(root_attribute(&page, "data-seen"), all);
}

/// The checks above can fail.
#[test]
fn a_request_and_an_error_are_seen() {
    if !chromium_is_here("a_request_and_an_error_are_seen") {
        return;
    }
    let page = open_html(
        "800,600",
        "<!DOCTYPE html><html><body><img src='http://127.0.0.1:9/x.png'><script>nonsense()</script></body></html>",
    );
    assert!(page.log.contains("CONSOLE"), "{}", page.log);
    assert_eq!(requests(&page.net_log).len(), 1, "{}", page.net_log);
}
