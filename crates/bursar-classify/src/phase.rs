//! How far the work had come when an error came ([`Phase`]).

/// How far the work had come when the error came: the half of its meaning that no error carries.
///
/// Postgres answers `57P01` whether the connection was closed while it idled or in the middle of a `COMMIT`; a reset
/// socket says no more. Who called knows which of the two it was.
///
/// The default is [`Autocommit`](Self::Autocommit), the cautious one: a lost connection is `Uncertain` then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Getting hold of a connection, `BEGIN` included. Nothing that has an effect was sent yet.
    Acquire,
    /// Inside a transaction, before its commit was asked for: without the commit nothing takes effect.
    ///
    /// In Redis: between `MULTI` and `EXEC`.
    InTransaction,
    /// A statement that commits by itself, or whenever nobody knows the phase.
    #[default]
    Autocommit,
    /// The commit was asked for.
    ///
    /// In Redis: `EXEC`.
    Commit,
}

impl Phase {
    /// Whether something may have been committed by the time the error came.
    #[must_use]
    pub const fn may_commit(self) -> bool {
        matches!(self, Self::Autocommit | Self::Commit)
    }
}
