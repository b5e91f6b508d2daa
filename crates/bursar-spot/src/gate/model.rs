//! The gate against a model of it that is too simple to be wrong: seeded scenarios of arrivals, ends, yields, returns and
//! withdrawals, in every kind of Spot and with queues of every small length.
//!
//! After each move the model says who is granted, who is accepted and who is woken, by its one rule: what comes next is
//! the first accepted whose gate and claim are free, and if there is none, the first such outside. So nothing ever waits
//! whose gate and claim are free, work of one lane starts in the order of its acceptance, and space is given in order.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use super::*;

/// Says whom it woke.
struct Bell(u32, Arc<Mutex<BTreeSet<u32>>>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        assert!(self.1.lock().expect("no panic").insert(self.0), "once");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Waits for space.
    Outside,
    Accepted,
    /// Yielded.
    Away,
    /// Granted, and to be come for.
    Granted,
    Running,
}

#[derive(Clone, Debug)]
struct Work {
    id: u32,
    at: At,
    lane: LaneIndex,
    counted: bool,
    /// It is started when granted; otherwise somebody comes for the grant.
    starts: bool,
    /// It has yielded, and holds its claim.
    resumes: bool,
    /// When it came, and then when it was accepted.
    stamp: u32,
    ticket: Option<Ticket>,
}

const LANES: u32 = 3;

struct Scenario {
    gate: Gate<&'static str, u32>,
    limit: u32,
    shared: bool,
    works: Vec<Work>,
    clock: u32,
    woken: Arc<Mutex<BTreeSet<u32>>>,
    dice: u64,
    moves: [u32; 10],
}

impl Scenario {
    fn new(seed: u64, shared: bool, limit: u32, activates: bool) -> Self {
        let state = (!activates).then(|| Box::new("state"));
        let mut scenario = Self {
            gate: Gate::new(state, shared),
            limit,
            shared,
            works: Vec::new(),
            clock: 0,
            woken: Arc::default(),
            dice: seed,
            moves: [0; 10],
        };
        for lane in 0..LANES {
            assert_eq!(scenario.gate.open_lane(), lane);
        }
        if activates {
            let first = scenario.work(None, false, true);
            scenario.works[first].at = At::Running;
        }
        scenario
    }

    /// SplitMix64.
    fn roll(&mut self, sides: usize) -> usize {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.dice;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % sides as u64) as usize
    }

    fn one_of(&mut self, which: impl Fn(&Work) -> bool) -> Option<usize> {
        let those: Vec<usize> = (0..self.works.len())
            .filter(|&at| which(&self.works[at]))
            .collect();
        (!those.is_empty()).then(|| those[self.roll(those.len())])
    }

    fn waker(&self, id: u32) -> Option<Waker> {
        Some(Waker::from(Arc::new(Bell(id, Arc::clone(&self.woken)))))
    }

    fn work(&mut self, lane: LaneIndex, counted: bool, starts: bool) -> usize {
        self.clock += 1;
        self.works.push(Work {
            id: self.clock,
            at: At::Outside,
            lane,
            counted,
            starts,
            resumes: false,
            stamp: self.clock,
            ticket: None,
        });
        self.works.len() - 1
    }

    fn accept(&mut self, at: usize) {
        self.clock += 1;
        self.works[at].stamp = self.clock;
        self.works[at].at = At::Accepted;
    }

    fn uses_gate(&self, lane: LaneIndex) -> bool {
        self.shared || lane.is_none()
    }

    fn is_free(&self, work: &Work) -> bool {
        let begun = |other: &&Work| matches!(other.at, At::Running | At::Granted);
        let held = |other: &Work| self.uses_gate(other.lane);
        let gate = self.uses_gate(work.lane) && self.works.iter().filter(begun).any(held);
        let claim = work.lane.is_some()
            && !work.resumes
            && (self.works.iter()).any(|other| {
                let has = other.resumes || begun(&other);
                other.id != work.id && other.lane == work.lane && has
            });
        !gate && !claim
    }

    /// The first of those whose gate and claim are free.
    fn due(&self, at: At) -> Option<usize> {
        let free = |work: &Work| work.at == at && self.is_free(work);
        let due = (0..self.works.len()).filter(|&at| free(&self.works[at]));
        due.min_by_key(|&at| self.works[at].stamp)
    }

    /// What the model says comes next, as who starts and who is woken.
    fn next(&mut self) -> (Option<u32>, BTreeSet<u32>) {
        let (mut started, mut woken) = (None, BTreeSet::new());
        while let Some(next) = self.due(At::Accepted).or_else(|| self.due(At::Outside)) {
            let work = &mut self.works[next];
            if work.at == At::Outside {
                woken.insert(work.id);
            }
            let made_room = work.at == At::Accepted && work.counted;
            if work.starts {
                assert_eq!(started.replace(work.id), None, "one at a time");
                work.at = At::Running;
            } else {
                work.at = At::Granted;
                woken.insert(work.id);
            }
            if made_room {
                woken.extend(self.make_room());
            }
        }
        (started, woken)
    }

    fn make_room(&mut self) -> Option<u32> {
        let outside = (0..self.works.len()).filter(|&at| self.works[at].at == At::Outside);
        let first = outside.min_by_key(|&at| self.works[at].stamp)?;
        self.accept(first);
        Some(self.works[first].id)
    }

    /// Compares what the gate says with what the model does.
    fn check(&mut self, effects: Effects<&'static str, u32>, mut also: BTreeSet<u32>) {
        let (started, woken) = self.next();
        also.extend(woken);
        let mut wakers = vec![effects.woken, effects.also];
        let begun = match effects.next {
            Next::Nothing => None,
            Next::Start { job, state } => {
                let work = self.works.iter().find(|work| work.id == job);
                let lane = work.expect("it is known").lane;
                assert_eq!(state.is_some(), self.uses_gate(lane));
                Some(job)
            }
            Next::Wake(waker) => {
                wakers.push(Some(waker.expect("there is one")));
                None
            }
            Next::Last(..) | Next::Ended(_) => panic!("it stays open"),
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
        assert_eq!(begun, started);
        assert_eq!(
            std::mem::take(&mut *self.woken.lock().expect("no panic")),
            also
        );
        assert!(
            self.works.iter().all(|work| {
                !matches!(work.at, At::Accepted | At::Outside) || !self.is_free(work)
            })
        );
        let counted = |at: At| {
            let those = self.works.iter().filter(|work| work.at == at);
            those.filter(|work| work.counted).count() as u32
        };
        assert!(counted(At::Accepted) <= self.limit);
        assert!(counted(At::Outside) == 0 || counted(At::Accepted) == self.limit);
    }

    fn step(&mut self) {
        let way = self.roll(10);
        if self.turn(way).is_some() {
            self.moves[way] += 1;
        }
    }

    fn turn(&mut self, way: usize) -> Option<()> {
        match way {
            0..=2 => self.arrives(),
            3 => self.enters(),
            4 | 5 => {
                let at = self.one_of(|work| work.at == At::Running)?;
                let ended = self.works.swap_remove(at);
                let state = self.uses_gate(ended.lane).then(|| Box::new("state"));
                let effects = self.gate.leave(state, ended.lane);
                self.check(effects, BTreeSet::new());
            }
            6 => self.yields()?,
            7 => self.comes_back()?,
            8 => {
                let at = self.one_of(|work| work.at == At::Granted)?;
                let work = &mut self.works[at];
                (work.at, work.resumes) = (At::Running, false);
                let ticket = work.ticket.take().expect("it waits");
                let come = self.gate.come(ticket, &mut None);
                assert!(matches!(come, Come::Taken(Taken { state: Some(_) }, None)));
            }
            _ => self.withdraws()?,
        }
        Some(())
    }

    fn arrives(&mut self) {
        let lane = (self.roll(LANES as usize + 1) as u32).checked_sub(1);
        let (counted, waits) = (self.roll(4) > 0, self.roll(4) > 0);
        let at = self.work(lane, counted, true);
        let id = self.works[at].id;
        let free = self.is_free(&self.works[at]);
        let arrival = Arrival {
            job: id,
            lane,
            counted,
        };
        let mut waker = if waits { self.waker(id) } else { None };
        let waiting = |at: At| move |work: &&Work| work.at == at && work.counted;
        let (outside, accepted) = (waiting(At::Outside), waiting(At::Accepted));
        let others = || self.works.iter().filter(|work| work.id != id);
        let full = others().any(|work| outside(&work))
            || others().filter(accepted).count() as u32 >= self.limit;
        match self.gate.receive(arrival, self.limit, &mut waker) {
            Received::Start(job, taken) => {
                assert!(free && job == id);
                assert_eq!(taken.state.is_some(), self.uses_gate(lane));
                self.works[at].at = At::Running;
            }
            Received::Queued(ticket) => {
                assert!(!(free || counted && full));
                self.works[at].ticket = Some(ticket);
                self.accept(at);
            }
            Received::Full(ticket) => {
                assert!(!free && counted && full && waits);
                self.works[at].ticket = Some(ticket);
            }
            Received::Refused(job) => {
                assert!(!free && counted && full && !waits && job == id);
                self.works.swap_remove(at);
            }
            Received::Closed(_) => panic!("it stays open"),
        }
        self.check(Effects::NONE, BTreeSet::new());
    }

    fn enters(&mut self) {
        let at = self.work(None, false, false);
        let free = self.is_free(&self.works[at]);
        if let Some(taken) = self.gate.take(None) {
            assert!(free && taken.state.is_some());
            self.works[at].at = At::Running;
        } else {
            assert!(!free);
            let mut waker = self.waker(self.works[at].id);
            self.works[at].ticket = Some(self.gate.wait(&mut waker));
            self.accept(at);
        }
    }

    fn yields(&mut self) -> Option<()> {
        if !self.shared {
            return None;
        }
        let at = self.one_of(|work| work.at == At::Running)?;
        let (id, lane) = (self.works[at].id, self.works[at].lane);
        let waker = self.waker(id).expect("one");
        let (ticket, effects) = self.gate.yields(Some(Box::new("state")), lane, waker);
        let work = &mut self.works[at];
        (work.at, work.ticket) = (At::Away, Some(ticket));
        (work.resumes, work.starts, work.counted) = (true, false, false);
        self.check(effects, BTreeSet::new());
        Some(())
    }

    fn comes_back(&mut self) -> Option<()> {
        let at = self.one_of(|work| work.at == At::Away)?;
        let ticket = self.works[at].ticket.expect("it has yielded");
        let free = self.is_free(&self.works[at]);
        let mut waker = self.waker(self.works[at].id);
        match self.gate.comes_back(ticket, &mut waker) {
            Come::Taken(taken, old) => {
                assert!(free && taken.state.is_some() && old.is_some());
                let work = &mut self.works[at];
                (work.at, work.resumes, work.ticket) = (At::Running, false, None);
            }
            Come::Wait => {
                assert!(!free);
                self.accept(at);
            }
            Come::Closed => panic!("it stays open"),
        }
        Some(())
    }

    /// Work that has not started is taken back, or whoever waits goes away.
    fn withdraws(&mut self) -> Option<()> {
        let at = self.one_of(|work| work.at != At::Running)?;
        let gone = self.works.swap_remove(at);
        let ticket = gone.ticket.expect("it waits");
        let made_room = gone.at == At::Accepted && gone.counted;
        let woken: BTreeSet<u32> = if made_room {
            self.make_room().into_iter().collect()
        } else {
            BTreeSet::new()
        };
        let effects = if gone.starts {
            let (job, waker, effects) = self.gate.cancel(ticket).expect("it has not started");
            assert_eq!((job, waker.is_some()), (gone.id, gone.at == At::Outside));
            effects
        } else {
            if gone.at == At::Granted {
                // The state lies in the gate.
                assert!(self.gate.cancel(ticket).is_none());
            }
            self.gate.quit(ticket).1
        };
        self.check(effects, woken);
        Some(())
    }

    /// The Spot closes: what has not begun is dismissed, and the last turn begins when nothing runs or has yielded.
    fn closes(mut self) {
        let (gone, effects) = self.gate.close(CloseReason::ExplicitClose).expect("open");
        let ids = |which: &dyn Fn(&Work) -> bool| -> BTreeSet<u32> {
            let those = self.works.iter().filter(|work| which(work));
            those.map(|work| work.id).collect()
        };
        let begun = |work: &Work| matches!(work.at, At::Running | At::Granted);
        assert_eq!(
            BTreeSet::from_iter(gone.jobs),
            ids(&|work| work.starts && !begun(work))
        );
        gone.wakers.into_iter().for_each(Waker::wake);
        let told = |work: &Work| !(begun(work) || work.starts && work.at == At::Accepted);
        let woken = std::mem::take(&mut *self.woken.lock().expect("no panic"));
        assert_eq!(woken, ids(&told));
        self.works.retain(|work| begun(work) || told(work));
        let mut last = self.is_last(effects, false);
        while let Some(at) = self.one_of(|_| true) {
            let (lane, ticket) = (self.works[at].lane, self.works[at].ticket);
            let state = self.uses_gate(lane).then(|| Box::new("state"));
            let granted = self.works[at].at == At::Granted;
            let effects = match (self.works[at].at, ticket) {
                (At::Running, _) if self.shared && self.roll(4) == 0 => {
                    let waker = self.waker(0).expect("one");
                    let (ticket, effects) = self.gate.yields(state, lane, waker);
                    let work = &mut self.works[at];
                    (work.at, work.ticket, work.resumes) = (At::Away, Some(ticket), true);
                    effects
                }
                (At::Running, _) => {
                    self.works.swap_remove(at);
                    self.gate.leave(state, lane)
                }
                (_, Some(ticket)) if !granted || self.roll(2) == 0 => {
                    if !granted {
                        let come = self.gate.come(ticket, &mut None);
                        assert!(matches!(come, Come::Closed));
                    }
                    self.works.swap_remove(at);
                    self.gate.quit(ticket).1
                }
                _ => {
                    assert_eq!(self.turn(8), Some(()), "some grant is come for");
                    continue;
                }
            };
            last = self.is_last(effects, last);
        }
        assert!(last && self.gate.take(None).is_none());
        let ended = self.gate.leave(Some(Box::new("state")), None).next;
        assert!(matches!(ended, Next::Ended(Some(_))));
        assert!(self.gate.ended().is_empty() && self.gate.idle());
    }

    /// Whether the last turn has begun by now, which it does once.
    fn is_last(&self, effects: Effects<&'static str, u32>, before: bool) -> bool {
        assert!(effects.woken.is_none() && effects.also.is_none());
        let busy = self
            .works
            .iter()
            .any(|work| work.resumes || matches!(work.at, At::Running | At::Granted));
        let begins = match effects.next {
            Next::Nothing => false,
            Next::Last(_, reason) => reason == CloseReason::ExplicitClose,
            other => panic!("{other:?}"),
        };
        assert_eq!(begins, !busy && !before);
        before || begins
    }

    /// Whatever is left comes to its end by itself.
    fn ends(mut self) -> [u32; 10] {
        while !self.works.is_empty() {
            for way in [4, 7, 8] {
                while self.turn(way).is_some() {}
            }
        }
        assert!(self.gate.idle());
        assert_eq!(self.gate.figures(), (0, 0, 0));
        self.moves
    }
}

fn scenarios(shared: bool) {
    let mut moves = [0; 10];
    for seed in 0..2_000 {
        let activates = shared && seed % 3 == 0;
        let mut scenario = Scenario::new(seed, shared, seed as u32 % 4, activates);
        for _ in 0..60 {
            scenario.step();
        }
        if seed % 5 == 0 {
            scenario.closes();
            continue;
        }
        for (sum, made) in moves.iter_mut().zip(scenario.ends()) {
            *sum += made;
        }
    }
    let never = |way: &usize| !shared && matches!(way, 6..=7);
    assert!(
        (0..10)
            .filter(|way| !never(way))
            .all(|way| moves[way] > 500),
        "{moves:?}"
    );
}

#[test]
fn f6_nothing_waits_whose_shared_gate_and_claim_are_free() {
    scenarios(true);
}

#[test]
fn f6_nothing_waits_whose_own_gate_is_free() {
    scenarios(false);
}
