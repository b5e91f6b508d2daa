//! The core's normal dependency tree stays small and free of proc macros.

use std::collections::BTreeSet;

/// The most crates that the core's normal dependency tree may have, the core itself included.
pub const MOST: usize = 8;

/// Problems with a tree as `cargo tree -e normal --prefix none` prints it: one crate a line, with repetitions.
pub fn check(tree: &str) -> Vec<String> {
    let crates: BTreeSet<_> = tree
        .lines()
        .filter(|line| line.contains(" v"))
        .map(|line| line.trim_end_matches(" (*)"))
        .collect();
    let mut problems = Vec::new();
    if crates.is_empty() {
        problems.push("`cargo tree` printed no crate at all.".to_owned());
    }
    if crates.len() > MOST {
        let names: Vec<_> = crates
            .iter()
            .map(|line| line.split(' ').next().unwrap_or(line))
            .collect();
        problems.push(format!(
            "The core's dependency tree has {} crates, more than {MOST}: {}.",
            crates.len(),
            names.join(", ")
        ));
    }
    problems.extend(
        crates
            .iter()
            .filter(|line| line.contains("(proc-macro)"))
            .map(|line| format!("The core's dependency tree has a proc macro: {line}.")),
    );
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_tree_passes() {
        let tree =
            "bursar v0.1.0 (/w/crates/bursar)\ntokio v1.40.0\nslab v0.4.9\nslab v0.4.9 (*)\n";
        assert_eq!(check(tree), Vec::<String>::new());
    }

    #[test]
    fn a_large_tree_is_found() {
        let tree: String = (0..=MOST).map(|i| format!("c{i} v1.0.0\n")).collect();
        let problems = check(&tree);
        assert_eq!(
            problems,
            [
                "The core's dependency tree has 9 crates, more than 8: c0, c1, c2, c3, c4, c5, c6, c7, c8."
            ]
        );
    }

    #[test]
    fn a_proc_macro_and_an_empty_tree_are_found() {
        let problems = check("bursar v0.1.0\ntokio-macros v2.4.0 (proc-macro) (*)\n");
        assert_eq!(
            problems,
            ["The core's dependency tree has a proc macro: tokio-macros v2.4.0 (proc-macro)."]
        );
        assert_eq!(check("").len(), 1);
    }
}
