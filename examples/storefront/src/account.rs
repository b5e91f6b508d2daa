//! What the shop was told of its webhooks, held against the receiver's books.

use std::collections::HashSet;

use crate::meter::Verdict;
use crate::receiver::Book;
use crate::service::Told;

/// How many webhooks were what.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Told done; and those of them that never took effect.
    pub done: u64,
    pub done_in_vain: u64,
    /// Told not done; and those of them that did take effect.
    pub not_done: u64,
    pub done_in_secret: u64,
    /// Uncertain, and what the books say of them.
    pub took_effect: u64,
    pub without_effect: u64,
    /// In the books, and sent by nobody.
    pub unknown: u64,
}

impl Account {
    pub fn of(told: &Told, book: &Book) -> Self {
        let mut account = Self::default();
        let mut known = HashSet::new();
        for (event, verdict) in told {
            known.insert(event.as_str());
            let applied = book.get(event).is_some_and(|entry| entry.applied > 0);
            match verdict {
                Verdict::Ok => {
                    account.done += 1;
                    account.done_in_vain += u64::from(!applied);
                }
                Verdict::Uncertain if applied => account.took_effect += 1,
                Verdict::Uncertain => account.without_effect += 1,
                Verdict::Refused | Verdict::Stopped | Verdict::Throttled | Verdict::Failed => {
                    account.not_done += 1;
                    account.done_in_secret += u64::from(applied);
                }
            }
        }
        account.unknown = book
            .keys()
            .filter(|event| !known.contains(event.as_str()))
            .count() as u64;
        account
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::Entry;

    #[test]
    fn an_account_tells_every_case_apart() {
        let told = [
            ("a", Verdict::Ok),
            ("b", Verdict::Ok),
            ("c", Verdict::Failed),
            ("d", Verdict::Failed),
            ("e", Verdict::Uncertain),
            ("f", Verdict::Uncertain),
        ]
        .map(|(id, verdict)| (id.to_owned(), verdict))
        .to_vec();
        let entry = |applied| Entry {
            arrived: 1,
            applied,
        };
        let book = [("a", 1), ("d", 1), ("e", 1), ("f", 0), ("g", 1)]
            .into_iter()
            .map(|(id, applied)| (id.to_owned(), entry(applied)))
            .collect();
        let account = Account::of(&told, &book);
        let expected = Account {
            done: 2,
            done_in_vain: 1,
            not_done: 2,
            done_in_secret: 1,
            took_effect: 1,
            without_effect: 1,
            unknown: 1,
        };
        assert_eq!(account, expected);
    }
}
