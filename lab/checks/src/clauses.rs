//! Every clause has its tests, and every test that bears a clause's number is cited by that clause.
//!
//! A clause of `docs/contract.md` begins at a line such as ``- **A1** A runtime needs…`` and runs to the next clause or
//! heading. Its tests are the names in backticks after the word `Tests:`, up to the end of that paragraph. A name is that of a
//! test function, or of a compile-fail case `tests/ui/<name>.rs`. A test that proves a clause bears its number: `a1_…`.

use std::collections::BTreeMap;

use crate::File;
use crate::syntax::{Attribute, tokens};

/// Where the clauses are.
pub const CONTRACT: &str = "docs/contract.md";

/// One clause as the contract states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clause {
    /// Its letter and number, such as `B12`.
    pub id: String,
    pub line: usize,
    /// What stands in backticks after `Tests:`.
    pub tests: Vec<String>,
}

/// Reads the clauses of a contract, with the problems met on the way.
pub fn parse(contract: &str) -> (Vec<Clause>, Vec<String>) {
    let mut clauses = Vec::<(Clause, String)>::new();
    let mut problems = Vec::new();
    let mut open = false;
    for (i, line) in contract.lines().enumerate() {
        let number = i + 1;
        if let Some((id, rest)) = clause_start(line) {
            let clause = Clause {
                id: id.to_owned(),
                line: number,
                tests: Vec::new(),
            };
            clauses.push((clause, rest.to_owned()));
            open = true;
            continue;
        }
        if resembles_clause(line) {
            problems.push(format!(
                "{CONTRACT}:{number} looks like a clause and is none: a clause begins with `- **A1** `, unindented."
            ));
        }
        open &= !line.starts_with('#');
        if let (true, Some((_, body))) = (open, clauses.last_mut()) {
            body.push('\n');
            body.push_str(line.trim());
        }
    }
    let clauses = clauses
        .into_iter()
        .map(|(clause, body)| Clause {
            tests: tests_named(&body),
            ..clause
        })
        .collect();
    (clauses, problems)
}

/// The clause that a line begins, and the rest of the line. A full stop after the number is welcome.
fn clause_start(line: &str) -> Option<(&str, &str)> {
    let (id, rest) = line.strip_prefix("- **")?.split_once("**")?;
    let id = id.strip_suffix('.').unwrap_or(id);
    is_id(id).then_some((id, rest))
}

fn resembles_clause(line: &str) -> bool {
    let bold = line.trim_start_matches([' ', '\t', '-', '*', '+', '#', '>', '|']);
    let decorated = line.len() - bold.len() >= 2;
    let end = bold.find(|c: char| !c.is_ascii_alphanumeric());
    decorated
        && end.is_some_and(|end| {
            is_id(&bold[..end]) && bold[end..].trim_start_matches('.').starts_with("**")
        })
}

fn is_id(text: &str) -> bool {
    let mut chars = text.chars();
    matches!(chars.next(), Some('A'..='G'))
        && !chars.as_str().is_empty()
        && chars.all(|c| c.is_ascii_digit())
}

/// The names in backticks that follow `Tests:`, up to the end of its paragraph.
fn tests_named(body: &str) -> Vec<String> {
    let Some((_, list)) = body.split_once("Tests:") else {
        return Vec::new();
    };
    let list = list.split("\n\n").next().unwrap_or(list);
    list.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// The clause whose number a test bears: `b12_fits` bears `B12`.
fn clause_of(test: &str) -> Option<String> {
    let (number, _) = test.split_once('_')?;
    let id = number.to_ascii_uppercase();
    (is_id(&id) && number != id).then_some(id)
}

/// Where each test of the tracked files is: a function that bears a test attribute, or a compile-fail case.
pub fn tests_of(files: &[File]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for file in files.iter().filter(|f| f.is_rust()) {
        let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        if folder == "tests/ui" || folder.ends_with("/tests/ui") {
            let name = name.trim_end_matches(".rs");
            found.insert(name.to_owned(), file.path.clone());
        }
        for (name, line) in test_functions(&file.text) {
            found.insert(name, format!("{}:{line}", file.path));
        }
    }
    found
}

/// The names and lines of the functions that bear a test attribute.
pub fn test_functions(source: &str) -> Vec<(String, usize)> {
    let tokens = tokens(source);
    let mut found = Vec::new();
    let mut marked = false;
    let mut i = 0;
    while i < tokens.len() {
        if let Some((attribute, end)) = Attribute::at(&tokens, i) {
            marked |= attribute.marks_test();
            i = end;
            continue;
        }
        match tokens[i].text {
            "fn" => {
                if let (true, Some(name)) = (marked, tokens.get(i + 1)) {
                    found.push((name.text.to_owned(), name.line));
                }
                marked = false;
            }
            "{" | "}" | ";" => marked = false,
            _ => {}
        }
        i += 1;
    }
    found
}

/// Problems between a contract and the tests in `files`.
pub fn check(contract: Option<&str>, files: &[File]) -> Vec<String> {
    let Some(contract) = contract else {
        return vec![format!(
            "{CONTRACT} is missing or not tracked: it states every clause and names its tests."
        )];
    };
    let (clauses, mut problems) = parse(contract);
    let tests = tests_of(files);
    if clauses.is_empty() {
        problems.push(format!(
            "{CONTRACT} states no clause: one begins with a line such as `- **A1** `."
        ));
    }

    let mut lines = BTreeMap::<&str, usize>::new();
    for clause in &clauses {
        let Clause { id, line, .. } = clause;
        let at = format!("{CONTRACT}:{line}");
        if let Some(first) = lines.insert(id, *line) {
            problems.push(format!(
                "{at} states clause {id} again, first stated on line {first}."
            ));
        }
        if clause.tests.is_empty() {
            problems.push(format!(
                "{at} names no test for clause {id}: add ``Tests: `{}_...` ``.",
                id.to_ascii_lowercase()
            ));
        } else if !clause
            .tests
            .iter()
            .any(|t| clause_of(t).as_ref() == Some(id))
        {
            problems.push(format!(
                "{at} names no test for clause {id} that bears its number: `{}_...`.",
                id.to_ascii_lowercase()
            ));
        }
        for test in clause.tests.iter().filter(|t| !tests.contains_key(*t)) {
            problems.push(format!(
                "{at} names `{test}` for clause {id}, but no tracked file has a test function or a compile-fail case of that name."
            ));
        }
    }

    for (test, place) in &tests {
        let Some(id) = clause_of(test) else { continue };
        let mut stated = clauses.iter().filter(|c| c.id == id).peekable();
        if stated.peek().is_none() {
            problems.push(format!(
                "{place} has test `{test}`, but {CONTRACT} states no clause {id}."
            ));
        } else if !stated.any(|c| c.tests.contains(test)) {
            problems.push(format!(
                "{place} has test `{test}`, but clause {id} of {CONTRACT} does not cite it."
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT_TEXT: &str = "\
# The contract
Words come first; `a9_word` is none of a clause.

## A. Construction
- **A1** A runtime needs `Runtime` and a budget.
  Tests: `a1_empty`,
  `a1_zero`.

  More about it, and `no_test`.
- **A2.** A policy is validated. Tests: `a2_ui` and `loom_both`.

## B. Admission
An introduction, `not_a_test`.
- **B12** Capacity changes. Tests: `b12_grows`
";

    fn files() -> Vec<File> {
        let unit = "
            #[test] fn a1_empty() {}
            #[tokio::test(flavor = \"multi_thread\")]
            /// Said in prose.
            #[should_panic]
            pub(crate) async fn a1_zero() {}
            #[cfg(test)] fn b12_helper() {}
            #[test] fn loom_both() {}
            #[test] fn b12_grows() { fn a1_inner() {} }
            // #[test] fn a1_commented() {}
        ";
        vec![
            File::new("crates/a/src/lib.rs", unit),
            File::new("crates/a/tests/ui/a2_ui.rs", "fn main() {}"),
            File::new("crates/a/tests/ui/a2_ui.stderr", ""),
        ]
    }

    fn one(problems: &[String]) -> &str {
        assert_eq!(problems.len(), 1, "{problems:?}");
        &problems[0]
    }

    #[test]
    fn clauses_are_read_with_their_tests() {
        let (clauses, problems) = parse(CONTRACT_TEXT);
        assert!(problems.is_empty());
        let read: Vec<_> = clauses
            .iter()
            .map(|c| (c.id.as_str(), c.line, c.tests.join(" ")))
            .collect();
        assert_eq!(
            read,
            [
                ("A1", 5, "a1_empty a1_zero".to_owned()),
                ("A2", 10, "a2_ui loom_both".to_owned()),
                ("B12", 14, "b12_grows".to_owned()),
            ]
        );
    }

    #[test]
    fn lines_that_only_look_like_clauses_are_reported() {
        for line in ["* **A1** x", "**A1.** x", "  - **A1** x", "### **A1** x"] {
            let (clauses, problems) = parse(line);
            assert!(clauses.is_empty());
            assert!(one(&problems).contains("looks like a clause"), "{line}");
        }
        for line in [
            "A1 says so",
            "- **H1** x",
            "- see **A1**",
            "- A1, A2",
            "**A**",
        ] {
            assert_eq!(parse(line), (vec![], vec![]), "{line}");
        }
    }

    #[test]
    fn test_functions_are_told_from_others() {
        let names: Vec<_> = tests_of(&files()).into_keys().collect();
        assert_eq!(
            names,
            ["a1_empty", "a1_zero", "a2_ui", "b12_grows", "loom_both"]
        );
    }

    #[test]
    fn a_contract_and_its_tests_agree() {
        assert_eq!(check(Some(CONTRACT_TEXT), &files()), Vec::<String>::new());
    }

    #[test]
    fn a_missing_contract_is_found() {
        assert!(one(&check(None, &files())).contains("is missing"));
        assert!(one(&check(Some("# Nothing"), &[])).contains("states no clause"));
    }

    #[test]
    fn a_missing_test_is_found() {
        let mut files = files();
        files[0].text = files[0]
            .text
            .replace("#[test] fn b12_grows", "fn b12_grows");
        assert_eq!(
            one(&check(Some(CONTRACT_TEXT), &files)),
            "docs/contract.md:14 names `b12_grows` for clause B12, but no tracked file has a test function or a compile-fail case of that name."
        );
        files.remove(1);
        assert_eq!(check(Some(CONTRACT_TEXT), &files).len(), 2);
    }

    #[test]
    fn an_uncited_test_is_found() {
        let mut files = files();
        files.push(File::new("b.rs", "#[test]\nfn a2_more() {}"));
        files.push(File::new("x/tests/ui/a1_more.rs", ""));
        assert_eq!(
            check(Some(CONTRACT_TEXT), &files),
            [
                "x/tests/ui/a1_more.rs has test `a1_more`, but clause A1 of docs/contract.md does not cite it.",
                "b.rs:2 has test `a2_more`, but clause A2 of docs/contract.md does not cite it.",
            ]
        );
    }

    #[test]
    fn a_test_of_no_clause_is_found() {
        let mut files = files();
        files.push(File::new(
            "b.rs",
            "#[test] fn c3_trusts() {} #[test] fn h1_free() {}",
        ));
        assert_eq!(
            one(&check(Some(CONTRACT_TEXT), &files)),
            "b.rs:1 has test `c3_trusts`, but docs/contract.md states no clause C3."
        );
    }

    #[test]
    fn a_clause_without_its_own_test_is_found() {
        let text = "- **A3** x\n- **A4** y. Tests: `loom_both`\n- **A4** z. Tests: `a4_z`";
        let files = [File::new(
            "b.rs",
            "#[test] fn loom_both() {} #[test] fn a4_z() {}",
        )];
        let problems = check(Some(text), &files);
        assert_eq!(
            problems,
            [
                "docs/contract.md:1 names no test for clause A3: add ``Tests: `a3_...` ``.",
                "docs/contract.md:2 names no test for clause A4 that bears its number: `a4_...`.",
                "docs/contract.md:3 states clause A4 again, first stated on line 2.",
            ]
        );
    }
}
