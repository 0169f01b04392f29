//! Errors as one line, and text from another host before it is shown or kept.

/// An invalid combination of arguments: exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Formats an error with all causes in one line.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Some errors repeat their source in their own text, also before a remedy.
        let is_in = |end| line.contains(&format!("{cause}{end}"));
        if line.ends_with(&cause) || is_in(';') || is_in(':') {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(cause.trim());
    }
    line.replace('\n', " ")
}

/// Maximum length of a text from another host.
const LONGEST: usize = 600;

/// Makes a text printable: one line without control characters, of limited length.
pub fn printable(text: &str) -> String {
    let tame = |c: char| if c.is_control() { ' ' } else { c };
    let mut line: String = text.chars().take(LONGEST).map(tame).collect();
    if text.chars().nth(LONGEST).is_some() {
        line.push('…');
    }
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context;

    use super::*;

    #[test]
    fn text_has_no_control_characters_and_bounded_length() {
        assert_eq!(printable("a\x1b[2Jb\r\nc\u{9b}31m "), "a [2Jb  c 31m");
        assert_eq!(printable(&"x".repeat(5000)).chars().count(), LONGEST + 1);
    }

    #[test]
    fn causes_are_joined_and_not_repeated() {
        let inner = io::Error::other("disk\nfull");
        let error = Err::<(), _>(inner)
            .context("cannot write x")
            .context("study")
            .unwrap_err();
        assert_eq!(one_line(&error), "study: cannot write x: disk full");
        let repeated = Err::<(), _>(io::Error::other("no"))
            .context("it said: no")
            .unwrap_err();
        assert_eq!(one_line(&repeated), "it said: no");
        let remedied = Err::<(), _>(io::Error::other("no"))
            .context("it said: no; ask again")
            .unwrap_err();
        assert_eq!(one_line(&remedied), "it said: no; ask again");
    }
}
