//! The short way of a call through its first poll: everything is free, or the call does not wait and is turned away.
//!
//! Whatever else there is goes the long way, [`Holding::poll`], which goes on from where this one stopped.

use std::ops::Deref;

use super::{Counted, Holding, Stage};
use crate::budget::NotTaken;
use crate::engine::Plan;
use crate::key::Key;
use crate::keys::Asked;
use crate::refusal::Site;

/// What the short way of a call came to.
pub(crate) enum Now {
    /// The call holds everything.
    Held,
    /// Turned away for want of capacity: counted, and everything is back.
    Refused(Site),
    /// Nothing is lost: [`Holding::poll`] goes on from here.
    NotYet,
}

impl<P: Deref<Target = Plan>> Holding<P> {
    /// The short way of a call that finds everything free, or is turned away at once, for its first poll alone.
    #[inline(always)]
    pub(crate) fn take_now(&mut self, key: &Key) -> Now {
        let plan = &*self.plan;
        if self.counted != Counted::Nothing || plan.watched.is_on() {
            return Now::NotYet;
        }
        if !key.is_empty() {
            let keys = &plan.engine.keys;
            let caller = plan.counters.number();
            match keys.ask(plan.key_space, key, caller, &mut self.key, false, |_| None) {
                Asked::Held => {}
                Asked::Refused(usage) if plan.reject => return self.refuse_now(Site::Key(usage)),
                _ => return Now::NotYet,
            }
        } else if plan.key_required || plan.claims.is_empty() {
            return Now::NotYet;
        }
        let mut taken = 0;
        for claim in &plan.claims {
            if let Err(why) = claim.budget.take(claim.units, false) {
                self.taken = taken;
                if why == NotTaken::MustWait && plan.reject {
                    return self.refuse_now(self.budget_site());
                }
                return Now::NotYet;
            }
            taken += 1;
        }
        self.taken = taken;
        // What `start` does for a call that never waited.
        plan.counters.direct();
        self.counted = Counted::Started;
        self.stage = Stage::Executing;
        Now::Held
    }

    /// Past the gate's closing the long way decides.
    #[cold]
    fn refuse_now(&mut self, site: Site) -> Now {
        if !self.plan.counters.overload(!self.bare()) {
            return Now::NotYet;
        }
        self.stage = Stage::Over;
        self.release();
        Now::Refused(site)
    }
}
