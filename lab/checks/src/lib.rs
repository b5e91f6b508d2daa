//! The rules of this repository that no compiler enforces.
//!
//! * [`layers`]: which crate may import which, and which module of `crates/bursar` may import which.
//! * [`clauses`]: every clause of `docs/contract.md` has its tests, and every test that bears a clause's number is cited.
//! * [`dependencies`]: the core's dependency tree stays small and free of proc macros.
//! * [`house`]: file length, `unsafe`, unfinished code, lints silenced without a reason.
//!
//! Each check is a function from text to a list of problems, one sentence each, so that its own tests can show it failing on
//! a fixture. `tests/repository.rs` feeds them this repository; `cargo test -p checks` runs both.
#![forbid(unsafe_code)]

pub mod clauses;
pub mod dependencies;
pub mod house;
pub mod layers;
pub mod syntax;
pub mod workspace;

/// A tracked file: its path from the repository's root, with `/` between components, and its text.
#[derive(Debug, Clone)]
pub struct File {
    pub path: String,
    pub text: String,
}

impl File {
    /// A file made by hand, as the fixtures of the checks' own tests are.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
        }
    }

    /// Whether this is Rust source.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Panics with every problem on a line of its own, if there is any.
///
/// # Panics
///
/// If `problems` is not empty.
#[track_caller]
pub fn assert_none(problems: &[String]) {
    assert!(
        problems.is_empty(),
        "{} found:\n  - {}\n",
        match problems.len() {
            1 => "1 problem".to_owned(),
            n => format!("{n} problems"),
        },
        problems.join("\n  - ")
    );
}
