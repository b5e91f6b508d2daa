//! Every public future, dropped at every poll: nothing is held, nobody waiting is lost, nothing runs on.

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod served;

use bursar::testkit::{Step, Subject, at_every_poll, when_woken};

fn nothing<W>(_: &W) {}

/// Drops the subject at every poll: polled when it need not be, and polled only once it was woken.
fn drop_everywhere<W, P: Copy + std::fmt::Debug + PartialEq>(
    build: impl Fn() -> W,
    subject: impl for<'w> Fn(&'w W) -> Subject<'w>,
    script: &[Step<W, P>],
    point: impl Fn(&W, bool) -> P,
    afterwards: impl Fn(&W, &mut dyn FnMut()),
) {
    for only_when_woken in [false, true] {
        at_every_poll(
            &build,
            |world| match only_when_woken {
                false => subject(world),
                true => Box::pin(when_woken(subject(world))),
            },
            script,
            &point,
            &afterwards,
        );
    }
}
