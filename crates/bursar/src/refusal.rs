//! The evidence of a call that never ran ([`Refusal`]): where it was refused, how full that was, and, where that is
//! why, whom it was called from inside of.

use std::fmt;
use std::sync::Arc;

/// How full a budget, or a key, was when a call was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Units there are in all; 1 for a key.
    pub capacity: u32,
    /// Units held by calls.
    pub in_use: u32,
    /// Calls waiting.
    pub waiting: u32,
}

/// Evidence of a call that never ran: which operation, what it needed, and how full that was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub(crate) names: Arc<Names>,
    pub(crate) site: Site,
    /// Whom it was called from inside of, where that is why it was refused.
    pub(crate) chain: Option<Box<Holders>>,
}

/// The members of a chain, the innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holders(pub(crate) Vec<Holder>);

/// One of those that a call was made from inside of, and what it holds meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub(crate) operation: Option<Arc<str>>,
    pub(crate) budgets: Vec<(Arc<str>, u32)>,
    pub(crate) key: bool,
    pub(crate) turn: bool,
}

impl Holder {
    /// The operation. `None` for a turn, and for a call of another runtime.
    #[must_use]
    pub fn operation(&self) -> Option<&str> {
        self.operation.as_deref()
    }

    /// The budgets it holds units of, with how many. Empty for a call of another runtime.
    pub fn budgets(&self) -> impl Iterator<Item = (&str, u32)> {
        self.budgets.iter().map(|(name, units)| (&**name, *units))
    }

    /// Whether it holds a key.
    #[must_use]
    pub fn holds_key(&self) -> bool {
        self.key
    }

    /// Whether it is a turn.
    #[must_use]
    pub fn is_turn(&self) -> bool {
        self.turn
    }
}

/// What it is and what it holds.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.operation {
            Some(name) => write!(f, "{name:?}")?,
            None if self.turn => f.write_str("a turn")?,
            None => f.write_str("a call of another runtime")?,
        }
        let budgets = self
            .budgets
            .iter()
            .map(|(name, units)| format!("{units} of {name:?}"));
        let held: Vec<String> = budgets
            .chain(self.key.then(|| "its key".to_owned()))
            .collect();
        if held.is_empty() {
            return Ok(());
        }
        write!(f, " (holding {})", held.join(", "))
    }
}

/// What errors say of an operation, kept apart so that an error costs one reference.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) operation: Arc<str>,
    /// The budgets claimed, with their units, in the order of acquisition.
    pub(crate) claims: Box<[(Arc<str>, u32)]>,
}

/// Where a call was when it was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    Nowhere,
    Key(Usage),
    Budget {
        /// Which of the operation's claims.
        claim: u32,
        usage: Usage,
    },
    #[cfg(feature = "tokio")]
    /// Everything was held, and the thread that was to run a blocking handler was not there in time.
    Thread,
}

impl Refusal {
    /// The operation that was called.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.names.operation
    }

    fn claim(&self) -> Option<&(Arc<str>, u32)> {
        match self.site {
            Site::Budget { claim, .. } => self.names.claims.get(claim as usize),
            _ => None,
        }
    }

    /// The budget that was full or waited for. `None` if it was the key, or nothing yet.
    #[must_use]
    pub fn budget(&self) -> Option<&str> {
        self.claim().map(|(name, _)| &**name)
    }

    /// Whether the call was refused at its key.
    #[must_use]
    pub fn is_key(&self) -> bool {
        matches!(self.site, Site::Key(_))
    }

    /// The units that the call claims of [`budget`](Self::budget).
    #[must_use]
    pub fn units(&self) -> Option<u32> {
        self.claim().map(|(_, units)| *units)
    }

    /// Those the call was made from inside of, the innermost first, where a wait would have been, or was, a wait for
    /// what may wait for them: in [`CallError::WouldDeadlock`](crate::CallError::WouldDeadlock), and where a nested call's
    /// wait was ended: by the bound on nested waits, by its own bounds or by its token. Otherwise empty, and also where
    /// the work that it was nested in has ended meanwhile.
    #[must_use]
    pub fn chain(&self) -> &[Holder] {
        self.chain.as_deref().map_or(&[], |chain| &chain.0)
    }

    /// How full the budget or key was at that moment.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        match &self.site {
            Site::Budget { usage, .. } | Site::Key(usage) => Some(*usage),
            _ => None,
        }
    }
}

/// Where it was and how full that was.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.site {
            Site::Nowhere => f.write_str("it had not begun to wait"),
            Site::Key(usage) => write!(f, "its key was held ({} waiting)", usage.waiting),
            Site::Budget { usage, .. } => {
                if let Some((name, units)) = self.claim() {
                    write!(f, "it needs {units} of budget {name:?}: ")?;
                }
                write!(
                    f,
                    "{} of {} in use, {} waiting",
                    usage.in_use, usage.capacity, usage.waiting
                )
            }
            #[cfg(feature = "tokio")]
            Site::Thread => f.write_str("no thread took up its blocking handler"),
        }?;
        for (at, holder) in self.chain().iter().enumerate() {
            let lead = if at == 0 {
                "; called from inside"
            } else {
                ", inside"
            };
            write!(f, "{lead} {holder}")?;
        }
        Ok(())
    }
}
