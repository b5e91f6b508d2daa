//! What the contracts promised, held against what was observed from outside them.
//!
//! Every check is a plain function of the evidence. It is kept, broken, or, where an interrupted run never came to the point,
//! open.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;

use crate::account::Account;
use crate::catalogue::Overlaps;
use crate::meter::Tally;
use crate::receiver::Book;
use crate::service::Told;
use crate::stock::Shelves;
use crate::unrest::Killed;

/// Counts from outside the runtime.
#[derive(Debug)]
pub struct Evidence {
    pub interrupted: bool,
    pub drained: Result<(), String>,
    pub renderer: Counted,
    pub writers: Counted,
    pub replacing: Counted,
    pub model: Counted,
    pub sending: Counted,
    pub overlaps: Overlaps,
    /// Replacements, as the shop was told by brand; and the brands that are not all there.
    pub replaced: (Told, BTreeSet<String>),
    /// Stock moves, as the shop was told and as the database lists them.
    pub moved: (Told, Book),
    pub shelves: Shelves,
    /// Connections killed meanwhile; none if nobody was to kill any.
    pub killed: Option<Killed>,
    /// None if an interrupted run left it out.
    pub control: Option<Overlaps>,
    pub notified: (Told, Book),
    pub synced: (Told, Book),
    /// Units of stock: what took effect at the receiver by its own sum, and by the events that it says took effect.
    pub stock: (u64, u64),
    pub same_product: usize,
    /// What the carts hold, and the supplier's book.
    pub live: crate::live::Outcome,
    /// Answers 429 that the model gave the shop, and the rival.
    pub refusals: (usize, usize),
    pub scores: Tally,
    /// Attempts after the first of its calls.
    pub score_retries: u64,
    /// Events, as the shop was told and as the database has them.
    pub recorded: (Told, Book),
    pub operations: Vec<Counters>,
    /// What the runtime says is still held, in units and keys.
    pub held: (u32, usize),
}

/// What a gauge saw.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    pub capacity: usize,
    pub peak: usize,
    pub entered: usize,
}

/// The runtime's counters of one operation beside its callers'.
#[derive(Debug)]
pub struct Counters {
    pub name: String,
    pub admitted: u64,
    pub finished: u64,
    pub tally: Tally,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Kept,
    Broken,
    /// The run was interrupted before it could be observed.
    Open,
}

/// One promise and what was seen of it.
#[derive(Debug, Serialize)]
pub struct Check {
    pub promise: String,
    pub observed: String,
    pub state: State,
}

fn check(promise: impl Into<String>, observed: impl Into<String>, kept: bool) -> Check {
    let state = if kept { State::Kept } else { State::Broken };
    Check {
        promise: promise.into(),
        observed: observed.into(),
        state,
    }
}

impl Check {
    /// What an interrupted run did not get to see was not broken by it.
    const fn open_if(mut self, unseen: bool) -> Self {
        if unseen && matches!(self.state, State::Broken) {
            self.state = State::Open;
        }
        self
    }
}

/// All checks, in the order in which they are read.
pub fn all(evidence: &Evidence) -> Vec<Check> {
    let mut checks = vec![];
    budgets(evidence, &mut checks);
    keys(evidence, &mut checks);
    database::all(evidence, &mut checks);
    live::all(evidence, &mut checks);
    webhooks(evidence, &mut checks);
    others(evidence, &mut checks);
    checks
}

fn budgets(evidence: &Evidence, checks: &mut Vec<Check>) {
    let Evidence {
        interrupted,
        renderer,
        writers,
        replacing,
        model,
        sending,
        overlaps,
        ..
    } = evidence;
    let mut peak = |what: &str, who: &str, counted: &Counted, least: usize| {
        let Counted {
            capacity,
            peak,
            entered,
        } = counted;
        checks.push(
            check(
                format!("at most {capacity} {what} at once"),
                format!("peak {peak} of {}, {who}", thousands(*entered as u64)),
                (least..=*capacity).contains(peak),
            )
            .open_if(*interrupted && peak <= capacity),
        );
    };
    // Where only one was ever inside, anything would keep the promise: it must have been put to the test.
    peak("drawings", "counted by the renderer", renderer, 2);
    peak(
        "database writers",
        "counted by the database layer",
        writers,
        2,
    );
    peak(
        "catalogue replacements",
        "counted by the database layer",
        replacing,
        2,
    );
    // A small share of the input may well hold too few of these to meet.
    peak("webhooks on the way", "counted by the sender", sending, 1);
    peak(
        "model calls from the shop",
        "counted by the model's service",
        model,
        1,
    );
    checks.push(check(
        format!(
            "at most {} replacements at once, by the database",
            replacing.capacity
        ),
        format!("{} at most, in the order of its commits", overlaps.at_once),
        overlaps.at_once <= replacing.capacity as i64,
    ));
}

fn keys(evidence: &Evidence, checks: &mut Vec<Check>) {
    let Evidence {
        interrupted,
        overlaps,
        control,
        same_product,
        ..
    } = evidence;
    let seen = |found: &Overlaps, pairs: i64| {
        format!(
            "{} among {} did, seen in SQL",
            plural(pairs, "pair"),
            plural(found.replacements, "replacement")
        )
    };
    checks.push(check(
        "no two replacements of one brand overlap",
        match overlaps.mixed {
            0 => seen(overlaps, overlaps.same_brand),
            mixed => format!(
                "{}; {} mixed",
                seen(overlaps, overlaps.same_brand),
                plural(mixed, "brand")
            ),
        },
        overlaps.same_brand == 0 && overlaps.mixed == 0,
    ));
    checks.push(
        check(
            "replacements of different brands do",
            seen(overlaps, overlaps.different_brands),
            overlaps.different_brands > 0,
        )
        .open_if(*interrupted),
    );
    checks.push(match control {
        Some(control) => check(
            "control: without the key, one brand's do",
            seen(control, control.same_brand),
            control.same_brand > 0,
        ),
        None => check(
            "control: without the key, one brand's do",
            "left out",
            false,
        )
        .open_if(true),
    });
    checks.push(check(
        "news of one product go one after the other",
        format!("{same_product} met on the way, counted by the sender"),
        *same_product == 0,
    ));
}

fn webhooks(evidence: &Evidence, checks: &mut Vec<Check>) {
    let Evidence {
        notified,
        synced,
        stock,
        ..
    } = evidence;
    let arrived = |book: &Book| {
        book.values()
            .map(|entry| u64::from(entry.arrived))
            .sum::<u64>()
    };
    let twice = notified
        .1
        .values()
        .filter(|entry| entry.arrived > 1)
        .count();
    checks.push(check(
        "no notification is received twice",
        format!(
            "{twice} of {} were, counted by the receiver",
            thousands(arrived(&notified.1))
        ),
        twice == 0,
    ));
    let effects: u64 = synced
        .1
        .values()
        .map(|entry| u64::from(entry.applied))
        .sum();
    let twice = synced.1.values().filter(|entry| entry.applied > 1).count();
    let again = arrived(&synced.1) - synced.1.len() as u64;
    let mut observed = format!(
        "{} came, {} of them again; {} took effect, {twice} twice",
        thousands(arrived(&synced.1)),
        thousands(again),
        thousands(effects)
    );
    let (moved, expected) = *stock;
    if moved != expected {
        let _ = write!(
            observed,
            "; they moved {moved} units of stock, not {expected}"
        );
    }
    checks.push(check(
        "a sync sent again does not take effect again",
        observed,
        twice == 0 && moved == expected,
    ));
    accounts("notification", notified, checks);
    accounts("sync", synced, checks);
}

/// What the shop was told of each, against what is written elsewhere.
fn accounts(what: &str, (told, book): &(Told, Book), checks: &mut Vec<Check>) {
    let account = Account::of(told, book);
    checks.push(check(
        format!("what the shop is told of a {what} is so"),
        format!(
            "{} told done, {} falsely; {} told not done, {} falsely",
            thousands(account.done),
            account.done_in_vain,
            thousands(account.not_done),
            account.done_in_secret,
        ),
        account.done_in_vain == 0 && account.done_in_secret == 0,
    ));
    let mut observed = format!(
        "{} uncertain: {} took effect, {} did not",
        account.took_effect + account.without_effect,
        account.took_effect,
        account.without_effect,
    );
    if account.unknown > 0 {
        let _ = write!(observed, "; {} came that nobody sent", account.unknown);
    }
    checks.push(check(
        format!("every uncertain {what} is accounted for"),
        observed,
        account.unknown == 0,
    ));
}

fn others(evidence: &Evidence, checks: &mut Vec<Check>) {
    let Evidence {
        interrupted,
        drained,
        refusals,
        scores,
        score_retries,
        operations,
        held,
        ..
    } = evidence;
    let (shop, rival) = *refusals;
    checks.push(
        check(
            "the model's refusals are throttled, and asked again after a pause",
            format!(
                "{shop} times 429, {score_retries} asked again, {} called throttled; its rival {rival}",
                scores.throttled
            ),
            // Each was asked again, or the call's last: then that is throttled, or uncertain if it was so before.
            rival + shop > 0
                && (scores.throttled..=scores.throttled + scores.uncertain + score_retries)
                    .contains(&(shop as u64)),
        )
        .open_if(*interrupted && rival + shop == 0),
    );
    let uneven: Vec<_> = operations
        .iter()
        .filter(|of| of.admitted != of.finished)
        .map(|of| of.name.as_str())
        .collect();
    let admitted: u64 = operations.iter().map(|of| of.admitted).sum();
    let finished: u64 = operations.iter().map(|of| of.finished).sum();
    checks.push(check(
        "after the drain, admitted = finished",
        match (drained, uneven.as_slice()) {
            (Err(error), _) => error.clone(),
            (Ok(()), []) => format!(
                "{} = {}, and for each; {} units, {} keys held",
                thousands(admitted),
                thousands(finished),
                held.0,
                held.1
            ),
            (Ok(()), uneven) => format!("not for {}", uneven.join(", ")),
        },
        drained.is_ok() && uneven.is_empty() && *held == (0, 0),
    ));
    // A call refused at the gate of a draining runtime was never admitted; every other call was.
    let differ: Vec<_> = operations
        .iter()
        .filter(|of| !(of.admitted..=of.admitted + of.tally.stopped).contains(&of.tally.calls))
        .map(|of| {
            format!(
                "{} ({} admitted, {} called)",
                of.name, of.admitted, of.tally.calls
            )
        })
        .collect();
    let calls: u64 = operations.iter().map(|of| of.tally.calls).sum();
    checks.push(check(
        "the runtime's counts are its callers'",
        if differ.is_empty() {
            format!("{} calls", thousands(calls))
        } else {
            format!("not for {}", differ.join(", "))
        },
        differ.is_empty(),
    ));
}

/// 12345 as 12,345.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn plural(number: i64, what: &str) -> String {
    let number = number.unsigned_abs();
    format!(
        "{} {what}{}",
        thousands(number),
        if number == 1 { "" } else { "s" }
    )
}

mod database;
mod live;
#[cfg(test)]
mod tests;
