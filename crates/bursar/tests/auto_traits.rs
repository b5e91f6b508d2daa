//! What may cross threads and tasks: Send, Sync and Unpin of every public type and future, and the sizes that matter.

mod common;

use std::convert::Infallible;
use std::fmt::{Debug, Display};
use std::future::Future;
use std::time::Duration;

use bursar::{
    Attempt, Attempted, BoxHandler, BoxOperation, BudgetStats, Call, CallError, Cancelled, Certain,
    Contract, ContractError, Doubtful, Dynamic, Effect, EndedBy, Failure, Handler, HandlerFn,
    Idempotent, Key, ManualClock, NonIdempotent, Operation, OperationCall, OperationStats, Outcome,
    PerCall, Permit, Policy, Pure, Refusal, Retry, Runtime, RuntimeBuilder, ShutdownError, Stats,
    Timer, Unchecked, Usage,
};
use common::Error;

fn everywhere<T: Send + Sync + Unpin>() {}
fn shared<T: Send + Sync>() {}
fn sent<T: Send>() {}
fn shown<T: Debug>() {}
fn told<T: std::error::Error + Display + Send + Sync + 'static>() {}

/// Handles nothing; only its type matters.
struct Nothing;

impl Handler<String> for Nothing {
    type Output = u32;
    type Error = std::io::Error;

    async fn handle(&self, _: &Attempt, _: &String) -> Result<u32, Failure<std::io::Error>> {
        Ok(7)
    }
}

#[test]
fn handles_and_words_go_everywhere() {
    everywhere::<Runtime>();
    everywhere::<Contract>();
    everywhere::<Operation<String, Nothing>>();
    everywhere::<BoxOperation<String, u32, std::io::Error>>();
    everywhere::<BoxHandler<String, u32, std::io::Error>>();
    everywhere::<HandlerFn<fn(&String)>>();
    everywhere::<Permit>();
    everywhere::<Key>();
    everywhere::<ManualClock>();
    everywhere::<Attempt>();
    everywhere::<Cancelled<'_>>();
    everywhere::<Policy<Pure>>();
    everywhere::<Policy<Idempotent>>();
    everywhere::<Policy<NonIdempotent>>();
    everywhere::<Policy<PerCall>>();
    everywhere::<Policy<Dynamic>>();
    everywhere::<Retry<Certain>>();
    everywhere::<Retry<Doubtful>>();
    everywhere::<Retry<Unchecked>>();
    everywhere::<(Effect, Outcome, EndedBy, Usage, Refusal)>();
    everywhere::<(Stats, OperationStats, BudgetStats)>();
    everywhere::<(ContractError, ShutdownError)>();
    // Failures and errors of calls are declared not to be `Unpin`; they cross threads as their error does.
    shared::<Failure<Error>>();
    shared::<Attempted<Error>>();
    shared::<CallError<Error>>();
    // A call may carry a token that only moves, and a builder a clock of the user's.
    sent::<Call<'_>>();
    sent::<OperationCall<'_, String, Nothing>>();
    sent::<RuntimeBuilder>();
    sent::<Timer>();
}

#[test]
fn an_error_of_a_call_is_as_its_handlers() {
    // Send and not Sync, as some providers' errors are.
    type SendOnly = std::cell::Cell<u32>;
    sent::<Failure<SendOnly>>();
    sent::<CallError<SendOnly>>();
    sent::<Operation<String, HandlerFn<fn(&SendOnly)>>>();
    shown::<CallError<SendOnly>>();
}

#[test]
fn every_error_is_an_error_that_can_be_boxed() {
    told::<ContractError>();
    told::<ShutdownError>();
    told::<CallError<std::io::Error>>();
    told::<CallError<Infallible>>();
    // A nested call's error is the error of the call around it.
    told::<CallError<CallError<std::io::Error>>>();
    let boxed = |error: CallError<std::io::Error>| -> Box<dyn std::error::Error + Send + Sync> {
        error.into()
    };
    let _ = boxed;
}

/// Whether a type can be shown, told at run time: the inherent constant wins where its bound holds.
struct Shown<T>(std::marker::PhantomData<T>);

impl<T: Debug> Shown<T> {
    const IS: bool = true;
}

trait NotShown {
    const IS: bool = false;
}

impl<T> NotShown for Shown<T> {}

#[test]
fn every_public_type_can_be_shown() {
    shown::<(Runtime, RuntimeBuilder, Contract, Call<'_>, Permit, Key)>();
    shown::<Operation<String, Nothing>>();
    // A call's builder asks no more of its handler than the operation does.
    let known = [Shown::<u8>::IS, Shown::<Nothing>::IS];
    let builder = Shown::<OperationCall<'_, String, Nothing>>::IS;
    assert_eq!((known, builder), ([true, false], true));
    shown::<(
        Failure<Error>,
        CallError<Error>,
        Attempted<Error>,
        Refusal,
        Usage,
    )>();
    shown::<(
        Attempt,
        Cancelled<'_>,
        ManualClock,
        Stats,
        ShutdownError,
        ContractError,
    )>();
}

/// Every future may be moved to another thread, and lives as long as what it borrows.
#[test]
fn futures_are_send() {
    fn send<F: Future + Send>(future: F) -> F {
        future
    }
    let (runtime, _) = common::runtime(&[("db", 1)]);
    let contract = runtime.contract("one", Policy::pure()).unwrap();
    let typed = runtime.operation("two", Policy::pure(), Nothing).unwrap();
    let ok = || async { Ok::<_, Failure<Error>>(7) };
    drop(send(contract.run(ok)));
    drop(send(contract.run_held(ok)));
    drop(send(contract.admit()));
    drop(send(contract.run_blocking(|_| Ok::<_, Failure<Error>>(7))));
    let second = Duration::from_secs(1);
    let token = std::future::pending::<()>();
    let mut call = contract.with().key("k").within(second).until(token);
    drop(send(call.run(|_| ok())));
    drop(send(call.run_held(|_| ok())));
    drop(send(call.admit()));
    drop(send(call.run_blocking(|_| Ok::<_, Failure<Error>>(7))));
    drop(send(typed.call(String::new())));
    drop(send(typed.call_held(String::new())));
    drop(send(typed.with().within(second).call(String::new())));
    drop(send(typed.with().call_held(String::new())));
    drop(send(runtime.shutdown()));
    drop(send(runtime.shutdown_within(second)));
}

/// What a call is larger by where it may be watched, and where it has a span.
const WATCH: usize = if cfg!(feature = "exact") { 8 } else { 0 };
const SPAN: usize = if cfg!(feature = "tracing") { 40 } else { 0 };

/// Handles can be kept in anything that is shared, and cloned into every task.
#[test]
fn handles_are_cheap_to_clone() {
    fn cheap<T: Clone>(handle: &T) -> usize {
        std::hint::black_box(handle.clone());
        size_of::<T>() / size_of::<usize>()
    }
    let (runtime, _) = common::runtime(&[("db", 1)]);
    let contract = runtime.contract("one", Policy::pure()).unwrap();
    assert_eq!(cheap(&runtime), 1, "one pointer");
    assert_eq!(cheap(&contract), 1, "one pointer");
    assert!(size_of::<Permit>() <= 64 + WATCH, "{}", size_of::<Permit>());
    assert!(size_of::<Key>() <= 32, "{}", size_of::<Key>());
}

#[test]
fn a_parked_call_is_small() {
    let (runtime, _) = common::runtime(&[("db", 1)]);
    let policy = Policy::pure()
        .claim("db", 1)
        .timeout(Duration::from_secs(1));
    let contract = runtime.contract("one", policy).unwrap();
    // What the handler's own future takes is not the call's.
    let most = 200 + WATCH + SPAN;
    let nothing = || std::future::ready(Ok::<_, Failure<()>>(()));
    let handler = size_of_val(&nothing());
    let call = size_of_val(&contract.run(nothing));
    assert!(call - handler <= most, "{call} - {handler}");
    let bytes = [0_u8; 1_000];
    let large = || async move {
        tokio::task::yield_now().await;
        Ok::<_, Failure<()>>(std::hint::black_box(bytes)[0])
    };
    let handler = size_of_val(&large());
    let call = size_of_val(&contract.run(large)) - size_of_val(&large);
    assert!(call - handler <= most, "{call} - {handler}");
}

#[test]
fn an_error_fits_a_cache_line() {
    assert!(size_of::<CallError<()>>() <= 64);
    assert!(size_of::<Failure<()>>() <= 24);
}
