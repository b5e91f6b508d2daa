//! What the database holds, asked in SQL, embedded or not.

use super::{Check, Evidence, accounts, check, plural, thousands};

pub(super) fn all(evidence: &Evidence, checks: &mut Vec<Check>) {
    let Evidence {
        interrupted,
        recorded,
        torn,
        moved,
        shelves,
        killed,
        ..
    } = evidence;
    let (rows, tally) = *recorded;
    let rows = u64::try_from(rows).unwrap_or(0);
    checks.push(check(
        "events told recorded are in the database, once",
        format!(
            "{} told, {} rows, {} uncertain",
            thousands(tally.ok),
            thousands(rows),
            tally.uncertain
        ),
        (tally.ok..=tally.ok + tally.uncertain).contains(&rows),
    ));
    // Whatever was not told replaced may have stopped halfway.
    let (torn, tally) = *torn;
    let unsure = tally.uncertain + tally.failed;
    checks.push(check(
        "a brand told replaced is all there",
        format!(
            "{} told, {unsure} not; {} in part",
            thousands(tally.ok),
            plural(torn as i64, "brand")
        ),
        torn as u64 <= unsure,
    ));
    let twice = moved.1.values().filter(|entry| entry.applied > 1).count();
    let (units_in, units_out) = (
        shelves.moved_in.unsigned_abs(),
        shelves.moved_out.unsigned_abs(),
    );
    checks.push(check(
        "no event moves stock twice, and shelves add up",
        format!(
            "{twice} of {} did; {} units in, {} out; {} shelves wrong",
            thousands(moved.1.len() as u64),
            thousands(units_in),
            thousands(units_out),
            shelves.wrong,
        ),
        twice == 0 && shelves.wrong == 0,
    ));
    accounts("stock move", moved, checks);
    if let Some(killed) = killed {
        checks.push(
            check(
                "connections are killed meanwhile",
                format!(
                    "{}: {} idle, {} at work, {} in a commit",
                    thousands(killed.all()),
                    thousands(killed.idle),
                    thousands(killed.working),
                    thousands(killed.committing)
                ),
                killed.all() > 0,
            )
            .open_if(*interrupted),
        );
    }
}
