//! What the tests of the program share: how to run it, and places for it to write to.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of one's own, removed at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir =
            std::env::temp_dir().join(format!("storefront-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The program, run from a directory that is not the repository's.
pub fn storefront() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_storefront"));
    command.current_dir(std::env::temp_dir());
    command
}

/// Runs the program, or explains why it could not.
pub fn run(command: &mut Command) -> Output {
    command.output().expect("the program can be started")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("standard output is text")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("standard error is text")
}
