use super::*;

#[test]
fn a_span_is_told_in_the_unit_a_person_would_choose() {
    for (milliseconds, text) in [
        (0, "0 us"),
        (1, "1 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (99_949, "99.9 s"),
        (100_000, "1 min 40 s"),
        (5_999_999, "99 min 59 s"),
        (6_000_000, "1 h 40 min"),
        (90_000_000, "25 h 0 min"),
    ] {
        assert_eq!(time(Duration::from_millis(milliseconds)), text);
    }
    assert_eq!(time(Duration::from_micros(999)), "999 us");
}

#[test]
fn a_long_key_is_told_by_its_beginning() {
    let long = "k".repeat(LONG);
    assert_eq!(short(&long), format!("{long:?}"));
    assert_eq!(short(&format!("{long}k")), format!("\"{long}\u{2026}\""));
}

fn held(holders: usize, unattributed: u32) -> String {
    let holder = |number: usize| HolderSnapshot {
        operation: format!("o{number}").into(),
        units: 1,
        calls: 1,
        oldest: None,
    };
    held_by(&BudgetSnapshot {
        name: "a".into(),
        capacity: 16,
        in_use: 16,
        owed: 0,
        unnoticed: 0,
        waiting: 0,
        holders: (0..holders).map(holder).collect(),
        unattributed,
        queue: Vec::new(),
        longest_wait: None,
    })
}

#[test]
fn e2_the_smaller_holders_are_counted_and_so_is_what_moves() {
    assert_eq!(held(2, 0), "o0 1, o1 1");
    assert_eq!(held(FEW, 3), "o0 1, o1 1, o2 1, o3 1, 3 moving");
    assert_eq!(held(FEW + 1, 0), "o0 1, o1 1, o2 1, o3 1, 1 more");
    assert_eq!(held(FEW + 3, 1), "o0 1, o1 1, o2 1, o3 1, 3 more, 1 moving");
}

#[test]
fn e2_of_a_queue_the_first_are_told() {
    let queue = |runs: usize| -> Vec<QueuedSnapshot> {
        let run = |number: usize| QueuedSnapshot {
            operation: format!("o{number}").into(),
            calls: 1 + (number == 1) as u32,
            units: 1,
        };
        (0..runs).map(run).collect()
    };
    assert_eq!(line(&queue(FEW)), "o0, o1 x2, o2, o3");
    assert_eq!(line(&queue(FEW + 1)), "o0, o1 x2, o2, o3, ...");
}

/// What is left out is said to be.
#[test]
fn rows_that_are_not_shown_are_counted() {
    struct More(usize);
    impl Display for More {
        fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
            more(f, self.0, "keys")
        }
    }
    assert_eq!(More(SHOWN).to_string(), "");
    assert_eq!(More(SHOWN + 1).to_string(), "\nand 1 more keys");
    assert_eq!(More(SHOWN + 7).to_string(), "\nand 7 more keys");
}
