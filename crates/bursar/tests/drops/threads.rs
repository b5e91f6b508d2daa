//! Calls whose handler runs on a thread, dropped at every poll: in each queue, before a thread took the handler up, while
//! it runs, with its answer in hand, between attempts.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bursar::{Clock, Failure};

use crate::common::{Answer, Stepped, assert_idle, bell, counts, ms, receive};
use crate::harness::{Point, Step, THINGS, World};
use bursar::testkit::at_every_poll;

use Point::{Between, Done, First, Grace, Key, Pausing, Queued, Running, Second};

/// The handler's side: it says when it begins, and answers when told.
#[derive(Default)]
struct Seen {
    begun: AtomicU32,
    ended: AtomicU32,
    told: AtomicBool,
}

struct Threads {
    world: World,
    /// Whether the subject has a key.
    keyed: bool,
    /// Keeps the pool's only thread busy until it is dropped.
    occupied: RefCell<Option<mpsc::Sender<()>>>,
    seen: Arc<Seen>,
    begin: mpsc::Sender<()>,
    begun: mpsc::Receiver<()>,
    go: mpsc::Sender<Answer>,
    gone: RefCell<Option<mpsc::Receiver<Answer>>>,
    epoch: Instant,
    waker: Waker,
    rung: mpsc::Receiver<()>,
    /// Last, since dropping it waits for its thread.
    pool: tokio::runtime::Runtime,
}

impl Threads {
    fn new(keyed: bool) -> Self {
        let pool = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let (occupied, free) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let first = begin.clone();
        pool.spawn_blocking(move || {
            first.send(()).unwrap();
            let _ = free.recv();
        });
        receive(&begun);
        let (go, gone) = mpsc::channel();
        let (waker, rung) = bell();
        let world = World::holding([keyed, true, true]);
        Self {
            epoch: world.clock.now(),
            world,
            keyed,
            occupied: RefCell::new(Some(occupied)),
            seen: Arc::default(),
            begin,
            begun,
            go,
            gone: RefCell::new(Some(gone)),
            waker,
            rung,
            pool,
        }
    }

    fn handler(&self) -> impl FnMut(&bursar::Attempt) -> Answer + Send + use<> {
        let (seen, begin) = (self.seen.clone(), self.begin.clone());
        let gone = self.gone.take().expect("one handler");
        move |attempt| {
            seen.begun.fetch_add(1, Ordering::SeqCst);
            begin.send(()).expect("the test listens");
            let answer = receive(&gone);
            seen.told.store(attempt.is_cancelled(), Ordering::SeqCst);
            seen.ended.fetch_add(1, Ordering::SeqCst);
            answer
        }
    }

    /// The call, polled inside the pool, and woken on a bell that the script can wait for.
    async fn run<T>(&self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        let mut cx = Context::from_waker(&self.waker);
        poll_fn(|_| {
            let _inside = self.pool.enter();
            call.as_mut().poll(&mut cx)
        })
        .await
    }

    fn begun(&self) -> u32 {
        self.seen.begun.load(Ordering::SeqCst)
    }

    fn ended(&self) -> u32 {
        self.seen.ended.load(Ordering::SeqCst)
    }

    fn free_pool(&self) {
        self.occupied.take();
        receive(&self.begun);
    }

    /// Lets the handler answer, and waits until the answer lies ready.
    fn answer(&self, answer: Answer) {
        while self.rung.try_recv().is_ok() {}
        self.go.send(answer).unwrap();
        receive(&self.rung);
    }

    fn point(&self, ready: bool) -> Point {
        let started = counts(&self.world.runtime, "work").started
            + counts(&self.world.runtime, "paced").started;
        let seen = self.world.runtime.snapshot();
        let paused = seen.operations.iter().any(|of| of.paused > 0);
        if ready || started == 0 || paused {
            return self.world.point(ready);
        }
        // A timer runs exactly while an attempt does.
        if self.world.clock.timers() == 0 {
            return Between;
        }
        if self.occupied.borrow().is_some() {
            return Queued;
        }
        while self.begun() == self.ended() {
            receive(&self.begun);
        }
        // Time stands still but for the first attempt's timeout, and a pause after it.
        if self.begun() == 1 && self.world.clock.now() > self.epoch {
            Grace
        } else {
            Running
        }
    }

    fn afterwards(&self, drop_subject: &mut dyn FnMut()) {
        let _inside = self.pool.enter();
        let mut builders = [0, 1, 2].map(|thing| self.world.alone(thing));
        let mut behind = builders
            .each_mut()
            .map(|builder| Stepped::new(builder.admit()));
        let mut got = behind.each_mut().map(|waiter| waiter.poll());
        let begun = self.begun();
        drop_subject();
        if begun > self.ended() {
            // The work goes on with what it holds, and has been told.
            let stats = self.world.runtime.stats();
            assert_eq!(
                (stats.keys, stats.budgets[0].in_use, stats.budgets[1].in_use),
                (1, 1, 1)
            );
            // Without a key it waits for nobody who does.
            let kept = usize::from(!self.keyed);
            for waiter in &mut behind[kept..] {
                assert!(waiter.poll().is_pending());
            }
            self.go.send(Err(Failure::transient("too late"))).unwrap();
            for (got, waiter) in got.iter_mut().zip(&mut behind) {
                if got.is_ready() {
                    continue;
                }
                *got = loop {
                    match waiter.poll() {
                        Poll::Pending => waiter.wait(),
                        ready => break ready,
                    }
                };
            }
            assert!(self.seen.told.load(Ordering::SeqCst));
        } else {
            for thing in 0..THINGS {
                self.world.held[thing].take();
                if got[thing].is_pending() {
                    got[thing] = behind[thing].poll();
                }
                assert!(
                    got[thing].is_ready(),
                    "what the subject held is back at once"
                );
            }
        }
        drop((got, behind));
        assert_eq!(self.world.clock.timers(), 0, "no timer is left behind");
        assert_idle(&self.world.runtime);

        // Whatever lay before the thread has been called off: the next call is what it takes up.
        self.occupied.take();
        let mut builder = self.world.work.with().key("k");
        let next = self.pool.block_on(builder.run_blocking(|_| Answer::Ok(8)));
        assert_eq!(next.unwrap(), 8);
        assert_eq!(
            self.begun(),
            begun,
            "nothing began after the caller had gone"
        );
        assert_idle(&self.world.runtime);
    }
}

#[test]
fn c7_a_blocking_call_dropped_at_every_poll_leaves_behind_only_what_runs() {
    let script: [Step<Threads>; 13] = [
        (Key, |_| {}),
        (Key, |threads| threads.world.release_key()),
        (First, |threads| threads.world.release_a()),
        (Second, |threads| threads.world.release_b()),
        (Queued, |_| {}),
        (Queued, Threads::free_pool),
        (Running, |_| {}),
        (Running, |threads| threads.world.clock.advance(ms(10))),
        (Grace, |_| {}),
        (Grace, |threads| {
            threads.answer(Err(Failure::transient("again")))
        }),
        (Between, |_| {}),
        (Running, |threads| threads.answer(Ok(7))),
        (Done, |_| {}),
    ];
    at_every_poll(
        || Threads::new(true),
        |threads| {
            Box::pin(async {
                let mut call = threads.world.work.with().key("k").within(ms(1_000));
                let answer = threads.run(call.run_blocking(threads.handler())).await;
                assert_eq!(answer.unwrap(), 7);
            })
        },
        &script,
        Threads::point,
        Threads::afterwards,
    );
}

#[test]
fn c10_a_blocking_call_that_pauses_dropped_at_every_poll_leaves_behind_only_what_runs() {
    fn way(keyed: bool) -> Vec<Step<Threads>> {
        let key: &[Step<Threads>] = &[(Key, |threads| threads.world.release_key())];
        let take_over: fn(&Threads) = if keyed {
            |threads| threads.world.take_over_all_but_the_key()
        } else {
            |threads| threads.world.take_over()
        };
        let rest: [Step<Threads>; 11] = [
            (First, |threads| threads.world.release_a()),
            (Second, |threads| threads.world.release_b()),
            (Queued, Threads::free_pool),
            (Running, |threads| {
                threads.answer(Err(Failure::transient("again").after(ms(5))))
            }),
            (Pausing, |_| {}),
            (Pausing, take_over),
            (Pausing, |threads| threads.world.resume()),
            (First, |threads| threads.world.release_a()),
            (Second, |threads| threads.world.release_b()),
            (Running, |threads| threads.answer(Ok(7))),
            (Done, |_| {}),
        ];
        [if keyed { key } else { &[] }, &rest].concat()
    }
    at_every_poll(
        || Threads::new(true),
        |threads| {
            Box::pin(async {
                let mut call = threads.world.paced.with().key("k").within(ms(1_000));
                let answer = threads.run(call.run_blocking(threads.handler())).await;
                assert_eq!(answer.unwrap(), 7);
            })
        },
        &way(true),
        Threads::point,
        Threads::afterwards,
    );
    // The short form, which has neither key nor bounds.
    at_every_poll(
        || Threads::new(false),
        |threads| {
            Box::pin(async {
                let call = threads.world.paced.run_blocking(threads.handler());
                assert_eq!(threads.run(call).await.unwrap(), 7);
            })
        },
        &way(false),
        Threads::point,
        Threads::afterwards,
    );
}
