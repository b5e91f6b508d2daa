//! A Spot's options, and those of a family of Instance Spots.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::closing::{ClosingTurn, Hooks};
use crate::error::{CloseReason, SpotError, SpotErrorKind};
use crate::host::Host;
use crate::kind::{Kind, SpotWide, shared};
use crate::registry::NotMade;
use crate::shared::{Common, Registrar};
use crate::spot::Spot;
use crate::strand::Strand;

/// What is said of a Spot in the making, or of a family of them.
pub(crate) struct Options<S: Send + 'static> {
    pub(crate) limit: Option<u32>,
    pub(crate) send_timeout: Option<Duration>,
    pub(crate) close_on_panic: bool,
    pub(crate) hooks: Option<Hooks<S>>,
}

impl<S: Send + 'static> Options<S> {
    pub(crate) const fn new() -> Self {
        Self {
            limit: None,
            send_timeout: None,
            close_on_panic: false,
            hooks: None,
        }
    }

    /// What Spots of these options have in common, which `registry` is told of when they have ended. The rest is the
    /// host's.
    pub(crate) fn common(&self, host: &Common, registry: Weak<dyn Registrar>) -> Arc<Common> {
        Arc::new(Common {
            shared: Arc::clone(&host.shared),
            registry,
            limit: self.limit.unwrap_or(host.limit),
            send_timeout: self.send_timeout.unwrap_or(host.send_timeout),
            close_on_panic: self.close_on_panic,
        })
    }
}

/// A Spot in the making.
#[must_use = "nothing is made until `create`"]
pub struct SpotBuilder<'h, S: Send + 'static, K: Kind = SpotWide> {
    host: &'h Host,
    name: Box<str>,
    options: Options<S>,
    kind: PhantomData<fn() -> K>,
}

impl<'h, S: Send + 'static> SpotBuilder<'h, S> {
    pub(crate) fn new(host: &'h Host, name: &str) -> Self {
        Self {
            host,
            name: name.into(),
            options: Options::new(),
            kind: PhantomData,
        }
    }
}

impl<'h, S: Send + 'static, K: Kind> SpotBuilder<'h, S, K> {
    /// Makes it a Spot of another kind.
    pub fn kind<L: Kind>(self) -> SpotBuilder<'h, S, L> {
        SpotBuilder {
            host: self.host,
            name: self.name,
            options: self.options,
            kind: PhantomData,
        }
    }

    /// How many requests and sends may wait for a turn. The default is 1,024. Beyond that they wait for space.
    pub fn queue(mut self, longest: u32) -> Self {
        self.options.limit = Some(longest);
        self
    }

    /// How long a request or send waits for space in a full queue. The default is one second.
    pub fn send_timeout(mut self, longest: Duration) -> Self {
        self.options.send_timeout = Some(longest);
        self
    }

    /// Closes the Spot when a turn panics, because its state may be half changed. By default it is kept.
    pub fn close_on_panic(mut self) -> Self {
        self.options.close_on_panic = true;
        self
    }

    /// What the last turn does. The default is nothing.
    pub fn on_closing<F, W>(mut self, last: F) -> Self
    where
        F: Fn(ClosingTurn<S>, CloseReason) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        self.options.hooks = Some(Hooks::new(last));
        self
    }

    /// Makes the Spot.
    ///
    /// # Errors
    /// [`InvalidOperation`](SpotErrorKind::InvalidOperation): the name is empty, or taken by a Spot that has not ended.
    /// [`ShuttingDown`](SpotErrorKind::ShuttingDown): the host takes nothing in any more, but from live turns.
    pub fn create(self, state: S) -> Result<Spot<S, K>, SpotError> {
        let invalid = |why: &str| {
            Err(SpotError::new(SpotErrorKind::InvalidOperation, &self.name).saying(why))
        };
        if self.name.is_empty() {
            return invalid("a Spot needs a name that is not empty");
        }
        let core = &self.host.core;
        let options = &self.options;
        let common =
            if options.limit.is_none() && options.send_timeout.is_none() && !options.close_on_panic
            {
                Arc::clone(&core.common)
            } else {
                options.common(&core.common, Weak::clone(&core.common.registry))
            };
        let hooks = self.options.hooks.map(Arc::new);
        let strand = Strand::new(self.name.clone(), common, hooks, shared::<K>(), Some(state));
        let member = Arc::clone(&strand);
        let make = || core.common.shared.admits().then_some(member);
        match core.spots.insert(&self.name, make) {
            Ok(_) => Ok(Spot::new(strand)),
            Err(NotMade::Refused) => Err(SpotError::new(SpotErrorKind::ShuttingDown, &self.name)),
            Err(NotMade::Taken) => Err(SpotError::new(SpotErrorKind::InvalidOperation, &self.name)
                .saying("the name is taken by a Spot that has not ended")),
        }
    }
}

impl<S: Send + 'static, K: Kind> fmt::Debug for SpotBuilder<'_, S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpotBuilder")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
