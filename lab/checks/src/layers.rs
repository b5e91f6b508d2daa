//! Imports point down: between crates, and between the modules of the core.

use std::collections::{BTreeMap, BTreeSet};

use crate::File;
use crate::syntax::{Token, after_group, tokens};
use crate::workspace::Package;

/// Which members of the workspace each shipped crate may import, for any purpose, tests included.
///
/// Only crates that exist are checked; a crate under `crates/` that is not named here is a failure.
pub const CRATES: &[(&str, &[&str])] = &[
    ("bursar", &[]),
    ("bursar-spot", &["bursar"]),
    ("bursar-http", &["bursar"]),
    // Itself with its features, for its tests.
    ("bursar-tower", &["bursar", "bursar-tower"]),
    // Itself for its tests, with every provider.
    ("bursar-classify", &["bursar", "bursar-classify"]),
    ("bursar-console", &["bursar", "bursar-spot"]),
    (
        "bursar-cli",
        &[
            "bursar",
            "bursar-spot",
            "bursar-http",
            "bursar-tower",
            "bursar-classify",
            "bursar-console",
        ],
    ),
];

/// How the modules of one layer may import each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peers {
    /// They may, without a cycle.
    Acyclic,
    /// They never do: only the layer above knows more than one of them.
    Strangers,
}

/// Modules that stand side by side.
#[derive(Debug, Clone, Copy)]
pub struct Layer {
    pub peers: Peers,
    pub modules: &'static [&'static str],
}

/// Where the core's modules live.
pub const CORE: &str = "crates/bursar/src/";

/// The core's modules from top to bottom; each may import what stands below it.
///
/// A directory counts as one module, under its own name.
#[rustfmt::skip]
pub const LAYERS: &[Layer] = &[
    // The face: the guide and the re-exports.
    Layer { peers: Peers::Acyclic,   modules: &["lib", "loom_tests"] },
    // The handles users hold.
    Layer { peers: Peers::Acyclic,   modules: &["testkit", "runtime", "operation", "blocking", "contract", "seam"] },
    // From admission to answer; the drain.
    Layer { peers: Peers::Acyclic,   modules: &["execute", "admit", "record", "drain"] },
    // What one call waits for and holds: it alone knows the order of acquisition.
    Layer { peers: Peers::Acyclic,   modules: &["call"] },
    // What one runtime owns.
    Layer { peers: Peers::Acyclic,   modules: &["engine"] },
    // State: one capacity; one key table; open, draining, drained.
    Layer { peers: Peers::Strangers, modules: &["budget", "keys", "lifecycle"] },
    // Pure words and small machines.
    Layer { peers: Peers::Acyclic,   modules: &["chain", "fifo", "policy", "retry", "outcome", "attempt", "backoff", "bounds", "threads",
                                                "error", "invalid", "refusal", "report", "retry_budget", "stats", "counters", "snapshot", "watch", "trace", "publish",
                                                "clock", "key", "wake"] },
    // std or loom.
    Layer { peers: Peers::Acyclic,   modules: &["sync"] },
];

const TABLE: &str = "LAYERS in lab/checks/src/layers.rs";

/// Problems with what the shipped crates depend on.
///
/// `manifests` are the tracked `Cargo.toml` files; one under `crates/` that is no member of the workspace escapes every other
/// check, so it is reported.
pub fn check_crates(
    packages: &[Package],
    manifests: &[&str],
    table: &[(&str, &[&str])],
) -> Vec<String> {
    let mut problems = Vec::new();
    for manifest in manifests.iter().filter(|m| is_crate_manifest(m)) {
        if !packages.iter().any(|p| p.manifest == **manifest) {
            problems.push(format!(
                "{manifest} is no member of the workspace: add it to `members` in Cargo.toml."
            ));
        }
    }
    for package in packages.iter().filter(|p| is_crate_manifest(&p.manifest)) {
        let name = package.name.as_str();
        let Some((_, allowed)) = table.iter().find(|(n, _)| *n == name) else {
            problems.push(format!(
                "Crate `{name}` has no row in CRATES in lab/checks/src/layers.rs: add it to the table."
            ));
            continue;
        };
        for sibling in package
            .dependencies
            .iter()
            .filter(|d| packages.iter().any(|p| p.name == **d))
            // A crate's own name is how its tests choose its features.
            .filter(|d| **d != package.name && !allowed.contains(&d.as_str()))
        {
            problems.push(format!(
                "Crate `{name}` depends on `{sibling}`: it may depend on {} of this workspace.",
                match allowed {
                    [] => "nothing".to_owned(),
                    _ => format!("`{}` alone", allowed.join("`, `")),
                }
            ));
        }
    }
    problems
}

fn is_crate_manifest(path: &str) -> bool {
    path.strip_prefix("crates/")
        .and_then(|p| p.strip_suffix("/Cargo.toml"))
        .is_some_and(|name| !name.contains('/'))
}

/// Problems with what the modules under `root` import.
pub fn check_modules(files: &[File], root: &str, layers: &[Layer]) -> Vec<String> {
    let rank = |module: &str| layers.iter().position(|l| l.modules.contains(&module));
    let mut problems = Vec::new();
    let mut edges = BTreeMap::<&str, BTreeSet<String>>::new();
    let mut unknown = BTreeSet::new();

    for file in files.iter().filter(|f| f.is_rust()) {
        let Some(inner) = file.path.strip_prefix(root) else {
            continue;
        };
        let path = module_path(inner);
        let module = path.first().copied().unwrap_or("lib");
        let Some(from) = rank(module) else {
            if unknown.insert(module) {
                problems.push(format!(
                    "{} belongs to module `{module}`, which has no layer: add it to the table, {TABLE}.",
                    file.path
                ));
            }
            continue;
        };
        if module == "lib" {
            continue;
        }
        for import in imports(&path, &file.text) {
            let at = format!("{}:{}", file.path, import.line);
            let target = import.name.as_str();
            if target == module {
                continue;
            }
            match rank(target) {
                None => problems.push(format!(
                    "{at} reaches `{target}` through the crate's root, which lies above it: import it from the module that owns it (a module not in the table must be added to {TABLE})."
                )),
                Some(to) if to < from => problems.push(format!(
                    "{at} imports `{target}`, which lies above `{module}`: imports point down only ({TABLE})."
                )),
                Some(to) if to == from && layers[from].peers == Peers::Strangers => problems.push(format!(
                    "{at} imports `{target}`, which stands beside `{module}` in a layer whose modules never import each other ({TABLE})."
                )),
                Some(to) if to == from => {
                    edges.entry(module).or_default().insert(import.name);
                }
                Some(_) => {}
            }
        }
    }
    problems.extend(cycles(&edges).into_iter().map(|cycle| {
        format!(
            "Modules of one layer import each other in a circle: {}.",
            cycle.join(" -> ")
        )
    }));
    problems
}

/// `fifo.rs`, `call/mod.rs` and `call/ladder.rs` are `[fifo]`, `[call]` and `[call, ladder]`; `lib.rs` is the root itself.
fn module_path(inner: &str) -> Vec<&str> {
    let mut path: Vec<_> = inner.trim_end_matches(".rs").split('/').collect();
    if path.last() == Some(&"mod") || path == ["lib"] {
        path.pop();
    }
    path
}

/// One name directly under the crate's root that a file reaches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    pub name: String,
    pub line: usize,
}

/// What the file of module `path` reaches for under the crate's root: by `use` or by a path in the code, from `crate`, `self`
/// or `super`, in groups, and from inline modules. `*` stands for a glob of the root and `as` for the root renamed.
pub fn imports(path: &[&str], source: &str) -> Vec<Import> {
    let tokens = tokens(source);
    let text = |i: usize| tokens.get(i).map_or("", |t: &Token<'_>| t.text);
    // How many modules deep we are, and the brace depth at which each inline one began.
    let mut nesting = path.len();
    let mut inline = Vec::new();
    let mut depth = 0usize;
    let mut found = Vec::new();

    let mut i = 0;
    while i < tokens.len() {
        match text(i) {
            "mod" if text(i + 2) == "{" => {
                inline.push(depth);
                nesting += 1;
                i += 2;
                continue;
            }
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                if inline.last() == Some(&depth) {
                    inline.pop();
                    nesting -= 1;
                }
            }
            head @ ("crate" | "super" | "self") if i == 0 || text(i - 1) != "::" => {
                let mut level = match head {
                    "crate" => 0,
                    "super" => nesting.saturating_sub(1),
                    _ => nesting,
                };
                while text(i + 1) == "::" && text(i + 2) == "super" {
                    level = level.saturating_sub(1);
                    i += 2;
                }
                if level == 0 {
                    under_root(&tokens, i + 1, &mut found);
                }
            }
            _ => {}
        }
        i += 1;
    }
    found
}

/// Records what follows a path that has arrived at the crate's root.
fn under_root(tokens: &[Token<'_>], at: usize, found: &mut Vec<Import>) {
    let mut record = |token: Option<&Token<'_>>| {
        if let Some(token) = token {
            found.push(Import {
                name: token.text.to_owned(),
                line: token.line,
            });
        }
    };
    let text = |i: usize| tokens.get(i).map_or("", |t| t.text);
    match (text(at), text(at + 1)) {
        ("as", _) => record(tokens.get(at)),
        ("::", "{") => {
            let end = after_group(tokens, at + 1);
            let mut i = at + 2;
            while i + 1 < end {
                record(tokens.get(i));
                while i + 1 < end && text(i) != "," {
                    i = if text(i) == "{" {
                        after_group(tokens, i)
                    } else {
                        i + 1
                    };
                }
                i += 1;
            }
        }
        ("::", _) => record(tokens.get(at + 1)),
        _ => {}
    }
}

/// One circle through each module that lies on one, each circle reported once, from its first name.
fn cycles(edges: &BTreeMap<&str, BTreeSet<String>>) -> Vec<Vec<String>> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for start in edges.keys() {
        if let Some(cycle) = shortest_cycle(edges, start) {
            let members: BTreeSet<_> = cycle.iter().cloned().collect();
            if seen.insert(members) {
                found.push(cycle);
            }
        }
    }
    found
}

fn shortest_cycle(edges: &BTreeMap<&str, BTreeSet<String>>, start: &str) -> Option<Vec<String>> {
    let mut paths = vec![vec![start.to_owned()]];
    let mut visited = BTreeSet::new();
    while !paths.is_empty() {
        let mut longer = Vec::new();
        for path in paths {
            let next = path.last().and_then(|last| edges.get(last.as_str()));
            for name in next.into_iter().flatten() {
                let mut path = path.clone();
                path.push(name.clone());
                if name == start {
                    return Some(path);
                }
                if visited.insert(name.clone()) {
                    longer.push(path);
                }
            }
        }
        paths = longer;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[Layer] = &[
        Layer {
            peers: Peers::Acyclic,
            modules: &["lib"],
        },
        Layer {
            peers: Peers::Acyclic,
            modules: &["call"],
        },
        Layer {
            peers: Peers::Strangers,
            modules: &["budget", "keys"],
        },
        Layer {
            peers: Peers::Acyclic,
            modules: &["outcome", "retry", "error"],
        },
    ];

    fn check(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files
            .iter()
            .map(|(name, text)| File::new(format!("src/{name}"), *text))
            .collect();
        check_modules(&files, "src/", TWO)
    }

    fn names(path: &[&str], source: &str) -> Vec<String> {
        imports(path, source).into_iter().map(|i| i.name).collect()
    }

    #[test]
    fn imports_are_found_in_every_form() {
        let source = "
            use crate::a::X;
            use crate::{b, c::{Y, Z}, d as e,};
            pub(crate) use super::f::*;
            use self::own::W;
            fn g() -> crate::h::T { self.i(); super::j::call(); Self::k() }
        ";
        assert_eq!(
            names(&["call"], source),
            ["a", "b", "c", "d", "f", "h", "j"]
        );
    }

    #[test]
    fn super_counts_the_modules_it_leaves() {
        let source = "
            use super::Own;
            mod tests { use super::*; use super::super::a; mod deep { use super::super::super::b; } }
            use super::super::c;
            use self::super::super::d;
        ";
        assert_eq!(names(&["call", "ladder"], source), ["c", "d"]);
        let source =
            "mod tests { use super::*; use super::super::a; } mod x; fn f() { {} } use super::b;";
        assert_eq!(names(&["call"], source), ["a", "b"]);
    }

    #[test]
    fn the_root_itself_is_an_import() {
        assert_eq!(
            names(
                &["call"],
                "use crate::*; use crate as root; use super::*; use crate::{self as r};"
            ),
            ["*", "as", "*", "self"]
        );
    }

    #[test]
    fn prose_strings_and_visibility_are_no_imports() {
        let source =
            "//! See [`crate::runtime`].\n/// `super::x`\npub(crate) fn f() { \"crate::y\"; }";
        assert!(names(&["call"], source).is_empty());
    }

    #[test]
    fn downward_imports_pass() {
        let problems = check(&[
            ("lib.rs", "mod call; pub use call::Call;"),
            (
                "call.rs",
                "use crate::{budget::B, keys::K}; use crate::outcome;",
            ),
            ("call/ladder.rs", "use super::Call; use crate::keys;"),
            ("budget.rs", "use crate::error::E; use super::retry;"),
            ("retry.rs", "use crate::outcome::Outcome;"),
            ("error.rs", "use crate::{outcome, retry};"),
            ("outcome.rs", "mod tests { use super::*; }"),
        ]);
        assert_eq!(problems, Vec::<String>::new());
    }

    #[test]
    fn an_upward_import_is_found() {
        let problems = check(&[("budget/grant.rs", "\nfn f() { crate::call::now() }")]);
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0]
                .starts_with("src/budget/grant.rs:2 imports `call`, which lies above `budget`"),
            "{problems:?}"
        );
    }

    #[test]
    fn an_import_through_the_face_is_found() {
        let problems = check(&[("budget.rs", "use crate::Outcome; use crate::lib;")]);
        assert_eq!(problems.len(), 2);
        assert!(problems[0].contains("reaches `Outcome` through the crate's root"));
    }

    #[test]
    fn strangers_that_meet_are_found() {
        let problems = check(&[("keys.rs", "use super::{error, budget::Budget};")]);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("imports `budget`, which stands beside `keys`"));
    }

    #[test]
    fn circles_are_found_once() {
        let problems = check(&[
            ("outcome.rs", "use crate::retry;"),
            ("retry.rs", "use crate::error;"),
            ("error.rs", "use crate::outcome;"),
        ]);
        assert_eq!(
            problems,
            [
                "Modules of one layer import each other in a circle: error -> outcome -> retry -> error."
            ]
        );
    }

    #[test]
    fn a_module_without_a_layer_is_found_once() {
        let problems = check(&[("new/mod.rs", ""), ("new/part.rs", "")]);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("`new`, which has no layer: add it to the table"));
    }

    fn package(name: &str, dependencies: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            manifest: format!("crates/{name}/Cargo.toml"),
            dependencies: dependencies.iter().map(|d| (*d).to_owned()).collect(),
            roots: Vec::new(),
        }
    }

    #[test]
    fn siblings_are_imported_only_as_the_table_says() {
        let packages = [
            package("bursar", &["tokio"]),
            package("bursar-spot", &["bursar", "bursar-http"]),
            package("bursar-http", &["bursar"]),
            package("bursar-new", &[]),
        ];
        let manifests = [
            "crates/bursar-lost/Cargo.toml",
            "crates/bursar/tests/x/Cargo.toml",
        ];
        let problems = check_crates(&packages, &manifests, CRATES);
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].starts_with("crates/bursar-lost/Cargo.toml is no member"));
        assert!(problems[1].starts_with(
            "Crate `bursar-spot` depends on `bursar-http`: it may depend on `bursar` alone"
        ));
        assert!(problems[2].starts_with("Crate `bursar-new` has no row"));
        let problems = check_crates(
            &[
                package("bursar", &["bursar-spot"]),
                package("bursar-spot", &["bursar"]),
            ],
            &[],
            CRATES,
        );
        assert!(problems[0].contains("it may depend on nothing of this workspace"));
    }
}
