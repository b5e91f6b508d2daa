//! What is promised of work beside the turns, without a Spot around it.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::runtime::{Builder, Runtime as Tokio};
use tokio::sync::Notify;
use tokio_test::{assert_pending, assert_ready, task};

use super::*;

/// One thread for CPU work, and room for one more to wait.
fn narrow() -> (Tokio, Workers) {
    let tokio = Builder::new_multi_thread().worker_threads(1).build();
    let tokio = tokio.expect("a thread");
    let workers = Workers::new(1, 1, Exec::of(tokio.handle().clone()));
    (tokio, workers)
}

/// CPU work that says when it runs, and runs until it is let go: 7.
fn held(workers: &Workers) -> (Work<u32>, Receiver<()>, Sender<()>) {
    let (says, runs) = channel();
    let (let_go, held) = channel::<()>();
    let work = workers.cpu(move |_| {
        says.send(()).expect("somebody listens");
        let _let_go = held.recv();
        7
    });
    (work, runs, let_go)
}

#[test]
fn f9_work_is_submitted_by_the_first_poll_and_needs_no_other() {
    let (_tokio, workers) = narrow();
    let (says, hears) = channel();
    let also_says = says.clone();
    let mut cpu = task::spawn(workers.cpu(move |_| says.send("cpu").expect("heard")));
    let mut io = task::spawn(workers.io(|_| async move { also_says.send("io").expect("heard") }));
    assert_eq!(workers.live(), 0);
    let _ = cpu.poll();
    assert_eq!(hears.recv(), Ok("cpu"));
    let _ = io.poll();
    assert_eq!(hears.recv(), Ok("io"));
}

#[test]
fn f9_a_full_queue_is_capacity_exceeded_at_once() {
    let (tokio, workers) = narrow();
    let (running, runs, let_go) = held(&workers);
    let mut running = task::spawn(running);
    assert_pending!(running.poll());
    runs.recv().expect("it runs");
    let mut waiting = task::spawn(workers.cpu(|_| 8));
    assert_pending!(waiting.poll());
    let refused = assert_ready!(task::spawn(workers.cpu(|_| 9)).poll());
    let full = WorkError::CapacityExceeded {
        threads: 1,
        waiting: 1,
    };
    assert_eq!(refused, Err(full.clone()));
    assert_eq!(full.outcome(), Outcome::Throttled);
    assert_eq!(
        full.to_string(),
        "CPU work was refused: 1 threads are busy and 1 pieces of work wait for them"
    );
    drop(let_go);
    assert_eq!(tokio.block_on(running.into_inner()), Ok(7));
    assert_eq!(tokio.block_on(waiting.into_inner()), Ok(8));
}

#[test]
fn f9_cpu_and_io_work_do_not_wait_for_each_other() {
    let (tokio, workers) = narrow();
    let mut endless: Vec<_> = (0..100)
        .map(|_| task::spawn(workers.io(|_| pending::<()>())))
        .collect();
    for work in &mut endless {
        assert_pending!(work.poll());
    }
    assert_eq!(tokio.block_on(workers.cpu(|_| 1)), Ok(1));
    let (running, runs, _let_go) = held(&workers);
    let mut running = task::spawn(running);
    assert_pending!(running.poll());
    runs.recv().expect("it runs");
    let mut waiting = task::spawn(workers.cpu(|_| 8));
    assert_pending!(waiting.poll());
    assert_eq!(tokio.block_on(workers.io(|_| async { 2 })), Ok(2));
}

#[test]
fn f9_a_waiter_that_leaves_fires_the_cancellation_and_its_result_is_dropped() {
    #[derive(Debug)]
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (tokio, workers) = narrow();
    let dropped = Arc::new(AtomicUsize::new(0));
    let (says, runs) = channel();
    let late = Counted(Arc::clone(&dropped));
    let mut cpu = task::spawn(workers.cpu(move |cancelled| {
        says.send(()).expect("somebody listens");
        while !cancelled.is_cancelled() {
            std::thread::yield_now();
        }
        late
    }));
    let late = Counted(Arc::clone(&dropped));
    let mut io = task::spawn(workers.io(|cancelled| async move {
        cancelled.cancelled().await;
        late
    }));
    assert_pending!(cpu.poll());
    assert_pending!(io.poll());
    runs.recv().expect("it runs");
    drop((cpu, io));
    tokio.block_on(workers.ended());
    assert_eq!(dropped.load(Ordering::Relaxed), 2, "each once");
}

#[test]
fn f9_work_that_has_not_begun_when_its_waiter_leaves_never_does() {
    let (tokio, workers) = narrow();
    let (running, runs, let_go) = held(&workers);
    let mut running = task::spawn(running);
    assert_pending!(running.poll());
    runs.recv().expect("it runs");
    let ran = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&ran);
    let mut waiting = task::spawn(workers.cpu(move |_| counts.fetch_add(1, Ordering::Relaxed)));
    assert_pending!(waiting.poll());
    drop(waiting);
    assert_eq!(workers.live(), 1, "its place is free at once");
    drop(let_go);
    assert_eq!(tokio.block_on(running.into_inner()), Ok(7));
    assert_eq!(tokio.block_on(workers.cpu(|_| 1)), Ok(1));
    assert_eq!(ran.load(Ordering::Relaxed), 0);
}

#[test]
fn f9_a_token_ends_the_waiting_and_tells_whether_the_work_began() {
    let (_tokio, workers) = narrow();
    let token = Arc::new(Notify::new());
    let fires = |token: &Arc<Notify>| {
        let token = Arc::clone(token);
        async move { token.notified().await }
    };
    let (running, runs, _let_go) = held(&workers);
    let mut running = task::spawn(running.until(fires(&token)));
    assert_pending!(running.poll());
    runs.recv().expect("it runs");
    let mut waiting = task::spawn(workers.cpu(|_| 8).until(fires(&token)));
    assert_pending!(waiting.poll());
    token.notify_waiters();
    assert!(running.is_woken() && waiting.is_woken());
    let began = WorkError::Cancelled { began: true };
    let never_ran = WorkError::Cancelled { began: false };
    assert_eq!(
        (began.outcome(), never_ran.outcome()),
        (Outcome::Uncertain, Outcome::Throttled)
    );
    assert_eq!(assert_ready!(running.poll()), Err(began));
    assert_eq!(assert_ready!(waiting.poll()), Err(never_ran.clone()));
    let mut late = task::spawn(workers.cpu(|_| 9).until(async {}));
    assert_eq!(assert_ready!(late.poll()), Err(never_ran));
}

#[test]
fn f9_a_result_in_hand_stands_though_the_token_has_fired() {
    let (tokio, workers) = narrow();
    let token = Arc::new(Notify::new());
    let fires = Arc::clone(&token);
    let mut done = task::spawn(
        workers
            .cpu(|_| 7)
            .until(async move { fires.notified().await }),
    );
    let _ = done.poll();
    tokio.block_on(workers.ended());
    token.notify_one();
    assert_eq!(assert_ready!(done.poll()), Ok(7));
}

#[test]
fn f9_closing_fires_the_cancellation_of_its_own_work_alone() {
    let (tokio, workers) = narrow();
    let (one, other) = (workers.within(), workers.within());
    let (says, runs) = channel();
    let mut running = task::spawn(one.cpu(move |cancelled| {
        says.send(()).expect("somebody listens");
        while !cancelled.is_cancelled() {
            std::thread::yield_now();
        }
        "told"
    }));
    assert_pending!(running.poll());
    runs.recv().expect("it runs");
    let mut waiting = task::spawn(one.cpu(|_| 8));
    assert_pending!(waiting.poll());
    let (says, runs) = channel();
    let mut others = task::spawn(other.io(move |cancelled| async move {
        says.send(()).expect("somebody listens");
        cancelled.cancelled().await;
    }));
    assert_pending!(others.poll());
    runs.recv().expect("it runs");
    one.close();
    assert!(waiting.is_woken());
    // The thread may have come to it meanwhile, only to find it closed.
    let never_ran = tokio.block_on(waiting.into_inner());
    assert_eq!(never_ran, Err(WorkError::Closed));
    assert_eq!(tokio.block_on(running.into_inner()), Ok("told"));
    let mut late = task::spawn(one.io(|_| async {}));
    assert_eq!(assert_ready!(late.poll()), Err(WorkError::Closed));
    assert_eq!(WorkError::Closed.outcome(), Outcome::Throttled);
    assert_eq!(tokio.block_on(other.cpu(|_| 3)), Ok(3));
    workers.close();
    assert_eq!(tokio.block_on(others.into_inner()), Ok(()));
}

#[test]
fn f9_a_panic_goes_on_to_the_waiter_and_costs_no_thread() {
    let (tokio, workers) = narrow();
    let panics = |work: Work<()>| {
        catch_unwind(AssertUnwindSafe(|| tokio.block_on(work))).expect_err("it panics")
    };
    for _ in 0..3 {
        let said = panics(workers.cpu(|_| panic!("computed into a corner")));
        assert_eq!(said.downcast_ref::<&str>(), Some(&"computed into a corner"));
        let said = panics(workers.io(|_| async { panic!("read past the end") }));
        assert_eq!(said.downcast_ref::<&str>(), Some(&"read past the end"));
    }
    assert_eq!(tokio.block_on(workers.cpu(|_| 1)), Ok(1));
    tokio.block_on(workers.ended());
}

#[test]
fn f9_an_executor_that_goes_away_leaves_its_work_uncertain() {
    let (tokio, workers) = narrow();
    let mut io = task::spawn(workers.io(|_| pending::<()>()));
    assert_pending!(io.poll());
    tokio.shutdown_background();
    let gone = Builder::new_current_thread().build().expect("a thread");
    let gone = gone.block_on(io.into_inner());
    assert_eq!(gone, Err(WorkError::Unavailable { began: true }));
    assert_eq!(gone.map_err(|gone| gone.outcome()), Err(Outcome::Uncertain));
}
