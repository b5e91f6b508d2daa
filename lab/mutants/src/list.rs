//! The mutants, as cargo-mutants lists them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What a mutant replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Genre {
    /// A function's body, by a value.
    Body,
    /// An operator between two operands.
    Binary,
    /// An operator before its operand, by nothing.
    Unary,
    /// An arm of a match, by nothing.
    Arm,
    /// The guard of an arm, by true or false.
    Guard,
    /// A field of a struct expression with a base, by the base's.
    Field,
}

/// A line and a column, both from 1, as cargo-mutants counts them.
pub type Position = (usize, usize);

/// One mutant. Its number is its place in the list, counted from 1.
#[derive(Clone, Debug)]
pub struct Mutant {
    pub file: String,
    pub genre: Genre,
    pub start: Position,
    pub replacement: String,
    /// As cargo-mutants prints it.
    pub name: String,
}

impl Mutant {
    /// The name without line and column, which move.
    pub fn lasting(&self) -> String {
        let mut parts = self.name.splitn(4, ':');
        let file = parts.next().unwrap_or_default();
        let what = parts.nth(2).unwrap_or_default().trim();
        let file = file.strip_prefix("crates/bursar/src/").unwrap_or(file);
        format!("{file}: {what}")
    }
}

/// # Errors
/// cargo-mutants is not installed, or lists what is not understood.
pub fn list(tree: &Path) -> Result<Vec<Mutant>, String> {
    let listed = Command::new("cargo")
        .args(["mutants", "--list", "--json", "--package", "bursar"])
        .current_dir(tree)
        .output()
        .map_err(|error| error.to_string())?;
    if !listed.status.success() {
        let said = String::from_utf8_lossy(&listed.stderr);
        return Err(format!("{said}\ncargo install cargo-mutants --locked"));
    }
    let listed: Value = serde_json::from_slice(&listed.stdout).map_err(|why| why.to_string())?;
    let all = listed.as_array().ok_or("not a list")?;
    all.iter().map(read).collect()
}

fn read(from: &Value) -> Result<Mutant, String> {
    let text = |name: &str| from[name].as_str().map(str::to_owned);
    let genre = match from["genre"].as_str() {
        Some("FnValue") => Genre::Body,
        Some("BinaryOperator") => Genre::Binary,
        Some("UnaryOperator") => Genre::Unary,
        Some("MatchArm") => Genre::Arm,
        Some("MatchArmGuard") => Genre::Guard,
        Some("StructField") => Genre::Field,
        other => return Err(format!("a genre that is not known: {other:?}")),
    };
    let at = |name: &str| from["span"]["start"][name].as_u64().map(|at| at as usize);
    let read = || {
        Some(Mutant {
            file: text("file")?,
            genre,
            start: (at("line")?, at("column")?),
            replacement: text("replacement")?,
            name: text("name")?,
        })
    };
    read().ok_or_else(|| format!("not understood: {from}"))
}
