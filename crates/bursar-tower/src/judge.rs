//! What an answer of the inner service means for its attempt.

use bursar::{Effect, Failure, Outcome};

/// Says whether an answer failed, and how.
///
/// Implemented for functions of the answer alone:
///
/// ```
/// use bursar::{Failure, Policy, Runtime};
/// use bursar_tower::ContractLayer;
///
/// # fn main() -> Result<(), bursar::ContractError> {
/// # let runtime = Runtime::builder().resource("cache", 4).build()?;
/// # let contract = runtime.contract("get", Policy::pure().claim("cache", 1))?;
/// let layer = ContractLayer::<String>::new(&contract).judge(|answer: Result<&String, &std::io::Error>| match answer {
///     Ok(_) => None,
///     Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Some(Failure::transient(())),
///     Err(_) => Some(Failure::uncertain(())),
/// });
/// # let _ = layer;
/// # Ok(())
/// # }
/// ```
pub trait Judge<Res, E> {
    /// `None`: the answer is one. A failure says what it means and, if the server said so, when to come back. An error
    /// about which nothing is said is unclassified.
    ///
    /// `effect` is the one that counts for the call: the stricter of what the policy declares and what the layer was told
    /// of the request, [`Effect::NonIdempotent`] if neither says anything; with an idempotency key at most
    /// [`Effect::Idempotent`].
    fn judge(&self, effect: Effect, answer: Result<&Res, &E>) -> Option<Failure<()>>;
}

impl<F, Res, E> Judge<Res, E> for F
where
    F: Fn(Result<&Res, &E>) -> Option<Failure<()>>,
{
    fn judge(&self, _: Effect, answer: Result<&Res, &E>) -> Option<Failure<()>> {
        self(answer)
    }
}

/// Every response is an answer, and nobody knows what an error means: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers;

impl<Res, E> Judge<Res, E> for Answers {
    fn judge(&self, _: Effect, _: Result<&Res, &E>) -> Option<Failure<()>> {
        None
    }
}

/// What an attempt failed with.
pub(crate) enum Fault<Res, E> {
    /// A response that was judged a failure.
    Response(Res),
    Error(E),
}

/// The attempt's result, as the contract is to see it.
pub(crate) fn verdict<Res, E>(
    judge: &impl Judge<Res, E>,
    effect: Effect,
    answer: Result<Res, E>,
) -> Result<Res, Failure<Fault<Res, E>>> {
    let judged = judge.judge(effect, answer.as_ref());
    match (judged, answer) {
        (None, Ok(response)) => Ok(response),
        (None, Err(error)) => Err(Failure::unclassified(Fault::Error(error))),
        (Some(failure), Ok(response)) => Err(failure.map(|()| Fault::Response(response))),
        (Some(failure), Err(error)) => Err(failure.map(|()| Fault::Error(error))),
    }
}

/// What became of a call whose last response was judged a failure. Such a response is returned as it is, with this among
/// its extensions when the layer is [for HTTP clients](crate::ContractLayer::http_client).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// [`Outcome::Uncertain`] if any attempt may have taken effect.
    pub outcome: Outcome,
    /// How many attempts were made.
    pub attempts: u32,
}
