//! The host: owner of Spots, their executor and their clock.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::task::{Poll, ready};
use std::time::Duration;

use bursar::Runtime;

use crate::bound::Bound;
use crate::due::Moments;
use crate::error::{CloseReason, SpotError, SpotErrorKind};
use crate::exec::Exec;
use crate::kind::{Kind, shared};
use crate::making::SpotBuilder;
use crate::member::Member;
use crate::registry::Registry;
use crate::shared::{Common, Drain, Service, Shared};
use crate::spot::Spot;
use crate::strand::Strand;
use crate::sync::Mutex;
use crate::worker::Workers;

/// How many pieces of CPU work wait for a thread, unless the host says otherwise.
const CPU_QUEUE: usize = 256;

/// Owns Spots by name. Cheap to clone; every clone is the same host.
///
/// Its turns are part of the drain of the runtime it was made with. Timers tick for as long as there is a handle of the
/// host, or until it shuts down.
#[derive(Clone)]
pub struct Host {
    pub(crate) core: Arc<Core>,
}

pub(crate) struct Core {
    pub(crate) runtime: Runtime,
    pub(crate) spots: Arc<Registry>,
    /// Instance Spots, family by family.
    pub(crate) families: Mutex<Vec<Arc<dyn Kin>>>,
    /// What Spots share that were told nothing of their own.
    pub(crate) common: Arc<Common>,
    /// A Spot that was busy when a drain last looked: the first to look at again.
    pub(crate) busy: Mutex<Option<Arc<dyn Member>>>,
}

/// Spots of one type that are found elsewhere than in the host's own registry.
pub(crate) trait Kin: Send + Sync {
    fn name(&self) -> &str;
    fn members(&self) -> Vec<Arc<dyn Member>>;
}

/// A host in the making.
#[must_use = "nothing is made until `build`"]
pub struct HostBuilder {
    runtime: Runtime,
    limit: u32,
    send_timeout: Duration,
    threads: Option<usize>,
    cpu_queue: usize,
    services: Vec<(Box<str>, Service)>,
}

impl HostBuilder {
    /// How many requests and sends may wait for a turn of one Spot. The default is 1,024.
    pub fn queue(mut self, longest: u32) -> Self {
        self.limit = longest;
        self
    }

    /// How long a request or send waits for space in a full queue. The default is one second.
    pub fn send_timeout(mut self, longest: Duration) -> Self {
        self.send_timeout = longest;
        self
    }

    /// On how many threads CPU work runs, and how much of it may wait for one. The default is one thread a processor,
    /// and 256.
    pub fn cpu(mut self, threads: usize, queue: usize) -> Self {
        self.threads = Some(threads);
        self.cpu_queue = queue;
        self
    }

    /// Names a thing that turns find by [`Turn::service`](crate::Turn::service), so that handlers build no clients.
    pub fn service<T: Any + Send + Sync>(mut self, name: &str, service: T) -> Self {
        self.services.push((name.into(), Arc::new(service)));
        self
    }

    /// Makes the host, whose turns run in the tokio runtime of the caller.
    ///
    /// # Errors
    /// [`InvalidOperation`](SpotErrorKind::InvalidOperation): a service's name is empty or repeated, or there are no
    /// threads for CPU work. [`NotConfigured`](SpotErrorKind::NotConfigured): outside of a tokio runtime.
    pub fn build(self) -> Result<Host, SpotError> {
        let invalid = |name: &str, why: &str| {
            Err(SpotError::new(SpotErrorKind::InvalidOperation, name).saying(why))
        };
        for (index, (name, _)) in self.services.iter().enumerate() {
            if name.is_empty() {
                return invalid(name, "a service needs a name that is not empty");
            }
            if self.services[..index]
                .iter()
                .any(|(known, _)| known == name)
            {
                return invalid(name, "a service of this name was given before");
            }
        }
        let threads = match self.threads {
            Some(0) => return invalid("", "CPU work needs at least one thread"),
            Some(threads) => threads,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let Some(exec) = Exec::current() else {
            return Err(SpotError::new(SpotErrorKind::NotConfigured, "tokio")
                .saying("a host is built inside of the tokio runtime in which its turns run"));
        };
        let runtime = self.runtime;
        let spots = Arc::new(Registry::new());
        let registry: Weak<Registry> = Arc::downgrade(&spots);
        let shared = Arc::new(Shared {
            clock: runtime.clock(),
            exact: runtime.is_exact(),
            moments: Moments::new(runtime.clock()),
            workers: Workers::new(threads, self.cpu_queue, exec.clone()),
            exec,
            home: runtime.id(),
            nested_wait: runtime.nested_wait(),
            services: self.services,
            drain: Drain::default(),
            lost: AtomicU64::new(0),
        });
        let core = Arc::new(Core {
            spots,
            families: Mutex::new(Vec::new()),
            common: Arc::new(Common {
                shared: Arc::clone(&shared),
                registry,
                limit: self.limit,
                send_timeout: self.send_timeout,
                close_on_panic: false,
            }),
            busy: Mutex::new(None),
            runtime,
        });
        let member: Weak<Core> = Arc::downgrade(&core);
        shared.drain.joined(core.runtime.register(member));
        Ok(Host { core })
    }
}

impl fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuilder")
            .field("queue", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Host {
    /// Begins a host.
    pub fn builder(runtime: &Runtime) -> HostBuilder {
        HostBuilder {
            runtime: runtime.clone(),
            limit: 1024,
            send_timeout: Duration::from_secs(1),
            threads: None,
            cpu_queue: CPU_QUEUE,
            services: Vec::new(),
        }
    }

    /// A host as [`builder`](Self::builder) makes it without more words.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    #[track_caller]
    pub fn new(runtime: &Runtime) -> Self {
        match Self::builder(runtime).build() {
            Ok(host) => host,
            Err(error) => panic!("{error}"),
        }
    }

    /// Completions that were dropped because their Spot had closed, or their future panicked.
    #[must_use]
    pub fn lost_completions(&self) -> u64 {
        self.core.common.shared.lost()
    }

    /// Where work beside the turns is handed in that belongs to no Spot.
    #[must_use]
    pub fn workers(&self) -> Workers {
        self.core.common.shared.workers.clone()
    }

    /// Begins a Spot with options of its own.
    pub fn spot<S: Send + 'static>(&self, name: &str) -> SpotBuilder<'_, S> {
        SpotBuilder::new(self, name)
    }

    /// Makes a Spot.
    ///
    /// # Errors
    /// As for [`SpotBuilder::create`].
    pub fn create<S: Send + 'static>(&self, name: &str, state: S) -> Result<Spot<S>, SpotError> {
        self.spot(name).create(state)
    }

    /// The Spot of that name, made with the state that `state` gives if there is none. A Spot that is closing is waited
    /// for. Of several who ask at once one makes it; the states of the others are dropped.
    ///
    /// # Errors
    /// [`InvalidOperation`](SpotErrorKind::InvalidOperation): the name is empty, or that of a Spot of another type or
    /// kind, or of one that is closing and whose turn asks. [`ShuttingDown`](SpotErrorKind::ShuttingDown): the host takes
    /// nothing in any more. [`DeadlineExceeded`](SpotErrorKind::DeadlineExceeded): one that is closing was waited for longer
    /// than the runtime's nested wait, by an asker that holds something. [`Closed`](SpotErrorKind::Closed): somebody else
    /// made it, and it has closed since.
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
                wait_closed(&self.core.common.shared, &**spot.strand()).await?;
                continue;
            }
            let Some(state) = state.take() else {
                // Somebody else made it, and it has ended since.
                return Err(SpotError::closed(name, false));
            };
            match self.spot(name).create(state()) {
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
    /// [`InvalidOperation`](SpotErrorKind::InvalidOperation): awaited by a turn of it that has not yielded; nothing closes
    /// then. [`DeadlineExceeded`](SpotErrorKind::DeadlineExceeded): the asker holds something that others may wait for,
    /// and it took longer than its runtime's nested wait; it goes on closing.
    ///
    /// # Cancel safety
    /// Dropping the future stops waiting; the Spot closes all the same.
    pub async fn close(&self, name: &str) -> Result<(), SpotError> {
        let Some(member) = self.core.spots.find(name) else {
            return Err(SpotError::new(SpotErrorKind::NotConfigured, name));
        };
        close(&self.core.common.shared, &member).await
    }
}

/// Closes a Spot and waits until its last turn has ended.
pub(crate) async fn close(shared: &Shared, member: &Arc<dyn Member>) -> Result<(), SpotError> {
    not_from_within(&**member)?;
    Arc::clone(member).close(CloseReason::ExplicitClose);
    wait_closed(shared, &**member).await
}

/// A Spot ends after all its turns.
fn not_from_within(member: &dyn Member) -> Result<(), SpotError> {
    if member.is_kept_above() {
        let error = SpotError::new(SpotErrorKind::InvalidOperation, Member::name(member));
        return Err(error.saying("a turn of it cannot wait for it to close"));
    }
    Ok(())
}

/// Waits until a Spot has ended, within the bound of the asker's chain.
pub(crate) async fn wait_closed(shared: &Shared, member: &dyn Member) -> Result<(), SpotError> {
    not_from_within(member)?;
    let mut bound = Bound::of_chain(shared);
    poll_fn(|cx| {
        if member.poll_closed(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let Some(bound) = &mut bound else {
            return Poll::Pending;
        };
        ready!(bound.poll(shared, cx));
        Poll::Ready(Err(SpotError::new(
            SpotErrorKind::DeadlineExceeded,
            Member::name(member),
        )
        .saying(
            "it has not closed, and its asker holds something that others may wait for",
        )))
    })
    .await
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
