//! What is known already, so that a run that was interrupted goes on.
//!
//! The first line says what was judged: the text of everything that is built and run. Then a line a mutant.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::judge::Verdict;
use crate::list::Mutant;

/// What it depends on which mutants compile, among the files of the repository.
pub const SOURCES: &[&str] = &["crates/bursar/src/", "Cargo.lock"];
/// What verdicts depend on.
pub const JUDGES: &[&str] = &[
    "crates/bursar/",
    "crates/bursar-spot/",
    "lab/chaos/",
    "lab/fuzz/corpus/",
    "lab/model/",
    "Cargo.lock",
];

/// Of the files that are judged, by their paths, and of the mutants, which are known by their numbers.
///
/// # Errors
/// One cannot be read.
pub fn fingerprint<'f>(
    repository: &Path,
    depends: &[&str],
    files: impl Iterator<Item = &'f str>,
    mutants: &[Mutant],
) -> Result<String, String> {
    let mut hasher = DefaultHasher::new();
    let matters = |file: &&str| depends.iter().any(|start| file.starts_with(start));
    for file in files.filter(matters) {
        let text = std::fs::read(repository.join(file)).map_err(|why| format!("{file}: {why}"))?;
        (file, text).hash(&mut hasher);
    }
    for mutant in mutants {
        mutant.name.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

#[derive(Debug)]
pub struct Journal {
    pub known: BTreeMap<u32, Verdict>,
    file: Mutex<File>,
}

impl Journal {
    /// Opens it, and begins it anew if it is about something else.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(path: &Path, fingerprint: &str) -> Result<Self, String> {
        let before = std::fs::read_to_string(path).unwrap_or_default();
        let mut lines = before.lines();
        let same = lines.next() == Some(fingerprint);
        let known = match same {
            true => lines.filter_map(read).collect(),
            false => BTreeMap::new(),
        };
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|why| format!("{}: {why}", path.display()))?;
        let journal = Self {
            known,
            file: Mutex::new(file),
        };
        if !same {
            let begun = journal.lock().set_len(0);
            begun.map_err(|why| why.to_string())?;
            journal.line(fingerprint)?;
        }
        Ok(journal)
    }

    /// # Errors
    /// It cannot be written.
    pub fn note(&self, number: u32, verdict: &Verdict) -> Result<(), String> {
        self.line(&format!("{number}\t{verdict}"))
    }

    fn line(&self, line: &str) -> Result<(), String> {
        writeln!(self.lock(), "{line}").map_err(|why| why.to_string())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(line: &str) -> Option<(u32, Verdict)> {
    let (number, verdict) = line.split_once('\t')?;
    Some((number.parse().ok()?, Verdict::read(verdict)?))
}
