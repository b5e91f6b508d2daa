//! What is done with the bytes that a fuzzer makes up: one function for each of its targets (lab/fuzz). They panic at what
//! must not be; the corpus that is kept is replayed in every test run.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bursar::{
    Backoff, ContractError, Effect, ManualClock, Outcome, Policy, Retry, RetryBudget, Runtime,
    retry_after as read,
};

use crate::generate::{Choices, scenario as make};
use crate::run::run;

/// Gives `input` every file that `lab/fuzz/corpus` keeps for this target.
///
/// # Panics
/// Where `input` does, or if there are fewer than ten.
pub fn replay(target: &str, input: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(target);
    let mut replayed = 0;
    for entry in fs::read_dir(&corpus).expect("a corpus for each target") {
        let path = entry.expect("it can be read").path();
        input(&fs::read(&path).expect("it can be read"));
        replayed += 1;
    }
    assert!(replayed >= 10, "{replayed} inputs in {}", corpus.display());
}

/// A scenario of these choices, stepped through the model and the runtime.
///
/// # Panics
/// At the first difference between the two.
pub fn scenario(bytes: &[u8]) {
    let scenario = make(&mut &*bytes);
    if let Err(difference) = run(&scenario) {
        panic!("{difference}\n{scenario:#?}");
    }
}

/// A header's value, read at a moment that the first bytes choose.
///
/// # Panics
/// If what is read is neither of the header's two forms, or not the pause that it says.
pub fn retry_after(bytes: &[u8]) {
    let (head, value) = bytes.split_at(bytes.len().min(4));
    let seconds = head.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let Ok(value) = std::str::from_utf8(value) else {
        return;
    };
    let pause = read(value, now);
    let spaced = format!(" \t{value}  ");
    assert_eq!(
        read(&spaced, now),
        pause,
        "white space around it: {value:?}"
    );
    let digits = value.trim();
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let right = digits.parse().unwrap_or(u64::MAX);
        assert_eq!(pause, Some(Duration::from_secs(right)), "{value:?}");
        return;
    }
    // A date: later by as much as `now` is earlier, and over once it has passed.
    let Some(pause) = pause else {
        return;
    };
    let earlier = SystemTime::UNIX_EPOCH;
    let from_epoch = read(value, earlier).expect("a date is one at any time");
    assert_eq!(
        pause,
        from_epoch.saturating_sub(Duration::from_secs(seconds)),
        "{value:?}"
    );
}

/// A runtime and a policy of these choices, right or wrong.
///
/// # Panics
/// If what the contract refuses is accepted, or what it allows is refused.
pub fn policy(bytes: &[u8]) {
    // Bytes that have run out choose the first of everything.
    let mut bytes = bytes;
    let mut choose = |below| (&mut bytes).choose(below).unwrap_or(0);
    let durations = |which: u32| match which {
        0 => Duration::ZERO,
        1 => Duration::from_nanos(1),
        2 => Duration::from_millis(10),
        3 => Duration::from_secs(1 << 40),
        _ => Duration::MAX,
    };
    let capacities = [0, 1, 2, i32::MAX as u32, 1 << 31, u32::MAX];
    let capacity = capacities[choose(6) as usize];
    let names = ["", "a", "b", "\u{e9}"];
    let [first, second] = [(); 2].map(|()| names[choose(4) as usize]);
    let mut builder = Runtime::builder()
        .clock(ManualClock::new())
        .resource(first, capacity)
        .resource(second, 3);
    let group = names[choose(4) as usize];
    if choose(2) == 1 {
        builder = builder.retry_group(group, RetryBudget::new(choose(3)).percent(u32::MAX));
    }
    let built = builder.build();
    let right = !first.is_empty()
        && !second.is_empty()
        && first != second
        && (1..1 << 31).contains(&capacity);
    let Ok(runtime) = built else {
        let error = built.expect_err("it was not built");
        assert!(
            !right || matches!(error, ContractError::InvalidRetryGroup { .. }),
            "{error}"
        );
        return;
    };
    assert!(right, "{runtime:?}");

    let effects = [
        None,
        Some(Effect::Pure),
        Some(Effect::Idempotent),
        Some(Effect::NonIdempotent),
    ];
    let effect = effects[choose(4) as usize];
    let mut retry =
        Retry::up_to([0, 1, 2, u32::MAX][choose(4) as usize]).on(Outcome::Transient, true);
    let mut asked = Vec::new();
    for outcome in [
        Outcome::Success,
        Outcome::Permanent,
        Outcome::Throttled,
        Outcome::Uncertain,
    ] {
        if choose(3) == 1 {
            retry = retry.on(outcome, true);
            asked.push(outcome);
        }
    }
    let backoff = (choose(2) == 1).then(|| (durations(choose(5)), durations(choose(5))));
    if let Some((base, cap)) = backoff {
        retry = retry.backoff(Backoff::exponential(base).cap(cap));
    }
    let claimed = names[choose(4) as usize];
    let units = [0, 1, 2, 3, u32::MAX][choose(5) as usize];
    let operation = names[choose(4) as usize];
    let mut policy = Policy::dynamic().effect(effect).retry(retry);
    policy = policy.claim(claimed, units);
    let timeout = (choose(2) == 1).then(|| durations(choose(5)));
    if let Some(timeout) = timeout {
        policy = policy.timeout(timeout);
    }
    let grace = (choose(2) == 1).then(|| durations(choose(5)));
    if let Some(grace) = grace {
        policy = policy.grace(grace);
    }
    let longest = (choose(2) == 1).then(|| durations(choose(5)));
    if let Some(longest) = longest {
        policy = policy.max_wait(longest);
    }
    let has = match claimed {
        _ if claimed == first => capacity,
        _ if claimed == second => 3,
        _ => 0,
    };
    let uncertain = asked.contains(&Outcome::Uncertain);
    let throttled = asked.contains(&Outcome::Throttled);
    let zero = |span: Option<Duration>| span.is_some_and(|span| span.is_zero());
    let wrong = [
        operation.is_empty(),
        effect.is_none(),
        !(1..=has).contains(&units),
        asked.contains(&Outcome::Success) || asked.contains(&Outcome::Permanent),
        throttled && backoff.is_none(),
        uncertain && effect == Some(Effect::NonIdempotent),
        zero(timeout) || zero(longest),
        grace.is_some() && timeout.is_none(),
        backoff.is_some_and(|(base, cap)| base.is_zero() || cap < base),
    ];
    let right = !wrong.contains(&true);
    let built = runtime.contract(operation, policy);
    assert_eq!(built.is_ok(), right, "{:?}", built.err());
    if let Err(error) = built {
        assert!(!error.to_string().is_empty());
    }
}
