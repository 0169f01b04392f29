//! The last lines of a machine's console and of QEMU's own messages, for errors.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

/// Lines that are kept.
const KEPT: usize = 25;
/// Bytes of a line that are kept.
const LINE: u64 = 500;

/// What the kernel begins the report of its own end with.
const FAULTS: [&str; 3] = ["Kernel panic - ", "BUG: ", "Oops: "];

#[derive(Clone, Default)]
pub(crate) struct Console(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    last: VecDeque<String>,
    /// The first line that reports a fault of the kernel, without its time.
    fault: Option<String>,
}

impl Console {
    /// Reads lines until the stream ends.
    pub(crate) fn follow(&self, from: impl Read) {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            match (&mut from).take(LINE).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => self.push(&String::from_utf8_lossy(&line)),
            }
        }
    }

    fn push(&self, line: &str) {
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        if line.trim().is_empty() {
            return;
        }
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = FAULTS.iter().find_map(|fault| line.find(fault));
        if let (None, Some(at)) = (&lines.fault, fault) {
            lines.fault = Some(line[at..].trim_end().to_owned());
        }
        if lines.last.len() == KEPT {
            lines.last.pop_front();
        }
        lines.last.push_back(line.trim_end().to_owned());
    }

    /// The kernel's first report of a fault.
    pub(crate) fn fault(&self) -> Option<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.fault.clone()
    }

    /// The last lines, indented.
    pub(crate) fn last_lines(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.last.is_empty() {
            return "  (nothing)".to_owned();
        }
        let lines: Vec<_> = lines.last.iter().map(|line| format!("  {line}")).collect();
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let console = Console::default();
        assert_eq!(console.last_lines(), "  (nothing)");
        let text: String = (0..100).map(|n| format!("line {n}\r\n\r\n")).collect();
        console.follow(text.as_bytes());
        let last = console.last_lines();
        assert_eq!(last.lines().count(), KEPT);
        assert!(last.ends_with("  line 99"), "{last}");
        assert_eq!(console.fault(), None);
    }

    #[test]
    fn the_first_fault_is_kept_however_much_follows() {
        let console = Console::default();
        let text: String = (0..100).map(|n| format!("trace {n}\n")).collect();
        let text = format!("[ 1.5] BUG: bad page\n{text}[ 2.0] Kernel panic - not syncing\n");
        console.follow(text.as_bytes());
        assert_eq!(console.fault().as_deref(), Some("BUG: bad page"));
    }
}
