//! Shutdown: section D.

use super::{Call, Model, Stage, Wait};
use crate::scenario::{Ends, Event, Id};

impl Model {
    /// D1 from the first poll on; D2, D3, D5.
    pub(super) fn poll_drain(&mut self, id: Id) {
        let mut drain = self.drains[&id];
        if !std::mem::replace(&mut drain.begun, true) {
            self.stop();
            drain.deadline = drain.bound.map(|bound| self.now + bound);
            self.drains.insert(id, drain);
        }
        let drained = self.drained();
        if !drained && !self.past(drain.deadline) {
            return;
        }
        self.drains.remove(&id);
        let report = self.ends.iter().zip(&self.counts).map(|(ends, of)| Ends {
            running: of.admitted - of.finished,
            ..*ends
        });
        let report = report.collect();
        self.events.push(Event::Drained(id, drained, report));
    }

    /// The gate closes and what waits is withdrawn, nested work excepted. Who holds nothing is finished with that; who
    /// holds something, once it has seen it.
    fn stop(&mut self) {
        self.stopping = true;
        // A wait that began inside live work stays a part of it, though the attempt that left it behind has ended.
        let outside = |call: &Call| !call.inside;
        for id in self.ids(|call| outside(call) && call.waits()) {
            self.leave_queue(id);
            let call = self.call(id);
            call.withdrawn = true;
            call.stage = match call.stage {
                Stage::AtKey(_) => Stage::AtKey(Wait::Withdrawn),
                Stage::Pausing(until, _) => Stage::Pausing(until, Wait::Withdrawn),
                _ => Stage::AtBudget(Wait::Withdrawn),
            };
            // One that has made an attempt has something to return.
            if !call.key_held && call.claims_held == 0 && call.pausing.is_none() {
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
