//! What this repository holds: its tracked files, the members of its workspace, and what cargo says of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::File;

/// A member of the workspace.
#[derive(Debug, Clone)]
pub struct Package {
    pub name: String,
    /// The path of its `Cargo.toml` from the repository's root.
    pub manifest: String,
    /// What it depends on for any purpose: to run, to build or to test.
    pub dependencies: Vec<String>,
    /// The roots of its library and its programs.
    pub roots: Vec<String>,
}

/// The repository's root.
pub fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let root = here.join("../..");
    root.canonicalize().unwrap_or(root)
}

/// Every tracked Rust source, manifest and page of prose; without git, all that lie outside build and hidden directories.
pub fn files() -> Vec<File> {
    let root = root();
    let mut paths = tracked(&root).unwrap_or_else(|| {
        let mut found = Vec::new();
        walk(&root, "", &mut found);
        found
    });
    paths.sort();
    paths
        .into_iter()
        .filter(|p| [".rs", ".toml", ".md"].iter().any(|end| p.ends_with(end)))
        // A tracked file that was just deleted or moved has no text to check.
        .filter_map(|path| {
            let text = std::fs::read_to_string(root.join(&path)).ok()?;
            Some(File { path, text })
        })
        .collect()
}

fn tracked(root: &Path) -> Option<Vec<String>> {
    // A clone may belong to another user than the one who tests it, as in a container.
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .current_dir(root)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let paths: Vec<_> = text.split_terminator('\0').map(str::to_owned).collect();
    (output.status.success() && !paths.is_empty()).then_some(paths)
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !name.starts_with('.') && name != "target" => {
                walk(&entry.path(), &format!("{path}/"), found);
            }
            Ok(kind) if kind.is_file() => found.push(path),
            _ => {}
        }
    }
}

/// The members of the workspace, as `cargo metadata` knows them.
///
/// # Panics
///
/// If cargo fails or answers in a form unknown.
pub fn packages() -> Vec<Package> {
    let root = root();
    let json = cargo(&["metadata", "--format-version", "1", "--no-deps", "--locked"]);
    let metadata: Value = serde_json::from_str(&json).expect("cargo metadata prints JSON");
    let below_root = |path: &str| {
        let path = Path::new(path);
        let inner = path.strip_prefix(&root).unwrap_or(path);
        inner.to_string_lossy().replace('\\', "/")
    };
    list(&metadata, "packages")
        .map(|package| Package {
            name: string(package, "name").to_owned(),
            manifest: below_root(string(package, "manifest_path")),
            dependencies: list(package, "dependencies")
                .map(|d| string(d, "name").to_owned())
                .collect(),
            roots: list(package, "targets")
                .filter(|t| list(t, "kind").any(|k| k == "lib" || k == "bin" || k == "proc-macro"))
                .map(|t| below_root(string(t, "src_path")))
                .collect(),
        })
        .collect()
}

/// The normal dependency tree of one member, with its default features, one crate a line.
///
/// # Panics
///
/// If cargo fails.
pub fn dependency_tree(package: &str) -> String {
    cargo(&[
        "tree", "--locked", "-p", package, "-e", "normal", "--prefix", "none",
    ])
}

fn cargo(arguments: &[&str]) -> String {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("cargo can be started");
    assert!(
        output.status.success(),
        "`cargo {}` failed: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    let items = value[key].as_array();
    items
        .unwrap_or_else(|| panic!("cargo metadata has a list of {key}"))
        .iter()
}

fn string<'a>(value: &'a Value, key: &str) -> &'a str {
    let text = value[key].as_str();
    text.unwrap_or_else(|| panic!("cargo metadata has a {key}"))
}
