//! Typed operations: a handler bound to a contract.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::attempt::Attempt;
use crate::bounds::{Bounded, Bounds, Token, Unbounded};
use crate::contract::{Contract, Permit};
use crate::engine::Plan;
use crate::error::CallError;
use crate::execute::{Deliver, Drive, Keep, Release};
use crate::key::Key;
use crate::outcome::{Effect, Failure};
use crate::record::Record;
use crate::trace;

/// What an operation does with its input. Business logic stays ordinary: the handler knows no budget and no retry.
///
/// ```
/// use bursar::{Attempt, Classify, Failure, Handler};
///
/// struct Greet;
///
/// impl Handler<String> for Greet {
///     type Output = String;
///     type Error = std::io::Error;
///
///     async fn handle(&self, attempt: &Attempt, name: &String) -> Result<String, Failure<std::io::Error>> {
///         Ok(format!("hello {name}, attempt {}", attempt.number()))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no handler of `{I}`",
    note = "implement `Handler<{I}>`, or wrap a function or closure in `handler_fn`"
)]
pub trait Handler<I>: Send + Sync {
    /// What success carries.
    type Output: Send;
    /// What failure carries.
    type Error: Send;

    /// One attempt. Called again, with the same input, for each further attempt.
    fn handle(
        &self,
        attempt: &Attempt,
        input: &I,
    ) -> impl Future<Output = Result<Self::Output, Failure<Self::Error>>> + Send;
}

impl<I, H: Handler<I>> Handler<I> for Arc<H> {
    type Output = H::Output;
    type Error = H::Error;

    fn handle(
        &self,
        attempt: &Attempt,
        input: &I,
    ) -> impl Future<Output = Result<H::Output, Failure<H::Error>>> + Send {
        (**self).handle(attempt, input)
    }
}

/// A plain function or closure as a handler; see [`handler_fn`].
#[derive(Clone, Copy)]
pub struct HandlerFn<F>(F);

impl<F> fmt::Debug for HandlerFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandlerFn")
    }
}

/// What [`handler_fn`] takes: `Fn(&I) -> Future`, where the future may borrow the input.
pub trait AsyncHandler<'a, I: 'a>: Send + Sync {
    /// What success carries.
    type Output: Send;
    /// What failure carries.
    type Error: Send;
    /// The function's future.
    type Future: Future<Output = Result<Self::Output, Failure<Self::Error>>> + Send;

    /// Calls the function.
    fn call(&self, input: &'a I) -> Self::Future;
}

impl<'a, I: 'a, F, Fut, T: Send, E: Send> AsyncHandler<'a, I> for F
where
    F: Fn(&'a I) -> Fut + Send + Sync,
    Fut: Future<Output = Result<T, Failure<E>>> + Send,
{
    type Output = T;
    type Error = E;
    type Future = Fut;

    fn call(&self, input: &'a I) -> Fut {
        self(input)
    }
}

/// A plain function or closure as a handler.
///
/// An `async fn(&Input)` may borrow its input; a closure takes from it what its future needs.
///
/// ```
/// use bursar::{Classify, Failure, Policy, Runtime, handler_fn};
///
/// async fn length(text: &String) -> Result<usize, Failure<std::io::Error>> {
///     Ok(text.len())
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().resource("worker", 1).build()?;
/// let by_function = runtime.operation("length", Policy::pure(), handler_fn(length))?;
/// let by_closure = runtime.operation(
///     "upper",
///     Policy::pure(),
///     handler_fn(|text: &String| {
///         let text = text.clone();
///         async move { Ok::<_, Failure<std::io::Error>>(text.to_uppercase()) }
///     }),
/// )?;
/// # let _ = (by_function.call(String::new()), by_closure.call(String::new()));
/// # Ok(())
/// # }
/// ```
pub fn handler_fn<I, T, E, F>(function: F) -> HandlerFn<F>
where
    F: for<'a> AsyncHandler<'a, I, Output = T, Error = E>,
{
    HandlerFn(function)
}

impl<I, T, E, F> Handler<I> for HandlerFn<F>
where
    I: Sync,
    T: Send,
    E: Send,
    F: for<'a> AsyncHandler<'a, I, Output = T, Error = E>,
{
    type Output = T;
    type Error = E;

    fn handle(&self, _: &Attempt, input: &I) -> impl Future<Output = Result<T, Failure<E>>> + Send {
        self.0.call(input)
    }
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

trait ErasedHandler<I, T, E>: Send + Sync {
    fn handle<'a>(
        &'a self,
        attempt: &'a Attempt,
        input: &'a I,
    ) -> BoxFuture<'a, Result<T, Failure<E>>>;
}

impl<I: Sync, H: Handler<I>> ErasedHandler<I, H::Output, H::Error> for H {
    fn handle<'a>(
        &'a self,
        attempt: &'a Attempt,
        input: &'a I,
    ) -> BoxFuture<'a, Result<H::Output, Failure<H::Error>>> {
        Box::pin(Handler::handle(self, attempt, input))
    }
}

/// A handler whose type is forgotten; each attempt allocates its future. See [`Operation::boxed`].
pub struct BoxHandler<I, T, E>(Arc<dyn ErasedHandler<I, T, E>>);

/// Written by hand: the derived one would ask the input, output and error to be `Clone`.
impl<I, T, E> Clone for BoxHandler<I, T, E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<I, T, E> fmt::Debug for BoxHandler<I, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxHandler")
    }
}

impl<I: Sync, T: Send, E: Send> Handler<I> for BoxHandler<I, T, E> {
    type Output = T;
    type Error = E;

    async fn handle(&self, attempt: &Attempt, input: &I) -> Result<T, Failure<E>> {
        self.0.handle(attempt, input).await
    }
}

/// How a call's key comes from its input.
type KeyOf<I> = Arc<dyn Fn(&I) -> Key + Send + Sync>;

/// A handler bound to a contract: call it with an input.
///
/// ```
/// use bursar::{Failure, Policy, Runtime, handler_fn};
/// use std::time::Duration;
///
/// struct Job { brand: String }
///
/// async fn render(job: &Job) -> Result<String, Failure<std::io::Error>> {
///     Ok(format!("a page for {}", job.brand))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().resource("renderer", 8).build()?;
/// let render = runtime
///     .operation("render", Policy::idempotent().claim("renderer", 1), handler_fn(render))?
///     .serialize_by(|job: &Job| job.brand.as_str());
///
/// let page = render.call(Job { brand: "Alba".into() }).await?;
/// let page = render.with().within(Duration::from_millis(300)).call(Job { brand: "Alba".into() }).await?;
/// assert_eq!(page, "a page for Alba");
/// # Ok(())
/// # }
/// ```
pub struct Operation<I, H> {
    contract: Contract,
    handler: H,
    key: Option<KeyOf<I>>,
    input: PhantomData<fn(I)>,
}

/// Written by hand: the derived one would ask the input to be `Clone`.
impl<I, H: Clone> Clone for Operation<I, H> {
    fn clone(&self) -> Self {
        Self {
            contract: self.contract.clone(),
            handler: self.handler.clone(),
            key: self.key.clone(),
            input: PhantomData,
        }
    }
}

impl<I, H> fmt::Debug for Operation<I, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("operation", &self.contract.name())
            .finish_non_exhaustive()
    }
}

/// An operation whose handler's type is forgotten, for a struct's field or a list of operations.
pub type BoxOperation<I, T, E> = Operation<I, BoxHandler<I, T, E>>;

impl<I, H> Operation<I, H>
where
    I: Send + Sync,
    H: Handler<I>,
{
    pub(crate) fn new(plan: Arc<Plan>, handler: H) -> Self {
        Self {
            contract: Contract::new(plan),
            handler,
            key: None,
            input: PhantomData,
        }
    }

    /// Serializes calls by a text of their input, evaluated once a call before anything is held. An empty text
    /// serializes nothing.
    #[must_use]
    pub fn serialize_by<F>(mut self, key: F) -> Self
    where
        F: Fn(&I) -> &str + Send + Sync + 'static,
    {
        self.key = Some(Arc::new(move |input| Key::from(key(input))));
        self
    }

    /// Serializes calls by a key computed from their input, evaluated once a call before anything is held.
    #[must_use]
    pub fn serialize_with<F, K>(mut self, key: F) -> Self
    where
        F: Fn(&I) -> K + Send + Sync + 'static,
        K: Into<Key>,
    {
        self.key = Some(Arc::new(move |input| key(input).into()));
        self
    }

    /// The operation's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.contract.name()
    }

    /// The contract, to run something else under it.
    pub fn contract(&self) -> &Contract {
        &self.contract
    }

    /// Forgets the handler's type. Each attempt then allocates its future.
    #[must_use]
    pub fn boxed(self) -> BoxOperation<I, H::Output, H::Error>
    where
        H: 'static,
    {
        Operation {
            contract: self.contract,
            handler: BoxHandler(Arc::new(self.handler)),
            key: self.key,
            input: PhantomData,
        }
    }

    /// Begins a call with a deadline, a token or an effect.
    pub fn with(&self) -> OperationCall<'_, I, H> {
        OperationCall {
            operation: self,
            bounds: Bounded::default(),
            effect: None,
            idempotency_key: None,
        }
    }

    /// Calls the operation: the handler runs in the caller's own poll, once for each attempt.
    ///
    /// # Errors
    /// See [`CallError`]: the call never ran, or it ran and failed.
    ///
    /// # Panics
    /// As [`Contract::run`].
    ///
    /// # Cancel safety
    /// As [`Contract::run`].
    #[expect(
        clippy::manual_async_fn,
        reason = "it promises Send, which an async fn leaves to inference"
    )]
    pub fn call(
        &self,
        input: I,
    ) -> impl Future<Output = Result<H::Output, CallError<H::Error>>> + Send + use<'_, I, H> {
        async move { self.perform(&input, Unbounded, Release, None, None).await }
    }

    /// Calls the operation and returns the value together with what the call holds: it goes on executing until the
    /// permit is dropped.
    ///
    /// # Errors
    /// As [`call`](Self::call); then nothing is held.
    ///
    /// # Cancel safety
    /// As [`Contract::run`].
    pub fn call_held(
        &self,
        input: I,
    ) -> impl Future<Output = Result<(H::Output, Permit), CallError<H::Error>>> + Send + use<'_, I, H>
    {
        self.with().call_held(input)
    }

    async fn perform<B: Bounds + Send, D: Deliver + Send>(
        &self,
        input: &I,
        bounds: B,
        deliver: D,
        effect: Option<Effect>,
        idempotency_key: Option<Arc<str>>,
    ) -> Result<D::Of<H::Output>, CallError<H::Error>> {
        let plan = self.contract.plan();
        let key = self.key.as_ref().map_or(Key::NONE, |key| key(input));
        let mut attempt = Attempt::new(plan.engine.clock.clone(), plan.engine.epoch);
        attempt.idempotency_key = idempotency_key;
        let record = Record::new(effect, attempt.idempotency_key.is_some());
        let handler = |attempt| self.handler.handle(attempt, input);
        // In one expression: a name for the future would be a copy of it.
        trace::call(
            &plan.names,
            Drive::new(plan, &key, bounds, &attempt, deliver, record, handler),
        )
        .await
    }
}

/// One call's deadline, token and effect, stated before [`call`](Self::call). Its key comes from the input.
#[must_use = "a call does nothing until it is called"]
pub struct OperationCall<'c, I, H> {
    operation: &'c Operation<I, H>,
    bounds: Bounded<'c>,
    effect: Option<Effect>,
    idempotency_key: Option<Arc<str>>,
}

impl<I, H> fmt::Debug for OperationCall<'_, I, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationCall")
            .field("operation", &self.operation.contract.name())
            .field("bounds", &self.bounds)
            .field("effect", &self.effect)
            .finish()
    }
}

impl<'c, I, H> OperationCall<'c, I, H>
where
    I: Send + Sync,
    H: Handler<I>,
{
    /// Bounds the whole call, counted from its first poll; see [`Call::within`](crate::Call::within).
    pub fn within(mut self, bound: Duration) -> Self {
        self.bounds.within = Some(bound);
        self
    }

    /// Bounds the whole call by a moment; see [`Call::deadline`](crate::Call::deadline).
    pub fn deadline(mut self, deadline: impl Into<Option<Instant>>) -> Self {
        self.bounds.until = deadline.into();
        self
    }

    /// Ends the call when `token` completes; see [`Call::until`](crate::Call::until).
    pub fn until(mut self, token: impl Future + Send + 'c) -> Self {
        self.bounds.token = Some(Token::new(token));
        self
    }

    /// States a key by which the receiver can tell a repetition; see
    /// [`Call::idempotency_key`](crate::Call::idempotency_key).
    pub fn idempotency_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.idempotency_key = Some(key.into()).filter(|key| !key.is_empty());
        self
    }

    /// States what this call changes; see [`Call::effect`](crate::Call::effect).
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = Some(effect);
        self
    }

    /// Calls the operation; see [`Operation::call`].
    ///
    /// # Errors
    /// As [`Operation::call`].
    ///
    /// # Cancel safety
    /// As [`Contract::run`].
    #[expect(
        clippy::manual_async_fn,
        reason = "it promises Send, which an async fn leaves to inference"
    )]
    pub fn call(
        self,
        input: I,
    ) -> impl Future<Output = Result<H::Output, CallError<H::Error>>> + Send + use<'c, I, H> {
        async move {
            let mut bounds = self.bounds;
            self.operation
                .perform(
                    &input,
                    &mut bounds,
                    Release,
                    self.effect,
                    self.idempotency_key,
                )
                .await
        }
    }

    /// Calls the operation and returns the value together with what the call holds; see [`Operation::call_held`].
    ///
    /// # Errors
    /// As [`Operation::call`]; then nothing is held.
    ///
    /// # Cancel safety
    /// As [`Contract::run`].
    #[expect(
        clippy::manual_async_fn,
        reason = "it promises Send, which an async fn leaves to inference"
    )]
    pub fn call_held(
        self,
        input: I,
    ) -> impl Future<Output = Result<(H::Output, Permit), CallError<H::Error>>> + Send + use<'c, I, H>
    {
        async move {
            let mut bounds = self.bounds;
            let keep = Keep(self.operation.contract.plan());
            self.operation
                .perform(&input, &mut bounds, keep, self.effect, self.idempotency_key)
                .await
                .map(|(value, holding)| (value, Permit::new(holding)))
        }
    }
}
