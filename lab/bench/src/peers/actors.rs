//! Actors of other crates: counters that add one and answer with what they have come to.
//!
//! Each is set up as its documentation shows it, with the mailbox that the crate gives it by default. Asked to suspend, a
//! handler lets the executor have one turn before it adds, and nothing else of its actor runs meanwhile.

use std::future::{Future, poll_fn};
use std::task::Poll;

use actix::WrapFuture;
use actix::fut::ActorFutureExt;
use ractor::{ActorProcessingErr, ActorRef, RpcReplyPort};

use crate::work::Work;

/// Suspends once, to be polled again when the executor's queue has come round to it.
pub fn suspend() -> impl Future<Output = ()> + Send {
    let mut suspended = false;
    poll_fn(move |cx| {
        if std::mem::replace(&mut suspended, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

/// Asks for one addition.
#[derive(Clone, Copy, Debug)]
pub struct Add {
    /// Whether the handler suspends once.
    pub suspend: bool,
    /// What it works before it adds.
    pub work: Work,
}

/// An actor of actix. It lives on the thread that started it.
#[derive(Debug, Default)]
pub struct Actix(u64);

impl actix::Actor for Actix {
    type Context = actix::Context<Self>;
}

impl actix::Message for Add {
    type Result = u64;
}

impl actix::Handler<Add> for Actix {
    type Result = actix::MessageResult<Add>;

    fn handle(&mut self, _: Add, _: &mut Self::Context) -> Self::Result {
        self.0 += 1;
        actix::MessageResult(self.0)
    }
}

/// actix's way to suspend is another type of answer, and so another message.
#[derive(Clone, Copy, Debug)]
pub struct AddLater;

impl actix::Message for AddLater {
    type Result = u64;
}

impl actix::Handler<AddLater> for Actix {
    type Result = actix::AtomicResponse<Self, u64>;

    fn handle(&mut self, _: AddLater, _: &mut Self::Context) -> Self::Result {
        let later = suspend().into_actor(self).map(|(), actor, _| {
            actor.0 += 1;
            actor.0
        });
        actix::AtomicResponse::new(Box::pin(later))
    }
}

/// An actor of ractor.
#[derive(Debug)]
pub struct Ractor;

/// A ractor's message carries the way back.
#[derive(Debug)]
pub struct RactorAdd(pub Add, pub RpcReplyPort<u64>);

impl ractor::Actor for Ractor {
    type Msg = RactorAdd;
    type State = u64;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<RactorAdd>, (): ()) -> Result<u64, ActorProcessingErr> {
        Ok(0)
    }

    async fn handle(
        &self,
        _: ActorRef<RactorAdd>,
        RactorAdd(add, asker): RactorAdd,
        count: &mut u64,
    ) -> Result<(), ActorProcessingErr> {
        if add.suspend {
            suspend().await;
        }
        add.work.run();
        *count += 1;
        Ok(asker.send(*count)?)
    }
}

/// An actor of kameo.
#[derive(Debug, Default, kameo::Actor)]
pub struct Kameo(u64);

impl kameo::message::Message<Add> for Kameo {
    type Reply = u64;

    async fn handle(&mut self, add: Add, _: &mut kameo::message::Context<Self, u64>) -> u64 {
        if add.suspend {
            suspend().await;
        }
        add.work.run();
        self.0 += 1;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix::Actor as _;
    use kameo::actor::Spawn as _;

    const ADDS: [Add; 2] = [
        Add {
            suspend: false,
            work: Work::NONE,
        },
        Add {
            suspend: true,
            work: Work::NONE,
        },
    ];

    #[test]
    fn actix_counts() {
        let system = actix::System::new();
        system.block_on(async {
            let actor = Actix::default().start();
            assert_eq!(actor.send(ADDS[0]).await, Ok(1));
            assert_eq!(actor.send(AddLater).await, Ok(2));
        });
    }

    #[tokio::test]
    async fn ractor_counts() {
        let (actor, _) = ractor::Actor::spawn(None, Ractor, ())
            .await
            .expect("an actor");
        for (add, right) in ADDS.into_iter().zip(1..) {
            let count = actor.call(|back| RactorAdd(add, back), None).await;
            assert!(matches!(count, Ok(ractor::rpc::CallResult::Success(count)) if count == right));
        }
    }

    #[tokio::test]
    async fn kameo_counts() {
        let actor = Kameo::spawn(Kameo::default());
        for (add, right) in ADDS.into_iter().zip(1..) {
            assert_eq!(actor.ask(add).await.ok(), Some(right));
        }
    }
}
