//! What the figures were seen on: without it they say nothing.

use std::fmt;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use crate::calm;
use crate::peers::versions;

/// The machine, the compiler, the source.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor, as the kernel names it.
    pub processor: String,
    /// How many of its cores this program may use.
    pub cores: usize,
    /// Kernel and its version.
    pub system: String,
    /// The compiler's version.
    pub rustc: String,
    /// The commit, and whether the core differs from it.
    pub commit: String,
    /// Threads that ran or waited to, over the last minute.
    pub load: Option<f64>,
    /// Whether this process goes before all ordinary ones, as under `chrt -r 1`.
    pub first: bool,
    /// Peers and their versions.
    pub peers: Vec<(&'static str, &'static str)>,
}

impl Machine {
    /// This one, now.
    #[must_use]
    pub fn here() -> Self {
        Self {
            processor: processor().unwrap_or_else(|| "unknown".into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            system: say("uname", &["-sr"]),
            rustc: say("rustc", &["--version"]),
            commit: commit(),
            load: calm::load(),
            first: calm::goes_first(),
            peers: versions().collect(),
        }
    }

    /// One sentence about other programs, if there are any.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let load = self.load.filter(|load| *load > 0.5 && !self.first)?;
        Some(format!(
            "Other programs are running (load {load:.1} on {} cores): trust ratios, not nanoseconds. To go before them, \
             start this under `chrt -r 1`.",
            self.cores
        ))
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, {} cores, {}",
            self.processor, self.cores, self.system
        )?;
        writeln!(f, "{}, commit {}", self.rustc, self.commit)?;
        let peers: Vec<String> = self
            .peers
            .iter()
            .map(|(peer, at)| format!("{peer} {at}"))
            .collect();
        writeln!(f, "{}", peers.join(", "))?;
        match self.warning() {
            Some(warning) => writeln!(f, "{warning}"),
            None => Ok(()),
        }
    }
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let of = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    Some(match (of("model name"), of("cpu family"), of("model\t")) {
        (Some(name), Some(family), Some(model)) => {
            format!("{name} (family {family}, model {model})")
        }
        (name, _, _) => name?,
    })
}

fn commit() -> String {
    let commit = say("git", &["rev-parse", "--short", "HEAD"]);
    let changed = say(
        "git",
        &["status", "--porcelain", "--", "../../crates/bursar/src"],
    );
    match changed.as_str() {
        "" => commit,
        _ => format!("{commit}, and changes to the core"),
    }
}

/// What a command prints, run in this package's directory.
fn say(command: &str, args: &[&str]) -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(command).args(args).current_dir(here).output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => format!("unknown ({command} does not run)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known() {
        let machine = Machine::here();
        assert!(machine.cores > 0);
        assert!(machine.rustc.starts_with("rustc 1."), "{}", machine.rustc);
        assert!(!machine.peers.is_empty());
    }
}
