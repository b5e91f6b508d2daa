//! One-way requests: they complete when the transport has taken the last byte; what follows is only counted.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use bursar::Attempt;
use http::Response;
use hyper::body::Incoming;

use crate::ambient::Deadline;
use crate::client::Core;
use crate::error::Error;
use crate::payload::{Origin, Payload};
use crate::request::Ready;
use crate::run::{Live, Run};
use crate::token::Token;
use crate::transport::{Flight, Outgoing, Sending};
use crate::verdict;

/// What became of one-way requests.
#[derive(Debug, Default)]
pub(crate) struct Submissions {
    submitted: AtomicU64,
    failed: AtomicU64,
}

/// A reading of the one-way requests of one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubmitStats {
    /// Requests that the transport took whole.
    pub submitted: u64,
    /// Those among them that got no answer, a status of 400 or more, or a body that could not be read to its end.
    pub failed: u64,
}

impl Submissions {
    pub(crate) fn read(&self) -> SubmitStats {
        // Failures first, so that there are never more of them than submissions.
        let failed = self.failed.load(Ordering::Acquire);
        SubmitStats {
            submitted: self.submitted.load(Ordering::Acquire),
            failed,
        }
    }
}

/// What is left of a one-way request once it was submitted.
struct Rest {
    answer: Answer,
    deadline: Deadline,
}

enum Answer {
    Awaited(Sending),
    /// It came before the request had left.
    Here(Response<Incoming>, Flight),
}

/// Completes when the request was submitted; a task then waits for the answer, holding what the call holds.
pub(crate) async fn submit(live: Live) -> Result<(), Error> {
    let run = live.run();
    let (rest, permit) = run
        .call()
        .run_held(|attempt| async move {
            let submitted = attempt_submit(run, attempt).await;
            submitted.map_err(|error| run.failure(attempt, error))
        })
        .await
        .map_err(|error| run.concluded(error))?;
    run.core
        .submissions
        .submitted
        .fetch_add(1, Ordering::Release);
    let schedulers = run.core.schedulers.clone();
    schedulers.start(async move {
        let Run { core, ready } = live.run();
        let token = ready.bounds.token.clone();
        if !until(token, finish(core, ready, rest)).await {
            core.submissions.failed.fetch_add(1, Ordering::Release);
        }
        drop(permit);
    });
    Ok(())
}

async fn attempt_submit(run: Run<'_>, attempt: &Attempt) -> Result<Rest, Error> {
    let Run { core, ready } = run;
    let plan = &ready.plan;
    let mut deadline = core.clock.deadline(ready.timeout, attempt.deadline());
    let with_cookies = core.ways.with_cookies(&plan.headers, &plan.uri);
    let outgoing = Outgoing {
        method: &plan.method,
        uri: &plan.uri,
        headers: with_cookies.as_ref().unwrap_or(&plan.headers),
        body: &plan.body,
    };
    let sending = core
        .ways
        .transport
        .submit(outgoing, &mut deadline, Some(attempt));
    let mut sending = sending.await?;
    let submitted = sending.submitted(&mut deadline, Some(attempt)).await;
    let answer = match submitted.map_err(|error| error.to(&plan.method, &plan.uri))? {
        Some(response) => Answer::Here(response, sending.into_flight()),
        None => Answer::Awaited(sending),
    };
    Ok(Rest { answer, deadline })
}

/// Reads the answer to its end, so that the connection can be used again; false if that or the request failed.
async fn finish(core: &Core, ready: &Ready, rest: Rest) -> bool {
    let Rest {
        answer,
        mut deadline,
    } = rest;
    let (response, flight) = match answer {
        Answer::Here(response, flight) => (response, flight),
        Answer::Awaited(mut sending) => match sending.answered(&mut deadline, None).await {
            Ok(response) => (response, sending.into_flight()),
            Err(_) => return false,
        },
    };
    core.ways.keep_cookies(response.headers(), &ready.plan.uri);
    let origin = Origin {
        moved: None,
        limit: ready.plan.limit,
        floor: None,
        effect: ready.plan.effect,
        decompress: core.ways.compression,
    };
    let Ok((parts, mut payload)) = Payload::open(response, flight, deadline, origin) else {
        return false;
    };
    payload.drain().await && !verdict::is_failure(parts.status)
}

/// False if `token` fires first.
async fn until(token: Option<Token>, work: impl Future<Output = bool>) -> bool {
    let Some(mut token) = token else {
        return work.await;
    };
    let mut work = pin!(work);
    poll_fn(|cx| {
        if Pin::new(&mut token).poll(cx).is_ready() {
            return Poll::Ready(false);
        }
        work.as_mut().poll(cx)
    })
    .await
}
