//! House rules: short files, no `unsafe`, nothing unfinished, no lint silenced without a reason.

use crate::File;
use crate::syntax::{Token, after_group, attributes, tokens};
use crate::workspace::Package;

/// The longest a source file of a shipped crate may be, in lines.
pub const LONGEST: usize = 500;

/// Files of shipped crates that are longer than [`LONGEST`] lines.
pub fn check_length(files: &[File]) -> Vec<String> {
    let shipped = |path: &str| {
        let mut parts = path.split('/');
        parts.next() == Some("crates") && parts.nth(1) == Some("src")
    };
    files
        .iter()
        .filter(|f| f.is_rust() && shipped(&f.path))
        .map(|f| (&f.path, f.text.lines().count()))
        .filter(|(_, lines)| *lines > LONGEST)
        .map(|(path, lines)| {
            format!("{path} has {lines} lines, more than {LONGEST}: split it by idea.")
        })
        .collect()
}

/// Unfinished or silenced code in any tracked Rust file.
pub fn check_code(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|f| f.is_rust()) {
        let tokens = tokens(&file.text);
        for window in tokens.windows(3) {
            if let ["todo" | "unimplemented", "!", "(" | "[" | "{"] =
                [window[0].text, window[1].text, window[2].text]
            {
                problems.push(format!(
                    "{}:{} calls `{}!`: write it or leave it out.",
                    file.path, window[0].line, window[0].text
                ));
            }
        }
        for attribute in attributes(&tokens) {
            let at = format!("{}:{}", file.path, attribute.line);
            let head = attribute.inside.first().map_or("", |t| t.text);
            let conditional = head == "cfg_attr";
            if head == "ignore" || conditional && mentions(attribute.inside, "ignore") {
                problems.push(format!(
                    "{at} ignores a test: a test that does not run proves nothing."
                ));
            }
            for (i, pair) in attribute.inside.windows(2).enumerate() {
                if matches!(pair[0].text, "allow" | "expect")
                    && pair[1].text == "("
                    && (i == 0 || conditional)
                {
                    let end = after_group(attribute.inside, i + 1);
                    if !has_reason(&attribute.inside[i..end]) {
                        problems.push(format!(
                            "{at} silences a lint without saying why: add `reason = \"...\"` to its `{}`.",
                            pair[0].text
                        ));
                    }
                }
            }
        }
    }
    problems
}

fn mentions(tokens: &[Token<'_>], word: &str) -> bool {
    tokens.iter().any(|t| t.text == word)
}

fn has_reason(tokens: &[Token<'_>]) -> bool {
    tokens
        .windows(2)
        .any(|pair| pair[0].text == "reason" && pair[1].text == "=")
}

/// Members of the workspace in which `unsafe` code would compile.
///
/// A member is safe if it inherits the workspace's lints and these forbid `unsafe_code`, or if each of its crate roots does.
pub fn check_unsafe(packages: &[Package], files: &[File]) -> Vec<String> {
    let text = |path: &str| {
        files
            .iter()
            .find(|f| f.path == path)
            .map(|f| f.text.as_str())
    };
    let forbidden = text("Cargo.toml").is_some_and(|t| {
        matches!(
            setting(t, "workspace.lints.rust", "unsafe_code"),
            Some("\"forbid\"")
        )
    });
    let mut problems = Vec::new();
    for package in packages {
        let inherits = text(&package.manifest)
            .is_some_and(|t| setting(t, "lints", "workspace") == Some("true"));
        if forbidden && inherits {
            continue;
        }
        for root in &package.roots {
            if !text(root).is_some_and(forbids_unsafe) {
                problems.push(format!(
                    "{root} does not forbid unsafe code: add `#![forbid(unsafe_code)]`, or `[lints] workspace = true` to {}.",
                    package.manifest
                ));
            }
        }
    }
    problems
}

fn forbids_unsafe(source: &str) -> bool {
    let tokens = tokens(source);
    attributes(&tokens).any(|a| {
        a.inside.first().is_some_and(|t| t.text == "forbid") && mentions(a.inside, "unsafe_code")
    })
}

/// The value of `key` in the table `[table]` of a manifest, or of the dotted `table.key` before any table.
fn setting<'a>(manifest: &'a str, table: &str, key: &str) -> Option<&'a str> {
    let dotted = format!("{table}.{key}");
    let mut current = "";
    for line in manifest.lines() {
        let line = line.split('#').next().unwrap_or("").trim();
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            current = name.trim();
        } else if let Some((name, value)) = line.split_once('=') {
            let name = name.trim();
            if current == table && name == key || current.is_empty() && name == dotted {
                return Some(value.trim());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Vec<String> {
        check_code(&[File::new("a.rs", text)])
    }

    #[test]
    fn long_files_are_found_in_shipped_crates_alone() {
        let long = "x\n".repeat(LONGEST + 1);
        let files = [
            File::new("crates/a/src/deep/long.rs", &*long),
            File::new("crates/a/src/short.rs", "x\n".repeat(LONGEST)),
            File::new("crates/a/tests/long.rs", &*long),
            File::new("lab/a/src/long.rs", &*long),
        ];
        assert_eq!(
            check_length(&files),
            ["crates/a/src/deep/long.rs has 501 lines, more than 500: split it by idea."]
        );
    }

    #[test]
    fn unfinished_code_is_found() {
        let problems = code("fn f() {\n todo!() }\nfn g() { unimplemented!(\"later\") }");
        assert_eq!(problems.len(), 2);
        assert!(problems[0].starts_with("a.rs:2 calls `todo!`"));
        assert!(code("// todo!()\nfn todo() { todo(); \"todo!()\"; }").is_empty());
    }

    #[test]
    fn ignored_tests_are_found() {
        assert_eq!(code("#[test]\n#[ignore] fn f() {}").len(), 1);
        assert_eq!(code("#[ignore = \"slow\"] fn f() {}").len(), 1);
        assert_eq!(code("#[cfg_attr(miri, ignore)] fn f() {}").len(), 1);
        assert!(code("fn ignore() { let ignore = [1]; }").is_empty());
    }

    #[test]
    fn silenced_lints_need_a_reason() {
        assert_eq!(code("#[allow(dead_code)] fn f() {}").len(), 1);
        assert_eq!(code("#![allow(a, b)]").len(), 1);
        assert_eq!(code("#[expect(a)] fn f() {}").len(), 1);
        assert_eq!(code("#[cfg_attr(x, allow(a))] fn f() {}").len(), 1);
        assert!(code("#![allow(a, b, reason = \"they \\\" do\")]").is_empty());
        assert!(code("#[expect(a, reason = \"x\")] fn f() { x.expect(\"y\"); }").is_empty());
    }

    fn package() -> Package {
        Package {
            name: "a".to_owned(),
            manifest: "a/Cargo.toml".to_owned(),
            dependencies: Vec::new(),
            roots: vec!["a/src/lib.rs".to_owned()],
        }
    }

    #[test]
    fn unsafe_must_be_forbidden_once() {
        let check = |workspace: &str, member: &str, root: &str| {
            check_unsafe(
                &[package()],
                &[
                    File::new("Cargo.toml", workspace),
                    File::new("a/Cargo.toml", member),
                    File::new("a/src/lib.rs", root),
                ],
            )
            .len()
        };
        let forbid = "[workspace.lints.rust]\nunsafe_code = \"forbid\"";
        let inherit = "[package]\nname = \"a\"\n[lints]\nworkspace = true # as all do";
        assert_eq!(check(forbid, inherit, ""), 0);
        assert_eq!(check("", "", "//! Doc.\n#![forbid(unsafe_code)]"), 0);
        assert_eq!(check(forbid, "lints.workspace = true", ""), 0);
        assert_eq!(check(forbid, "[package]", ""), 1);
        assert_eq!(
            check(
                "[workspace.lints.rust]\nunsafe_code = \"deny\"",
                inherit,
                ""
            ),
            1
        );
        assert_eq!(check("", inherit, "// #![forbid(unsafe_code)]"), 1);
    }
}
