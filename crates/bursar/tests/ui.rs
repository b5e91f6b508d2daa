//! What must not compile, with what the compiler says to whom tried: each `tests/ui/<name>.rs` beside its `.stderr`.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

/// What the compiler says, which `misuse_does_not_compile` holds to be so, explains itself.
#[test]
fn a4_the_compiler_says_why_a_retry_is_unsafe() {
    let said = include_str!("ui/a4_unsafe_retry_does_not_compile.stderr");
    let why = [
        "operation must not be retried after an `Uncertain` outcome",
        "the first attempt may already have charged, sent or changed something",
        "Policy::idempotent()",
    ];
    for part in why {
        assert_eq!(said.matches(part).count(), 3, "once a case: {part}\n{said}");
    }
}

#[test]
fn a4_the_compiler_says_where_a_retry_composed_at_run_time_goes() {
    let said = include_str!("ui/a4_a_retry_composed_at_run_time_needs_a_dynamic_policy.stderr");
    let where_to = "checked at run time and goes with `Policy::dynamic()`";
    assert_eq!(said.matches(where_to).count(), 2, "once a case\n{said}");
    assert!(
        !said.contains("`bursar::Pure` operation must not be retried"),
        "a pure operation may be retried after anything\n{said}"
    );
}
