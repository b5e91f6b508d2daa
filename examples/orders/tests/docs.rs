//! What `docs/axum.md` shows is what runs: each block of Rust stands in this example's source, line by line.

/// Lines without their indentation, empty ones left out.
fn lines(text: &str) -> String {
    let trimmed = text.lines().map(str::trim).filter(|line| !line.is_empty());
    trimmed.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_code_of_the_guide_is_the_code_of_the_example() {
    let source = lines(concat!(
        include_str!("../src/lib.rs"),
        include_str!("../src/main.rs")
    ));
    let guide = include_str!("../../../docs/axum.md");
    let blocks: Vec<_> = guide
        .split("```rust\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or(rest))
        .collect();
    assert!(blocks.len() >= 7, "the guide shows code");
    for block in blocks {
        assert!(
            source.contains(&lines(block)),
            "not in the example:\n{block}"
        );
    }
}
