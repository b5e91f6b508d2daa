//! Small numbers for threads, each held by one living thread at a time.
//!
//! What is kept for a number is written by that thread alone. A number passes from a thread that ended to a new one
//! through the lock, which carries the old one's writes to the new. There are twice as many numbers as processors, 128 at
//! most; threads beyond that, and threads that are ending, have none.

use std::cell::Cell;
use std::sync::{Mutex, OnceLock};

use crate::sync::lock_plain;

/// No number, and too large to be the index of anything.
const NONE: usize = usize::MAX;
/// Not asked yet; too large as well.
const UNASKED: usize = isize::MAX as usize;

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(UNASKED) };
    static GUARD: Guard = const { Guard };
}

/// Gives this thread's number back when the thread ends.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        let number = NUMBER.replace(NONE);
        if number < numbers() {
            pool().push(number);
        }
    }
}

/// How many numbers there are.
#[cfg(not(any(bursar_loom, bursar_shuttle)))]
pub(crate) fn numbers() -> usize {
    static NUMBERS: OnceLock<usize> = OnceLock::new();
    *NUMBERS.get_or_init(|| {
        let processors = std::thread::available_parallelism();
        numbers_beside(processors.map_or(1, usize::from))
    })
}

/// How many numbers there are beside so many processors.
#[cfg(not(any(bursar_loom, bursar_shuttle)))]
fn numbers_beside(processors: usize) -> usize {
    (2 * processors).min(128)
}

/// Under a checker, whose threads share one of ours, no thread has a number.
#[cfg(any(bursar_loom, bursar_shuttle))]
pub(crate) fn numbers() -> usize {
    0
}

fn pool() -> std::sync::MutexGuard<'static, Vec<usize>> {
    static POOL: OnceLock<Mutex<Vec<usize>>> = OnceLock::new();
    lock_plain(POOL.get_or_init(|| Mutex::new((0..numbers()).rev().collect())))
}

/// This thread's number, if it has one and asked before; else something not below [`numbers`].
#[inline]
pub(crate) fn number_if_asked() -> usize {
    NUMBER.get()
}

/// This thread's number, below [`numbers`]; without one, something above.
pub(crate) fn number() -> usize {
    match NUMBER.get() {
        UNASKED => ask(),
        number => number,
    }
}

#[cold]
fn ask() -> usize {
    // A thread that is ending, whose guard is gone, takes no number: nobody would give it back.
    let number = GUARD
        .try_with(|_| pool().pop())
        .ok()
        .flatten()
        .unwrap_or(NONE);
    NUMBER.set(number);
    number
}

#[cfg(all(test, not(any(bursar_loom, bursar_shuttle))))]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::{Arc, Barrier};

    #[test]
    #[expect(clippy::disallowed_methods, reason = "threads are the subject")]
    fn a_number_passes_on_when_its_thread_ends() {
        let numbered = || std::thread::spawn(|| number() < numbers());
        // Other tests' threads may hold all of them for a while, but not while this many come and go.
        let times = 10_000;
        let mut passed = 0;
        for _ in 0..times {
            passed += usize::from(numbered().join().expect("no thread fails"));
            if passed > numbers() {
                return;
            }
        }
        panic!("{passed} of {times} threads, one after another, had a number");
    }

    #[test]
    fn there_are_twice_as_many_numbers_as_processors_and_128_at_most() {
        assert_eq!([1, 8, 64, 65].map(numbers_beside), [2, 16, 128, 128]);
        let processors = std::thread::available_parallelism();
        let processors = processors.map_or(1, usize::from);
        assert_eq!(numbers(), numbers_beside(processors));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "threads are the subject")]
    fn living_threads_never_share_a_number() {
        let many = numbers() + 4;
        for _ in 0..3 {
            let barrier = Arc::new(Barrier::new(many));
            let threads: Vec<_> = (0..many)
                .map(|_| {
                    let barrier = Arc::clone(&barrier);
                    std::thread::spawn(move || {
                        let mine = number();
                        assert_eq!(mine, number());
                        barrier.wait();
                        mine
                    })
                })
                .collect();
            let held: Vec<usize> = threads
                .into_iter()
                .map(|thread| thread.join().expect("no thread fails"))
                .filter(|number| *number < numbers())
                .collect();
            let distinct: HashSet<usize> = held.iter().copied().collect();
            assert_eq!(distinct.len(), held.len(), "{held:?}");
        }
    }
}
