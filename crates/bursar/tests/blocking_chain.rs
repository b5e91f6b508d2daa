//! D1, D4 on threads: what a handler on a thread does is inside the call it works for, and inside whatever that call was
//! made from for as long as it is live. Real threads, gated by channels.

#![allow(
    clippy::disallowed_methods,
    reason = "handlers that block their thread on a future are the subject"
)]

mod common;

use std::future::{Future, poll_fn};
use std::sync::mpsc;
use std::task::Poll;

use bursar::{Carry, Classify, ManualClock, Policy, ShutdownError};
use common::{Answer, Stepped, assert_idle, counts, ms, receive, runtime, waiting};
use tokio::runtime::Handle;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};

fn pool() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .build()
        .unwrap()
}

#[test]
fn d1_a_call_from_a_blocking_handler_is_nested_on_its_thread_and_no_longer() {
    let (pool, (runtime, _)) = (pool(), runtime(&[("a", 1)]));
    let _inside = pool.enter();
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let inner = runtime.contract("inner", Policy::pure()).unwrap();
    let (nested, again) = (inner.clone(), runtime.clone());
    let (begin, begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let mut call = Stepped::new(contract.run_blocking(move |_| {
        begin.send(()).unwrap();
        let _ = gone.recv();
        // D4: it would have to outlast this very call.
        let refused = Handle::current().block_on(again.shutdown());
        assert_eq!(refused, Err(ShutdownError::InsideOwnCall));
        Handle::current()
            .block_on(nested.run(|| async { Answer::Ok(7) }))
            .permanent()
    }));
    assert_pending!(call.poll());
    receive(&begun);
    let mut shutdown = Stepped::new(runtime.shutdown());
    assert_pending!(shutdown.poll());
    assert!(assert_ready_err!(task::spawn(inner.admit()).poll()).is_stopping());
    go.send(()).unwrap();
    call.wait();
    assert_eq!(assert_ready_ok!(call.poll()), 7);
    shutdown.wait();
    assert_ready_ok!(shutdown.poll());
    assert_eq!(counts(&runtime, "inner").finished, 1);

    // The thread's next work is nobody's.
    let outsider = pool.spawn_blocking(move || {
        let refused = Handle::current().block_on(inner.run(|| async { Answer::Ok(7) }));
        refused.is_err_and(|error| error.is_stopping())
    });
    assert!(pool.block_on(outsider).unwrap());
}

#[test]
fn d1_a_nested_wait_on_a_thread_is_not_withdrawn_and_its_outer_calls_count() {
    let (pool, (runtime, _)) = (pool(), runtime(&[("a", 1), ("b", 1)]));
    let _inside = pool.enter();
    let outermost = runtime.contract("outermost", Policy::pure()).unwrap();
    let middle = runtime
        .contract("middle", Policy::pure().claim("a", 1))
        .unwrap();
    let inner = runtime
        .contract("inner", Policy::pure().claim("b", 1))
        .unwrap();
    let held = assert_ready_ok!(task::spawn(inner.admit()).poll());
    let (begin, begun) = mpsc::channel();
    // The thread's handler is nested in an async one, whose frame it finds on its own thread too.
    let (middle, nested) = (&middle, &inner);
    let begin = &begin;
    let mut call = Stepped::new(outermost.run(move || async move {
        let (nested, begin) = (nested.clone(), begin.clone());
        middle
            .run_blocking(move |_| {
                let mut call = Box::pin(nested.run(|| async { Answer::Ok(7) }));
                let handle = Handle::current();
                handle.block_on(async {
                    let first = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx)));
                    assert!(first.await.is_pending());
                    begin.send(()).unwrap();
                });
                handle.block_on(call).permanent()
            })
            .await
            .permanent()
    }));
    assert!(call.poll().is_pending());
    receive(&begun);
    assert_eq!(waiting(&runtime, "b"), 1);
    let mut shutdown = Stepped::new(runtime.shutdown());
    assert_pending!(shutdown.poll());
    assert_eq!(waiting(&runtime, "b"), 1, "not withdrawn");
    drop(held);
    call.wait();
    let Poll::Ready(Ok(7)) = call.poll() else {
        panic!("it ran to its end")
    };
    shutdown.wait();
    assert_ready_ok!(shutdown.poll());
    assert_idle(&runtime);
}

/// A thread's work under `here`, begun from inside a call of `there` that has ended since; what it then finds of
/// `there`, which is drained.
fn after_the_requester_left(end: impl FnOnce(&ManualClock) -> bool) {
    let (pool, (there, clock), (here, _)) = (pool(), runtime(&[("a", 1)]), runtime(&[("b", 1)]));
    let _inside = pool.enter();
    let policy = Policy::pure().claim("a", 1).timeout(ms(10));
    let requester = there.contract("requester", policy).unwrap();
    let threaded = here
        .contract("threaded", Policy::pure().claim("b", 1))
        .unwrap();
    let (begin, begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let (back, again) = (requester.clone(), there.clone());
    let mut handler = Some(move |_: &bursar::Attempt| {
        begin.send(()).unwrap();
        let _ = gone.recv();
        let answer = Handle::current().block_on(back.run(|| async { Answer::Ok(7) }));
        let stopping = answer.is_err_and(|error| error.is_stopping());
        let shut = Handle::current().block_on(again.shutdown());
        tell.send((stopping, shut)).unwrap();
        Answer::Ok(1)
    });
    let mut call = task::spawn(requester.run(|| {
        let handler = handler.take().expect("one attempt");
        async { threaded.run_blocking(handler).await.carry() }
    }));
    assert!(call.poll().is_pending());
    receive(&begun);
    if end(&clock) {
        assert!(call.poll().is_ready());
    }
    drop(call);
    assert_ready_ok!(task::spawn(there.shutdown()).poll());
    go.send(()).unwrap();
    let (stopping, shut) = receive(&told);
    assert!(stopping, "what was drained admits nobody");
    assert!(shut.is_ok(), "and nothing of it is live");
    pool.block_on(here.shutdown()).unwrap();
    assert_idle(&there);
}

#[test]
fn d1_work_on_a_thread_is_inside_its_requester_while_that_is_live() {
    let (pool, (there, _), (here, _)) = (pool(), runtime(&[("a", 1)]), runtime(&[("b", 1)]));
    let _inside = pool.enter();
    let requester = there
        .contract("requester", Policy::pure().claim("a", 1))
        .unwrap();
    let free = there.contract("free", Policy::pure()).unwrap();
    let threaded = here
        .contract("threaded", Policy::pure().claim("b", 1))
        .unwrap();
    let (begin, begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let (begin, gone, back, again) = (&begin, &mut Some(gone), &free, &there);
    let mut call = Stepped::new(requester.run(|| {
        let (begin, gone) = (begin.clone(), gone.take().expect("one attempt"));
        let (back, again) = (back.clone(), again.clone());
        let handler = move |_: &bursar::Attempt| {
            begin.send(()).unwrap();
            let _ = gone.recv();
            let refused = Handle::current().block_on(again.shutdown());
            assert_eq!(refused.map(drop), Err(ShutdownError::InsideOwnCall));
            let nested = back.run(|| async { Answer::Ok(7) });
            Handle::current().block_on(nested).permanent()
        };
        async { threaded.run_blocking(handler).await.carry() }
    }));
    assert!(call.poll().is_pending());
    receive(&begun);
    let mut shutdown = Stepped::new(there.shutdown());
    assert!(shutdown.poll().is_pending());
    go.send(()).unwrap();
    call.wait();
    assert!(matches!(call.poll(), Poll::Ready(Ok(7))));
    shutdown.wait();
    assert!(matches!(shutdown.poll(), Poll::Ready(Ok(_))));
    assert_idle(&there);
}

#[test]
fn d1_work_on_a_thread_is_inside_its_requester_no_longer_than_that_is_live() {
    // The requester's caller goes away, and the requester's attempt ends.
    after_the_requester_left(|_| false);
    after_the_requester_left(|clock| {
        clock.advance(ms(10));
        true
    });
}
