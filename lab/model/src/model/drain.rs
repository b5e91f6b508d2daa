//! Shutdown: section D.

use super::{Call, Model, Stage, Wait};
use crate::scenario::{Event, Id};

impl Model {
    /// D1 from the first poll on; D2, D3.
    pub(super) fn poll_drain(&mut self, id: Id) {
        let mut drain = self.drains[&id];
        if !std::mem::replace(&mut drain.begun, true) {
            self.stop();
            drain.deadline = drain.bound.map(|bound| self.now + bound);
            self.drains.insert(id, drain);
        }
        let ended = if self.drained() {
            Ok(())
        } else if self.past(drain.deadline) {
            let left = self.counts.iter().map(|of| of.admitted - of.finished);
            Err(left.enumerate().filter(|(_, calls)| *calls > 0).collect())
        } else {
            return;
        };
        self.drains.remove(&id);
        self.events.push(Event::Drained(id, ended));
    }

    /// The gate closes and what waits is withdrawn, nested work excepted. Who holds nothing is finished with that; who
    /// holds something, once it has seen it.
    fn stop(&mut self) {
        self.stopping = true;
        let outside = |call: &Call| call.parent.is_none();
        for id in self.ids(|call| outside(call) && call.waits()) {
            self.leave_queue(id);
            let call = self.call(id);
            call.stage = match call.stage {
                Stage::AtKey(_) => Stage::AtKey(Wait::Withdrawn),
                _ => Stage::AtBudget(Wait::Withdrawn),
            };
            if !call.key_held && call.claims_held == 0 {
                self.finish(id);
            }
        }
        self.grant();
    }

    /// Everything admitted has ended.
    pub(super) fn drained(&self) -> bool {
        self.stopping && self.counts.iter().all(|of| of.admitted == of.finished)
    }
}
