//! The rows themselves: their names, contenders and targets, in the order in which they are printed.

use super::Target::{Figure, Least, Rate, Slowest, Time};
use super::{Kind, Pace, Spec, calls, http, mixed, pair, parked, queued, spots, tower};
use crate::measure::Effort;
use crate::report::Column;

pub(crate) const BURSAR: &str = "bursar";
pub(crate) const RUN: &str = "bursar run";
pub(crate) const KEYED: &str = "bursar key().run";
pub(crate) const COMPOSED: &str = "composed";
pub(crate) const SEMAPHORE: &str = "tokio Semaphore";

/// All of them, in the order in which they are printed.
pub const ROWS: &[Spec] = &[
    Spec {
        id: "one-budget",
        title: "a call under one budget, nothing suspends",
        kind: Kind::Calls(calls::one_budget, Pace::short),
        targets: &[
            Time(RUN, SEMAPHORE, 0.85),
            Figure(RUN, Column::Allocations, 0.0),
        ],
    },
    #[cfg(feature = "exact")]
    Spec {
        id: "exact",
        title: "a call under one budget, in a runtime that watches every call",
        kind: Kind::Calls(calls::exact, Pace::short),
        targets: &[Figure(RUN, Column::Allocations, 0.0)],
    },
    Spec {
        id: "two-budgets",
        title: "a call under two budgets",
        kind: Kind::Calls(calls::two_budgets, Pace::short),
        targets: &[
            Time(RUN, COMPOSED, 0.45),
            Figure(RUN, Column::Allocations, 0.0),
        ],
    },
    Spec {
        id: "timeout",
        title: "one budget and a timeout, the handler never suspends",
        kind: Kind::Calls(calls::in_time, Pace::short),
        targets: &[
            Time(RUN, COMPOSED, 0.65),
            Figure(RUN, Column::Allocations, 0.0),
        ],
    },
    Spec {
        id: "suspends",
        title: "one budget, the handler suspends once",
        kind: Kind::Calls(calls::suspends, Pace::short),
        targets: &[Time(RUN, COMPOSED, 0.95)],
    },
    Spec {
        id: "suspends-timeout",
        title: "one budget and a timeout whose timer is armed, the handler suspends once",
        kind: Kind::Calls(calls::suspends_in_time, Pace::short),
        targets: &[
            Time(RUN, COMPOSED, 0.95),
            Figure(RUN, Column::Allocations, 1.0),
        ],
    },
    Spec {
        id: "keyed",
        title: "a key and one budget",
        kind: Kind::Calls(calls::keyed, Pace::short),
        targets: &[
            Time(KEYED, COMPOSED, 0.35),
            Figure(KEYED, Column::Allocations, 0.0),
            Figure(calls::LONG_KEY, Column::Allocations, 1.0),
        ],
    },
    Spec {
        id: "keyed-timeout",
        title: "a key, one budget and a timeout",
        kind: Kind::Calls(calls::keyed_in_time, Pace::short),
        targets: &[
            Time(KEYED, COMPOSED, 0.42),
            Figure(KEYED, Column::Allocations, 0.0),
        ],
    },
    Spec {
        id: "reject",
        title: "refused at once, and the one turn of the executor that follows",
        kind: Kind::Calls(calls::reject, Pace::short),
        targets: &[Time(RUN, calls::ONE_TURN, 1.1)],
    },
    Spec {
        id: "tower-layer",
        title: "the same calls of a tower service: made ready, called, awaited",
        kind: Kind::Calls(tower::layers, Pace::short),
        targets: &[Figure(tower::LAYER, Column::Allocations, 1.0)],
    },
    Spec {
        id: "queued",
        title: "64 calls wait for one unit, which passes from each to the next",
        kind: Kind::Calls(queued::handed_on, Pace::short),
        targets: &[],
    },
    Spec {
        id: "contended-4",
        title: "2 tasks on 2 workers, capacity 4",
        kind: Kind::Load(pair::capacity_4, |pace| pace.tasks(4_000)),
        targets: &[Time(RUN, SEMAPHORE, 1.0)],
    },
    Spec {
        id: "contended-1",
        title: "2 tasks on 2 workers, capacity 1",
        kind: Kind::Load(pair::capacity_1, |pace| pace.tasks(4_000)),
        targets: &[Time(RUN, SEMAPHORE, 1.0)],
    },
    Spec {
        id: "unique-1",
        title: "1,000,000 keys, each used once, 1 worker",
        kind: Kind::Calls(pair::unique_on_one, |pace| Effort {
            rotations: pace.rotations(34),
            ..pace.tasks(10_000)
        }),
        targets: &[Rate(KEYED, COMPOSED, 3.0), Figure(KEYED, Column::Peak, 1e6)],
    },
    Spec {
        id: "unique-2",
        title: "1,000,000 keys, each used once, 2 workers",
        kind: Kind::Load(pair::unique_on_two, |pace| Effort {
            rotations: pace.rotations(34),
            ..pace.tasks(5_000)
        }),
        targets: &[Rate(KEYED, COMPOSED, 2.5), Figure(KEYED, Column::Peak, 1e6)],
    },
    Spec {
        id: "parked",
        title: "a call that waits for its budget, its handler excluded",
        kind: Kind::Sizes(parked::sizes),
        targets: &[
            Figure(RUN, Column::Future, 200.0),
            Figure(RUN, Column::Record, 128.0),
            Figure(RUN, Column::Task, 448.0),
        ],
    },
    Spec {
        id: "leaving",
        title: "1,000,000 calls that wait, and leave, beside 10,000",
        kind: Kind::Sizes(parked::leaving),
        targets: &[
            Figure(parked::GROWTH[0], Column::Growth, 2.0),
            Figure(parked::GROWTH[1], Column::Growth, 2.0),
        ],
    },
    Spec {
        id: "mixed",
        title: "64 tasks, 3 operations, 2 budgets, keyed and not, 1 us of work, a turn between calls",
        kind: Kind::Load(mixed::arriving, |pace| pace.tasks(24)),
        targets: &[Rate(BURSAR, COMPOSED, 1.1), Slowest(BURSAR, COMPOSED, 1.0)],
    },
    Spec {
        id: "mixed-looping",
        title: "the same without a turn between calls: what the cooperation budget does",
        kind: Kind::Load(mixed::looping, |pace| pace.tasks(512)),
        targets: &[],
    },
    Spec {
        id: "mixed-suspending",
        title: "the same, each handler suspending once with what it holds",
        kind: Kind::Load(mixed::suspending, |pace| pace.tasks(24)),
        targets: &[Rate(BURSAR, COMPOSED, 1.1), Slowest(BURSAR, COMPOSED, 1.0)],
    },
    Spec {
        id: "spot-enter",
        title: "an inline turn: enter, touch the state, leave",
        kind: Kind::Calls(spots::enter, Pace::short),
        targets: &[
            Figure(spots::ENTER, Column::Batch50, 20.0),
            Figure(spots::ENTER, Column::Allocations, 0.0),
        ],
    },
    Spec {
        id: "spot-request",
        title: "a turn that outlives its requester, 1 asker, one thread",
        kind: Kind::Calls(spots::request, Pace::short),
        targets: &[
            Time(spots::REQUEST, spots::ACTIX, 0.55),
            Time(spots::REQUEST, spots::RACTOR, 0.25),
            Figure(spots::REQUEST, Column::Allocations, 1.0),
        ],
    },
    Spec {
        id: "spot-request-2",
        title: "a turn that outlives its requester, 1 asker, 2 workers",
        kind: Kind::Load(spots::two_workers_one_asker, |pace| pace.tasks(4_000)),
        targets: &[Time(spots::REQUEST, spots::RACTOR, 0.25)],
    },
    Spec {
        id: "spot-askers",
        title: "64 askers of one Spot, 2 workers",
        kind: Kind::Load(spots::many_askers, |pace| pace.tasks(256)),
        targets: &[Time(spots::REQUEST, spots::RACTOR, 0.6)],
    },
    Spec {
        id: "spot-askers-long",
        title: "the same, each turn working for 5 us",
        kind: Kind::Load(spots::long_turns, |pace| pace.tasks(32)),
        targets: &[
            Time(spots::REQUEST, spots::RACTOR, 0.6),
            Least(spots::REQUEST, Column::Queued, 30.0),
        ],
    },
    Spec {
        id: "spot-suspends",
        title: "a turn that suspends once and keeps its gate, 1 asker, one thread",
        kind: Kind::Calls(spots::suspends, Pace::short),
        targets: &[
            Time(spots::REQUEST, spots::ACTIX, 0.6),
            Figure(spots::REQUEST, Column::Allocations, 2.0),
        ],
    },
    Spec {
        id: "spot-yield",
        title: "return the gate, let another turn run, take it back; beside an actor that is asked",
        kind: Kind::Calls(spots::yields, Pace::short),
        targets: &[Figure(spots::YIELD, Column::WakeUps, 2.0)],
    },
    Spec {
        id: "spot-idle",
        title: "an idle Spot, over its state and name; beside an idle actor",
        kind: Kind::Sizes(spots::idle),
        targets: &[
            Figure(spots::IDLE, Column::Idle, 128.0),
            Figure(spots::IDLE, Column::AfterBurst, 0.0),
        ],
    },
    Spec {
        id: "http-sequential",
        title: "GETs over HTTP/1.1 on loopback, one after another, one thread",
        kind: Kind::Calls(http::sequential, |pace| Effort {
            batch: pace.short().batch * 20,
            ..pace.short()
        }),
        targets: &[
            Time(http::BURSAR, http::HYPER, 1.1),
            Time(http::BURSAR, http::REQWEST, 1.0),
            Figure(http::BURSAR, Column::Allocations, 20.0),
        ],
    },
    Spec {
        id: "http-concurrent",
        title: "the same from 64 tasks on 2 workers",
        kind: Kind::Load(http::concurrent, |pace| pace.tasks(32)),
        targets: &[
            Rate(http::BURSAR, http::HYPER, 0.92),
            Rate(http::BURSAR, http::REQWEST, 1.0),
        ],
    },
];
