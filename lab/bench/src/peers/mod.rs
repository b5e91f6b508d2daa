//! What Bursar is measured against. Each peer is written as a competent user writes it, and where two ways are common
//! the faster one is measured.

mod actors;
mod composed;
mod key_mutex;
mod resilience;
mod tower_stack;

pub use actors::{Actix, Add, AddLater, Kameo, Ractor, RactorAdd, suspend};
pub use composed::{Composed, Fault, Refused};
pub use key_mutex::{KeyGuard, KeyMutexes};
pub use resilience::{resilience, resilience_in_time};
pub use tower_stack::{tower, tower_in_time};

/// The manifest pins every peer exactly.
const MANIFEST: &str = include_str!("../../Cargo.toml");

/// The peers and their versions, as the manifest pins them.
pub fn versions() -> impl Iterator<Item = (&'static str, &'static str)> {
    let (_, rest) = MANIFEST.split_once("[dependencies]").unwrap_or(("", ""));
    let (dependencies, _) = rest.split_once("\n[").unwrap_or((rest, ""));
    dependencies.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" = ")?;
        let (_, rest) = rest.split_once("\"=")?;
        let (version, _) = rest.split_once('"')?;
        Some((name, version))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_is_pinned() {
        let names: Vec<&str> = versions().map(|(name, _)| name).collect();
        for peer in ["tokio", "tokio-util", "tower", "lockable", "keyed-lock"] {
            assert!(names.contains(&peer), "{names:?}");
        }
        let retry = versions().find(|(name, _)| *name == "tower-resilience-retry");
        assert_eq!(retry, Some(("tower-resilience-retry", "0.14.0")));
    }
}
