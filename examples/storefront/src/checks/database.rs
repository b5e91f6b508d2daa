//! What the database holds, asked in SQL, embedded or not.

use std::collections::BTreeSet;

use super::{Check, Evidence, accounts, check, plural, thousands};
use crate::meter::Verdict;

pub(super) fn all(evidence: &Evidence, checks: &mut Vec<Check>) {
    let Evidence {
        interrupted,
        recorded,
        replaced,
        moved,
        shelves,
        killed,
        ..
    } = evidence;
    accounts("recorded event", recorded, checks);
    let (told, torn) = replaced;
    let with = |of: Verdict| {
        let those = told.iter().filter(move |(_, verdict)| *verdict == of);
        those.map(|(brand, _)| brand).collect::<BTreeSet<_>>()
    };
    let (whole, unsure) = (with(Verdict::Ok), with(Verdict::Uncertain));
    // A replacement may stop halfway; it is told as uncertain then, and nothing else leaves a brand in part.
    let (excused, falsely): (Vec<_>, Vec<_>) = torn
        .iter()
        .filter(|brand| whole.contains(brand) || unsure.contains(brand))
        .partition(|brand| unsure.contains(brand));
    checks.push(check(
        "a brand told replaced is all there",
        format!(
            "{} told, {} uncertain; of these {} in part, of the others {}",
            plural(whole.len() as i64, "brand"),
            unsure.len(),
            excused.len(),
            falsely.len(),
        ),
        falsely.is_empty(),
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
