//! What contenders stand on: executors, runtimes, contracts.
//!
//! Everything lives until the program ends, so that calls, tasks and contenders may borrow it freely.

use std::sync::OnceLock;
use std::time::Duration;

use bursar::{Contract, Failure, Policy, Runtime};
use tokio::runtime::{Builder, Runtime as Tokio};

/// A failure that no handler here returns.
pub type Never = Failure<std::convert::Infallible>;

/// A timeout that never passes here.
pub const SECONDS: Duration = Duration::from_secs(2);

/// What lives until the program ends.
pub fn forever<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// tokio on this thread, always the same. Without its I/O driver, which would ask the kernel at every turn.
#[must_use]
pub fn one_thread() -> &'static Tokio {
    thread_local! {
        static THREAD: &'static Tokio = {
            let tokio = Builder::new_current_thread().enable_time().build();
            forever(tokio.expect("a tokio runtime on this thread"))
        };
    }
    THREAD.with(|tokio| *tokio)
}

/// The same with its I/O driver, for what speaks to sockets.
#[must_use]
pub fn one_thread_with_io() -> &'static Tokio {
    thread_local! {
        static THREAD: &'static Tokio = {
            let tokio = Builder::new_current_thread().enable_all().build();
            forever(tokio.expect("a tokio runtime on this thread"))
        };
    }
    THREAD.with(|tokio| *tokio)
}

/// tokio on two threads, always the same.
#[must_use]
pub fn two_workers() -> &'static Tokio {
    static WORKERS: OnceLock<Tokio> = OnceLock::new();
    WORKERS.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        let tokio = builder.worker_threads(2).enable_all().build();
        tokio.expect("a tokio runtime on two threads")
    })
}

/// Two budgets, "first" and "second".
#[must_use]
pub fn runtime(first: u32, second: u32) -> Runtime {
    Runtime::builder()
        .resource("first", first)
        .resource("second", second)
        .build()
        .expect("two budgets")
}

/// The only operation of a runtime whose two budgets have 8 units each.
pub fn contract<E>(policy: Policy<E>) -> &'static Contract {
    contract_of(&runtime(8, 8), policy)
}

/// One more operation of a runtime.
pub fn contract_of<E>(runtime: &Runtime, policy: Policy<E>) -> &'static Contract {
    let contract = runtime.contract("operation", policy);
    forever(contract.expect("a policy that its runtime accepts"))
}

/// Texts that differ from call to call, at next to no cost: a decimal counter that counts in place.
#[derive(Clone, Debug)]
pub struct Texts([u8; 16]);

impl Texts {
    /// Texts that begin with this digit; two sequences with different digits never meet.
    #[must_use]
    pub fn new(digit: u8) -> Self {
        let mut text = *b"customer-0000000";
        text[9] = b'0' + digit % 10;
        Self(text)
    }

    /// The next text. After a million it begins anew.
    pub fn another(&mut self) -> &str {
        for digit in self.0[10..].iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                break;
            }
            *digit = b'0';
        }
        std::str::from_utf8(&self.0).expect("digits and letters")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_count() {
        let mut texts = Texts::new(3);
        assert_eq!(texts.another(), "customer-3000001");
        for _ in 0..8 {
            texts.another();
        }
        assert_eq!(texts.another(), "customer-3000010");
        for _ in 0..999_989 {
            texts.another();
        }
        assert_eq!(texts.another(), "customer-3000000");
    }
}
