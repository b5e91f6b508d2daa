//! The contract as a sequential program: what docs/contract.md promises, and no more.
//!
//! It knows no waker, no lock and no future. A call is a row of plain fields, a queue is a list of ids, and each method
//! follows the clauses named beside it. Where the contract leaves a choice open the comment says "open".
//!
//! The contract is about a thousand lines, to be read in this order: the types below; admission.rs, the order of a call,
//! its queues and its end (B); chain.rs, who calls from inside whom (B11); attempts.rs, what a handler's poll leads to (C);
//! retries.rs, whether and when it is repeated (C4, C10, C11); drain.rs (D). picture.rs follows from them, being what can
//! be read (E). script.rs is the driver: what a script does to the model, and what handlers do as they are told; of the
//! contract it says who must be woken and who must not.

mod admission;
mod attempts;
mod chain;
mod drain;
mod picture;
mod retries;
mod script;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bursar::{EndedBy, Outcome};

use crate::scenario::{Answer, Config, Counts, Ends, Event, Failed, Id, Move, Op, Spec, Word};

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
    /// Of each operation, from the stop on (D5); `running` is not kept.
    ends: Vec<Ends>,
    /// What each retry budget has left, in hundredths of a retry; that of all operations together comes last.
    left: Vec<u64>,
    /// How many pauses have been drawn, and how many have led to another attempt.
    drawn: usize,
    paused: u64,
    events: Vec<Event>,
    /// Calls that their handlers may have woken since they were last polled.
    stirred: BTreeSet<Id>,
}

#[derive(Clone, Debug, Default)]
struct Budget {
    capacity: u32,
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
    /// The call that this one is made from inside, as long as the attempt lasts in which it was.
    parent: Option<Id>,
    /// By a task of its own.
    spawned: bool,
    stage: Stage,
    key_held: bool,
    /// How many of the operation's claims are held.
    claims_held: usize,
    /// It has stood in a queue, and has held everything.
    waited: bool,
    started: bool,
    finished: bool,
    became: Became,
    /// Its wait began as a part of live work.
    inside: bool,
    /// It was let past the stop as a part of live work, and goes on though that has ended.
    late: bool,
    /// Shutdown ended its wait.
    withdrawn: bool,
    /// Counted among the waiting calls of its operation, and until when it may wait (B10).
    waiting: bool,
    wait_until: Option<u64>,
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
    /// The last failure, while it pauses and queues for its units again (C10).
    pausing: Option<Failure>,
    /// The retry budget that has paid for its next attempt, which has not begun (C11).
    paid: Option<usize>,
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
    /// One attempt failed and another follows after a pause, which ends then, or is ended by shutdown (C10).
    Pausing(u64, Wait),
    /// Its permit is held.
    Permit,
    Over,
}

/// What becomes of a call that has started, should it end now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Became {
    #[default]
    Dropped,
    Success,
    Failed(Outcome),
    Panicked,
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
    /// How long the handler said to wait.
    pushback: Option<u64>,
}

/// What a handler's poll came to.
enum Said {
    Nothing,
    /// With how long it is to be left alone.
    Word(Word, Option<u64>),
    Panic,
}

enum Polled {
    Pending,
    Ready(Answer),
    Panicked,
}

impl Model {
    pub fn new(config: Config) -> Self {
        let budgets = config.budgets.iter().map(|capacity| Budget {
            capacity: *capacity,
            ..Budget::default()
        });
        let retries = config.groups.iter().chain(&config.retries);
        let names = || 0..config.operations.len();
        Self {
            now: 0,
            stopping: false,
            budgets: budgets.collect(),
            keys: BTreeMap::new(),
            calls: BTreeMap::new(),
            drains: BTreeMap::new(),
            counts: names()
                .map(|name| Counts {
                    name,
                    ..Counts::default()
                })
                .collect(),
            ends: names()
                .map(|name| Ends {
                    name,
                    ..Ends::default()
                })
                .collect(),
            left: retries.map(|of| u64::from(of.burst) * 100).collect(),
            drawn: 0,
            paused: 0,
            events: Vec::new(),
            stirred: BTreeSet::new(),
            config,
        }
    }

    pub fn now(&self) -> u64 {
        self.now
    }

    pub fn paused(&self) -> u64 {
        self.paused
    }

    fn poll(&mut self, id: Id) -> Polled {
        match self.calls[&id].stage {
            Stage::New | Stage::AtKey(_) | Stage::AtBudget(_) | Stage::Pausing(..) => {
                self.admit(id)
            }
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
    /// Nobody awaits it but the script.
    fn is_root(&self) -> bool {
        self.parent.is_none() || self.spawned
    }

    fn waits(&self) -> bool {
        matches!(
            self.stage,
            Stage::AtKey(Wait::Waiting)
                | Stage::AtBudget(Wait::Waiting)
                | Stage::Pausing(_, Wait::Waiting)
        )
    }
}
