//! A program for a machine, what it does, and what is left of it.

use adverb_units::Span;

use crate::protocol::Ending;

/// Default maximum run time of a program.
const DEFAULT_LIMIT: Span = Span::from_secs(60);

/// A program for a machine, with arguments, environment and time limit.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) limit: Span,
}

impl Program {
    /// A program by its path in the guest, or by its name on the guest's `PATH`. It may run for
    /// 60 s.
    pub fn new(program: impl Into<String>) -> Self {
        Program {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            limit: DEFAULT_LIMIT,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<T: Into<String>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds a variable to the environment, which is `PATH`, `HOME` and `TMPDIR` else.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Has it killed, with its descendants, after this time.
    #[must_use]
    pub fn limit(mut self, limit: Span) -> Self {
        self.limit = limit;
        self
    }
}

/// What a program printed, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub ending: Ending,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Whether it exited with status 0.
    pub fn success(&self) -> bool {
        self.ending == Ending::Exited(0)
    }
}

/// What a program did since it was last asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It wrote this to its standard output.
    Stdout(Vec<u8>),
    /// It wrote this to its standard error.
    Stderr(Vec<u8>),
    /// It ended.
    Ended(Ending),
}
