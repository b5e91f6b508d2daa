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
