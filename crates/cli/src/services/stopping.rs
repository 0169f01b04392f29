//! Waits that end when the user wants the end.

use std::sync::atomic::{AtomicBool, Ordering};

use adverb_units::Span;
use adverb_verbs::{Guard, OutOfBandError, WaitError};

/// Between two looks at whether the user wants the end.
const SLICE: Span = Span::from_ms(50);

/// Looks, at each wait, whether it is to stop.
pub(super) struct UntilStopped<'s>(pub(super) &'s AtomicBool);

impl UntilStopped<'_> {
    fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Guard for UntilStopped<'_> {
    /// Waits in slices.
    #[inline]
    fn wait<R>(
        &self,
        patience: Span,
        mut wait: impl FnMut(Span) -> Result<R, WaitError>,
    ) -> Result<R, WaitError> {
        let mut left = patience;
        loop {
            if self.is_over() {
                let what = "more: the user wants the end";
                return Err(WaitError::TimedOut { what, patience });
            }
            let slice = left.min(SLICE);
            let result = wait(slice);
            left = left.saturating_sub(slice);
            match result {
                Err(WaitError::TimedOut { .. }) if left > Span::ZERO => {}
                Err(WaitError::TimedOut { what, .. }) => {
                    return Err(WaitError::TimedOut { what, patience });
                }
                other => return other,
            }
        }
    }

    fn receive(
        &self,
        patience: Span,
        mut receive: impl FnMut(Span) -> Result<Vec<u8>, OutOfBandError>,
    ) -> Result<Vec<u8>, OutOfBandError> {
        let mut left = patience;
        loop {
            let slice = left.min(SLICE);
            let result = receive(slice);
            left = left.saturating_sub(slice);
            match result {
                Err(OutOfBandError::TimedOut { role, .. }) if left == Span::ZERO => {
                    return Err(OutOfBandError::TimedOut { role, patience });
                }
                Err(OutOfBandError::TimedOut { .. }) if !self.is_over() => {}
                other => return other,
            }
        }
    }
}
