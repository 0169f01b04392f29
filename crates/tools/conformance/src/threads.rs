//! Runs cases on a real device: each role is a thread of this process.

use std::panic::resume_unwind;
use std::thread;

use adverb_host::{HostStation, Link};
use adverb_verbs::{Context, OpenError, RoleId};

use crate::fixture::Board;
use crate::{Case, Fixture, Verdict, helpers};

/// Contexts whose objects may be used from several threads.
pub trait Shareable:
    Context<
        Pd: Send + Sync,
        Mr: Send + Sync,
        Channel: Send + Sync,
        Cq: Send + Sync,
        Qp: Send + Sync,
    > + Send
    + Sync
{
}

impl<C> Shareable for C where
    C: Context<
            Pd: Send + Sync,
            Mr: Send + Sync,
            Channel: Send + Sync,
            Cq: Send + Sync,
            Qp: Send + Sync,
        > + Send
        + Sync
{
}

/// How the roles of a case open the device.
pub struct Subject<'d, C> {
    /// Opens a context for a case. Where they are at two addresses, these take turns.
    pub open: &'d (dyn Fn() -> Result<C, OpenError> + Sync),
    /// Opens the context of a role's station. No case uses it.
    pub station: &'d (dyn Fn() -> Result<C, OpenError> + Sync),
}

impl<C: Shareable> Subject<'_, C> {
    /// Runs a case of the suite.
    pub fn run(&self, case: &Case<HostStation<C>>) -> Verdict {
        self.run_with(helpers(case.name), case.run)
    }

    /// Runs `case` as the main role on this thread, and in `helpers` further ones.
    ///
    /// # Panics
    /// If a role panics.
    pub fn run_with(
        &self,
        helpers: u32,
        case: impl Fn(Fixture<'_, HostStation<C>>) -> Verdict + Sync,
    ) -> Verdict {
        let board = Board::new();
        let role = |role: RoleId, links: Vec<(RoleId, Link)>| {
            let context = (self.station)().expect("open the device for a station");
            // With more roles than cores, an awaited event occurs when other roles have run.
            let station = HostStation::new(context, links).sharing_core(helpers > 0);
            case(Fixture::new((&station, role), self.open, &board))
        };
        thread::scope(|scope| {
            let (mut links, mut threads) = (Vec::new(), Vec::new());
            for number in 1..=helpers {
                let (here, there) = Link::pair().expect("make a socket pair");
                links.push((RoleId(number), here));
                let role = &role;
                threads.push(scope.spawn(move || {
                    let main = RoleId(0);
                    role(RoleId(number), vec![(main, there)])
                }));
            }
            let verdict = role(RoleId(0), links);
            for thread in threads {
                if let Err(panic) = thread.join() {
                    resume_unwind(panic);
                }
            }
            verdict
        })
    }
}
