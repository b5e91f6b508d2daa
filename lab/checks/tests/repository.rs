//! This repository, held to its own rules.

use checks::workspace::{dependency_tree, files, packages};
use checks::{assert_none, clauses, dependencies, house, layers};

#[test]
fn crates_import_what_the_table_allows() {
    let files = files();
    let manifests: Vec<_> = files
        .iter()
        .map(|f| f.path.as_str())
        .filter(|p| p.ends_with("Cargo.toml"))
        .collect();
    assert_none(&layers::check_crates(
        &packages(),
        &manifests,
        layers::CRATES,
    ));
}

#[test]
fn modules_of_the_core_import_downwards() {
    let files = files();
    assert!(files.iter().any(|f| f.path.starts_with(layers::CORE)));
    assert_none(&layers::check_modules(&files, layers::CORE, layers::LAYERS));
}

#[test]
fn every_clause_has_its_tests() {
    let files = files();
    let contract = files.iter().find(|f| f.path == clauses::CONTRACT);
    assert_none(&clauses::check(contract.map(|f| f.text.as_str()), &files));
}

#[test]
fn the_dependency_tree_of_the_core_is_small() {
    assert_none(&dependencies::check(&dependency_tree("bursar")));
}

#[test]
fn shipped_files_are_short() {
    assert_none(&house::check_length(&files()));
}

#[test]
fn nothing_is_unfinished_or_silenced_without_a_reason() {
    assert_none(&house::check_code(&files()));
}

#[test]
fn unsafe_code_is_forbidden_everywhere() {
    assert_none(&house::check_unsafe(&packages(), &files()));
}
