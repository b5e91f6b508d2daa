//! Who runs on this thread, and what of the runtime they hold.

use std::sync::Arc;

use super::Engine;
use crate::chain::{self, Stand};
use crate::refusal::{Holder, Holders};
use crate::sync::lock;

impl Engine {
    /// Whether what runs on this thread holds units of that budget.
    pub(crate) fn chain_holds(&self, budget: &str) -> bool {
        // Most that wait were called from inside of nothing: they look nothing up and lock nothing.
        if !chain::inside(self.id()) {
            return false;
        }
        let place = self.place(budget);
        let registry = lock(&self.registry);
        let claims = |operation: u32| {
            let of = registry.operations.get(operation as usize);
            of.is_some_and(|of| of.claims.iter().any(|(at, _)| *at == place))
        };
        let held = |stand| match stand {
            Stand::Call {
                engine, operation, ..
            } => (engine == self.id() && claims(operation)).then_some(()),
            Stand::Turn { .. } => None,
        };
        chain::find(held).is_some()
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
