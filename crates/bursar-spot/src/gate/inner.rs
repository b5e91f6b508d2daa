//! The gate's own moves: what is free, who is granted, what moves up. Called under the gate's methods alone.

use std::task::Waker;

use super::words::{Busy, Waiter};
use super::{Effects, Gate, LaneIndex, Next, Phase, Place, Taken};
use crate::line::Ticket;

impl<S, J> Gate<S, J> {
    /// Whether the lane needs the shared gate.
    pub(super) fn uses_gate(&self, lane: LaneIndex) -> bool {
        self.shared || lane.is_none()
    }

    pub(super) fn free(&self, lane: LaneIndex) -> bool {
        !(self.is_claimed(lane) || self.uses_gate(lane) && self.held)
    }

    /// Whether the lane's claim is held, or the lane gone.
    pub(super) fn is_claimed(&self, lane: LaneIndex) -> bool {
        lane.is_some_and(|lane| {
            self.busy
                .as_ref()
                .and_then(|busy| busy.lanes.get(lane as usize))
                .is_none_or(|lane| lane.claimed)
        })
    }

    /// Begins a turn for which all is free.
    pub(super) fn begin(&mut self, lane: LaneIndex) -> Taken<S> {
        if let (Some(lane), Some(busy)) = (lane, &mut self.busy) {
            busy.lanes[lane as usize].claimed = true;
        }
        self.begin_held(lane)
    }

    /// As `begin`, the claim being held.
    pub(super) fn begin_held(&mut self, lane: LaneIndex) -> Taken<S> {
        self.running += 1;
        self.used = true;
        if self.uses_gate(lane) {
            self.held = true;
            let state = self.state.take();
            return Taken { state };
        }
        Taken { state: None }
    }

    #[cold]
    pub(super) fn leave_busy(&mut self, state: Option<Box<S>>, lane: LaneIndex) -> Effects<S, J> {
        if self.uses_gate(lane) {
            self.state = state;
            self.held = false;
        }
        let own = self.unclaim(lane);
        if self.phase == Phase::Last {
            let next = self.end();
            return Effects {
                next,
                ..Effects::NONE
            };
        }
        if let Some(ticket) = own {
            return self.grant(ticket);
        }
        self.next()
    }

    /// Frees a lane's claim. What was set aside first returns to the line; in a lane with a gate of its own it is what
    /// comes next, and if there is none, what waits for space.
    pub(super) fn unclaim(&mut self, lane: LaneIndex) -> Option<Ticket> {
        let (index, busy) = (lane?, self.busy.as_mut()?);
        let lane = &mut busy.lanes[index as usize];
        lane.claimed = false;
        let Some(first) = busy.records.head(&lane.aside) else {
            if self.shared {
                return None;
            }
            let first = busy.first_outside(Some(index))?;
            busy.let_in(first, Some(index));
            busy.lanes[index as usize].claimed = true;
            return Some(first);
        };
        busy.records.unlink(&mut lane.aside, first);
        if !self.shared {
            lane.claimed = true;
            return Some(first);
        }
        busy.records.insert(&mut busy.line, first);
        if let Some(waiter) = busy.records.get(first) {
            waiter.place = Place::Line;
        }
        None
    }

    /// Puts an accepted record where it waits.
    pub(super) fn line_up(&mut self, ticket: Ticket) {
        let own = !self.shared;
        let Some(busy) = &mut self.busy else { return };
        let Busy {
            records,
            line,
            lanes,
            waiting,
            ..
        } = &mut **busy;
        let Some(waiter) = records.get(ticket) else {
            return;
        };
        *waiting += u32::from(waiter.counted);
        match waiter.lane {
            Some(lane) if own => {
                waiter.place = Place::Aside;
                records.push(&mut lanes[lane as usize].aside, ticket);
            }
            _ => {
                waiter.place = Place::Line;
                records.push(line, ticket);
            }
        }
    }

    /// Grants the gate, if it is free, to the first in line whose claim is free too, and if there is none, to the first
    /// such that waits for space.
    pub(super) fn next(&mut self) -> Effects<S, J> {
        while !self.held {
            let Some(busy) = &mut self.busy else { break };
            let Busy {
                records,
                line,
                lanes,
                ..
            } = &mut **busy;
            let Some(ticket) = records.head(line) else {
                break;
            };
            let Some(waiter) = records.get(ticket) else {
                break;
            };
            let claim = waiter.lane.filter(|_| !waiter.resumes);
            let claimed = claim.is_some_and(|lane| lanes[lane as usize].claimed);
            if claimed {
                waiter.place = Place::Aside;
            }
            records.unlink(line, ticket);
            match claim {
                Some(lane) if claimed => records.push(&mut lanes[lane as usize].aside, ticket),
                Some(lane) => {
                    lanes[lane as usize].claimed = true;
                    return self.grant(ticket);
                }
                None => return self.grant(ticket),
            }
        }
        match self.outsider() {
            Some(ticket) => self.grant(ticket),
            None => self.settle(),
        }
    }

    /// Takes out the first that waits for space and needs nothing but the gate, if that is free.
    fn outsider(&mut self) -> Option<Ticket> {
        if self.held {
            return None;
        }
        let busy = self.busy.as_mut()?;
        let lanes = &busy.lanes;
        let free = |lane: &LaneIndex| lane.is_none_or(|lane| !lanes[lane as usize].claimed);
        let lane = if self.shared {
            *busy.space.values().find(|lane| free(lane))?
        } else {
            None
        };
        let first = busy.first_outside(lane)?;
        busy.let_in(first, lane);
        if let Some(lane) = lane {
            busy.lanes[lane as usize].claimed = true;
        }
        Some(first)
    }

    /// Grants to a record that stands in no line any more, its claim being held.
    pub(super) fn grant(&mut self, ticket: Ticket) -> Effects<S, J> {
        self.running += 1;
        self.used = true;
        let Some(busy) = &mut self.busy else {
            return Effects::NONE;
        };
        let Some(waiter) = busy.records.get(ticket) else {
            return Effects::NONE;
        };
        let (lane, counted) = (waiter.lane, waiter.counted);
        let outside = waiter.place == Place::Space;
        let accepted = if outside { waiter.waker.take() } else { None };
        let uses_gate = self.shared || lane.is_none();
        self.held |= uses_gate;
        let next = match waiter.job.take() {
            None => {
                waiter.place = Place::Granted;
                Next::Wake(waiter.waker.take())
            }
            Some(job) => {
                busy.records.remove(ticket);
                Next::Start {
                    job,
                    state: if uses_gate { self.state.take() } else { None },
                }
            }
        };
        let woken = match outside {
            true => accepted,
            false if counted => self.make_room(),
            false => None,
        };
        Effects {
            next,
            woken,
            also: None,
        }
    }

    /// A counted record left: the first that waits for space is accepted.
    pub(super) fn make_room(&mut self) -> Option<Waker> {
        let busy = self.busy.as_mut()?;
        busy.waiting -= 1;
        let lane = *busy.space.first_key_value()?.1;
        let first = busy.first_outside(lane)?;
        busy.let_in(first, lane);
        self.seq += 1;
        busy.records.renumber(first, self.seq);
        let waker = busy
            .records
            .get(first)
            .and_then(|waiter| waiter.waker.take());
        self.line_up(first);
        waker
    }

    /// Unlinks and frees a record, whatever its place; work that waits for space may move up.
    pub(super) fn withdraw(&mut self, ticket: Ticket) -> Option<(Waiter<J>, Option<Waker>)> {
        let busy = self.busy.as_mut()?;
        busy.unlink(ticket)?;
        let waiter = busy.records.remove(ticket);
        let left = waiter.counted && matches!(waiter.place, Place::Line | Place::Aside);
        let woken = if left { self.make_room() } else { None };
        Some((waiter, woken))
    }

    /// Nothing was granted: the memory of waiting goes if it is over, and the last turn begins if it is due.
    pub(super) fn settle(&mut self) -> Effects<S, J> {
        self.tidy();
        let yielded = self.busy.as_ref().map_or(0, |busy| busy.yielded);
        let Phase::Closing(reason) = self.phase else {
            return Effects::NONE;
        };
        if self.running != 0 || yielded != 0 {
            return Effects::NONE;
        }
        // A Spot that never came to have a state has no last turn.
        let next = match self.state.take() {
            None => self.end(),
            Some(state) => {
                self.phase = Phase::Last;
                self.held = true;
                self.running = 1;
                Next::Last(state, reason)
            }
        };
        Effects {
            next,
            ..Effects::NONE
        }
    }

    /// Nothing runs any more, nor will.
    pub(super) fn end(&mut self) -> Next<S, J> {
        self.phase = Phase::Ending;
        Next::Ended(self.state.take())
    }

    pub(super) fn tidy(&mut self) {
        let over = self.busy.as_ref().is_some_and(|busy| {
            busy.records.is_empty() && busy.lanes.is_empty() && busy.closers.is_empty()
        });
        if over {
            self.busy = None;
        }
    }
}
