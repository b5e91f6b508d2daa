//! A request's deadline: read once where the request enters, carried with it, and a bound on every call made for it.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, Request};
use tower_layer::Layer;
use tower_service::Service;

use crate::clock;

/// Until when a request is worth working on; or that nobody said.
///
/// [`DeadlineLayer`] sets it as an extension of the request. A contract that runs as a layer of an HTTP or gRPC server
/// bounds its calls by it; a handler bounds its own by giving it to [`Call::deadline`](bursar::Call::deadline). With the
/// feature `axum` it is an extractor.
///
/// ```
/// use bursar::{Policy, Runtime};
/// use bursar_tower::Deadline;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().resource("db", 4).build()?;
/// let lookup = runtime.contract("lookup", Policy::pure().claim("db", 1))?;
///
/// let deadline = Deadline::within(Duration::from_millis(300));
/// let permit = lookup.with().deadline(deadline).admit().await?;
/// # drop(permit);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// Nobody said.
    pub const NONE: Self = Self(None);

    /// That long from now, by tokio's clock. Further than any clock tells is no deadline.
    #[must_use]
    pub fn within(span: Duration) -> Self {
        Self(clock::after(span))
    }

    /// The moment. `None` if nobody said.
    #[must_use]
    pub fn moment(self) -> Option<Instant> {
        self.0
    }

    /// How long is left; zero past it. `None` if nobody said.
    #[must_use]
    pub fn remaining(self) -> Option<Duration> {
        self.0.map(|at| at.saturating_duration_since(clock::now()))
    }

    /// The earlier of the two.
    #[must_use]
    pub fn or_earlier(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Some(one), Some(other)) => Self(Some(one.min(other))),
            (one, other) => Self(one.or(other)),
        }
    }

    /// The one that a request carries.
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        request.extensions().get().copied().unwrap_or_default()
    }
}

impl From<Instant> for Deadline {
    fn from(moment: Instant) -> Self {
        Self(Some(moment))
    }
}

impl From<Deadline> for Option<Instant> {
    fn from(deadline: Deadline) -> Self {
        deadline.0
    }
}

type Stated = Arc<dyn Fn(&HeaderMap) -> Option<Duration> + Send + Sync>;

/// Gives each request its [`Deadline`], counted from here: put it outermost.
///
/// It interrupts nothing by itself; the calls made for the request obey it.
///
/// ```
/// use bursar_tower::{DeadlineLayer, header_millis};
/// use std::time::Duration;
///
/// // Two seconds, or less if the caller says so.
/// let layer = DeadlineLayer::within(Duration::from_secs(2)).or_less(header_millis("x-request-timeout-ms"));
/// ```
#[derive(Clone)]
pub struct DeadlineLayer {
    longest: Duration,
    stated: Option<Stated>,
}

impl DeadlineLayer {
    /// The longest that a request is worth working on. With zero none ever runs.
    #[must_use]
    pub fn within(longest: Duration) -> Self {
        Self {
            longest,
            stated: None,
        }
    }

    /// How long the caller gives it, read from the headers; the shorter counts. `None` is a caller who does not say. Zero is one
    /// who waits no longer: nothing runs.
    #[must_use]
    pub fn or_less(
        mut self,
        stated: impl Fn(&HeaderMap) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.stated = Some(Arc::new(stated));
        self
    }

    fn read(&self, headers: &HeaderMap) -> Deadline {
        let stated = self.stated.as_ref().and_then(|stated| stated(headers));
        Deadline::within(stated.map_or(self.longest, |stated| stated.min(self.longest)))
    }
}

impl std::fmt::Debug for DeadlineLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeadlineLayer")
            .field("longest", &self.longest)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = DeadlineService<S>;

    fn layer(&self, inner: S) -> DeadlineService<S> {
        DeadlineService {
            inner,
            layer: self.clone(),
        }
    }
}

/// A service whose requests have a [`Deadline`]; see [`DeadlineLayer`].
#[derive(Clone, Debug)]
pub struct DeadlineService<S> {
    inner: S,
    layer: DeadlineLayer,
}

impl<S, B> Service<Request<B>> for DeadlineService<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        let deadline = Deadline::of(&request).or_earlier(self.layer.read(request.headers()));
        request.extensions_mut().insert(deadline);
        self.inner.call(request)
    }
}

/// Reads a header whose value is a whole number of milliseconds. Anything else says nothing; of several the first counts.
///
/// # Panics
/// If `name` cannot be the name of a header, since no request would ever have it.
#[track_caller]
pub fn header_millis(
    name: &'static str,
) -> impl Fn(&HeaderMap) -> Option<Duration> + Clone + Send + Sync + 'static {
    let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
        panic!("{name:?} cannot be the name of a header, which is of letters, digits and dashes");
    };
    move |headers| {
        let value = headers.get(&name)?.to_str().ok()?;
        number(value).map(Duration::from_millis)
    }
}

/// Reads the `grpc-timeout` header: at most eight digits and a unit. Anything else says nothing.
#[must_use]
pub fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.len() > 8 {
        return None;
    }
    let number = number(digits)?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Digits alone, no sign.
fn number(digits: &str) -> Option<u64> {
    let all = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
    }

    #[test]
    fn a_grpc_timeout_is_digits_and_a_unit_and_nothing_else() {
        let ms = |ms| Some(Duration::from_millis(ms));
        for (value, right) in [
            ("0S", ms(0)),
            ("250m", ms(250)),
            ("99999999H", ms(99_999_999 * 3_600_000)),
            ("2M", ms(120_000)),
            ("5S", ms(5_000)),
            ("3000u", ms(3)),
            ("3000000n", ms(3)),
            ("123456789n", None),
            ("", None),
            ("S", None),
            ("5", None),
            ("5s", None),
            ("+5S", None),
            ("-5S", None),
            (" 5S", None),
            ("5.5S", None),
        ] {
            assert_eq!(
                grpc_timeout(&headers("grpc-timeout", value)),
                right,
                "{value:?}"
            );
        }
        let beyond_ascii = HeaderMap::from_iter([(
            "grpc-timeout".parse().unwrap(),
            http::HeaderValue::from_bytes("5µ".as_bytes()).unwrap(),
        )]);
        assert_eq!(grpc_timeout(&beyond_ascii), None);
        assert_eq!(grpc_timeout(&HeaderMap::new()), None);
    }

    #[test]
    fn a_header_in_milliseconds_is_digits_and_nothing_else() {
        let read = header_millis("x-timeout");
        for (value, right) in [
            ("0", Some(0)),
            ("1500", Some(1_500)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("1.5", None),
            ("+1", None),
            ("", None),
        ] {
            let right = right.map(Duration::from_millis);
            assert_eq!(read(&headers("x-timeout", value)), right, "{value:?}");
        }
        assert_eq!(read(&HeaderMap::new()), None);
        assert_eq!(
            header_millis("X-Timeout")(&headers("x-timeout", "5")),
            Some(Duration::from_millis(5))
        );
    }

    #[test]
    #[should_panic(expected = "\"x timeout\" cannot be the name of a header")]
    fn a_header_that_no_request_can_have_is_refused_at_once() {
        let _ = header_millis("x timeout");
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_of_two_deadlines_counts_and_the_farthest_is_none() {
        let (soon, late) = (
            Deadline::within(Duration::from_secs(1)),
            Deadline::within(Duration::from_secs(2)),
        );
        assert_eq!(soon.or_earlier(late), soon);
        assert_eq!(late.or_earlier(soon), soon);
        assert_eq!(Deadline::NONE.or_earlier(late), late);
        assert_eq!(late.or_earlier(Deadline::NONE), late);
        assert_eq!(soon.remaining(), Some(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(soon.remaining(), Some(Duration::ZERO));
        assert_eq!(Deadline::within(Duration::MAX), Deadline::NONE);
        assert_eq!(Deadline::NONE.remaining(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_shorter_of_what_the_server_gives_and_what_the_caller_says_counts() {
        let second = Duration::from_secs(1);
        let layer = DeadlineLayer::within(second).or_less(header_millis("x-timeout"));
        for (value, right) in [("250", 250), ("5000", 1_000), ("soon", 1_000), ("0", 0)] {
            let deadline = layer.read(&headers("x-timeout", value));
            assert_eq!(
                deadline.remaining(),
                Some(Duration::from_millis(right)),
                "{value:?}"
            );
        }
        assert_eq!(layer.read(&HeaderMap::new()).remaining(), Some(second));
    }
}
