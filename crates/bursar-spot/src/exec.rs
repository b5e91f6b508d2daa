//! The executor of a host: where turns run once nobody's poll does. The one place that starts tasks.

use std::future::Future;

#[cfg(not(bursar_shuttle))]
mod imp {
    use std::future::Future;

    /// Where a host's turns run.
    #[derive(Clone, Debug)]
    pub(crate) struct Exec {
        handle: tokio::runtime::Handle,
        id: tokio::runtime::Id,
    }

    pub(super) type Task<T> = tokio::task::JoinHandle<T>;
    pub(crate) type ExecId = tokio::runtime::Id;

    impl Exec {
        /// The executor this thread runs in, if it runs in one.
        pub(crate) fn current() -> Option<Self> {
            let handle = tokio::runtime::Handle::try_current().ok()?;
            Some(Self::of(handle))
        }

        pub(crate) fn of(handle: tokio::runtime::Handle) -> Self {
            Self {
                id: handle.id(),
                handle,
            }
        }

        pub(crate) fn id(&self) -> ExecId {
            self.id
        }

        /// Whether this thread runs in this executor, so that what is polled here may stay here.
        #[inline]
        pub(crate) fn is_current(&self) -> bool {
            tokio::runtime::Handle::try_current().is_ok_and(|here| here.id() == self.id)
        }

        #[expect(clippy::disallowed_methods, reason = "the one place that starts tasks")]
        pub(super) fn task<F>(&self, future: F) -> Task<F::Output>
        where
            F: Future + Send + 'static,
            F::Output: Send + 'static,
        {
            self.handle.spawn(future)
        }
    }
}

#[cfg(bursar_shuttle)]
mod imp {
    use std::future::Future;

    #[derive(Clone, Debug)]
    pub(crate) struct Exec;

    pub(super) type Task<T> = shuttle::future::JoinHandle<T>;
    /// There is one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct ExecId;

    impl Exec {
        pub(crate) fn current() -> Option<Self> {
            Some(Self)
        }

        #[expect(clippy::unused_self, reason = "there is one executor")]
        pub(crate) fn id(&self) -> ExecId {
            ExecId
        }

        pub(crate) fn is_current(&self) -> bool {
            true
        }

        pub(super) fn task<F>(&self, future: F) -> Task<F::Output>
        where
            F: Future + Send + 'static,
            F::Output: Send + 'static,
        {
            shuttle::future::spawn(future)
        }
    }
}

pub(crate) use imp::{Exec, ExecId};

impl Exec {
    /// Starts a task that nobody waits for.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(self.task(future));
    }
}
