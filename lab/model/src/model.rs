//! The contract as a sequential program: what docs/contract.md promises, and no more.
//!
//! It knows no waker, no lock and no future. A call is a row of plain fields, a queue is a list of ids, and each method
//! follows the clauses named beside it: admission.rs, attempts.rs and drain.rs are the contract, script.rs is what is
//! done to it. Where the contract leaves a choice open the comment says "open".

mod admission;
mod attempts;
mod drain;
mod script;

use std::collections::{BTreeMap, VecDeque};

use bursar::{EndedBy, Outcome};

use crate::scenario::{Answer, Config, Counts, Event, Failed, Id, Move, Op, Reading, Spec, Word};

/// A runtime, its calls and its drains.
#[derive(Clone, Debug)]
pub struct Model {
    config: Config,
    now: u64,
    stopping: bool,
    budgets: Vec<Budget>,
    /// The keys held, each with its queue.
    keys: BTreeMap<(Option<u8>, u8), VecDeque<Id>>,
    calls: BTreeMap<Id, Call>,
    drains: BTreeMap<Id, Drain>,
    counts: Vec<Counts>,
    events: Vec<Event>,
}

#[derive(Clone, Debug, Default)]
struct Budget {
    in_use: u32,
    queue: VecDeque<Id>,
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    bound: Option<u64>,
    /// Set by the first poll.
    begun: bool,
    deadline: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Call {
    spec: Spec,
    /// The call that this one is made from inside.
    parent: Option<Id>,
    stage: Stage,
    key_held: bool,
    /// How many of the operation's claims are held.
    claims_held: usize,
    finished: bool,
    fired: bool,
    /// The caller's, from the first poll.
    deadline: Option<u64>,
    moves: VecDeque<Move>,
    /// The call that its handler awaits, and those whose permits the handler's future keeps.
    child: Option<Id>,
    permits: Vec<Id>,
    /// Of the current attempt.
    attempts: u32,
    timeout_at: Option<u64>,
    in_grace: bool,
    cancelled: bool,
    yielded: bool,
    /// Whether any attempt was (C1).
    uncertain: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    New,
    AtKey(Wait),
    /// Of the first claim that it does not hold.
    AtBudget(Wait),
    /// Turned away, and answered after one turn of the executor (B4).
    Refused(Failed),
    Running,
    /// One attempt failed and another follows after one turn of the executor (C4).
    Between(Failure),
    /// Its permit is held.
    Permit,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Waiting,
    Granted,
    /// By shutdown.
    Withdrawn,
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failure {
    said: Option<Word>,
    outcome: Outcome,
    cut: Option<EndedBy>,
}

/// What a handler's poll came to.
enum Said {
    Nothing,
    Word(Word),
    Panic,
}

enum Polled {
    Pending,
    Ready(Answer),
    Panicked,
}

impl Model {
    pub fn new(config: Config) -> Self {
        Self {
            now: 0,
            stopping: false,
            budgets: vec![Budget::default(); config.budgets.len()],
            keys: BTreeMap::new(),
            calls: BTreeMap::new(),
            drains: BTreeMap::new(),
            counts: vec![Counts::default(); config.operations.len()],
            events: Vec::new(),
            config,
        }
    }

    pub fn now(&self) -> u64 {
        self.now
    }

    /// E1, and the state of budgets and keys.
    pub fn reading(&self) -> Reading {
        let budgets = self.budgets.iter().map(|of| (of.in_use, of.queue.len()));
        Reading {
            counts: self.counts.clone(),
            budgets: budgets.collect(),
            keys: self.keys.len(),
        }
    }

    fn poll(&mut self, id: Id) -> Polled {
        match self.calls[&id].stage {
            Stage::New | Stage::AtKey(_) | Stage::AtBudget(_) => self.admit(id),
            Stage::Refused(error) => Polled::Ready(Answer::Error(error)),
            Stage::Running => self.run(id),
            Stage::Between(failure) => self.again(id, failure),
            Stage::Permit | Stage::Over => unreachable!("nobody polls a call that has ended"),
        }
    }

    fn ids(&self, which: impl Fn(&Call) -> bool) -> Vec<Id> {
        let calls = self.calls.iter().filter(|(_, call)| which(call));
        calls.map(|(id, _)| *id).collect()
    }

    fn call(&mut self, id: Id) -> &mut Call {
        self.calls.get_mut(&id).expect("the call exists")
    }

    fn op(&self, id: Id) -> &Op {
        &self.config.operations[self.calls[&id].spec.operation]
    }

    fn counts(&mut self, id: Id) -> &mut Counts {
        &mut self.counts[self.calls[&id].spec.operation]
    }

    fn past(&self, moment: Option<u64>) -> bool {
        moment.is_some_and(|at| self.now >= at)
    }
}

impl Call {
    fn waits(&self) -> bool {
        matches!(
            self.stage,
            Stage::AtKey(Wait::Waiting) | Stage::AtBudget(Wait::Waiting)
        )
    }
}

impl Polled {
    /// Of what is known to be an error.
    fn failed(self) -> Failed {
        match self {
            Self::Ready(Answer::Error(failed)) => failed,
            _ => unreachable!("a refusal is an error"),
        }
    }
}
