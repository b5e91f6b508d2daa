//! What the contract says of a call that holds everything: section C.

use bursar::{EndedBy, Outcome};

use super::{Became, Call, Failure, Model, Polled, Said, Stage};
use crate::scenario::{Answer, Failed, Form, Id, Kind, Word};

impl Model {
    /// C5: each attempt has a fresh timeout, from its handler's first poll.
    pub(super) fn attempt(&mut self, id: Id) -> Polled {
        let timeout_at = self.op(id).timeout.map(|timeout| self.now + timeout);
        let call = self.call(id);
        call.stage = Stage::Running;
        call.paid = None;
        call.attempts += 1;
        call.timeout_at = timeout_at;
        call.in_grace = false;
        call.cancelled = false;
        self.run(id)
    }

    /// C4: unless the caller's bounds have ended meanwhile.
    pub(super) fn again(&mut self, id: Id, failure: Failure) -> Polled {
        if let Some(by) = self.gone(id) {
            return self.error(id, failure, Some(by));
        }
        self.counts(id).retried += 1;
        self.attempt(id)
    }

    /// When the attempt is interrupted next on its own account: at its timeout, then at the end of its grace.
    pub(super) fn own_deadline(&self, call: &Call) -> Option<u64> {
        let op = &self.config.operations[call.spec.operation];
        let grace = op.grace.filter(|_| call.in_grace).unwrap_or(0);
        call.timeout_at.map(|at| at + grace)
    }

    /// What the attempt is lent as its deadline.
    pub(super) fn lent_deadline(&self, call: &Call) -> Option<u64> {
        call.timeout_at.into_iter().chain(call.deadline).min()
    }

    /// One poll of a running attempt: the caller's token, the handler, the time (B9, C5).
    pub(super) fn run(&mut self, id: Id) -> Polled {
        if self.calls[&id].fired {
            self.call(id).cancelled = true;
            let last = self.handler(id);
            return self.cut(id, EndedBy::CallerLeft, last);
        }
        match self.handler(id) {
            Said::Nothing => {}
            Said::Panic => return self.panicked(id),
            Said::Word(word, pushback) => return self.said(id, word, pushback),
        }
        loop {
            let callers = self.calls[&id].deadline;
            let own = self.own_deadline(&self.calls[&id]);
            let Some(at) = own
                .into_iter()
                .chain(callers)
                .min()
                .filter(|at| self.now >= *at)
            else {
                return Polled::Pending;
            };
            let callers = callers == Some(at);
            if self.calls[&id].in_grace && !callers {
                return self.cut_off(id);
            }
            self.call(id).cancelled = true;
            self.stir(id);
            match self.handler(id) {
                last if callers => return self.cut(id, EndedBy::CallerDeadline, last),
                Said::Panic => return self.panicked(id),
                Said::Word(word, pushback) => return self.said(id, word, pushback),
                Said::Nothing if self.op(id).grace.is_some() => self.call(id).in_grace = true,
                Said::Nothing => return self.cut_off(id),
            }
        }
    }

    fn succeeded(&mut self, id: Id) -> Polled {
        self.drop_handler(id);
        if self.calls[&id].spec.form == Form::Held {
            self.call(id).stage = Stage::Permit;
            self.call(id).became = Became::Success;
            return Polled::Ready(Answer::Held);
        }
        self.call(id).became = Became::Success;
        self.end(id);
        Polled::Ready(Answer::Value)
    }

    /// C9.
    fn panicked(&mut self, id: Id) -> Polled {
        self.drop_handler(id);
        self.call(id).became = Became::Panicked;
        self.end(id);
        Polled::Panicked
    }

    /// In the handler's own words (C2), of which what is unsaid past the deadline is uncertain (C6). An error that comes
    /// when the caller's time is up is a cut (B9).
    fn said(&mut self, id: Id, word: Word, pushback: Option<u64>) -> Polled {
        if word != Word::Success && self.past(self.calls[&id].deadline) {
            return self.cut(id, EndedBy::CallerDeadline, Said::Word(word, pushback));
        }
        let outcome = match word {
            Word::Success => return self.succeeded(id),
            Word::Transient => Outcome::Transient,
            Word::Throttled => Outcome::Throttled,
            Word::Uncertain => Outcome::Uncertain,
            Word::Unclassified if self.past(self.calls[&id].timeout_at) => Outcome::Uncertain,
            Word::Unclassified | Word::Permanent => Outcome::Permanent,
        };
        self.failed(
            id,
            Failure {
                said: Some(word),
                outcome,
                cut: None,
                pushback,
            },
        )
    }

    /// The attempt's time is up and it has not answered (C6).
    fn cut_off(&mut self, id: Id) -> Polled {
        let cut = Some(EndedBy::AttemptTimeout);
        self.stir(id);
        self.failed(
            id,
            Failure {
                said: None,
                outcome: Outcome::Uncertain,
                cut,
                pushback: None,
            },
        )
    }

    /// B9: the caller's bound has ended; a success in the last poll stands, an error becomes the source.
    fn cut(&mut self, id: Id, by: EndedBy, last: Said) -> Polled {
        let (said, pushback) = match last {
            Said::Panic => return self.panicked(id),
            Said::Word(Word::Success, _) => return self.succeeded(id),
            Said::Word(word, pushback) => (Some(word), pushback),
            Said::Nothing => (None, None),
        };
        self.failed(
            id,
            Failure {
                said,
                outcome: Outcome::Uncertain,
                cut: Some(by),
                pushback,
            },
        )
    }

    /// C1: the last failure, with what kept the next attempt from starting beside it.
    pub(super) fn error(&mut self, id: Id, failure: Failure, gone: Option<EndedBy>) -> Polled {
        let call = self.call(id);
        let outcome = match call.uncertain {
            true => Outcome::Uncertain,
            false => failure.outcome,
        };
        call.became = Became::Failed(outcome);
        self.end(id);
        let call = &self.calls[&id];
        let kind = match failure.cut {
            None => Kind::Failed,
            Some(EndedBy::CallerLeft) => Kind::Cancelled,
            Some(_) => Kind::TimedOut,
        };
        Polled::Ready(Answer::Error(Failed {
            operation: call.spec.operation,
            kind,
            outcome,
            attempts: call.attempts,
            ended_by: gone.or(failure.cut),
            said: failure.said,
            pushback: failure.pushback,
            place: None,
            chain: 0,
        }))
    }
}
