//! A Spot whose type is not known.

use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};

use bursar::SpotSnapshot;

use crate::beside;
use crate::error::CloseReason;
use crate::strand::Strand;

/// What may be asked of a Spot whose type is not known.
pub(crate) trait Member: Send + Sync {
    fn name(&self) -> &str;
    fn close(self: Arc<Self>, reason: CloseReason) -> bool;
    fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()>;
    fn idle(&self) -> bool;
    /// Whether whoever asks would wait for itself if it waited for this Spot to end.
    fn is_kept_above(&self) -> bool;
    /// Turns that run, work that waits for one, and yielded bodies.
    fn figures(&self) -> (u32, u32, u32);
    /// Ends its timers.
    fn end_timers(self: Arc<Self>);
    /// What it does. `None` while it does nothing and waits for nothing.
    fn snapshot(&self) -> Option<SpotSnapshot>;
    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<S: Send + 'static> Member for Strand<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn close(self: Arc<Self>, reason: CloseReason) -> bool {
        Self::close(&self, reason)
    }

    fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        Self::poll_closed(self, cx)
    }

    fn idle(&self) -> bool {
        self.look(|gate| gate.idle())
    }

    fn is_kept_above(&self) -> bool {
        Self::is_kept_above(self)
    }

    fn figures(&self) -> (u32, u32, u32) {
        self.look(|gate| gate.figures())
    }

    fn end_timers(self: Arc<Self>) {
        beside::end_timers(&self);
    }

    fn snapshot(&self) -> Option<SpotSnapshot> {
        Self::snapshot(self)
    }

    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
