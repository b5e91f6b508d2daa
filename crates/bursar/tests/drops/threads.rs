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

use Point::{Between, Done, First, Grace, Key, Queued, Running, Second};

/// The handler's side: it says when it begins, and answers when told.
#[derive(Default)]
struct Seen {
    begun: AtomicU32,
    ended: AtomicU32,
    told: AtomicBool,
}

struct Threads {
    world: World,
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
    fn new() -> Self {
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
        let world = World::new();
        Self {
            epoch: world.clock.now(),
            world,
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
        let of = counts(&self.world.runtime, "work");
        if ready || of.started == 0 {
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
        // Time stands still but for the first attempt's timeout.
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
            for waiter in &mut behind {
                assert!(waiter.poll().is_pending());
            }
            self.go.send(Err(Failure::transient("too late"))).unwrap();
            for (got, waiter) in got.iter_mut().zip(&mut behind) {
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
        Threads::new,
        |threads| {
            Box::pin(async {
                let mut call = threads.world.work.with().key("k").within(ms(1_000));
                let mut call = pin!(call.run_blocking(threads.handler()));
                // Woken on a bell that the script can wait for.
                let mut cx = Context::from_waker(&threads.waker);
                let poll = poll_fn(|_| {
                    let _inside = threads.pool.enter();
                    call.as_mut().poll(&mut cx)
                });
                let answer = poll.await;
                assert_eq!(answer.unwrap(), 7);
            })
        },
        &script,
        Threads::point,
        Threads::afterwards,
    );
}
