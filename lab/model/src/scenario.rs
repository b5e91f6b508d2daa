//! The words of a scenario: what a runtime is built with, what a script does to it, and what can be seen of it.
//!
//! Nothing here decides anything. Times are milliseconds from the beginning of the scenario.

use bursar::{Effect, EndedBy, Outcome, Outcomes, Phase};

/// Names a call or a drain. Never used twice in a scenario, so that steps may be left out of it.
pub type Id = u8;

/// The name of an operation, a budget, a retry group or a key space: its place in this list. They are made in this order.
pub type Name = usize;

/// The last is that of the sums over all operations.
pub const NAMES: [&str; 5] = ["a", "b", "c", "d", "all"];
pub const ALL: Name = 4;

/// What a runtime is built with.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Capacity of each budget.
    pub budgets: Vec<u32>,
    pub operations: Vec<Op>,
    /// What retries may spend: of all operations together, and of each group.
    pub retries: Option<Retries>,
    pub groups: Vec<Retries>,
    /// How long a call may wait whose chain holds something.
    pub nested_wait: Option<u64>,
}

/// A budget for retries.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    pub burst: u32,
    pub percent: u32,
}

/// The policy of one operation.
#[derive(Clone, Debug)]
pub struct Op {
    /// Which budget and how many units, in the order of budgets.
    pub claims: Vec<(usize, u32)>,
    pub reject: bool,
    pub key_required: bool,
    pub key_space: Option<u8>,
    /// `None`: each call states its own.
    pub effect: Option<Effect>,
    pub timeout: Option<u64>,
    pub grace: Option<u64>,
    pub attempts: u32,
    pub on_transient: bool,
    pub on_uncertain: bool,
    /// Goes with a backoff.
    pub on_throttled: bool,
    /// `Uncertain` is retried when the call states an idempotency key.
    pub if_keyed: bool,
    /// Base and cap.
    pub backoff: Option<(u64, u64)>,
    /// Which group's retry budget its retries spend.
    pub group: Option<usize>,
    pub max_wait: Option<u64>,
    pub max_waiting: Option<u32>,
}

/// What a call gives back when it succeeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    #[default]
    Value,
    /// The value with what the call holds.
    Held,
    /// A permit, without a handler.
    Admit,
}

/// Which handle a call is made through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Via {
    /// The contract's own methods: no key, no bounds, no attempt lent.
    #[default]
    Contract,
    Builder,
    /// The typed operation, whose key is a function of its input.
    Operation,
}

/// One call.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    pub operation: usize,
    pub form: Form,
    pub via: Via,
    /// 0 for none.
    pub key: u8,
    pub within: Option<u64>,
    /// A moment, not a length.
    pub deadline: Option<u64>,
    pub token: bool,
    pub effect: Option<Effect>,
    /// 0 for none.
    pub idempotency_key: u8,
}

/// A handler's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Success,
    Transient,
    Permanent,
    Throttled,
    Uncertain,
    Unclassified,
}

/// What a handler does next.
#[derive(Clone, Debug)]
pub enum Move {
    Answer(Word),
    /// An error with the word that it is not to be repeated before so long.
    AnswerLater(Word, u64),
    /// Answers once its attempt is cancelled, and suspends until then.
    AnswerWhenCancelled(Word),
    Panic,
    /// Takes this long without suspending.
    Block(u64),
    /// Suspends once, having woken itself.
    Yield,
    /// Makes a call of the same runtime and awaits it.
    Nest(Id, Spec),
    /// Makes a call of the same runtime and leaves it to the script, its chain taken along.
    Spawn(Id, Spec),
    /// Awaits a drain of the runtime it runs in.
    Drain,
}

/// What the script does.
#[derive(Clone, Debug)]
pub enum Step {
    /// Makes a call's future, unpolled.
    Call(Id, Spec),
    /// Makes a drain's future, unpolled, bounded or not.
    Drain(Id, Option<u64>),
    Poll(Id),
    /// Drops the future, or the permit that it gave.
    Drop(Id),
    /// Tells a call's handler what to do, and wakes it.
    Tell(Id, Move),
    Advance(u64),
    /// Makes a budget's capacity another one.
    Resize(usize, u32),
    /// Fires the call's token.
    Fire(Id),
}

/// What an attempt was lent, as its handler saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    pub number: u32,
    pub deadline: Option<u64>,
    pub cancelled: bool,
    /// 0 for none.
    pub idempotency_key: u8,
}

/// Where a call was when it was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Key {
        waiting: usize,
    },
    Budget {
        budget: usize,
        units: u32,
        capacity: u32,
        in_use: u32,
        waiting: usize,
    },
}

/// The kinds of a call's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Overloaded,
    AdmissionTimedOut,
    Withdrawn,
    Stopping,
    KeyRequired,
    WouldDeadlock,
    TimedOut,
    Cancelled,
    Failed,
}

/// A call's error, as its caller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    pub operation: Name,
    pub kind: Kind,
    pub outcome: Outcome,
    pub attempts: u32,
    pub ended_by: Option<EndedBy>,
    /// What the last attempt's handler answered.
    pub said: Option<Word>,
    /// And how long it said to wait.
    pub pushback: Option<u64>,
    pub place: Option<Place>,
    /// Whom it was called from inside of, where the error says so: see [`chain`].
    pub chain: u64,
}

/// Operations, the innermost first, and whether they hold a key, as one number.
pub fn chain(members: impl Iterator<Item = (usize, bool)>) -> u64 {
    members.fold(0, |all, (operation, key)| {
        (all << 4) | (operation as u64 + 1) << 1 | u64::from(key)
    })
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Value,
    Held,
    Permit,
    Error(Failed),
}

impl Answer {
    /// Whether the call goes on executing until its permit is dropped.
    pub fn holds(&self) -> bool {
        matches!(self, Self::Held | Self::Permit)
    }
}

/// What can be seen to happen during a step, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A handler was polled; the short form lends no attempt.
    Polled(Id, Option<Lent>),
    /// A handler's future was dropped, while this was held.
    Dropped(Id, Vec<u32>, usize),
    Answered(Id, Answer),
    Panicked(Id),
    /// All is drained, or not in time; what became of each operation's calls.
    Drained(Id, bool, Vec<Ends>),
    /// Whether a capacity was accepted.
    Resized(usize, bool),
    /// A drain awaited from inside a call was refused.
    RefusedToDrain(Id),
}

/// One operation's counters, or the sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub name: Name,
    pub admitted: u64,
    pub rejected: u64,
    pub started: u64,
    pub finished: u64,
    pub retried: u64,
    pub denied: u64,
    /// Calls that had to wait.
    pub waited: u64,
    /// What became of those that ended.
    pub outcomes: Outcomes,
}

/// What became of one operation's calls since the drain began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    pub name: Name,
    pub ended: u64,
    pub withdrawn: u64,
    pub running: u64,
}

/// What can be read of a runtime between two steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    pub counts: Vec<Counts>,
    pub total: Counts,
    pub budgets: Vec<Usage>,
    pub keys: usize,
    pub picture: Picture,
}

/// One budget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub name: Name,
    pub capacity: u32,
    pub in_use: u32,
    /// Calls.
    pub waiting: u32,
}

/// What a snapshot says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    pub phase: Phase,
    pub operations: Vec<Standing>,
    pub budgets: Vec<Holdings>,
    /// Those with the longest queues first; of equal ones the order is free, and here by space and key.
    pub keys: Vec<HeldKey>,
    pub keys_unnoticed: u32,
    /// Hosts of turns.
    pub hosts: usize,
}

/// Calls of one operation by what they do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub counts: Counts,
    pub waiting: u64,
    pub executing: u64,
    pub paused: u64,
    pub adrift: u64,
}

/// One budget's holders and waiters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    pub usage: Usage,
    pub owed: u32,
    pub unnoticed: u32,
    /// In use, by nobody.
    pub unattributed: u32,
    /// The largest share first; of equal ones the order is free, and here by name.
    pub holders: Vec<Share>,
    pub queue: Vec<Run>,
}

/// What one operation holds of a budget.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    pub operation: Name,
    pub calls: u32,
    pub units: u32,
}

/// Calls of one operation in a row in a queue, and the units that each waits for.
pub type Run = (Name, u32, u32);

/// One key: its space and itself, who holds it, and who waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldKey {
    pub space: Option<u8>,
    pub key: u8,
    pub holder: usize,
    pub waiting: u32,
    pub queue: Vec<Run>,
}
