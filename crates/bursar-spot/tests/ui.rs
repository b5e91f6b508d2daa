//! What must not compile, with what the compiler says to whom tried: each `tests/ui/<name>.rs` beside its `.stderr`.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
