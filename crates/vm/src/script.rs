//! What a script has the kernel run (execve(2), "Interpreter scripts").

use std::path::{Path, PathBuf};

/// The interpreter of a script that begins with these bytes, and the program that it is told to
/// find by name, if it is `env`; nothing if this is no script.
pub(crate) fn interpreter(start: &[u8]) -> Option<(PathBuf, Option<String>)> {
    let line = start
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    let path = PathBuf::from(words.next()?);
    let is_env = path.file_name() == Path::new("env").file_name();
    let named = words.find(|word| !word.starts_with('-') && !word.contains('='));
    Some((path, named.filter(|_| is_env).map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(start: &str) -> Option<(String, Option<String>)> {
        interpreter(start.as_bytes()).map(|(path, name)| (path.display().to_string(), name))
    }

    #[test]
    fn the_first_line_names_the_interpreter() {
        assert_eq!(seen("#!/bin/sh\necho"), Some(("/bin/sh".into(), None)));
        assert_eq!(seen("#! /bin/sh -e\n"), Some(("/bin/sh".into(), None)));
        assert_eq!(seen("#!\n"), None);
        assert_eq!(seen("# !/bin/sh\n"), None);
    }

    #[test]
    fn env_is_told_a_name() {
        let bash = Some(("/usr/bin/env".into(), Some("bash".into())));
        assert_eq!(seen("#!/usr/bin/env bash\n"), bash);
        assert_eq!(seen("#!/usr/bin/env -S LANG=C bash -e\n"), bash);
    }
}
