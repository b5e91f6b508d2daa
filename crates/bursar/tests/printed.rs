//! What a developer reads: every refused contract says what would be right, every error and every public type says what it is.

mod common;

use std::sync::{Arc, Weak};
use std::time::Duration;

use bursar::seam::{Chain, DrainMember, HoldId, Standing};
use bursar::testkit::Stepped;
use bursar::{
    Attempt, BoxHandler, CallError, Clock, ContractError, EndedBy, Failure, HostSnapshot,
    ManualClock, Operation, Outcome, Phase, Policy, Runtime, ShutdownError, SpotSnapshot,
    handler_fn,
};
use common::{Answer, Error, counts, ms, runtime};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};

/// Each refusal names what is wrong and what would be right.
#[test]
fn a1_what_a_runtime_refuses_it_explains() {
    let error = |built: Result<Runtime, ContractError>| built.unwrap_err().to_string();
    let builder = || Runtime::builder().clock(ManualClock::new());
    assert_eq!(
        error(builder().build()),
        "a runtime needs at least one budget: add one with `.resource(name, capacity)`"
    );
    assert_eq!(
        error(builder().resource("", 1).build()),
        "a budget's name is empty"
    );
    let twice = builder()
        .resource("db", 1)
        .retry_group("", bursar::RetryBudget::new(1));
    assert_eq!(
        error(twice.build()),
        "a group of retries is named \"\": names must be unique and not empty"
    );
    assert_eq!(
        ContractError::NoClock.to_string(),
        "the runtime has no clock: give it one with `.clock(..)` or enable the `tokio` feature"
    );
}

#[test]
fn a2_what_an_operation_is_refused_for_is_explained() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let refused = |name: &str, policy: Policy<bursar::Pure>| {
        runtime.contract(name, policy).unwrap_err().to_string()
    };
    let plain = Policy::pure;
    assert_eq!(refused("", plain()), "an operation's name is empty");
    assert_eq!(
        refused("load", plain().claim("db", 1).claim("db", 1)),
        "operation \"load\" claims budget \"db\" twice: claim it once, with all the units"
    );
    assert_eq!(
        refused("load", plain().retry_group("none")),
        "operation \"load\" names the group of retries \"none\", which does not exist: add it with `.retry_group(name, budget)`"
    );
    assert_eq!(
        refused("load", plain().key_space("")),
        "operation \"load\" names an empty key space"
    );
    assert_eq!(
        runtime.resize("web", 2).unwrap_err().to_string(),
        "there is no budget \"web\" to resize: the runtime has \"db\""
    );
}

#[test]
fn what_ended_a_call_is_said_in_words() {
    let said: Vec<_> = [
        EndedBy::AttemptTimeout,
        EndedBy::CallerDeadline,
        EndedBy::CallerLeft,
        EndedBy::Stopping,
        EndedBy::Overload,
        EndedBy::RetryBudget,
        EndedBy::WouldDeadlock,
        EndedBy::WaitTooLong,
    ]
    .iter()
    .map(EndedBy::to_string)
    .collect();
    assert_eq!(
        said,
        [
            "the attempt's timeout",
            "the caller's deadline",
            "the caller's leaving",
            "shutdown",
            "want of capacity for another attempt",
            "the retry budget, which is spent",
            "a wait for what its own caller holds",
            "too long a wait for another attempt",
        ]
    );
}

#[test]
fn a_call_that_never_ran_says_why() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let load = runtime
        .contract("load", Policy::pure().claim("db", 1))
        .unwrap();
    let held = assert_ready_ok!(spawn(load.admit()).poll());

    let mut left = load.with().until(async {});
    let left = assert_ready_err!(spawn(left.run(|_| async { Answer::Ok(1) })).poll());
    assert_eq!(
        left.to_string(),
        "operation \"load\" was withdrawn by its caller before it started: it had not begun to wait"
    );
    assert!(format!("{left:?}").starts_with("Withdrawn("), "{left:?}");
    assert_eq!(left.into_error(), None);

    drop(held);
    let outer = load.run(|| async {
        let nested = load.run(|| async { Answer::Ok(1) }).await;
        Err::<(), _>(Failure::permanent(nested.unwrap_err()))
    });
    let CallError::Failed(ran) = assert_ready_err!(spawn(outer).poll()) else {
        panic!("it ran");
    };
    let inner = ran.into_failure().into_error().expect("the nested call's");
    assert!(
        format!("{inner:?}").starts_with("WouldDeadlock("),
        "{inner:?}"
    );
    let holder = &inner.refusal().expect("it never ran").chain()[0];
    assert!(!holder.holds_key(), "{holder:?}");
    // Its kind and its words survive a change of the handler's error.
    let words = inner.to_string();
    let changed = inner.map(|_: Error| 7);
    assert!(
        matches!(changed, CallError::WouldDeadlock(_)),
        "{changed:?}"
    );
    assert_eq!(changed.to_string(), words);

    assert_ready_ok!(spawn(runtime.shutdown()).poll());
    let stopping = assert_ready_err!(spawn(load.run(|| async { Answer::Ok(1) })).poll());
    assert_eq!(
        stopping.to_string(),
        "operation \"load\" did not start: the runtime is shutting down"
    );
}

#[test]
fn d3_a_shutdown_from_inside_says_what_to_do_instead() {
    assert_eq!(
        ShutdownError::InsideOwnCall.to_string(),
        "shutdown was awaited from inside a call of the same runtime, which it would have to outlast: spawn it, or await it from outside"
    );
}

#[test]
fn a_failure_without_an_answer_says_so() {
    let (runtime, clock) = runtime(&[("db", 1)]);
    let slow = Policy::pure().claim("db", 1).timeout(ms(5));
    let slow = runtime.contract("slow", slow).unwrap();
    let mut call = spawn(slow.run(std::future::pending::<Answer>));
    assert_pending!(call.poll());
    clock.advance(ms(5));
    let error = assert_ready_err!(call.poll());
    let failure = error.failure().expect("it ran");
    assert_eq!(failure.to_string(), "it was cut off and gave no answer");
}

#[test]
fn e2_a_snapshot_says_the_phase_in_a_word() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let load = runtime
        .contract("load", Policy::pure().claim("db", 1))
        .unwrap();
    let held = assert_ready_ok!(spawn(load.admit()).poll());
    let mut shutdown = spawn(runtime.shutdown());
    let shown = || runtime.snapshot().to_string();
    assert!(!shown().contains("drain"), "{}", shown());
    assert_pending!(shutdown.poll());
    assert!(shown().contains("draining"), "{}", shown());
    drop(held);
    assert_ready_ok!(shutdown.poll());
    assert!(shown().contains("drained"), "{}", shown());
    assert_eq!(Phase::Open.to_string(), "open");
}

/// A host with one busy Spot.
struct Busy(SpotSnapshot);

impl DrainMember for Busy {
    fn stop(&self) {}

    fn is_idle(&self) -> bool {
        true
    }

    fn snapshot(&self) -> Option<HostSnapshot> {
        let mut host = HostSnapshot::default();
        (host.spots, host.busy) = (1, vec![self.0.clone()]);
        Some(host)
    }
}

#[test]
fn e2_a_snapshot_finds_who_waits_for_a_spot_and_for_what() {
    let found = |running, running_for: Option<u64>| {
        let (runtime, _) = runtime(&[("db", 1)]);
        let mut spot = SpotSnapshot::default();
        spot.name = "cart".to_owned();
        (spot.running, spot.waiting, spot.open) = (running, 2, true);
        spot.running_for = running_for.map(Duration::from_secs);
        let busy = Arc::new(Busy(spot));
        let member: Weak<dyn DrainMember> = Arc::downgrade(&(Arc::clone(&busy) as _));
        let _membership = runtime.register(member);
        let text = runtime.snapshot().to_string();
        let line = text.lines().find(|line| line.contains("for Spot"));
        line.map(|line| line.trim_start_matches(['-', ' ', '*']).to_owned())
            .unwrap_or_else(|| panic!("no finding in\n{text}"))
    };
    let waits = "2 pieces of work wait for Spot cart";
    for (running, running_for, rest) in [
        (0, None, ""),
        (1, None, ", whose turn runs"),
        (1, Some(3), ", whose turn has run 3.0 s"),
        (2, None, ", of which 2 turns run"),
        (2, Some(3), ", of which 2 turns run, one for 3.0 s"),
    ] {
        assert_eq!(found(running, running_for), format!("{waits}{rest}"));
    }
}

#[test]
fn d5_a_host_without_a_report_leaves_none() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let busy = Arc::new(Busy(SpotSnapshot::default()));
    let member: Weak<dyn DrainMember> = Arc::downgrade(&(Arc::clone(&busy) as _));
    let _membership = runtime.register(member);
    let report = assert_ready_ok!(spawn(runtime.shutdown()).poll());
    assert!(report.operations.is_empty(), "{report:?}");
}

#[test]
fn the_clock_of_a_runtime_is_the_one_it_was_given() {
    let (runtime, clock) = runtime(&[("db", 1)]);
    let of_runtime = runtime.clock();
    assert_eq!(of_runtime.now(), clock.now());
    let mut timer = spawn(of_runtime.sleep_until(clock.now() + ms(5)));
    assert_pending!(timer.poll());
    clock.advance(ms(5));
    assert!(timer.is_woken());
    assert_eq!(ManualClock::default().timers(), 0);
    assert!(!runtime.is_exact());
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_a_runtime_is_tokios_unless_it_is_given_one() {
    let runtime = Runtime::builder().resource("db", 1).build().unwrap();
    let busy = Arc::new(Busy(SpotSnapshot::default()));
    let member: Weak<dyn DrainMember> = Arc::downgrade(&(Arc::clone(&busy) as _));
    let shown = format!("{:?}", runtime.register(member));
    assert!(shown.contains("clock: tokio"), "{shown}");
    let clock = runtime.clock();
    let before = clock.now();
    clock.sleep_until(before + ms(5)).await;
    assert_eq!(clock.now() - before, ms(5));
}

/// What is printed in a log by `{:?}` says what it is, and of which operation.
#[test]
fn public_types_print_what_they_are() {
    let (runtime, _) = runtime(&[("db", 1)]);
    assert_eq!(
        format!("{:?}", Runtime::builder().resource("db", 1)),
        "RuntimeBuilder { resources: [(\"db\", 1)], .. }"
    );
    assert!(format!("{runtime:?}").starts_with("Runtime { budgets: [Budget"));

    let load = runtime
        .contract("load", Policy::pure().claim("db", 1))
        .unwrap();
    assert_eq!(format!("{load:?}"), "Contract { operation: \"load\", .. }");
    let permit = assert_ready_ok!(spawn(load.admit()).poll());
    assert_eq!(format!("{permit:?}"), "Permit { operation: \"load\", .. }");
    drop(permit);

    let handler = handler_fn(|_: &u32| async { Ok::<_, Failure<Error>>(()) });
    assert_eq!(format!("{handler:?}"), "HandlerFn");
    let save = runtime.operation("save", Policy::pure(), handler).unwrap();
    assert!(format!("{save:?}").starts_with("Operation { operation: \"save\""));
    let call = save.with().within(ms(1));
    assert!(format!("{call:?}").starts_with("OperationCall { operation: \"save\", bounds: "));
    drop(call);
    let boxed: Operation<u32, BoxHandler<u32, (), Error>> = save.boxed();
    let other = boxed.clone();
    assert_eq!(boxed.name(), other.name());

    let mut stepped = Stepped::new(std::future::pending::<()>());
    assert_pending!(stepped.poll());
    assert!(format!("{stepped:?}").starts_with("Stepped { woken: "));

    let turn = Standing::new(Some(runtime.id()), 8, Some(HoldId::unique()), None);
    assert_eq!(format!("{:?}", Chain::current()), "[]");
    let mut turn = turn;
    turn.here(|| {
        let shown = format!("{:?}", Chain::current());
        assert!(shown.starts_with("[Turn {"), "{shown}");
    });

    let busy = Arc::new(Busy(SpotSnapshot::default()));
    let member: Weak<dyn DrainMember> = Arc::downgrade(&(Arc::clone(&busy) as _));
    let membership = runtime.register(member);
    let shown = format!("{membership:?}");
    assert!(shown.contains("Members(1)"), "{shown}");
    assert!(shown.contains("clock: custom"), "{shown}");
}

#[test]
fn an_attempt_prints_its_number_and_its_bounds() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let load = runtime
        .contract("load", Policy::pure().claim("db", 1))
        .unwrap();
    let mut with = load.with();
    let mut shown = String::new();
    let call = with.run(|attempt: &Attempt| {
        shown = format!("{attempt:?}");
        async { Answer::Ok(1) }
    });
    assert_ready_ok!(spawn(call).poll());
    assert_eq!(
        shown,
        "Attempt { number: 1, deadline: None, cancelled: false, .. }"
    );
    assert_eq!(counts(&runtime, "load").outcomes.success, 1);
    assert_eq!(Outcome::Success.to_string(), "Success");
}
