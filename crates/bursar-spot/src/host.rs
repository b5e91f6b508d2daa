//! The host: owner of Spots, their executor and their clock.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bursar::Runtime;

use crate::closing::{self, ClosingTurn, Hooks};
use crate::due::Moments;
use crate::error::{CloseReason, SpotError, SpotErrorKind};
use crate::exec::Exec;
use crate::kind::{Kind, SpotWide, shared};
use crate::registry::{Named, Registry};
use crate::spot::Spot;
use crate::strand::{Common, Registrar, Shared, Strand};
use crate::worker::Workers;

/// How many pieces of CPU work wait for a thread, unless the host says otherwise.
const CPU_QUEUE: usize = 256;

/// What may be asked of a Spot whose type is not known.
pub(crate) trait Member: Send + Sync {
    fn name(&self) -> &str;
    fn close(self: Arc<Self>, reason: CloseReason) -> bool;
    fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()>;
    fn idle(&self) -> bool;
    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<S: Send + 'static> Member for Strand<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn close(self: Arc<Self>, reason: CloseReason) -> bool {
        Self::close(&self, reason)
    }

    fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        Self::poll_closed(self, cx)
    }

    fn idle(&self) -> bool {
        self.look(|gate| gate.idle())
    }

    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl Named for Arc<dyn Member> {
    fn name(&self) -> &str {
        Member::name(&**self)
    }

    fn address(&self) -> usize {
        Arc::as_ptr(self).addr()
    }
}

impl Registrar for Registry<Arc<dyn Member>> {
    fn gone(&self, name: &str, address: usize) {
        drop(self.remove(name, address));
    }
}

/// Owns Spots by name. Cheap to clone; every clone is the same host.
#[derive(Clone)]
pub struct Host {
    core: Arc<Core>,
}

struct Core {
    spots: Arc<Registry<Arc<dyn Member>>>,
    /// What Spots share that were told nothing of their own.
    common: Arc<Common>,
}

impl Host {
    /// A host whose turns run in the tokio runtime of the caller and whose clock is that of `runtime`.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    #[track_caller]
    #[expect(clippy::expect_used, reason = "said in the documentation")]
    pub fn new(runtime: &Runtime) -> Self {
        let exec = Exec::current().expect("a host is made inside of a tokio runtime");
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let spots = Arc::new(Registry::new());
        let registry: Weak<Registry<Arc<dyn Member>>> = Arc::downgrade(&spots);
        Self {
            core: Arc::new(Core {
                common: Arc::new(Common {
                    shared: Arc::new(Shared {
                        clock: runtime.clock(),
                        moments: Moments::new(runtime.clock()),
                        workers: Workers::new(threads, CPU_QUEUE, exec.clone()),
                        exec,
                        home: runtime.id(),
                        nested_wait: runtime.nested_wait(),
                        stopping: AtomicBool::new(false),
                        membership: OnceLock::new(),
                    }),
                    registry,
                    limit: 1024,
                    send_timeout: Duration::from_secs(1),
                    close_on_panic: false,
                }),
                spots,
            }),
        }
    }

    /// Where work beside the turns is handed in that belongs to no Spot.
    #[must_use]
    pub fn workers(&self) -> Workers {
        self.core.common.shared.workers.clone()
    }

    /// Begins a Spot with options of its own.
    pub fn spot<S: Send + 'static>(&self, name: &str) -> SpotBuilder<'_, S> {
        SpotBuilder {
            host: self,
            name: name.into(),
            limit: None,
            send_timeout: None,
            close_on_panic: false,
            hooks: None,
            kind: PhantomData,
        }
    }

    /// Makes a Spot.
    ///
    /// # Errors
    /// [`InvalidOperation`](SpotErrorKind::InvalidOperation): the name is empty, or taken by a Spot that has not ended.
    pub fn create<S: Send + 'static>(&self, name: &str, state: S) -> Result<Spot<S>, SpotError> {
        self.spot(name).create(state)
    }

    /// The Spot of that name, made with the state that `state` gives if there is none. A Spot that is closing is waited
    /// for. Of several who ask at once one makes it; the states of the others are dropped.
    ///
    /// # Errors
    /// [`InvalidOperation`](SpotErrorKind::InvalidOperation): the name is empty, or that of a Spot of another type or
    /// kind.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub async fn get_or_create<S: Send + 'static>(
        &self,
        name: &str,
        state: impl FnOnce() -> S,
    ) -> Result<Spot<S>, SpotError> {
        let mut state = Some(state);
        loop {
            if let Some(member) = self.core.spots.find(name) {
                let spot: Spot<S> = typed(member, name)?;
                if spot.is_open() {
                    return Ok(spot);
                }
                closing::closed(spot.strand()).await;
                continue;
            }
            let Some(state) = state.take() else {
                // Somebody else made it, and it has ended since.
                return Err(SpotError::closed(name, false));
            };
            match self.spot(name).make(state()) {
                Ok(made) => return Ok(made),
                Err(error) if self.core.spots.find(name).is_none() => return Err(error),
                Err(_taken) => {}
            }
        }
    }

    /// The Spot of that name, if there is one of that type of state.
    #[must_use]
    pub fn find<S: Send + 'static>(&self, name: &str) -> Option<Spot<S>> {
        self.find_as(name)
    }

    /// The Spot of that name, if there is one of that type of state and that kind.
    #[must_use]
    pub fn find_as<S: Send + 'static, K: Kind>(&self, name: &str) -> Option<Spot<S, K>> {
        typed(self.core.spots.find(name)?, name).ok()
    }

    /// Closes the Spot of that name and waits until its last turn has ended.
    ///
    /// All running turns end; queued work is told that the Spot closed and never runs; bodies that have yielded are
    /// dropped and their requesters told; then [`on_closing`](SpotBuilder::on_closing) runs as the last turn. That goes
    /// on by itself once begun.
    ///
    /// # Errors
    /// [`NotConfigured`](SpotErrorKind::NotConfigured): there is no such Spot.
    ///
    /// # Cancel safety
    /// Dropping the future stops waiting; the Spot closes all the same.
    pub async fn close(&self, name: &str) -> Result<(), SpotError> {
        let Some(member) = self.core.spots.find(name) else {
            return Err(SpotError::new(SpotErrorKind::NotConfigured, name));
        };
        Arc::clone(&member).close(CloseReason::ExplicitClose);
        std::future::poll_fn(|cx| member.poll_closed(cx)).await;
        Ok(())
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("spots", &self.core.spots.len())
            .finish_non_exhaustive()
    }
}

fn typed<S: Send + 'static, K: Kind>(
    member: Arc<dyn Member>,
    name: &str,
) -> Result<Spot<S, K>, SpotError> {
    let other = || {
        SpotError::new(SpotErrorKind::InvalidOperation, name)
            .saying("the Spot of that name has another type of state, or another kind")
    };
    let strand: Arc<Strand<S>> = member.any().downcast().map_err(|_| other())?;
    if strand.look(|gate| gate.is_shared()) == shared::<K>() {
        Ok(Spot::new(strand))
    } else {
        Err(other())
    }
}

/// A Spot in the making.
#[must_use = "nothing is made until `create`"]
pub struct SpotBuilder<'h, S: Send + 'static, K: Kind = SpotWide> {
    host: &'h Host,
    name: Box<str>,
    limit: Option<u32>,
    send_timeout: Option<Duration>,
    close_on_panic: bool,
    hooks: Option<Hooks<S>>,
    kind: PhantomData<fn() -> K>,
}

impl<'h, S: Send + 'static, K: Kind> SpotBuilder<'h, S, K> {
    /// Makes it a Spot of another kind.
    pub fn kind<L: Kind>(self) -> SpotBuilder<'h, S, L> {
        SpotBuilder {
            host: self.host,
            name: self.name,
            limit: self.limit,
            send_timeout: self.send_timeout,
            close_on_panic: self.close_on_panic,
            hooks: self.hooks,
            kind: PhantomData,
        }
    }

    /// How many requests and sends may wait for a turn. The default is 1,024. Beyond that they wait for space.
    pub fn queue(mut self, longest: u32) -> Self {
        self.limit = Some(longest);
        self
    }

    /// How long a request or send waits for space in a full queue. The default is one second.
    pub fn send_timeout(mut self, longest: Duration) -> Self {
        self.send_timeout = Some(longest);
        self
    }

    /// Closes the Spot when a turn panics, because its state may be half changed. By default it is kept.
    pub fn close_on_panic(mut self) -> Self {
        self.close_on_panic = true;
        self
    }

    /// What the last turn does. The default is nothing.
    pub fn on_closing<F, W>(mut self, last: F) -> Self
    where
        F: Fn(ClosingTurn<S>, CloseReason) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        self.hooks = Some(Hooks {
            on_closing: Box::new(move |turn, reason| Box::pin(last(turn, reason))),
        });
        self
    }

    /// Makes the Spot.
    ///
    /// # Errors
    /// [`InvalidOperation`](SpotErrorKind::InvalidOperation): the name is empty, or taken by a Spot that has not ended.
    pub fn create(self, state: S) -> Result<Spot<S, K>, SpotError> {
        self.make(state)
    }

    fn make(self, state: S) -> Result<Spot<S, K>, SpotError> {
        let invalid = |why: &str| {
            Err(SpotError::new(SpotErrorKind::InvalidOperation, &self.name).saying(why))
        };
        if self.name.is_empty() {
            return invalid("a Spot needs a name that is not empty");
        }
        let core = &self.host.core;
        let common = if self.limit.is_none() && self.send_timeout.is_none() && !self.close_on_panic
        {
            Arc::clone(&core.common)
        } else {
            Arc::new(Common {
                shared: Arc::clone(&core.common.shared),
                registry: Weak::clone(&core.common.registry),
                limit: self.limit.unwrap_or(core.common.limit),
                send_timeout: self.send_timeout.unwrap_or(core.common.send_timeout),
                close_on_panic: self.close_on_panic,
            })
        };
        let hooks = self.hooks.map(Arc::new);
        let strand = Strand::new(self.name.clone(), common, hooks, shared::<K>(), Some(state));
        let member: Arc<dyn Member> = strand.clone();
        match core.spots.find_or_insert(&self.name, || member) {
            Ok(_) => Ok(Spot::new(strand)),
            Err(_) => Err(SpotError::new(SpotErrorKind::InvalidOperation, &self.name)
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
