//! `docs/classify.md` prints the tables. `BLESS=1 cargo test -p bursar-classify documented` prints them anew.

use std::fmt::Write as _;

use bursar::Outcome;
use bursar_classify::{
    Answer, Phase, Row, http, hyper, io, postgres, redis, reqwest, rusqlite, sqlite, sqlx_postgres,
    tonic,
};

/// Every table there is, by the name of its marker in the page. The two of sqlx are one.
pub const TABLES: &[(&str, &[Row])] = &[
    ("postgres", postgres::TABLE),
    ("sqlx", sqlx_postgres::TABLE),
    ("sqlite", sqlite::TABLE),
    ("rusqlite", rusqlite::TABLE),
    ("redis", redis::TABLE),
    ("http", http::TABLE),
    ("hyper", hyper::TABLE),
    ("reqwest", reqwest::TABLE),
    ("tonic", tonic::TABLE),
    ("io", io::TABLE),
];

/// Tables that ask for no phase.
const WITHOUT_PHASE: &[&str] = &["http", "hyper", "reqwest", "tonic"];

fn render(name: &str, table: &[Row]) -> String {
    let phased = !WITHOUT_PHASE.contains(&name);
    let mut page = String::from(if phased {
        "| what | before the commit | commit, autocommit | why |\n|---|---|---|---|\n"
    } else {
        "| what | means | why |\n|---|---|---|\n"
    });
    for row in table {
        let codes: Vec<_> = row
            .seen
            .iter()
            .map(|seen| {
                if *seen == "*" || seen.contains(' ') {
                    (*seen).to_owned()
                } else {
                    format!("`{seen}`")
                }
            })
            .collect();
        let what = match (row.seen, row.name) {
            (["*"], name) => name.to_owned(),
            (_, "") => codes.join(", "),
            (_, name) => format!("{}: {name}", codes.join(", ")),
        };
        let at_commit = row.outcome(Phase::Commit);
        let mark = if row.answer == Answer::SettlesAlive {
            " †"
        } else {
            ""
        };
        let verdict = |outcome: Outcome| match outcome {
            Outcome::Uncertain => format!("**{outcome}**"),
            _ => outcome.to_string(),
        };
        let _ = if phased {
            writeln!(
                page,
                "| {what} | {} | {}{mark} | {} |",
                verdict(row.before),
                verdict(at_commit),
                row.why
            )
        } else {
            writeln!(page, "| {what} | {} | {} |", verdict(at_commit), row.why)
        };
    }
    page
}

#[test]
fn the_page_prints_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/classify.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut expected = page.clone();
    for (name, table) in TABLES {
        let (begin, end) = (
            format!("<!-- table: {name} -->\n"),
            format!("<!-- end of {name} -->"),
        );
        let from = expected
            .find(&begin)
            .unwrap_or_else(|| panic!("the page has no {begin}"))
            + begin.len();
        let to = expected
            .find(&end)
            .unwrap_or_else(|| panic!("the page has no {end}"));
        expected.replace_range(from..to, &render(name, table));
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &expected).unwrap();
    } else {
        assert!(
            page == expected,
            "docs/classify.md differs from the tables: run BLESS=1 cargo test -p bursar-classify documented"
        );
    }
}
