//! What handlers say of themselves, checked against the contract while they run.
//!
//! A [`Ledger`] holds what is in use by those who are inside, as they state it: never more than a budget's capacity, never
//! two under one key. A [`Line`] holds tickets in their order of arrival: who starts has been granted, and so has everyone
//! before, so what those who are not done need and what it needs itself must fit together.
//!
//! A breach is kept, not thrown: handlers are made to panic anyway, and a panic would pass for one of those. The first one
//! is asked for at the end. Nothing here is an ordering point for the runtime under test: one plain lock, held briefly.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Units of a budget, by its place in the ledger's capacities.
pub type Claims = &'static [(usize, u32)];

/// Who is inside, by what they use.
#[derive(Debug)]
pub struct Ledger {
    state: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    /// Of each budget, the largest that it ever had.
    capacities: Vec<u32>,
    used: Vec<u32>,
    keys: Vec<u64>,
    inside: usize,
    entered: u64,
    breach: Option<String>,
}

impl Ledger {
    #[must_use]
    pub fn new(capacities: &[u32]) -> Self {
        Self {
            state: Mutex::new(Inside {
                capacities: capacities.to_vec(),
                used: vec![0; capacities.len()],
                ..Inside::default()
            }),
        }
    }

    /// Goes in; dropping what this returns is leaving.
    pub fn enter(&self, claims: Claims, key: Option<u64>) -> Entry<'_> {
        let mut state = self.lock();
        state.entered += 1;
        state.inside += 1;
        for (budget, units) in claims {
            state.used[*budget] += units;
            let (used, capacity) = (state.used[*budget], state.capacities[*budget]);
            if used > capacity {
                state.breach(format!(
                    "{used} of {capacity} units of budget {budget} are in use"
                ));
            }
        }
        if let Some(key) = key {
            if state.keys.contains(&key) {
                state.breach(format!("two are inside under key {key}"));
            }
            state.keys.push(key);
        }
        Entry {
            ledger: self,
            claims,
            key,
        }
    }

    /// A budget is about to grow to this, if it is more than it ever had. One that shrinks revokes nothing, so the most is
    /// kept.
    pub fn grow(&self, budget: usize, capacity: u32) {
        let mut state = self.lock();
        state.capacities[budget] = state.capacities[budget].max(capacity);
    }

    /// Something else was broken.
    pub fn broken(&self, what: String) {
        self.lock().breach(what);
    }

    /// How many have ever gone in.
    pub fn entered(&self) -> u64 {
        self.lock().entered
    }

    /// # Errors
    /// The first breach, or that somebody is still inside.
    pub fn empty(&self) -> Result<(), String> {
        let state = self.lock();
        if let Some(breach) = &state.breach {
            return Err(breach.clone());
        }
        match state.inside {
            0 => Ok(()),
            inside => Err(format!("{inside} are still inside")),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    fn breach(&mut self, what: String) {
        self.breach.get_or_insert(what);
    }
}

/// Somebody inside.
#[derive(Debug)]
pub struct Entry<'l> {
    ledger: &'l Ledger,
    claims: Claims,
    key: Option<u64>,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut state = self.ledger.lock();
        state.inside -= 1;
        for (budget, units) in self.claims {
            state.used[*budget] -= units;
        }
        if let Some(key) = self.key
            && let Some(at) = state.keys.iter().position(|held| *held == key)
        {
            state.keys.swap_remove(at);
        }
    }
}

/// Tickets of one queue, in order of arrival.
#[derive(Debug)]
pub struct Line {
    capacity: u32,
    state: Mutex<Tickets>,
}

#[derive(Debug, Default)]
struct Tickets {
    units: Vec<u32>,
    done: Vec<bool>,
    breach: Option<String>,
}

impl Line {
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self {
            capacity,
            state: Mutex::default(),
        }
    }

    /// The next ticket.
    pub fn draw(&self, units: u32) -> usize {
        let mut state = self.lock();
        state.units.push(units);
        state.done.push(false);
        state.units.len() - 1
    }

    /// The bearer holds its units. See the module for what must be true then.
    pub fn start(&self, ticket: usize) {
        let mut state = self.lock();
        let before: Vec<usize> = (0..ticket).filter(|at| !state.done[*at]).collect();
        let held: u32 = before.iter().map(|at| state.units[*at]).sum();
        if held + state.units[ticket] > self.capacity {
            let what = format!(
                "ticket {ticket} of {} units starts before {before:?}, of {held} units in all, are done: the capacity is {}",
                state.units[ticket], self.capacity
            );
            state.breach.get_or_insert(what);
        }
    }

    /// The bearer leaves: said before it gives anything back.
    pub fn done(&self, ticket: usize) {
        self.lock().done[ticket] = true;
    }

    /// # Errors
    /// The first breach.
    pub fn kept(&self) -> Result<(), String> {
        self.lock().breach.clone().map_or(Ok(()), Err)
    }

    fn lock(&self) -> MutexGuard<'_, Tickets> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_sees_too_many_and_two_under_one_key() {
        let ledger = Ledger::new(&[2, 1]);
        let first = ledger.enter(&[(0, 1), (1, 1)], Some(7));
        drop(ledger.enter(&[(0, 1)], Some(8)));
        assert!(ledger.empty().is_err(), "one is inside");
        drop(first);
        assert_eq!((ledger.empty(), ledger.entered()), (Ok(()), 2));
        let _first = ledger.enter(&[], Some(7));
        drop(ledger.enter(&[], Some(7)));
        assert!(ledger.empty().is_err_and(|why| why.contains("key 7")));

        let ledger = Ledger::new(&[1]);
        let _first = ledger.enter(&[(0, 1)], None);
        drop(ledger.enter(&[(0, 1)], None));
        assert!(ledger.empty().is_err_and(|why| why.contains("2 of 1")));
    }

    #[test]
    fn a_line_sees_who_overtakes() {
        let line = Line::new(2);
        let [light, heavy, last] = [1, 2, 1].map(|units| line.draw(units));
        line.start(light);
        line.done(light);
        line.start(heavy);
        assert_eq!(line.kept(), Ok(()));
        line.start(last);
        assert!(line.kept().is_err_and(|why| why.contains("ticket 2")));
    }
}
