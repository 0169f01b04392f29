//! What devices are known to lack, and where they are known to depart from the rules.

use std::fmt;

/// A case that does not pass on a device.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its name.
    pub case: &'static str,
    /// In which way.
    pub kind: Kind,
    /// Why the device departs.
    pub reason: &'static str,
}

/// In which way a case does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The device reports that it does not have it.
    Lacks,
    /// The device violates the rule.
    Departs,
    /// It violates the rule, and its kernel then waits for so much time that the case is skipped.
    Stalls,
    /// It departs in some runs, or at one of two ends: passing proves nothing.
    Unsteady,
}

impl Kind {
    /// The case of that name does not pass in this way.
    pub const fn of(self, case: &'static str, reason: &'static str) -> Known {
        Known {
            case,
            kind: self,
            reason,
        }
    }
}

/// How a case ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The device follows the rule.
    Passed,
    /// The device lacks this.
    Lacks(String),
    /// The device breaks the rule.
    Failed(String),
}

/// What an outcome means, given what is known of the device.
#[derive(Clone, Debug)]
pub enum Judgement {
    /// The device follows the rule.
    Passed,
    /// The device lacks it, as known.
    Lacks(String),
    /// The device departs from the rule, as known.
    Departs(&'static str),
    /// The case was left out.
    NotRun(&'static str),
    /// The device does not follow the rule.
    Failed(String),
    /// The device follows a rule that is listed as one that it does not follow.
    Stale(&'static str),
}

impl Judgement {
    /// Compares an outcome with what is known of the case.
    pub fn of(outcome: Outcome, known: Option<&Known>) -> Self {
        match (outcome, known) {
            (Outcome::Passed, None) => Judgement::Passed,
            (Outcome::Passed, Some(known)) if known.kind == Kind::Unsteady => Judgement::Passed,
            (Outcome::Passed, Some(known)) => Judgement::Stale(known.reason),
            (Outcome::Lacks(what), Some(known)) if known.kind == Kind::Lacks => {
                Judgement::Lacks(format!("{what}: {}", known.reason))
            }
            (Outcome::Failed(_), Some(known)) if known.kind != Kind::Lacks => {
                Judgement::Departs(known.reason)
            }
            (Outcome::Lacks(what), _) => Judgement::Failed(format!("unexpectedly lacks {what}")),
            (Outcome::Failed(why), _) => Judgement::Failed(why),
        }
    }

    /// Whether the outcome is not the expected one.
    pub fn is_failure(&self) -> bool {
        matches!(self, Judgement::Failed(_) | Judgement::Stale(_))
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Judgement::Passed => f.write_str("passed"),
            Judgement::Lacks(what) => write!(f, "lacks    {what}"),
            Judgement::Departs(reason) => write!(f, "departs  {reason}"),
            Judgement::NotRun(reason) => write!(f, "not run  {reason}"),
            Judgement::Failed(why) => write!(f, "FAILED   {}", why.replace('\n', "\n         ")),
            Judgement::Stale(reason) => write!(f, "FAILED   passes, but is listed: {reason}"),
        }
    }
}
