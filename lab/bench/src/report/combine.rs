//! One row out of several, each measured by a process of its own.

use super::{Row, Seen};
use crate::figures::{median, quantile, sorted};

/// The medians of every figure and of every ratio; the spread of a ratio is now that between processes. `None` of none.
#[must_use]
pub fn combine(rows: &[Row]) -> Option<Row> {
    let mut row = rows.first()?.clone();
    for seen in &mut row.seen {
        for (column, figure) in &mut seen.figures {
            let same = rows.iter().flat_map(|row| &row.seen);
            let same = same.filter(|other| other.name == seen.name);
            *figure = median(same.filter_map(|other: &Seen| other.get(*column)));
        }
    }
    for verdict in &mut row.verdicts {
        let all = rows.iter().flat_map(|row| &row.verdicts);
        let same = all.filter(|other| other.what == verdict.what);
        // What a busy machine disturbed counts only if nothing else is there.
        let calm: Vec<f64> = same
            .clone()
            .filter(|of| !of.disturbed)
            .map(|of| of.seen)
            .collect();
        verdict.disturbed = calm.is_empty();
        let ratios = if calm.is_empty() {
            sorted(same.map(|of| of.seen))
        } else {
            sorted(calm)
        };
        verdict.seen = quantile(&ratios, 0.5);
        verdict.spread = Some((quantile(&ratios, 0.0), quantile(&ratios, 1.0)));
        verdict.met = verdict.bound.keeps(verdict.seen);
    }
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Bound, Column, Verdict};

    fn row(figure: f64, ratio: f64, disturbed: bool) -> Row {
        Row {
            id: "row".into(),
            title: "what it is".into(),
            seen: vec![Seen::new("subject").with(Column::Batch50, figure)],
            verdicts: vec![Verdict {
                what: "subject / peer".into(),
                seen: ratio,
                spread: None,
                bound: Bound::AtMost(0.5),
                met: ratio <= 0.5,
                disturbed,
            }],
        }
    }

    #[test]
    fn figures_and_ratios_are_the_medians() {
        let rows = [
            row(10.0, 0.4, false),
            row(30.0, 0.9, false),
            row(20.0, 0.5, false),
        ];
        let one = combine(&rows).unwrap();
        assert_eq!(one.seen[0].get(Column::Batch50), Some(20.0));
        let verdict = &one.verdicts[0];
        assert_eq!((verdict.seen, verdict.spread), (0.5, Some((0.4, 0.9))));
        assert!(verdict.met && !verdict.disturbed);
    }

    #[test]
    fn a_disturbed_ratio_counts_only_if_all_are() {
        let one = combine(&[row(1.0, 0.9, true), row(1.0, 0.4, false)]).unwrap();
        assert!(one.verdicts[0].met && !one.verdicts[0].disturbed);
        let one = combine(&[row(1.0, 0.9, true), row(1.0, 0.7, true)]).unwrap();
        assert!(!one.verdicts[0].met && one.verdicts[0].disturbed);
    }
}
