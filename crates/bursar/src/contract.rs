//! The handle of an operation without an input type, the builder of one call, and the guard.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

use crate::admit::admit;
use crate::attempt::Attempt;
use crate::bounds::{Bounded, Token, Unbounded};
use crate::call::Holding;
use crate::engine::Plan;
use crate::error::CallError;
use crate::execute::{Drive, Keep, Keyless, Release};
use crate::key::Key;
use crate::outcome::{Effect, Failure};
use crate::record::Record;
use crate::trace;

/// A policy that its runtime has accepted. Cheap to clone; every clone is the same operation.
///
/// [`run`](Self::run) is the short form; [`with`](Self::with) begins a call with a key, a deadline or a token.
///
/// ```
/// use bursar::{Classify, Policy, Runtime};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().resource("payments", 4).build()?;
/// let charge = runtime.contract("charge", Policy::non_idempotent().claim("payments", 1))?;
///
/// let card = String::from("4111");
/// let receipt = charge
///     .run(|| async { gateway(&card).await.uncertain() })
///     .await?;
/// assert_eq!(receipt, "charged 4111");
/// # async fn gateway(card: &str) -> Result<String, std::io::Error> { Ok(format!("charged {card}")) }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Contract {
    plan: Arc<Plan>,
}

impl Contract {
    pub(crate) fn new(plan: Arc<Plan>) -> Self {
        Self { plan }
    }

    pub(crate) fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The operation's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.plan.names.operation
    }

    /// The effect that its policy declares; `None` with an [effect per call](crate::Policy::effect_per_call). The stricter
    /// of this and what a call states counts.
    #[must_use]
    pub fn effect(&self) -> Option<Effect> {
        self.plan.effect
    }

    /// Begins a call with a key, a deadline or a token.
    #[inline(always)]
    pub fn with(&self) -> Call<'_> {
        Call::new(&self.plan)
    }

    /// Runs `handler` under the contract, in the caller's own poll: it creates no task and no thread.
    ///
    /// `handler` is called once for each attempt. It may borrow what it likes.
    ///
    /// # Errors
    /// See [`CallError`]: the call never ran, or it ran and failed.
    ///
    /// # Panics
    /// A panic of the handler goes on to the caller, after units and key are given back. With the default clock a
    /// policy with a timeout needs a tokio runtime whose time is enabled, once the handler suspends.
    ///
    /// # Cancel safety
    /// Dropping the future while it waits loses its place and nothing else. Dropping it while the handler runs drops
    /// the handler at its await point; what it may have done is done. Units and key are back at once.
    pub fn run<F, Fut, T, E>(&self, mut handler: F) -> impl Future<Output = Result<T, CallError<E>>>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let handler = move |()| handler();
        let call = Drive::new(
            &self.plan,
            Keyless,
            Unbounded,
            (),
            Release,
            Record::new(None, false),
            handler,
        );
        trace::call(&self.plan.names, call)
    }

    /// Runs as [`run`](Self::run) does and returns the value together with what the call holds: it goes on executing
    /// until the permit is dropped.
    ///
    /// # Errors
    /// As [`run`](Self::run); then nothing is held.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub fn run_held<F, Fut, T, E>(
        &self,
        mut handler: F,
    ) -> impl Future<Output = Result<(T, Permit), CallError<E>>>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let handler = move |()| handler();
        let keep = Keep(&self.plan);
        let call = WithPermit {
            call: Drive::new(
                &self.plan,
                Keyless,
                Unbounded,
                (),
                keep,
                Record::new(None, false),
                handler,
            ),
        };
        trace::call(&self.plan.names, call)
    }

    /// Gives the units without a handler. What is done under the permit is outside the chain of nested calls.
    ///
    /// # Errors
    /// The call never ran; see [`CallError`].
    ///
    /// # Cancel safety
    /// Dropping the future loses its place in the queue and nothing else.
    pub async fn admit(&self) -> Result<Permit, CallError<Infallible>> {
        self.with().admit().await
    }
}

impl fmt::Debug for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contract")
            .field("operation", &self.plan.names.operation)
            .finish_non_exhaustive()
    }
}

/// One call's key, deadline, token and effect, stated before it runs.
///
/// It lends the handler its [`Attempt`], and so may be run several times, one after another.
///
/// ```
/// use bursar::{Attempt, Classify, Policy, Runtime};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().resource("payments", 4).build()?;
/// let charge = runtime.contract("charge", Policy::non_idempotent().claim("payments", 1))?;
///
/// let mut call = charge.with().key("customer 7").within(Duration::from_millis(300));
/// let number = call
///     .run(|attempt| async { Ok::<_, bursar::Failure<std::io::Error>>(attempt.number()) })
///     .await?;
/// assert_eq!(number, 1);
/// # Ok(())
/// # }
/// ```
#[must_use = "a call does nothing until it is run"]
pub struct Call<'c> {
    plan: &'c Arc<Plan>,
    key: Key,
    /// `None` while nothing is stated.
    options: Option<Options<'c>>,
    /// What the last run has lent its handler; each run makes its own.
    attempt: Option<Attempt>,
}

/// What few calls state.
#[derive(Debug, Default)]
struct Options<'c> {
    bounds: Bounded<'c>,
    stated: Stated,
}

impl<'c> Call<'c> {
    #[inline(always)]
    pub(crate) fn new(plan: &'c Arc<Plan>) -> Self {
        Self {
            plan,
            key: Key::NONE,
            options: None,
            attempt: None,
        }
    }

    /// Serializes the call with others of the same key, in the order of arrival. An empty key serializes nothing.
    #[inline(always)]
    pub fn key(self, key: impl Into<Key>) -> Self {
        Self {
            plan: self.plan,
            key: key.into(),
            // Nothing, not a copy of nothing: one that reads wider than was just written waits for the writes.
            options: match self.options {
                None => None,
                options => options,
            },
            attempt: None,
        }
    }

    fn options(&mut self) -> &mut Options<'c> {
        self.options.get_or_insert_default()
    }

    /// Bounds the whole call, counted from its first poll.
    ///
    /// Ended while waiting it is [`CallError::AdmissionTimedOut`] and never ran; ended while executing it is
    /// [`CallError::TimedOut`] and may have. Zero runs nothing.
    pub fn within(mut self, bound: Duration) -> Self {
        self.options().bounds.within = Some(bound);
        self
    }

    /// Bounds the whole call by a moment of the runtime's clock; `None` bounds nothing. Stated together with
    /// [`within`](Self::within), the earlier one counts.
    pub fn deadline(mut self, deadline: impl Into<Option<Instant>>) -> Self {
        self.options().bounds.until = deadline.into();
        self
    }

    /// Ends the call when `token` completes, whatever it completes with: a cancellation token, a closed channel, a
    /// signal. Costs one allocation.
    ///
    /// Ended while waiting it is [`CallError::Withdrawn`] and never ran; ended while executing it is
    /// [`CallError::Cancelled`] and may have. A token that has fired stays fired for later runs of this call.
    pub fn until(mut self, token: impl Future + Send + 'c) -> Self {
        self.options().bounds.token = Some(Token::new(token));
        self
    }

    /// States a key by which the receiver can tell a repetition of this call. It makes the call idempotent as far as
    /// retries go, and every attempt reads the same key from [`Attempt::idempotency_key`]. A non-idempotent policy asks
    /// for such retries with
    /// [`on_uncertain_if_idempotency_key`](crate::Retry::on_uncertain_if_idempotency_key). An empty key is none: nothing
    /// can be told by it.
    pub fn idempotency_key(mut self, key: impl Into<Arc<str>>) -> Self {
        let key = Some(key.into()).filter(|key| !key.is_empty());
        self.options().stated.idempotency_key = key;
        self
    }

    /// States what this call changes. The stricter of this and the policy's effect counts; a policy with
    /// [effect per call](crate::Policy::effect_per_call) states none, so that this one counts.
    pub fn effect(mut self, effect: Effect) -> Self {
        self.options().stated.effect = Some(effect);
        self
    }

    /// Runs `handler` under the contract, in the caller's own poll, lending it the attempt.
    ///
    /// # Errors
    /// See [`CallError`]: the call never ran, or it ran and failed.
    ///
    /// # Panics
    /// A panic of the handler goes on to the caller, after units and key are given back. With the default clock a
    /// timeout or a deadline needs a tokio runtime whose time is enabled, once the call waits or suspends.
    ///
    /// # Cancel safety
    /// As [`Contract::run`].
    pub fn run<'a, F, Fut, T, E>(
        &'a mut self,
        handler: F,
    ) -> impl Future<Output = Result<T, CallError<E>>> + use<'a, 'c, F, Fut, T, E>
    where
        F: FnMut(&'a Attempt) -> Fut,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let names = &self.plan.names;
        trace::call(names, self.drive(Release, handler))
    }

    /// Runs as [`run`](Self::run) does and returns the value together with what the call holds: it goes on executing
    /// until the permit is dropped. The caller's bounds end with the handler.
    ///
    /// # Errors
    /// As [`run`](Self::run); then nothing is held.
    ///
    /// # Cancel safety
    /// As [`Contract::run`].
    pub fn run_held<'a, F, Fut, T, E>(
        &'a mut self,
        handler: F,
    ) -> impl Future<Output = Result<(T, Permit), CallError<E>>> + use<'a, 'c, F, Fut, T, E>
    where
        F: FnMut(&'a Attempt) -> Fut,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let plan = self.plan;
        let call = WithPermit {
            call: self.drive(Keep(plan), handler),
        };
        trace::call(&plan.names, call)
    }

    /// Gives key and units without a handler.
    ///
    /// # Errors
    /// The call never ran; see [`CallError`].
    ///
    /// # Cancel safety
    /// Dropping the future loses its place in the queue and nothing else.
    pub async fn admit(&mut self) -> Result<Permit, CallError<Infallible>> {
        let plan = self.plan;
        let admitted = async {
            let mut holding = Holding::new(&**plan);
            let mut bounds = Options::bounds(&mut self.options);
            admit(&mut holding, &mut bounds, &self.key).await?;
            Ok(Permit::new(holding.promote(Arc::clone(plan))))
        };
        trace::call(&plan.names, admitted).await
    }

    #[inline]
    fn drive<'a, D, F, Fut, E>(
        &'a mut self,
        deliver: D,
        handler: F,
    ) -> Drive<'a, &'a Key, Option<&'a mut Bounded<'c>>, &'a Attempt, D, F, Fut, E> {
        let Self {
            plan,
            key,
            options,
            attempt,
        } = self;
        let engine = &plan.engine;
        let attempt = attempt.insert(Attempt::new(engine.clock.clone(), engine.epoch));
        let mut effect = None;
        if let Some(Options { stated, .. }) = options {
            effect = stated.effect;
            attempt.idempotency_key.clone_from(&stated.idempotency_key);
        }
        let attempt: &'a Attempt = attempt;
        let record = Record::new(effect, attempt.idempotency_key.is_some());
        let bounds = Options::bounds(options);
        Drive::new(plan, &*key, bounds, attempt, deliver, record, handler)
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn parts(&mut self) -> (&'c Arc<Plan>, &Key, Option<&mut Bounded<'c>>, Stated) {
        let stated = self.options.as_ref().map(|options| options.stated.clone());
        let bounds = Options::bounds(&mut self.options);
        (self.plan, &self.key, bounds, stated.unwrap_or_default())
    }
}

impl<'c> Options<'c> {
    /// For a new run.
    #[inline(always)]
    fn bounds(options: &mut Option<Self>) -> Option<&mut Bounded<'c>> {
        options.as_mut().map(|options| options.bounds.anew())
    }
}

/// What a call states about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stated {
    pub(crate) effect: Option<Effect>,
    pub(crate) idempotency_key: Option<Arc<str>>,
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("operation", &self.plan.names.operation)
            .field("key", &self.key)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// A call whose value comes with what it holds. Written by hand: an async block stores what it awaits a second time.
    #[must_use = "futures do nothing unless polled"]
    struct WithPermit<F> {
        #[pin]
        call: F,
    }
}

impl<F, T, E> Future for WithPermit<F>
where
    F: Future<Output = Result<(T, Holding<Arc<Plan>>), CallError<E>>>,
{
    type Output = Result<(T, Permit), CallError<E>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(self.project().call.poll(cx));
        Poll::Ready(ended.map(|(value, holding)| (value, Permit::new(holding))))
    }
}

/// Key and units held without a handler; dropping it gives them back.
///
/// Until then the call counts as executing: a drain waits for it. What is done under a permit is outside the chain of
/// nested calls, so a call made under it is not recognised as nested.
#[must_use = "dropping the permit gives everything back"]
pub struct Permit {
    holding: Holding<Arc<Plan>>,
}

impl Permit {
    pub(crate) fn new(holding: Holding<Arc<Plan>>) -> Self {
        Self { holding }
    }

    /// The operation that holds.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.holding.plan().names.operation
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("operation", &self.operation())
            .finish_non_exhaustive()
    }
}
