//! Cases from the field about retries, timeouts, shutdown and panics: 17, 18, 19, 21, 23, 24, and of 27 the mass refusal
//! at shutdown.

mod common;

use std::collections::HashSet;
use std::future::{Future, pending};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::task::{Context, Poll, Wake};

use bursar::{
    CallError, Classify, Clock, Contract, Failure, Outcome, Policy, Retry, Runtime, ShutdownError,
};
use common::{
    Answer, Gate, Stepped, assert_idle, counts, in_use, lock, ms, receive, runtime, waiting,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};

fn threads(number: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(number)
        .enable_io()
        .build()
        .unwrap()
}

fn asks(attempts: u32) -> Retry<bursar::Doubtful> {
    Retry::up_to(attempts).on_transient().on_uncertain()
}

#[test]
fn case_17_a_success_that_came_late_is_not_overwritten() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    // Blocks in its poll past the timeout, commits, and returns.
    let policy = || {
        Policy::idempotent()
            .claim("a", 1)
            .timeout(ms(50))
            .retry(asks(3))
    };
    let contract = runtime.contract("blocks in its poll", policy()).unwrap();
    let mut commits = 0;
    let mut call = task::spawn(contract.run(|| {
        commits += 1;
        let clock = clock.clone();
        async move {
            clock.advance(ms(80));
            Answer::Ok(7)
        }
    }));
    assert_eq!(assert_ready_ok!(call.poll()), 7);
    drop(call);
    assert_eq!(commits, 1);

    // Ignores the signal and answers within its grace.
    let contract = runtime
        .contract("has a grace", policy().grace(ms(40)))
        .unwrap();
    let mut call = task::spawn(contract.run(|| {
        let timer = clock.sleep_until(clock.now() + ms(80));
        async move {
            timer.await;
            Answer::Ok(7)
        }
    }));
    assert_pending!(call.poll());
    clock.advance(ms(50));
    assert_pending!(call.poll());
    clock.advance(ms(30));
    assert_eq!(assert_ready_ok!(call.poll()), 7);
    assert_eq!(counts(&runtime, "has a grace").retried, 0);
    drop(call);

    // Its caller has been answered for it: uncertain, never "not executed".
    let pool = threads(1);
    let _inside = pool.enter();
    let contract = runtime.contract("blocks a thread", policy()).unwrap();
    let (begin, begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let mut call = Stepped::new(contract.run_blocking(move |_| {
        begin.send(()).unwrap();
        let _ = gone.recv();
        Answer::Ok(7)
    }));
    assert_pending!(call.poll());
    receive(&begun);
    clock.advance(ms(50));
    let error = assert_ready_err!(call.poll());
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Uncertain, 1));
    assert!(!error.never_ran());
    go.send(()).unwrap();
    pool.block_on(runtime.shutdown()).unwrap();
    assert_eq!(begun.try_iter().count(), 0, "it ran once");
    assert_idle(&runtime);
}

#[test]
fn case_18_a_permit_follows_the_work_and_not_the_caller() {
    let (runtime, clock) = runtime(&[("a", 2)]);
    let policy = Policy::idempotent()
        .claim("a", 1)
        .timeout(ms(50))
        .retry(asks(3));
    let contract = runtime.contract("work", policy).unwrap();
    let pool = threads(3);
    let _inside = pool.enter();
    let (begin, begun) = mpsc::channel();
    let mut gos = Vec::new();
    let mut begin_one = || {
        let (begin, (go, gone)) = (begin.clone(), mpsc::channel::<()>());
        gos.push(go);
        let mut call = Stepped::new(contract.run_blocking(move |_| {
            begin.send(()).unwrap();
            let _ = gone.recv();
            Answer::Ok(7)
        }));
        assert_pending!(call.poll());
        call
    };
    let mut two = [begin_one(), begin_one()];
    receive(&begun);
    receive(&begun);
    clock.advance(ms(50));
    for call in &mut two {
        assert_eq!(assert_ready_err!(call.poll()).outcome(), Outcome::Uncertain);
    }
    clock.advance(ms(50));
    let mut third = begin_one();
    assert_eq!(
        (in_use(&runtime, "a"), waiting(&runtime, "a")),
        (2, 1),
        "nothing is free at 100"
    );
    assert_eq!(begun.try_iter().count(), 0);
    clock.advance(ms(400));
    assert_pending!(third.poll());
    drop(gos.remove(0));
    third.wait();
    assert_pending!(third.poll());
    receive(&begun);
    assert!(in_use(&runtime, "a") <= 2, "never above the peak");
    gos.clear();
    third.wait();
    assert_ready_ok!(third.poll());
    pool.block_on(runtime.shutdown()).unwrap();
    assert_idle(&runtime);
}

/// A provider that commits what each connection sends, and closes before it replies to the first `lost` of them.
struct Provider {
    address: SocketAddr,
    received: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    fn new(lost: usize, connections: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let commits = received.clone();
        #[expect(clippy::disallowed_methods, reason = "a server of its own")]
        std::thread::spawn(move || {
            for number in 0..connections {
                let (mut connection, _) = listener.accept().expect("a client");
                let mut request = [0; 16];
                let length = connection.read(&mut request).expect("a request");
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                lock(&commits).push(request);
                if number >= lost {
                    connection.write_all(b"ok").expect("a reply");
                }
            }
        });
        Self { address, received }
    }
}

/// One exchange. Refused before a byte was sent it is transient; lost afterwards it is uncertain.
async fn charge(address: SocketAddr, key: &str) -> Result<String, Failure<std::io::Error>> {
    let mut connection = TcpStream::connect(address).await.transient()?;
    connection.write_all(key.as_bytes()).await.uncertain()?;
    let mut reply = String::new();
    connection.read_to_string(&mut reply).await.uncertain()?;
    if reply.is_empty() {
        return Err(std::io::Error::other("closed before it replied")).uncertain();
    }
    Ok(reply)
}

#[test]
fn case_19_a_reply_lost_after_the_commit_is_repeated_only_where_that_is_harmless() {
    let (executor, (runtime, _)) = (threads(1), runtime(&[("a", 1)]));
    let effectful = Policy::non_idempotent()
        .claim("a", 1)
        .retry(Retry::up_to(3).on_transient());
    let effectful = runtime.contract("effectful", effectful).unwrap();
    let keyed = Policy::idempotent().claim("a", 1).retry(asks(3));
    let keyed = runtime.contract("with a key", keyed).unwrap();

    // (a) Effectful: one request.
    let provider = Provider::new(3, 1);
    let call = effectful.run(|| charge(provider.address, "charge 1"));
    let error = executor.block_on(call).unwrap_err();
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Uncertain, 1));
    assert_eq!(*lock(&provider.received), ["charge 1"]);

    // (b) The provider knows it by its key: sent again, the same.
    let provider = Provider::new(1, 2);
    let call = keyed.run(|| charge(provider.address, "key 7"));
    assert_eq!(executor.block_on(call).unwrap(), "ok");
    assert_eq!(*lock(&provider.received), ["key 7", "key 7"]);
    let distinct: HashSet<String> = lock(&provider.received).iter().cloned().collect();
    assert_eq!(distinct.len(), 1, "committed once");

    // (c) Effectful, and nobody listens: nothing was sent, so it may be tried again.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let mut tries = 0;
    let call = effectful.run(|| {
        tries += 1;
        charge(address, "charge 2")
    });
    let error = executor.block_on(call).unwrap_err();
    assert_eq!(
        (error.outcome(), error.attempts(), tries),
        (Outcome::Transient, 3, 3)
    );
    let kind = error.error().expect("the refusal").kind();
    assert_eq!(kind, std::io::ErrorKind::ConnectionRefused);
    assert_idle(&runtime);
}

#[test]
fn case_21_a_timed_out_attempt_is_not_overlapped_and_nobody_hangs() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::idempotent()
        .claim("a", 1)
        .reject()
        .timeout(ms(50))
        .retry(asks(2));
    let contract = runtime.contract("work", policy).unwrap();
    let pool = threads(2);
    let _inside = pool.enter();
    let (begin, begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let mut call = Stepped::new(contract.run_blocking(move |_| {
        begin.send(()).unwrap();
        let _ = gone.recv();
        Answer::Ok(7)
    }));
    assert_pending!(call.poll());
    receive(&begun);
    clock.advance(ms(50));
    let error = assert_ready_err!(call.poll());
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Uncertain, 1));
    // The only slot is where the work is.
    clock.advance(ms(9_900));
    let refused = task::spawn(contract.run(|| async { Answer::Ok(8) })).poll_until_idle();
    assert!(assert_ready_err!(refused).is_overloaded());
    assert_eq!((in_use(&runtime, "a"), begun.try_iter().count()), (1, 0));
    go.send(()).unwrap();
    pool.block_on(runtime.shutdown()).unwrap();
    assert_idle(&runtime);
}

#[test]
fn case_23_draining_is_not_cancelling_and_takes_as_long_as_the_work() {
    let (runtime, clock) = runtime(&[("a", 2)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let begin = clock.now();
    let work = |seconds: u64, answer: Answer| {
        let timer = clock.sleep_until(begin + ms(seconds * 1_000));
        let mut once = Some((timer, answer));
        let contract: &Contract = &contract;
        task::spawn(contract.run(move || {
            let (timer, answer) = once.take().expect("one attempt");
            async move {
                timer.await;
                answer
            }
        }))
    };
    let mut errs = work(1, Err(Failure::permanent("by itself")));
    let mut succeeds = work(2, Ok(7));
    assert_pending!(errs.poll());
    assert_pending!(succeeds.poll());
    let mut shutdown = task::spawn(runtime.shutdown_within(ms(5_000)));
    assert_pending!(shutdown.poll());
    clock.advance(ms(1_000));
    assert_eq!(assert_ready_err!(errs.poll()).error(), Some(&"by itself"));
    assert_pending!(shutdown.poll());
    clock.advance(ms(1_000));
    assert_eq!(assert_ready_ok!(succeeds.poll()), 7);
    assert!(shutdown.is_woken());
    assert_ready_ok!(shutdown.poll());
    assert_eq!(clock.now() - begin, ms(2_000));
}

#[test]
fn case_24_a_shutdown_from_inside_is_refused_and_two_from_outside_end() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let gate = Gate::new();
    let mut call = task::spawn(contract.run(|| async {
        let refused = runtime.shutdown().await;
        assert_eq!(refused, Err(ShutdownError::InsideOwnCall));
        gate.wait().await;
        Answer::Ok(7)
    }));
    assert_pending!(call.poll());
    // It closed nothing.
    let mut waits = task::spawn(contract.admit());
    assert_pending!(waits.poll());
    drop(waits);
    let mut twice = [(); 2].map(|()| task::spawn(runtime.shutdown()));
    for shutdown in &mut twice {
        assert_pending!(shutdown.poll());
    }
    gate.open();
    assert_ready_ok!(call.poll());
    for shutdown in &mut twice {
        assert!(shutdown.is_woken());
        assert_ready_ok!(shutdown.poll());
    }
    assert_ready_ok!(task::spawn(runtime.shutdown()).poll());
}

type Waiting = Pin<Box<dyn Future<Output = Result<u32, CallError<common::Error>>> + Send>>;

/// A task that is polled by whoever wakes it, there and then: what recursion there is, is on the waker's stack.
struct Inline(Mutex<Option<Waiting>>, Arc<Mutex<u32>>);

impl Inline {
    fn poll(self: &Arc<Self>) {
        let Some(mut future) = lock(&self.0).take() else {
            return;
        };
        match future
            .as_mut()
            .poll(&mut Context::from_waker(&self.clone().into()))
        {
            Poll::Pending => *lock(&self.0) = Some(future),
            Poll::Ready(answer) => {
                assert!(answer.is_err_and(|error| error.is_stopping()));
                *lock(&self.1) += 1;
            }
        }
    }
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}

/// Queues 10,000 calls, half of them under one key, and shuts down. Returns how many were refused, once each.
fn refuse_them_all() -> u32 {
    const CALLS: usize = 10_000;
    let (runtime, _): (Runtime, _) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let mut builder = contract.with().key("k");
    let mut holder = task::spawn(builder.run(|_| pending::<Answer>()));
    assert_pending!(holder.poll());
    let refused = Arc::new(Mutex::new(0));
    let tasks: Vec<Arc<Inline>> = (0..CALLS)
        .map(|number| {
            let contract = contract.clone();
            let waiting: Waiting = Box::pin(async move {
                let mut call = contract.with().key((number % 2 == 0).then_some("k"));
                call.run(|_| async { Answer::Ok(7) }).await
            });
            Arc::new(Inline(Mutex::new(Some(waiting)), refused.clone()))
        })
        .collect();
    for task in &tasks {
        task.poll();
    }
    assert_eq!(waiting(&runtime, "a") as usize, CALLS / 2);
    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    assert_eq!(*lock(&refused) as usize, CALLS, "each is told, once");
    drop(holder);
    assert_ready!(shutdown.poll()).unwrap();
    assert_idle(&runtime);
    let weak: Vec<Weak<Inline>> = tasks.iter().map(Arc::downgrade).collect();
    drop(tasks);
    assert!(
        weak.iter().all(|task| task.strong_count() == 0),
        "no waker is kept"
    );
    *lock(&refused)
}

#[test]
fn case_27_ten_thousand_refused_at_shutdown_need_no_deep_stack() {
    #[expect(clippy::disallowed_methods, reason = "a stack of 256 KiB")]
    let small = std::thread::Builder::new()
        .stack_size(256 * 1_024)
        .spawn(refuse_them_all)
        .unwrap();
    assert_eq!(small.join().expect("no overflow"), 10_000);
}
