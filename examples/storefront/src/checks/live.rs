//! What the carts hold, against the supplier's book.

use super::{Check, Evidence, check, thousands};

pub(super) fn all(evidence: &Evidence, checks: &mut Vec<Check>) {
    let live = &evidence.live;
    checks.push(
        check(
            "no unit goes into two carts",
            format!(
                "{} in carts, {} twice, {} of nobody's; {} given away by the supplier",
                thousands(live.carts as u64),
                live.twice,
                live.strange,
                thousands(live.issued as u64),
            ),
            live.carts > 0 && live.twice == 0 && live.strange == 0,
        )
        .open_if(evidence.interrupted && live.carts == 0),
    );
    checks.push(check(
        "one turn at a time at a shelf, others while it waits",
        format!(
            "{} at once; {} served meanwhile, {} filled up by the timer, {} empty-handed",
            live.overlaps,
            thousands(live.meanwhile as u64),
            thousands(live.restocked as u64),
            thousands(live.empty_handed as u64),
        ),
        live.overlaps == 0,
    ));
}
