//! Every check is kept by evidence that is sound and broken by evidence that is not: one that could not fail would prove
//! nothing.

use super::*;
use crate::meter::Verdict;
use crate::receiver::Entry;

fn counted(capacity: usize, peak: usize) -> Counted {
    Counted {
        capacity,
        peak,
        entered: 100,
    }
}

fn book(entries: &[(&str, u32, u32)]) -> Book {
    let entry = |(id, arrived, applied): &(&str, u32, u32)| {
        let (arrived, applied) = (*arrived, *applied);
        ((*id).to_owned(), Entry { arrived, applied })
    };
    entries.iter().map(entry).collect()
}

fn told(verdicts: &[(&str, Verdict)]) -> Told {
    verdicts
        .iter()
        .map(|(id, verdict)| ((*id).to_owned(), *verdict))
        .collect()
}

fn sound() -> Evidence {
    let tally = Tally {
        calls: 10,
        ok: 10,
        ..Tally::default()
    };
    let overlaps = Overlaps {
        replacements: 12,
        same_brand: 0,
        different_brands: 5,
        at_once: 2,
        mixed: 0,
    };
    Evidence {
        interrupted: false,
        drained: Ok(()),
        renderer: counted(8, 8),
        writers: counted(4, 4),
        replacing: counted(2, 2),
        model: counted(2, 2),
        sending: counted(12, 7),
        overlaps,
        replaced: (
            told(&[
                ("b1", Verdict::Ok),
                ("b1", Verdict::Failed),
                ("b2", Verdict::Ok),
                ("b2", Verdict::Uncertain),
                ("b3", Verdict::Stopped),
            ]),
            ["b2", "b3"].map(str::to_owned).into(),
        ),
        moved: (
            told(&[
                ("m1", Verdict::Ok),
                ("m2", Verdict::Failed),
                ("m3", Verdict::Uncertain),
            ]),
            book(&[("m1", 1, 1), ("m3", 1, 1)]),
        ),
        shelves: Shelves {
            moved_in: 3,
            moved_out: 5,
            wrong: 0,
        },
        killed: Some(Killed {
            idle: 5,
            working: 3,
            committing: 1,
        }),
        live: crate::live::Outcome {
            carts: 9,
            issued: 12,
            meanwhile: 2,
            ..crate::live::Outcome::default()
        },
        control: Some(Overlaps {
            same_brand: 9,
            ..overlaps
        }),
        notified: (
            told(&[
                ("n1", Verdict::Ok),
                ("n2", Verdict::Failed),
                ("n3", Verdict::Uncertain),
            ]),
            book(&[("n1", 1, 1), ("n3", 1, 1)]),
        ),
        synced: (
            told(&[("s1", Verdict::Ok), ("s2", Verdict::Uncertain)]),
            book(&[("s1", 3, 1), ("s2", 2, 0)]),
        ),
        stock: (6, 6),
        same_product: 0,
        refusals: (2, 5),
        scores: Tally {
            calls: 9,
            ok: 7,
            throttled: 2,
            ..Tally::default()
        },
        score_retries: 0,
        recorded: (
            told(&[
                ("e1", Verdict::Ok),
                ("e2", Verdict::Failed),
                ("e3", Verdict::Uncertain),
            ]),
            book(&[("e1", 1, 1), ("e3", 1, 1)]),
        ),
        operations: vec![Counters {
            name: "record-event".into(),
            admitted: 10,
            finished: 10,
            tally,
        }],
        held: (0, 0),
    }
}

/// The promises that are broken once the evidence is changed.
fn broken_by(change: impl FnOnce(&mut Evidence)) -> Vec<String> {
    let mut evidence = sound();
    change(&mut evidence);
    let checks = all(&evidence).into_iter();
    checks
        .filter(|check| check.state == State::Broken)
        .map(|check| check.promise)
        .collect()
}

#[test]
fn sound_evidence_keeps_every_promise() {
    assert_eq!(broken_by(|_| {}), Vec::<String>::new());
    assert_eq!(all(&sound()).len(), 28);
}

#[test]
fn each_promise_can_be_broken() {
    let one = |promise: &str, broken: Vec<String>| assert_eq!(broken, [promise]);
    one(
        "at most 8 drawings at once",
        broken_by(|e| e.renderer.peak = 9),
    );
    one(
        "at most 8 drawings at once",
        broken_by(|e| e.renderer.peak = 1),
    );
    one(
        "at most 4 database writers at once",
        broken_by(|e| e.writers.peak = 5),
    );
    one(
        "at most 2 catalogue replacements at once",
        broken_by(|e| e.replacing.peak = 3),
    );
    one(
        "at most 12 webhooks on the way at once",
        broken_by(|e| e.sending.peak = 13),
    );
    one(
        "at most 2 model calls from the shop at once",
        broken_by(|e| e.model.peak = 3),
    );
    one(
        "at most 2 replacements at once, by the database",
        broken_by(|e| e.overlaps.at_once = 3),
    );
    one(
        "no two replacements of one brand overlap",
        broken_by(|e| e.overlaps.same_brand = 1),
    );
    one(
        "no two replacements of one brand overlap",
        broken_by(|e| e.overlaps.mixed = 1),
    );
    one(
        "replacements of different brands do",
        broken_by(|e| e.overlaps.different_brands = 0),
    );
    let blind = |e: &mut Evidence| e.control = Some(e.overlaps);
    one("control: without the key, one brand's do", broken_by(blind));
    one(
        "news of one product go one after the other",
        broken_by(|e| e.same_product = 1),
    );
    for change in [
        (|e| e.live.twice = 1) as fn(&mut Evidence),
        |e| e.live.strange = 1,
        |e| e.live.carts = 0,
    ] {
        one("no unit goes into two carts", broken_by(change));
    }
    one(
        "one turn at a time at a shelf, others while it waits",
        broken_by(|e| e.live.overlaps = 1),
    );
    let twice = |e: &mut Evidence| e.notified.1 = book(&[("n1", 2, 2), ("n3", 1, 1)]);
    one("no notification is received twice", broken_by(twice));
    let again = "a sync sent again does not take effect again";
    one(
        again,
        broken_by(|e| e.synced.1 = book(&[("s1", 3, 2), ("s2", 2, 0)])),
    );
    one(again, broken_by(|e| e.stock = (12, 6)));
    let vain = |e: &mut Evidence| e.notified.1 = book(&[("n1", 1, 0), ("n3", 1, 1)]);
    one(
        "what the shop is told of a notification is so",
        broken_by(vain),
    );
    let secret = |e: &mut Evidence| e.notified.1 = book(&[("n1", 1, 1), ("n2", 1, 1)]);
    one(
        "what the shop is told of a notification is so",
        broken_by(secret),
    );
    let stranger = |e: &mut Evidence| e.synced.1 = book(&[("s1", 1, 1), ("s9", 1, 1)]);
    one("every uncertain sync is accounted for", broken_by(stranger));
    let quiet = "the model's refusals are throttled, and asked again after a pause";
    one(quiet, broken_by(|e| e.refusals.0 = 3));
    one(quiet, broken_by(|e| e.refusals.0 = 1));
    let recorded = "what the shop is told of a recorded event is so";
    one(
        recorded,
        broken_by(|e| e.recorded.1 = book(&[("e3", 1, 1)])),
    );
    one(
        recorded,
        broken_by(|e| e.recorded.1 = book(&[("e1", 1, 1), ("e2", 1, 1)])),
    );
    let nobodys = |e: &mut Evidence| e.recorded.1 = book(&[("e1", 1, 1), ("e9", 1, 1)]);
    one(
        "every uncertain recorded event is accounted for",
        broken_by(nobodys),
    );
    let whole = "a brand told replaced is all there";
    let torn = |e: &mut Evidence| {
        e.replaced.1.insert("b1".to_owned());
    };
    one(whole, broken_by(torn));
    let stock = "no event moves stock twice, and shelves add up";
    one(
        stock,
        broken_by(|e| e.moved.1 = book(&[("m1", 2, 2), ("m3", 1, 1)])),
    );
    one(stock, broken_by(|e| e.shelves.wrong = 1));
    let told_so = "what the shop is told of a stock move is so";
    one(told_so, broken_by(|e| e.moved.1 = book(&[("m3", 1, 1)])));
    one(
        told_so,
        broken_by(|e| e.moved.1 = book(&[("m1", 1, 1), ("m2", 1, 1)])),
    );
    let moved_alone = |e: &mut Evidence| e.moved.1 = book(&[("m1", 1, 1), ("m9", 1, 1)]);
    one(
        "every uncertain stock move is accounted for",
        broken_by(moved_alone),
    );
    let calm = "connections are killed meanwhile";
    one(calm, broken_by(|e| e.killed = Some(Killed::default())));
    let drain = "after the drain, admitted = finished";
    one(drain, broken_by(|e| e.operations[0].finished = 9));
    one(drain, broken_by(|e| e.held = (1, 0)));
    one(
        drain,
        broken_by(|e| e.drained = Err("still running".into())),
    );
    let counts = |e: &mut Evidence| e.operations[0].tally.calls = 11;
    one("the runtime's counts are its callers'", broken_by(counts));
}

#[test]
fn only_what_an_interruption_hid_is_open() {
    let hidden = |e: &mut Evidence| {
        e.interrupted = true;
        e.control = None;
        e.renderer.peak = 1;
        e.overlaps.different_brands = 0;
        e.refusals = (0, 0);
        e.scores.throttled = 0;
    };
    assert_eq!(broken_by(hidden), Vec::<String>::new());
    let worse = |e: &mut Evidence| {
        e.interrupted = true;
        e.renderer.peak = 9;
        e.overlaps.same_brand = 1;
    };
    let expected = [
        "at most 8 drawings at once",
        "no two replacements of one brand overlap",
    ];
    assert_eq!(broken_by(worse), expected);
}

#[test]
fn numbers_are_grouped() {
    let expected = ["0", "999", "1,000", "1,234,567"];
    assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), expected);
}
