//! What a table of verdicts is made of: [`Row`], and what an answer settles ([`Answer`]).
//!
//! The tables are the classification itself: functions look rows up, `docs/classify.md` prints them, and a test holds the two to
//! each other.
//!
//! 1. Before a commit was asked for, nothing can have taken effect, whatever the error.
//! 2. From then on an error means what it means before only if the answer proves that nothing took effect; every other is
//!    `Uncertain`.

use bursar::Outcome;

use crate::Phase;

/// One row of a provider's table: what was seen, what it means, and why.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Row {
    /// The codes or kinds that the row is about, as the provider names them. A `*` is everything that no other row names.
    pub seen: &'static [&'static str],
    /// The provider's own name for it.
    pub name: &'static str,
    /// What it means before a commit was asked for.
    pub before: Outcome,
    /// What it says about a commit that was under way.
    pub answer: Answer,
    /// Why.
    pub why: &'static str,
}

/// What an error says about a commit that was under way when it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Nothing was done.
    Settles,
    /// Nothing was done, unless the session ended with it. Only Postgres ends sessions with an answer.
    SettlesAlive,
    /// Nobody knows.
    Open,
}

impl Row {
    pub(crate) const fn settled(
        seen: &'static [&'static str],
        name: &'static str,
        outcome: Outcome,
        why: &'static str,
    ) -> Self {
        Self::new(seen, name, outcome, Answer::Settles, why)
    }

    pub(crate) const fn open(
        seen: &'static [&'static str],
        name: &'static str,
        before: Outcome,
        why: &'static str,
    ) -> Self {
        Self::new(seen, name, before, Answer::Open, why)
    }

    pub(crate) const fn new(
        seen: &'static [&'static str],
        name: &'static str,
        before: Outcome,
        answer: Answer,
        why: &'static str,
    ) -> Self {
        Self {
            seen,
            name,
            before,
            answer,
            why,
        }
    }

    /// What the row means in a phase, where the session lives on.
    #[must_use]
    pub const fn outcome(&self, phase: Phase) -> Outcome {
        match (phase.may_commit(), self.answer) {
            (true, Answer::Open) => Outcome::Uncertain,
            _ => self.before,
        }
    }
}

/// The row that names `seen`, or the one for everything else.
pub(crate) fn find(table: &'static [Row], seen: &str) -> &'static Row {
    exact(table, seen).unwrap_or(&table[table.len() - 1])
}

/// The row that names `seen`.
pub(crate) fn exact(table: &'static [Row], seen: &str) -> Option<&'static Row> {
    table.iter().find(|row| row.seen.contains(&seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &[Row] = &[
        Row::settled(&["a", "b"], "", Outcome::Permanent, ""),
        Row::open(&["*"], "", Outcome::Transient, ""),
    ];

    #[test]
    fn what_no_row_names_is_the_last() {
        assert_eq!(find(ROWS, "b").before, Outcome::Permanent);
        assert_eq!(find(ROWS, "c").before, Outcome::Transient);
        assert!(exact(ROWS, "c").is_none());
    }

    #[test]
    fn only_a_settled_answer_holds_at_a_commit() {
        let [settled, open] = [&ROWS[0], &ROWS[1]];
        for phase in [Phase::Acquire, Phase::InTransaction] {
            assert_eq!(settled.outcome(phase), Outcome::Permanent);
            assert_eq!(open.outcome(phase), Outcome::Transient);
        }
        for phase in [Phase::Autocommit, Phase::Commit] {
            assert_eq!(settled.outcome(phase), Outcome::Permanent);
            assert_eq!(open.outcome(phase), Outcome::Uncertain);
        }
    }
}
