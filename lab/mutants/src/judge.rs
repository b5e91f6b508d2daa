//! Runs the tests that come to a mutant with it active, until one of them notices.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use crate::cases::Case;
use crate::process::{self, End, Given};

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// By this test's failing.
    Caught(String),
    /// By this test's not coming to an end, twice, the second time with nothing beside it; without the mutant it did.
    Hung(String),
    /// Of so many tests that come to it none notices.
    Survived(usize),
    /// No test comes to it.
    Unreached,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught(by) => write!(f, "caught {by}"),
            Self::Hung(by) => write!(f, "hung {by}"),
            Self::Survived(asked) => write!(f, "survived {asked}"),
            Self::Unreached => f.write_str("unreached"),
        }
    }
}

impl Verdict {
    /// What [`Verdict`] prints, read again.
    pub fn read(text: &str) -> Option<Self> {
        match text.split_once(' ') {
            Some(("caught", by)) => Some(Self::Caught(by.to_owned())),
            Some(("hung", by)) => Some(Self::Hung(by.to_owned())),
            Some(("survived", asked)) => asked.parse().ok().map(Self::Survived),
            None if text == "unreached" => Some(Self::Unreached),
            _ => None,
        }
    }
}

/// Held by all that run, and by one that must run alone.
type Alone = RwLock<()>;

/// How often a test that is stopped is repeated while it is stopped without the mutant, too.
const REPEATS: usize = 10;

/// What a test came to that was stopped: run again with nothing of ours beside it. On a machine that others keep busy it may be
/// stopped for that alone, so it counts only if the same test, run right after it without the mutant, ends in its time.
fn again(case: &Case, mutant: Given<'_>) -> Result<End, String> {
    let run = |given| process::run(&case.program, &case.arguments, case.limit(), given);
    for _ in 0..REPEATS {
        let end = run(mutant)?;
        if end != End::Hung || run(Given::default())? == End::Passed {
            return Ok(end);
        }
    }
    Err(format!(
        "the machine is too busy: {} takes ten times its time without a mutant",
        case.name
    ))
}

fn judge(cases: &[Case], mutant: u32, alone: &Alone) -> Result<Verdict, String> {
    let given = Given {
        mutant,
        ..Given::default()
    };
    let mut asked = 0;
    for case in cases.iter().filter(|case| case.reaches.contains(&mutant)) {
        asked += 1;
        let mut end = {
            let _beside = alone.read().unwrap_or_else(PoisonError::into_inner);
            process::run(&case.program, &case.arguments, case.limit(), given)?
        };
        if end == End::Hung {
            let _alone = alone.write().unwrap_or_else(PoisonError::into_inner);
            end = again(case, given)?;
        }
        match end {
            End::Passed => {}
            End::Failed => return Ok(Verdict::Caught(case.name.clone())),
            End::Hung => return Ok(Verdict::Hung(case.name.clone())),
        }
    }
    Ok(match asked {
        0 => Verdict::Unreached,
        asked => Verdict::Survived(asked),
    })
}

/// Judges all, telling of each at once.
///
/// # Errors
/// A test could not be run, or what was told of could not be kept.
pub fn all(
    cases: &[Case],
    mutants: &[u32],
    jobs: usize,
    tell: impl Fn(u32, Verdict) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<String>> = Mutex::new(None);
    let note = |why| *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    let alone = Alone::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let told =
                        judge(cases, *mutant, &alone).and_then(|verdict| tell(*mutant, verdict));
                    if let Err(why) = told {
                        return note(why);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.map_or(Ok(()), Err)
}
