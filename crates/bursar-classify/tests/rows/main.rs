//! Every row of every table, with errors that the providers really make wherever they can be made without a server; what needs
//! one is in `tests/live`.

mod codes;
mod documented;
mod exchanges;
mod grpc;
mod sockets;
mod sqlite;
mod variants;

use bursar::Outcome;
use bursar_classify::{Phase, Row};

/// What some of a table's keys mean: before a commit, and at one.
type Meaning<'a> = (Outcome, Outcome, &'a [&'a str]);

/// Holds a table to what is expected of it: each key once, each with both its meanings, in all four phases.
fn expect(table: &[Row], outcome: impl Fn(&str, Phase) -> Outcome, expected: &[Meaning<'_>]) {
    let mut rows: Vec<_> = table.iter().flat_map(|row| row.seen).copied().collect();
    let mut keys: Vec<_> = expected.iter().flat_map(|of| of.2).copied().collect();
    rows.sort_unstable();
    keys.sort_unstable();
    assert_eq!(rows, keys, "the table has other keys than are expected");
    for (before, at_commit, keys) in expected {
        for key in *keys {
            let of = |phase| outcome(key, phase);
            assert_eq!(of(Phase::Acquire), *before, "{key} while acquiring");
            assert_eq!(of(Phase::InTransaction), *before, "{key} in a transaction");
            assert_eq!(of(Phase::Autocommit), *at_commit, "{key} in autocommit");
            assert_eq!(of(Phase::Commit), *at_commit, "{key} at commit");
        }
    }
}

#[test]
fn without_a_phase_a_lost_connection_is_uncertain() {
    assert!(Phase::default().may_commit());
    let lost = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    assert_eq!(
        bursar_classify::io::outcome(&lost, Phase::default()),
        Outcome::Uncertain
    );
}

#[test]
fn every_row_has_a_reason_and_every_table_ends_with_what_it_does_not_name() {
    for (name, table) in documented::TABLES {
        for row in *table {
            assert!(
                !row.seen.is_empty() && row.why.ends_with('.'),
                "{name}: {row:?}"
            );
            // The answer of a failure is never that it succeeded.
            assert_ne!(row.before, Outcome::Success, "{name}: {row:?}");
        }
        let last = table.last().map_or(&[][..], |row| row.seen);
        assert!(
            matches!(last, ["*" | "any other kind"]),
            "{name} ends with {last:?}"
        );
    }
}
