//! Instance Spots: made by the first message to their id, closed when they have been idle, made again by the next.
//!
//! Invariants:
//! 1. An id has at most one incarnation that has not ended. Whoever finds it closing waits until it has, and meets the
//!    next.
//! 2. An incarnation's first turn makes its state; what comes meanwhile waits in its line.
//! 3. Only an idle incarnation is evicted, which is decided under its gate: no accepted work is lost by it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bursar::seam::Chain;

use crate::body::{Nobody, Queued};
use crate::closing::{ClosingTurn, Hooks};
use crate::error::{CloseReason, SpotError, SpotErrorKind};
use crate::gate::Phase;
use crate::held::Held;
use crate::host::{Host, Kin, close, wait_closed};
use crate::kind::Instance;
use crate::making::Options;
use crate::member::Member;
use crate::registry::{NotMade, Registry};
use crate::shared::Common;
use crate::span::Span;
use crate::strand::Strand;
use crate::submit::{Asked, Sent, Target};
use crate::sync::lock;
use crate::turn::Turn;

type Activation<S> = Pin<Box<dyn Future<Output = Result<S, Box<str>>> + Send>>;

type Activate<S> = Box<dyn Fn(&str) -> Activation<S> + Send + Sync>;

struct Family<S: Send + 'static> {
    name: Box<str>,
    spots: Arc<Registry>,
    common: Arc<Common>,
    hooks: Option<Arc<Hooks<S>>>,
    activate: Activate<S>,
}

impl<S: Send + 'static> Kin for Family<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn members(&self) -> Vec<Arc<dyn Member>> {
        self.spots.all()
    }
}

impl<S: Send + 'static> Family<S> {
    /// The present incarnation of an id, made if there is none.
    fn live(self: &Arc<Self>, id: &str) -> Result<Arc<Strand<S>>, SpotError> {
        loop {
            if let Some(strand) = self.spots.find_typed(id) {
                return Ok(strand);
            }
            let make = || {
                let (common, hooks) = (Arc::clone(&self.common), self.hooks.clone());
                let admits = common.shared.admits();
                admits.then(|| Strand::new(id.into(), common, hooks, true, None))
            };
            match self.spots.insert(id, make) {
                // Somebody else made it just now.
                Err(NotMade::Taken) => {}
                Err(NotMade::Refused) => {
                    return Err(SpotError::new(SpotErrorKind::ShuttingDown, id));
                }
                Ok(made) => {
                    self.common.shared.noted();
                    self.activate(&made);
                    return Ok(made);
                }
            }
        }
    }

    /// Starts an incarnation's first turn, which already holds its gate.
    fn activate(self: &Arc<Self>, strand: &Arc<Strand<S>>) {
        let family = Arc::clone(self);
        let work = move |held: Held<S>| {
            let mut first = First {
                why: Some("its activation did not come to an end"),
                held,
            };
            let activation = (family.activate)(&first.held.strand().name);
            async move {
                match activation.await {
                    Ok(state) => first.succeeded(state),
                    Err(why) => first.failed(why),
                }
            }
        };
        let queued = Queued::new(None, Chain::default(), work, Nobody);
        let job = Box::new(queued.in_span(Span::current()));
        strand.start(job, None);
    }
}

/// The first turn of an incarnation. One that brings no state ends the incarnation.
struct First<S: Send + 'static> {
    why: Option<&'static str>,
    // Dropped after the incarnation was told to close.
    held: Held<S>,
}

impl<S: Send + 'static> First<S> {
    fn succeeded(&mut self, state: S) {
        self.held.bring(state);
        self.why = None;
    }

    fn failed(&mut self, why: Box<str>) {
        self.held.strand().failed(why);
    }
}

impl<S: Send + 'static> Drop for First<S> {
    fn drop(&mut self) {
        if let Some(why) = self.why {
            let strand = self.held.strand();
            strand.failed(why.into());
            strand.close(CloseReason::ExplicitClose);
        }
    }
}

/// A family of [`Instance`] Spots, one an id. Cheap to clone; every clone is the same family.
pub struct Instances<S: Send + 'static> {
    family: Arc<Family<S>>,
}

/// By hand, since a derived one would ask for `S: Clone`.
impl<S: Send + 'static> Clone for Instances<S> {
    fn clone(&self) -> Self {
        Self {
            family: Arc::clone(&self.family),
        }
    }
}

impl<S: Send + 'static> Instances<S> {
    /// The Spot of that id. Nothing is made until the first message to it.
    #[must_use]
    pub fn at(&self, id: &str) -> InstanceSpot<S> {
        InstanceSpot {
            family: Arc::clone(&self.family),
            id: id.into(),
        }
    }

    /// How many incarnations there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.family.spots.len()
    }

    /// Whether there is no incarnation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins to close every incarnation that is idle and has not been used since the last sweep, and says how many.
    /// Each runs its last turn with [`CloseReason::IdleEvicted`].
    pub fn sweep(&self) -> usize {
        let strands = self.family.spots.all_typed::<S>();
        let stale = strands
            .into_iter()
            .filter(|strand| !strand.look(|gate| gate.was_used()));
        stale.filter(Strand::evict).count()
    }
}

impl<S: Send + 'static> fmt::Debug for Instances<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instances")
            .field("name", &self.family.name)
            .field("incarnations", &self.len())
            .finish()
    }
}

/// One Spot of a family, whichever incarnation is there.
pub struct InstanceSpot<S: Send + 'static> {
    family: Arc<Family<S>>,
    id: Box<str>,
}

/// By hand, since a derived one would ask for `S: Clone`.
impl<S: Send + 'static> Clone for InstanceSpot<S> {
    fn clone(&self) -> Self {
        Self {
            family: Arc::clone(&self.family),
            id: self.id.clone(),
        }
    }
}

impl<S: Send + 'static> InstanceSpot<S> {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Runs `work` as a turn and waits for its result; see [`Spot::request`](crate::Spot::request). The first message to
    /// an id makes the Spot; one that finds it closing waits until it has closed and makes it anew.
    ///
    /// # Errors
    /// As for a request to any Spot; [`ActivationFailed`](SpotErrorKind::ActivationFailed) if it could not be made.
    ///
    /// # Cancel safety
    /// As for a request to any Spot.
    pub async fn request<F, W>(&self, work: F) -> Result<W::Output, SpotError>
    where
        F: FnOnce(Turn<S, Instance>) -> W + Send + 'static,
        W: Future<Output: Send + 'static> + Send + 'static,
    {
        self.ask(move |held| work(Turn::new(held))).await
    }

    async fn ask<M, W>(&self, make: M) -> Result<W::Output, SpotError>
    where
        M: FnOnce(Held<S>) -> W + Send + 'static,
        W: Future<Output: Send + 'static> + Send + 'static,
    {
        let mut strand = self.family.live(&self.id)?;
        let mut turned = {
            let mut asked = Asked::new(own_line(&strand), make);
            match poll_fn(|cx| asked.poll_offer(cx)).await {
                Some(result) => return result,
                None => asked.turned(),
            }
        };
        while let Some(work) = turned {
            strand = self.next(&strand).await?;
            let mut asked = Asked::<S, M, W>::again(own_line(&strand), work);
            match poll_fn(|cx| asked.poll_offer(cx)).await {
                Some(result) => return result,
                None => turned = asked.turned(),
            }
        }
        Err(strand.never_ran())
    }

    /// Hands `work` in to be run as a turn, and returns once it is accepted; see [`Spot::send`](crate::Spot::send).
    ///
    /// # Errors
    /// As for a send to any Spot.
    ///
    /// # Cancel safety
    /// As for a send to any Spot.
    pub async fn send<F, W>(&self, work: F) -> Result<(), SpotError>
    where
        F: FnOnce(Turn<S, Instance>) -> W + Send + 'static,
        W: Future<Output: Send> + Send + 'static,
    {
        self.hand_in(move |held| work(Turn::new(held))).await
    }

    async fn hand_in<M, W>(&self, make: M) -> Result<(), SpotError>
    where
        M: FnOnce(Held<S>) -> W + Send + 'static,
        W: Future<Output: Send> + Send + 'static,
    {
        let mut strand = self.family.live(&self.id)?;
        let offered = {
            let mut sent = Sent::new(own_line(&strand), make);
            poll_fn(|cx| sent.poll_turned(cx)).await
        };
        let mut turned = match offered {
            Ok(result) => return result,
            Err(turned) => turned,
        };
        loop {
            strand = self.next(&strand).await?;
            let mut sent = Sent::<S, M>::again(own_line(&strand), turned);
            match poll_fn(|cx| sent.poll_turned(cx)).await {
                Ok(result) => return result,
                Err(again) => turned = again,
            }
        }
    }

    /// Waits for an incarnation that takes nothing in to end, and meets the next.
    async fn next(&self, strand: &Arc<Strand<S>>) -> Result<Arc<Strand<S>>, SpotError> {
        if strand.look(|gate| gate.phase()) == Phase::Open {
            // It is the host that takes nothing in.
            return Err(strand.never_ran());
        }
        wait_closed(&self.family.common.shared, &**strand).await?;
        self.family.live(&self.id)
    }

    /// Begins to close the present incarnation if it is idle. False if it is not, or there is none.
    pub fn evict(&self) -> bool {
        let found = self.family.spots.find_typed::<S>(&self.id);
        found.is_some_and(|strand| strand.evict())
    }

    /// Closes the present incarnation, if there is one, and waits until its last turn has ended.
    ///
    /// # Errors
    /// As for [`Host::close`].
    ///
    /// # Cancel safety
    /// Dropping the future stops waiting; it closes all the same.
    pub async fn close(&self) -> Result<(), SpotError> {
        match self.family.spots.find_typed::<S>(&self.id) {
            None => Ok(()),
            Some(strand) => {
                let member: Arc<dyn Member> = strand;
                close(&self.family.common.shared, &member).await
            }
        }
    }

    /// Whether there is an incarnation now.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.family.spots.find(&self.id).is_some()
    }
}

fn own_line<S: Send + 'static>(strand: &Arc<Strand<S>>) -> Target<'_, S> {
    Target { strand, lane: None }
}

impl<S: Send + 'static> fmt::Debug for InstanceSpot<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstanceSpot")
            .field("family", &self.family.name)
            .field("id", &self.id)
            .finish()
    }
}

/// A family of Instance Spots in the making.
#[must_use = "nothing is made until `activate`"]
pub struct InstancesBuilder<'h, S: Send + 'static> {
    host: &'h Host,
    name: Box<str>,
    options: Options<S>,
    state: PhantomData<fn() -> S>,
}

impl Host {
    /// Begins a family of Instance Spots, whose ids are a space of their own.
    pub fn instances<S: Send + 'static>(&self, name: &str) -> InstancesBuilder<'_, S> {
        InstancesBuilder {
            host: self,
            name: name.into(),
            options: Options::new(),
            state: PhantomData,
        }
    }
}

impl<S: Send + 'static> InstancesBuilder<'_, S> {
    /// As [`SpotBuilder::queue`](crate::SpotBuilder::queue), for each of them.
    pub fn queue(mut self, longest: u32) -> Self {
        self.options.limit = Some(longest);
        self
    }

    /// As [`SpotBuilder::send_timeout`](crate::SpotBuilder::send_timeout), for each of them.
    pub fn send_timeout(mut self, longest: Duration) -> Self {
        self.options.send_timeout = Some(longest);
        self
    }

    /// As [`SpotBuilder::close_on_panic`](crate::SpotBuilder::close_on_panic), for each of them.
    pub fn close_on_panic(mut self) -> Self {
        self.options.close_on_panic = true;
        self
    }

    /// As [`SpotBuilder::on_closing`](crate::SpotBuilder::on_closing), for each of them.
    pub fn on_closing<F, W>(mut self, last: F) -> Self
    where
        F: Fn(ClosingTurn<S>, CloseReason) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        self.options.hooks = Some(Hooks::new(last));
        self
    }

    /// Makes the family. `activate` makes the state of an id, in the first turn of each incarnation.
    ///
    /// # Errors
    /// [`InvalidOperation`](SpotErrorKind::InvalidOperation): the name is empty, or that of another family.
    pub fn activate<F, W, E>(self, activate: F) -> Result<Instances<S>, SpotError>
    where
        F: Fn(&str) -> W + Send + Sync + 'static,
        W: Future<Output = Result<S, E>> + Send + 'static,
        E: fmt::Display,
    {
        let invalid =
            |why: &str| SpotError::new(SpotErrorKind::InvalidOperation, &self.name).saying(why);
        if self.name.is_empty() {
            return Err(invalid("a family needs a name that is not empty"));
        }
        let core = &self.host.core;
        let spots = Arc::new(Registry::new());
        let registry: Weak<Registry> = Arc::downgrade(&spots);
        let family = Arc::new(Family {
            name: self.name.clone(),
            spots,
            common: self.options.common(&core.common, registry),
            hooks: self.options.hooks.map(Arc::new),
            activate: Box::new(move |id| {
                let activation = activate(id);
                Box::pin(async move {
                    activation
                        .await
                        .map_err(|why| why.to_string().into_boxed_str())
                })
            }),
        });
        let mut families = lock(&core.families);
        if families.iter().any(|known| known.name() == &*family.name) {
            drop(families);
            let why = "there is a family of this name";
            return Err(SpotError::new(SpotErrorKind::InvalidOperation, &family.name).saying(why));
        }
        families.push(family.clone());
        drop(families);
        Ok(Instances { family })
    }
}

impl<S: Send + 'static> fmt::Debug for InstancesBuilder<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstancesBuilder")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
