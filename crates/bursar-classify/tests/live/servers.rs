//! Where the servers are: one Postgres for all tests, and further ones for those that stop, fill or misconfigure theirs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{ConnectOptions as _, PgPool};

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run these tests by lab/providers/run, which starts the servers")
    })
}

/// The Postgres that all share.
pub fn postgres() -> PgConnectOptions {
    variable("BURSAR_POSTGRES_URL").parse().unwrap()
}

/// A pool that hands out what it has, without asking first whether it is still alive.
pub fn pool(options: PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(4)
        .test_before_acquire(false)
        .connect_lazy_with(options)
}

/// A connection of its own to the server that all share.
pub async fn connection() -> PgConnection {
    postgres().connect().await.unwrap()
}

/// A server of one's own, ended when dropped.
pub struct Own {
    kind: &'static str,
    dir: PathBuf,
    pub url: String,
}

impl Own {
    /// Starts a `postgres` or a `redis` with these settings.
    pub fn start(kind: &'static str, settings: &[&str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let dir = Path::new(&variable("BURSAR_PROVIDERS_DIR")).join(format!("{kind}-{number}"));
        let mut own = Self {
            kind,
            dir,
            url: String::new(),
        };
        own.start_again(settings);
        own
    }

    pub fn start_again(&mut self, settings: &[&str]) {
        self.url = self.script("start", settings).trim().to_owned();
    }

    /// Ends a Postgres in one of its ways.
    pub fn stop(&self, how: &[&str]) {
        self.script("stop", how);
    }

    fn script(&self, verb: &str, arguments: &[&str]) -> String {
        let script = Path::new(&variable("BURSAR_PROVIDERS")).join(self.kind);
        let output = Command::new(&script)
            .arg(verb)
            .arg(&self.dir)
            .args(arguments)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{} {verb}: {}",
            script.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn postgres(&self) -> PgConnectOptions {
        self.url.parse().unwrap()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // It may be down already; what is left the script that started the tests ends.
        let script = Path::new(&variable("BURSAR_PROVIDERS")).join(self.kind);
        let _ = Command::new(script)
            .arg("stop")
            .arg(&self.dir)
            .arg("immediate")
            .output();
    }
}
