//! The caller's side: operations built from their policies, and calls made through each handle.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bursar::{
    Attempt, Backoff, CallError, Failure, Handler, Holder, Key, Operation, Outcome, Permit, Policy,
    Retry, Runtime,
};

use super::BoxFuture;
use super::puppet::{Puppet, Stage, Token};
use crate::scenario::{
    Answer, Failed, Form, Id, Kind, NAMES, Name, Op, Place, Spec, Via, Word, chain,
};

/// How a call ended, with the permit if there is one.
pub(super) type Ended = (Answer, Option<Permit>);

pub(super) fn at_of(name: &str) -> Name {
    let at = NAMES.iter().position(|of| *of == name);
    at.unwrap_or(usize::MAX)
}

/// Keys of several lengths, so that those held inline and those on the heap meet.
fn key_of(key: u8) -> Key {
    match key {
        0 => Key::NONE,
        1 => Key::from("one"),
        2 => Key::from("a key longer than is held inline"),
        _ => Key::from(u64::from(key)),
    }
}

/// What [`key_of`] has made, as text.
pub(super) fn key_as(text: &str) -> u8 {
    let made = [1, 2]
        .into_iter()
        .find(|key| key_of(*key) == Key::from(text));
    made.or_else(|| text.parse().ok()).unwrap_or(0)
}

pub(super) fn operation(runtime: &Runtime, at: usize, op: &Op) -> Operation<Input, Puppeteer> {
    let mut retry = Retry::up_to(op.attempts)
        .on(Outcome::Transient, op.on_transient)
        .on(Outcome::Throttled, op.on_throttled)
        .on(Outcome::Uncertain, op.on_uncertain);
    if op.if_keyed {
        retry = retry.on_uncertain_if_idempotency_key();
    }
    if let Some((base, cap)) = op.backoff {
        let base = Duration::from_millis(base);
        retry = retry.backoff(Backoff::exponential(base).cap(Duration::from_millis(cap)));
    }
    let mut policy = match op.effect {
        Some(effect) => Policy::dynamic().effect(effect),
        None => Policy::dynamic().each_call_states_its_effect(),
    }
    .retry(retry);
    // In reverse: the runtime puts claims into the order of names.
    for (budget, units) in op.claims.iter().rev() {
        policy = policy.claim(NAMES[*budget], *units);
    }
    if op.reject {
        policy = policy.reject();
    }
    if op.key_required {
        policy = policy.require_key();
    }
    if let Some(space) = op.key_space {
        policy = policy.key_space(NAMES[usize::from(space)]);
    }
    if let Some(timeout) = op.timeout {
        policy = policy.timeout(Duration::from_millis(timeout));
    }
    if let Some(grace) = op.grace {
        policy = policy.grace(Duration::from_millis(grace));
    }
    if let Some(group) = op.group {
        policy = policy.retry_group(NAMES[group]);
    }
    if let Some(longest) = op.max_wait {
        policy = policy.max_wait(Duration::from_millis(longest));
    }
    if let Some(most) = op.max_waiting {
        policy = policy.max_waiting(most);
    }
    runtime
        .operation(NAMES[at], policy, Puppeteer)
        .expect("the policy is right")
        .serialize_with(|input: &Input| key_of(input.key))
}

/// A typed call's input.
pub(super) struct Input {
    stage: Arc<Stage>,
    id: Id,
    key: u8,
}

/// Every operation's handler.
pub(super) struct Puppeteer;

impl Handler<Input> for Puppeteer {
    type Output = ();
    type Error = Word;

    async fn handle(&self, attempt: &Attempt, input: &Input) -> Result<(), Failure<Word>> {
        Puppet::new(&input.stage, input.id, Some(attempt)).await
    }
}

/// States a call's bounds and effect; the two builders have them in common by name only.
macro_rules! bounded {
    ($call:expr, $spec:expr, $stage:expr, $id:expr) => {{
        let mut call = $call;
        if let Some(within) = $spec.within {
            call = call.within(Duration::from_millis(within));
        }
        if let Some(at) = $spec.deadline {
            call = call.deadline($stage.epoch + Duration::from_millis(at));
        }
        if $spec.token {
            call = call.until(Token::new(&$stage, $id));
        }
        if let Some(effect) = $spec.effect {
            call = call.effect(effect);
        }
        if $spec.idempotency_key != 0 {
            call = call.idempotency_key($spec.idempotency_key.to_string());
        }
        call
    }};
}

/// One call, made through the handle that `spec` names.
pub(super) fn call(stage: Arc<Stage>, id: Id, spec: Spec) -> BoxFuture<'static, Ended> {
    Box::pin(async move {
        let typed = &stage.operations[spec.operation];
        let contract = typed.contract();
        let short = || Puppet::new(&stage, id, None);
        let lent = |attempt| Puppet::new(&stage, id, Some(attempt));
        match (spec.via, spec.form) {
            (Via::Contract, Form::Value) => value(contract.run(short).await),
            (Via::Contract, Form::Held) => held(contract.run_held(short).await),
            (Via::Contract, Form::Admit) => permit(contract.admit().await),
            (Via::Builder, form) => {
                let call = contract.with().key(key_of(spec.key));
                let mut call = bounded!(call, spec, stage, id);
                match form {
                    Form::Value => value(call.run(lent).await),
                    Form::Held => held(call.run_held(lent).await),
                    Form::Admit => permit(call.admit().await),
                }
            }
            (Via::Operation, form) => {
                let call = bounded!(typed.with(), spec, stage, id);
                let (stage, key) = (Arc::clone(&stage), spec.key);
                let input = Input { stage, id, key };
                match form {
                    Form::Held => held(call.call_held(input).await),
                    _ => value(call.call(input).await),
                }
            }
        }
    })
}

fn value(ended: Result<(), CallError<Word>>) -> Ended {
    let answer = ended.map_or_else(failed, |()| Answer::Value);
    (answer, None)
}

fn held(ended: Result<((), Permit), CallError<Word>>) -> Ended {
    match ended {
        Ok(((), permit)) => (Answer::Held, Some(permit)),
        Err(error) => (failed(error), None),
    }
}

fn permit(ended: Result<Permit, CallError<Infallible>>) -> Ended {
    match ended {
        Ok(permit) => (Answer::Permit, Some(permit)),
        Err(error) => (failed(error), None),
    }
}

fn failed<E: Said>(error: CallError<E>) -> Answer {
    let kind = match &error {
        CallError::Overloaded(_) => Kind::Overloaded,
        CallError::AdmissionTimedOut(_) => Kind::AdmissionTimedOut,
        CallError::Withdrawn(_) => Kind::Withdrawn,
        CallError::Stopping(_) => Kind::Stopping,
        CallError::KeyRequired(_) => Kind::KeyRequired,
        CallError::WouldDeadlock(_) => Kind::WouldDeadlock,
        CallError::TimedOut(_) => Kind::TimedOut,
        CallError::Cancelled(_) => Kind::Cancelled,
        _ => Kind::Failed,
    };
    // A withdrawal by shutdown says where the call waited, which is not promised.
    let refusal = error.refusal().filter(|_| kind != Kind::Stopping);
    let place = refusal.and_then(|refusal| {
        let usage = refusal.usage()?;
        let waiting = usage.waiting as usize;
        let Some(budget) = refusal.budget() else {
            return Some(Place::Key { waiting });
        };
        Some(Place::Budget {
            budget: at_of(budget),
            units: refusal.units()?,
            capacity: usage.capacity,
            in_use: usage.in_use,
            waiting,
        })
    });
    let pushback = error.failure().and_then(|failure| failure.pushback());
    Answer::Error(Failed {
        operation: at_of(error.operation()),
        kind,
        outcome: error.outcome(),
        attempts: error.attempts(),
        ended_by: error.attempted().and_then(|ran| ran.ended_by()),
        said: error.error().and_then(Said::word),
        pushback: pushback.map(|pause| pause.as_millis() as u64),
        place,
        chain: refusal.map_or(0, |refusal| {
            let named = |of: &Holder| (at_of(of.operation().unwrap_or_default()), of.holds_key());
            chain(refusal.chain().iter().map(named))
        }),
    })
}

/// What an error says of the handler's answer.
trait Said {
    fn word(&self) -> Option<Word>;
}

impl Said for Word {
    fn word(&self) -> Option<Word> {
        Some(*self)
    }
}

impl Said for Infallible {
    fn word(&self) -> Option<Word> {
        None
    }
}
