//! The tables of `Problem` and `status`: each way a call can fail, row by row.

mod common;

use std::convert::Infallible;
use std::time::Duration;

use bursar::{CallError, Failure, Outcome, Policy};
use bursar_tower::{Problem, status};
use common::{ms, runtime, told};
use http::StatusCode;
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};
use tonic::{Code, Status};

type Answer = Result<u32, Failure<&'static str>>;

/// A call that failed, with its problem's code, HTTP status, gRPC code and `Retry-After`.
type Row = (
    CallError<&'static str>,
    &'static str,
    u16,
    Code,
    Option<u64>,
);

/// A call that failed in each way there is.
fn every_failure() -> Vec<Row> {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let claims = || Policy::pure().claim("a", 1);
    let waits = runtime.contract("op-waits", claims()).unwrap();
    let refuses = runtime.contract("op-refuses", claims().reject()).unwrap();
    let serial = runtime
        .contract("op-serial", Policy::pure().reject())
        .unwrap();
    let keyed = runtime
        .contract("op-keyed", claims().require_key())
        .unwrap();
    let timed = runtime
        .contract("op-timed", claims().timeout(ms(1)))
        .unwrap();
    let never = std::future::pending::<Answer>;
    let mut all = Vec::new();

    let permit = assert_ready_ok!(task::spawn(waits.admit()).poll());
    let mut call = task::spawn(refuses.run(never));
    assert_pending!(call.poll());
    all.push((
        assert_ready_err!(call.poll()),
        "overloaded",
        503,
        Code::Unavailable,
        Some(1),
    ));
    let mut call = waits.with().within(ms(0));
    let error = assert_ready_err!(task::spawn(call.run(|_| never())).poll());
    all.push((error, "not-in-time", 503, Code::Unavailable, Some(1)));
    let mut call = waits.with().until(std::future::ready(()));
    let error = assert_ready_err!(task::spawn(call.run(|_| never())).poll());
    all.push((error, "withdrawn", 503, Code::Unavailable, Some(1)));
    drop(permit);
    let mut first = serial.with().key("k");
    let permit = assert_ready_ok!(task::spawn(first.admit()).poll());
    let mut second = serial.with().key("k");
    let mut call = task::spawn(second.run(|_| never()));
    assert_pending!(call.poll());
    all.push((
        assert_ready_err!(call.poll()),
        "key-held",
        429,
        Code::ResourceExhausted,
        Some(1),
    ));
    drop((permit, call));
    let error = assert_ready_err!(task::spawn(keyed.run(never)).poll());
    all.push((error, "key-required", 400, Code::InvalidArgument, None));
    let mut call = task::spawn(timed.run(never));
    assert_pending!(call.poll());
    clock.advance(ms(1));
    all.push((
        assert_ready_err!(call.poll()),
        "timed-out",
        504,
        Code::DeadlineExceeded,
        None,
    ));
    drop(call);
    let (leave, left) = tokio::sync::oneshot::channel::<()>();
    let mut call = waits.with().until(left);
    let mut call = task::spawn(call.run(|_| never()));
    assert_pending!(call.poll());
    drop(leave);
    all.push((
        assert_ready_err!(call.poll()),
        "cancelled",
        504,
        Code::Cancelled,
        None,
    ));
    drop(call);
    let pushback = Duration::from_millis(1_200);
    for (failure, http, grpc, wait) in [
        (Failure::transient("secret"), 503, Code::Unavailable, None),
        (
            Failure::transient("secret").after(pushback),
            503,
            Code::Unavailable,
            Some(2),
        ),
        (
            Failure::throttled("secret"),
            503,
            Code::ResourceExhausted,
            None,
        ),
        (
            Failure::throttled("secret").after(pushback),
            503,
            Code::ResourceExhausted,
            Some(2),
        ),
        (Failure::permanent("secret"), 500, Code::Internal, None),
        (Failure::unclassified("secret"), 500, Code::Internal, None),
        (Failure::uncertain("secret"), 500, Code::Unknown, None),
    ] {
        let mut failure = Some(failure);
        let mut call =
            task::spawn(waits.run(|| std::future::ready(Answer::Err(failure.take().unwrap()))));
        all.push((assert_ready_err!(call.poll()), "failed", http, grpc, wait));
    }
    let nested = || async { Ok::<_, Failure<()>>(waits.run(never).await) };
    let mut call = task::spawn(waits.run(nested));
    let error = assert_ready_ok!(call.poll()).unwrap_err();
    all.push((error, "would-deadlock", 500, Code::Internal, None));
    drop(call);
    let _report = assert_ready_ok!(task::spawn(runtime.shutdown()).poll());
    let error = assert_ready_err!(task::spawn(waits.run(never)).poll());
    all.push((error, "stopping", 503, Code::Unavailable, Some(1)));
    all
}

#[test]
fn each_failure_is_the_problem_that_the_table_says() {
    for (error, code, http, _, wait) in every_failure() {
        let problem = Problem::from(&error);
        assert_eq!(problem.status(), http, "{error}");
        assert_eq!(
            (problem.outcome(), problem.attempts()),
            (error.outcome(), error.attempts())
        );
        let response = problem.to_http();
        assert_eq!(response.status(), http);
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        let said = response
            .headers()
            .get("retry-after")
            .map(|wait| wait.to_str().unwrap().to_owned());
        assert_eq!(said.is_some(), wait.is_some(), "{error}");
        assert!(wait.is_none_or(|seconds| told(said.as_deref(), seconds)));
        assert_eq!(response.headers(), problem.clone().to_http().headers());
        let json: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        let title = StatusCode::from_u16(http).unwrap().canonical_reason();
        assert_eq!(
            (json["title"].as_str(), json["status"].as_u64()),
            (title, Some(http.into()))
        );
        assert_eq!(json["code"], code, "{error}");
        assert_eq!(json["outcome"], error.outcome().to_string().to_lowercase());
        assert_eq!(json["attempts"], error.attempts());
        // Nothing of the inside.
        let text = json.to_string();
        assert!(
            !text.contains("secret")
                && !text.contains(error.operation())
                && !text.contains("\"a\""),
            "{text}"
        );
        let members = json.as_object().unwrap().len();
        assert_eq!(members, 6, "{text}");
    }
}

#[test]
fn each_failure_is_the_status_that_the_table_says() {
    for (error, _, _, code, wait) in every_failure() {
        let said = format!("{error}");
        let least = Problem::from(&error).retry_after();
        assert_eq!(wait.is_some(), least.is_some());
        let least = least.map(|wait| u64::try_from(wait.as_millis()).unwrap());
        let status = status(error);
        assert_eq!(status.code(), code, "{said}");
        assert!(!status.message().is_empty() && !status.message().contains("secret"));
        let pushback = status.metadata().get("grpc-retry-pushback-ms");
        assert_eq!(pushback.is_some(), least.is_some(), "{said}");
        let millis = pushback.map(|millis| millis.to_str().unwrap());
        assert!(least.is_none_or(|least| told(millis, least)), "{said}");
    }
}

#[test]
fn those_who_may_know_are_told() {
    for (error, code, ..) in every_failure() {
        let problem = Problem::from(&error).detailed();
        let json: serde_json::Value = serde_json::from_slice(problem.to_http().body()).unwrap();
        assert_eq!(json["detail"], error.to_string());
        assert_eq!(json["operation"], error.operation());
        let usage = error.refusal().and_then(|refusal| refusal.usage());
        assert_eq!(
            json["capacity"].as_u64(),
            usage.map(|usage| usage.capacity.into())
        );
        assert_eq!(
            json["in_use"].as_u64(),
            usage.map(|usage| usage.in_use.into())
        );
        assert_eq!(
            json["waiting"].as_u64(),
            usage.map(|usage| usage.waiting.into())
        );
        let full = code == "overloaded" || code == "would-deadlock";
        assert_eq!(json["budget"].as_str(), full.then_some("a"));
        assert_eq!(json["units"].as_u64(), full.then_some(1));
        assert_eq!(Status::from(problem).message(), error.to_string());
    }
}

#[test]
fn another_status_for_what_was_throttled_alone() {
    for (error, code, http, ..) in every_failure() {
        let throttled = ["overloaded", "key-held", "not-in-time"].contains(&code);
        let problem = Problem::from(error).throttled_as(StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(
            problem.status().as_u16(),
            if throttled { 429 } else { http }
        );
    }
}

#[test]
fn the_handlers_own_error_is_the_answer_where_it_is_the_whole_truth() {
    for (error, code, ..) in every_failure() {
        let own = Problem::or_own(error);
        assert_eq!(own.is_ok(), code == "failed", "{own:?}");
        assert!(own.is_err() || own.unwrap() == "secret");
    }
    // An earlier attempt may have taken effect: the last one's words would hide that.
    let (runtime, _) = runtime(&[("a", 1)]);
    let policy = Policy::idempotent().retry(bursar::Retry::up_to(2).on_uncertain());
    let contract = runtime.contract("work", policy).unwrap();
    let mut attempts = 0;
    let mut call = task::spawn(contract.run(|| {
        attempts += 1;
        let failure = if attempts == 1 {
            Failure::uncertain("lost")
        } else {
            Failure::permanent("no such order")
        };
        std::future::ready(Answer::Err(failure))
    }));
    assert_pending!(call.poll());
    let problem = Problem::or_own(assert_ready_err!(call.poll())).unwrap_err();
    assert_eq!(
        (problem.status().as_u16(), problem.outcome()),
        (500, Outcome::Uncertain)
    );
    // As a cut off attempt's would.
    let (expired, timed) = {
        let (runtime, clock) = common::runtime(&[("a", 1)]);
        let contract = runtime
            .contract("work", Policy::pure().timeout(ms(5)))
            .unwrap();
        (clock, contract)
    };
    let mut builder = timed.with();
    let mut call = task::spawn(builder.run(|attempt| async move {
        attempt.cancelled().await;
        Answer::Err(Failure::permanent("gave up"))
    }));
    assert_pending!(call.poll());
    expired.advance(ms(5));
    let own = Problem::or_own(assert_ready_err!(call.poll()));
    assert_eq!(
        own.unwrap(),
        "gave up",
        "answered in its own words, classified"
    );
}

#[test]
fn a_problem_is_a_small_error_that_tells_logs_everything() {
    fn error<E: std::error::Error + Send + Sync + 'static>() {}
    error::<Problem>();
    assert_eq!(size_of::<Problem>(), size_of::<usize>());
    let (runtime, _) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("charge", Policy::pure().claim("a", 1))
        .unwrap();
    let _report = assert_ready!(task::spawn(runtime.shutdown()).poll());
    let error: CallError<Infallible> = assert_ready_err!(task::spawn(contract.admit()).poll());
    let problem = Problem::from(error);
    assert_eq!(
        problem.to_string(),
        "operation \"charge\" did not start: the runtime is shutting down"
    );
    assert!(format!("{problem:?}").contains("charge"));
}
