//! Text from another host, before it is shown or kept.

/// More than a reason needs.
const LONGEST: usize = 600;

/// In one line, without what would command a terminal, and not longer than a reason needs.
pub(crate) fn printable(text: &str) -> String {
    let tame = |c: char| if c.is_control() { ' ' } else { c };
    let mut line: String = text.chars().take(LONGEST).map(tame).collect();
    if text.chars().nth(LONGEST).is_some() {
        line.push('…');
    }
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_commands_the_terminal_or_fills_it() {
        assert_eq!(printable("a\x1b[2Jb\r\nc\u{9b}31m "), "a [2Jb  c 31m");
        assert_eq!(printable(&"x".repeat(5000)).chars().count(), LONGEST + 1);
    }
}
