//! Records in a slab, linked into lines. It knows no lock, no gate and no work.
//!
//! Invariants:
//! 1. A record is linked in at most one line.
//! 2. A record's sequence number is unique for its strand, so a [`Ticket`] never names another's record, although
//!    slots are used again.
//! 3. A record's place in a line is told by a number of its own, at first its sequence number. A line is in order of these
//!    numbers: [`Records::insert`] finds the place, [`Records::push`] trusts its caller.

use slab::Slab;

const NONE: u32 = u32::MAX;

/// Names a record for whoever made it, also when it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    slot: u32,
    seq: u64,
}

impl Ticket {
    /// Of work that was started at once and has no record.
    pub(crate) const STARTED: Self = Self { slot: NONE, seq: 0 };

    /// Rises from record to record.
    pub(crate) const fn number(self) -> u64 {
        self.seq
    }
}

/// Records linked in order.
#[derive(Debug)]
pub(crate) struct Line {
    head: u32,
    tail: u32,
    len: u32,
}

impl Line {
    pub(crate) const fn new() -> Self {
        Self {
            head: NONE,
            tail: NONE,
            len: 0,
        }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }
}

#[derive(Debug)]
struct Record<T> {
    value: T,
    seq: u64,
    /// Where it belongs in a line.
    order: u64,
    before: u32,
    after: u32,
}

/// The records of one strand.
#[derive(Debug)]
pub(crate) struct Records<T>(Slab<Record<T>>);

impl<T> Records<T> {
    pub(crate) const fn new() -> Self {
        Self(Slab::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps a record that stands in no line.
    pub(crate) fn add(&mut self, value: T, seq: u64) -> Ticket {
        let slot = self.0.insert(Record {
            value,
            seq,
            order: seq,
            before: NONE,
            after: NONE,
        }) as u32;
        Ticket { slot, seq }
    }

    pub(crate) fn get(&mut self, ticket: Ticket) -> Option<&mut T> {
        self.0
            .get_mut(ticket.slot as usize)
            .filter(|record| record.seq == ticket.seq)
            .map(|record| &mut record.value)
    }

    /// The first of a line.
    pub(crate) fn head(&self, line: &Line) -> Option<Ticket> {
        self.0.get(line.head as usize).map(|record| Ticket {
            slot: line.head,
            seq: record.seq,
        })
    }

    /// Gives a record that stands in no line another number.
    pub(crate) fn renumber(&mut self, ticket: Ticket, order: u64) {
        self.at(ticket.slot).order = order;
    }

    /// Puts a record that stands in no line at the end of one.
    pub(crate) fn push(&mut self, line: &mut Line, ticket: Ticket) {
        self.link(line, line.tail, NONE, ticket.slot);
    }

    /// Puts a record that stands in no line before the first whose number is higher, searched from the front.
    pub(crate) fn insert(&mut self, line: &mut Line, ticket: Ticket) {
        let order = self.at(ticket.slot).order;
        let mut after = line.head;
        while after != NONE && self.at(after).order < order {
            after = self.at(after).after;
        }
        let before = match after {
            NONE => line.tail,
            after => self.at(after).before,
        };
        self.link(line, before, after, ticket.slot);
    }

    /// Takes a record out of the line it stands in.
    pub(crate) fn unlink(&mut self, line: &mut Line, ticket: Ticket) {
        let record = self.at(ticket.slot);
        let (before, after) = (record.before, record.after);
        (record.before, record.after) = (NONE, NONE);
        match before {
            NONE => line.head = after,
            before => self.at(before).after = after,
        }
        match after {
            NONE => line.tail = before,
            after => self.at(after).before = before,
        }
        line.len -= 1;
    }

    /// Frees a record that stands in no line.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> T {
        self.0.remove(ticket.slot as usize).value
    }

    /// Every record's ticket.
    pub(crate) fn tickets(&self) -> Vec<Ticket> {
        self.0
            .iter()
            .map(|(slot, record)| Ticket {
                slot: slot as u32,
                seq: record.seq,
            })
            .collect()
    }

    fn link(&mut self, line: &mut Line, before: u32, after: u32, slot: u32) {
        let record = self.at(slot);
        (record.before, record.after) = (before, after);
        match before {
            NONE => line.head = slot,
            before => self.at(before).after = slot,
        }
        match after {
            NONE => line.tail = slot,
            after => self.at(after).before = slot,
        }
        line.len += 1;
    }

    /// Slots come from tickets of living records or from the links of one.
    fn at(&mut self, slot: u32) -> &mut Record<T> {
        &mut self.0[slot as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(records: &mut Records<u64>, line: &mut Line) -> Vec<u64> {
        let mut seen = Vec::new();
        while let Some(head) = records.head(line) {
            records.unlink(line, head);
            seen.push(records.remove(head));
        }
        assert_eq!(line.len(), 0);
        seen
    }

    #[test]
    fn records_keep_their_order_and_find_their_place_again() {
        let (mut records, mut line, mut aside) = (Records::new(), Line::new(), Line::new());
        let tickets: Vec<_> = (0..6).map(|n| records.add(n, n)).collect();
        for ticket in &tickets {
            records.push(&mut line, *ticket);
        }
        for n in [1, 4, 0] {
            records.unlink(&mut line, tickets[n]);
            records.push(&mut aside, tickets[n]);
        }
        assert_eq!((line.len(), aside.len()), (3, 3));
        for n in [4, 0, 1] {
            records.unlink(&mut aside, tickets[n]);
            records.insert(&mut line, tickets[n]);
        }
        assert_eq!(order(&mut records, &mut line), [0, 1, 2, 3, 4, 5]);
        assert!(records.is_empty() && records.head(&aside).is_none());
    }

    #[test]
    fn a_ticket_never_names_anothers_record() {
        let mut records = Records::new();
        let old = records.add('a', 1);
        assert_eq!(records.remove(old), 'a');
        let new = records.add('b', 2);
        assert!(records.get(old).is_none());
        assert_eq!(records.get(new).copied(), Some('b'));
    }
}
