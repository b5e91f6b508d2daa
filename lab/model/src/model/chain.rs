//! Who calls from inside whom: B11.

use super::{Call, Model};
use crate::scenario::{Id, chain};

/// What becomes of a call that would have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum May {
    Wait,
    /// It rejects, or as many wait as may (B4, B10).
    Overload,
    /// It would wait for its own chain.
    Deadlock,
}

impl Model {
    /// The calls that this one was made from inside of, the innermost first. They hold all that they claim.
    fn above(&self, id: Id) -> impl Iterator<Item = (Id, &Call)> {
        let parent = |id| self.calls[&id].parent;
        std::iter::successors(parent(id), move |id| parent(*id)).map(|id| (id, &self.calls[&id]))
    }

    pub(super) fn chain_holds_budget(&self, id: Id, budget: usize) -> bool {
        let claims = |id| self.op(id).claims.iter().any(|claim| claim.0 == budget);
        self.above(id).any(|(id, _)| claims(id))
    }

    pub(super) fn chain_holds_key(&self, id: Id) -> bool {
        let key = self.key(id);
        self.above(id)
            .any(|(id, call)| call.key_held && self.key(id) == key)
    }

    pub(super) fn chain_holds_something(&self, id: Id) -> bool {
        self.above(id)
            .any(|(id, call)| call.key_held || !self.op(id).claims.is_empty())
    }

    /// As an error names it.
    pub(super) fn named_chain(&self, id: Id) -> u64 {
        chain(
            self.above(id)
                .map(|(_, call)| (call.spec.operation, call.key_held)),
        )
    }

    /// B4, B10, B11: whether the call may join a queue. Once it may, it may again until it starts.
    pub(super) fn may_wait(&mut self, id: Id, deadlock: bool) -> May {
        let op = self.op(id);
        if op.reject {
            return May::Overload;
        }
        if deadlock {
            return May::Deadlock;
        }
        let operation = self.calls[&id].spec.operation;
        let waiting = |of: &Call| of.waiting && of.spec.operation == operation;
        let others = self.calls.values().filter(|of| waiting(of)).count();
        let full = op.max_waiting.is_some_and(|most| others >= most as usize);
        let call = self.call(id);
        call.waiting |= !full;
        if call.waiting {
            May::Wait
        } else {
            May::Overload
        }
    }
}
