//! The threads that CPU work runs on, and the bounded queue before them.
//!
//! Rayon owns the threads; the queue is ours, since rayon's has no bound and gives nothing back.
//!
//! Invariants:
//! 1. At most `threads` jobs run at once, and at most `queue` wait; who finds both full is refused at once.
//! 2. Jobs start in the order in which they were accepted.
//! 3. A job that is withdrawn gives its place in the queue back there and then.
//! 4. Whoever ends a job starts the next one, as a job of its own: a thread that waits inside a parallel computation and
//!    looks for other work meanwhile takes up one job more, not all that wait.
//!
//! One lock, a leaf: jobs run, and are dropped, after it.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rayon_core::{ThreadPool, ThreadPoolBuilder};

type Job = Box<dyn FnOnce() + Send>;

/// The place of a job in the queue, for who may want it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// What became of a job that was handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    Started,
    Queued(Ticket),
}

/// Why a job was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// So many already wait.
    Full { waiting: usize },
    /// The system gives no threads.
    NoThreads,
}

pub(crate) struct Pool {
    threads: usize,
    queue: usize,
    /// Made when the first job comes: a host without CPU work has no threads. `None` if the system gives none.
    rayon: OnceLock<Option<ThreadPool>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<u64, Job>,
    running: usize,
    accepted: u64,
}

impl Pool {
    /// At least one thread.
    pub(crate) fn new(threads: usize, queue: usize) -> Arc<Self> {
        Arc::new(Self {
            threads: threads.max(1),
            queue,
            rayon: OnceLock::new(),
            state: Mutex::default(),
        })
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// How many jobs run, and how many wait.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let state = self.lock();
        (state.running, state.waiting.len())
    }

    pub(crate) fn submit(self: &Arc<Self>, job: Job) -> Result<Accepted, Refused> {
        let rayon = self.rayon().ok_or(Refused::NoThreads)?;
        let mut state = self.lock();
        if state.running < self.threads {
            state.running += 1;
            drop(state);
            self.start(rayon, job);
            return Ok(Accepted::Started);
        }
        let waiting = state.waiting.len();
        if waiting >= self.queue {
            // The job is dropped after the lock.
            drop(state);
            return Err(Refused::Full { waiting });
        }
        state.accepted += 1;
        let ticket = state.accepted;
        state.waiting.insert(ticket, job);
        Ok(Accepted::Queued(Ticket(ticket)))
    }

    /// Takes a job back that has not started. True if it will never run.
    pub(crate) fn withdraw(&self, ticket: Ticket) -> bool {
        let job = self.lock().waiting.remove(&ticket.0);
        job.is_some()
    }

    fn start(self: &Arc<Self>, rayon: &ThreadPool, job: Job) {
        let pool = Arc::clone(self);
        rayon.spawn(move || {
            // Jobs answer for their own panics. One from a drop inside a job has been reported by the panic hook, and must
            // not keep the next job from its thread.
            let _reported = catch_unwind(AssertUnwindSafe(job));
            pool.next();
        });
    }

    /// A job has ended.
    fn next(self: &Arc<Self>) {
        let mut state = self.lock();
        let Some((_, job)) = state.waiting.pop_first() else {
            state.running -= 1;
            return;
        };
        drop(state);
        if let Some(rayon) = self.rayon() {
            self.start(rayon, job);
        }
    }

    fn rayon(&self) -> Option<&ThreadPool> {
        let made = self.rayon.get_or_init(|| {
            ThreadPoolBuilder::new()
                .num_threads(self.threads)
                .thread_name(|which| format!("bursar-cpu-{which}"))
                .build()
                .ok()
        });
        made.as_ref()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (running, waiting) = self.usage();
        f.debug_struct("Pool")
            .field("threads", &self.threads)
            .field("queue", &self.queue)
            .field("running", &running)
            .field("waiting", &waiting)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A job that says that it runs, and runs until it is let go.
    fn held(says: &Sender<u32>, name: u32) -> (Job, Sender<()>) {
        let (let_go, held) = channel::<()>();
        let says = says.clone();
        let job = move || {
            says.send(name).expect("somebody listens");
            let _let_go = held.recv();
        };
        (Box::new(job), let_go)
    }

    fn listen() -> (Sender<u32>, Receiver<u32>) {
        channel()
    }

    #[test]
    fn f9_jobs_run_on_so_many_threads_and_wait_in_a_bounded_queue() {
        let pool = Pool::new(2, 1);
        let (says, hears) = listen();
        let jobs: Vec<_> = (0..4).map(|name| held(&says, name)).collect();
        let mut let_go = Vec::new();
        let mut accepted = Vec::new();
        for (job, go) in jobs {
            accepted.push(pool.submit(job));
            let_go.push(go);
        }
        assert_eq!(accepted[..2], [Ok(Accepted::Started); 2]);
        assert!(matches!(accepted[2], Ok(Accepted::Queued(_))));
        assert_eq!(accepted[3], Err(Refused::Full { waiting: 1 }));
        let mut running = [hears.recv(), hears.recv()].map(|name| name.expect("two run"));
        running.sort_unstable();
        assert_eq!(running, [0, 1]);
        assert_eq!(pool.usage(), (2, 1));
        let_go.swap_remove(0);
        assert_eq!(hears.recv(), Ok(2), "the next one starts");
    }

    #[test]
    fn f9_a_withdrawn_job_never_runs_and_its_place_is_free() {
        let pool = Pool::new(1, 1);
        let (says, hears) = listen();
        let (first, let_first_go) = held(&says, 0);
        let (second, _go) = held(&says, 1);
        let (third, _go) = held(&says, 2);
        assert_eq!(pool.submit(first), Ok(Accepted::Started));
        let Ok(Accepted::Queued(ticket)) = pool.submit(second) else {
            panic!("one may wait");
        };
        assert!(pool.withdraw(ticket));
        assert!(!pool.withdraw(ticket), "once");
        assert!(matches!(pool.submit(third), Ok(Accepted::Queued(_))));
        assert_eq!(hears.recv(), Ok(0));
        drop(let_first_go);
        assert_eq!(hears.recv(), Ok(2));
    }

    #[test]
    fn f9_a_panic_costs_no_thread() {
        let pool = Pool::new(1, 8);
        let (says, hears) = listen();
        let (first, let_first_go) = held(&says, 0);
        assert_eq!(pool.submit(first), Ok(Accepted::Started));
        for _ in 0..3 {
            let job: Job = Box::new(|| panic!("a job that panics"));
            assert!(pool.submit(job).is_ok());
        }
        let (last, _go) = held(&says, 4);
        assert!(pool.submit(last).is_ok());
        drop(let_first_go);
        assert_eq!(hears.recv(), Ok(0));
        assert_eq!(hears.recv(), Ok(4));
    }

    #[test]
    fn f9_parallel_work_inside_a_job_stays_on_the_pools_threads() {
        let pool = Pool::new(2, 8);
        let (says, hears) = channel();
        let job: Job = Box::new(move || {
            let here = || rayon_core::current_thread_index().is_some_and(|index| index < 2);
            let both = rayon_core::join(here, here);
            says.send((both, rayon_core::current_num_threads()))
                .expect("somebody listens");
        });
        assert!(pool.submit(job).is_ok());
        assert_eq!(hears.recv(), Ok(((true, true), 2)));
    }
}
