//! What a layer asks of a request: its key, effect, idempotency key and deadline, and whether it can be sent again.

use std::fmt;
use std::sync::Arc;

use bursar::{Call, Contract, Effect, Key};

use crate::deadline::Deadline;

type Ask<Req, T> = Arc<dyn Fn(&Req) -> T + Send + Sync>;

/// The questions that a layer was given. Each is asked once a call, at its first poll, before anything is held.
pub(crate) struct Asks<Req> {
    pub(crate) key: Option<Ask<Req, Key>>,
    pub(crate) effect: Option<Ask<Req, Effect>>,
    pub(crate) idempotency_key: Option<Ask<Req, Option<Arc<str>>>>,
    pub(crate) deadline: Option<Ask<Req, Deadline>>,
    /// Asked before each attempt.
    pub(crate) copy: Option<Ask<Req, Option<Req>>>,
}

impl<Req> Asks<Req> {
    pub(crate) const NONE: Self = Self {
        key: None,
        effect: None,
        idempotency_key: None,
        deadline: None,
        copy: None,
    };

    /// A call, told what this request says, and the effect that counts for it: the stricter of what the policy
    /// declares and what is known of the request, unless a key makes it repeatable.
    pub(crate) fn call<'c>(&self, contract: &'c Contract, request: &Req) -> (Call<'c>, Effect) {
        let mut call = contract.with();
        let declared = contract.effect();
        let mut effect = declared;
        if let Some(key) = &self.key {
            call = call.key(key(request));
        }
        if let Some(of) = &self.effect {
            let stated = of(request);
            effect = Some(declared.map_or(stated, |declared| declared.max(stated)));
            call = call.effect(stated);
        }
        let mut effect = effect.unwrap_or(Effect::NonIdempotent);
        let key = self.idempotency_key.as_ref().and_then(|key| key(request));
        // As the call sees it: an empty key is none.
        if let Some(key) = key.filter(|key| !key.is_empty()) {
            effect = effect.min(Effect::Idempotent);
            call = call.idempotency_key(key);
        }
        let deadline = self.deadline.as_ref().map(|deadline| deadline(request));
        if let Some(moment) = deadline.and_then(Deadline::moment) {
            call = call.deadline(moment);
        }
        (call, effect)
    }

    /// The request for another attempt, if there can be one.
    pub(crate) fn copy(&self, request: &Req) -> Option<Req> {
        self.copy.as_ref().and_then(|copy| copy(request))
    }
}

/// Written by hand: the derived one would ask the request to be `Clone`.
impl<Req> Clone for Asks<Req> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            effect: self.effect.clone(),
            idempotency_key: self.idempotency_key.clone(),
            deadline: self.deadline.clone(),
            copy: self.copy.clone(),
        }
    }
}

impl<Req> fmt::Debug for Asks<Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asks")
            .field("key", &self.key.is_some())
            .field("effect", &self.effect.is_some())
            .field("idempotency_key", &self.idempotency_key.is_some())
            .field("deadline", &self.deadline.is_some())
            .field("copy", &self.copy.is_some())
            .finish()
    }
}
