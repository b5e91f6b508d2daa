//! Who runs on this thread, and what of the runtime they hold.

use std::sync::Arc;

use super::Engine;
use crate::chain::{self, Stand};
use crate::refusal::{Holder, Holders};
use crate::sync::lock;

impl Engine {
    /// Whether what runs on this thread holds units of that budget.
    pub(crate) fn chain_holds(&self, budget: &str) -> bool {
        let place = self.place(budget);
        let holders = self.own_calls();
        let registry = lock(&self.registry);
        holders.iter().any(|(operation, _)| {
            let of = registry.operations.get(*operation as usize);
            of.is_some_and(|of| of.claims.iter().any(|(at, _)| *at == place))
        })
    }

    /// The calls of this runtime that run on this thread, and whether they hold a key; the innermost first.
    fn own_calls(&self) -> Vec<(u32, bool)> {
        let mut calls = Vec::new();
        let _all: Option<()> = chain::find(|stand| {
            if let Stand::Call {
                engine,
                operation,
                key,
                ..
            } = stand
                && engine == self.id()
            {
                calls.push((operation, key != 0));
            }
            None
        });
        calls
    }

    /// Who runs on this thread and what they hold, for a person to read; the innermost first.
    #[cold]
    pub(crate) fn holders(&self) -> Holders {
        let mut stands = Vec::new();
        let _all: Option<()> = chain::find(|stand| {
            stands.push(stand);
            None
        });
        let registry = lock(&self.registry);
        let holders = stands.into_iter().map(|stand| match stand {
            Stand::Call {
                engine,
                operation,
                key,
                ..
            } if engine == self.id() => {
                let of = &registry.operations[operation as usize];
                Holder {
                    operation: Some(Arc::clone(&of.name)),
                    budgets: of
                        .claims
                        .iter()
                        .map(|(at, units)| (Arc::clone(self.budgets[*at].name()), *units))
                        .collect(),
                    key: key != 0,
                    turn: false,
                }
            }
            other => Holder {
                operation: None,
                budgets: Vec::new(),
                key: matches!(other, Stand::Call { key, .. } if key != 0),
                turn: matches!(other, Stand::Turn { .. }),
            },
        });
        Holders(holders.collect())
    }
}
