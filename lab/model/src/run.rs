//! Steps the model and the real runtime through one scenario and compares them after every step; makes a failing
//! scenario small.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::census::Census;
use crate::generate::{self, Scenario};
use crate::model::Model;
use crate::real::Real;
use crate::scenario::{Config, Id, Step};

/// Where the two part.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The step's place in its scenario; `None` if it came while everything was being dropped.
    pub step: Option<usize>,
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "at step {step}: {}", self.what),
            None => write!(f, "at the end, all being dropped: {}", self.what),
        }
    }
}

/// # Errors
/// The first difference between the contract and the runtime.
pub fn run(scenario: &Scenario) -> Result<Census, Difference> {
    let mut at = None;
    let compared = catch_unwind(AssertUnwindSafe(|| compare(scenario, &mut at)));
    compared
        .unwrap_or_else(|panic| Err(format!("panicked: {}", said(&*panic))))
        .map_err(|what| Difference { step: at, what })
}

fn said(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<String>().cloned();
    let message = message.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    message.unwrap_or_default()
}

fn compare(scenario: &Scenario, at: &mut Option<usize>) -> Result<Census, String> {
    let mut census = Census::default();
    census.steps = scenario.steps.len() as u64;
    let mut model = Model::new(scenario.config.clone());
    let mut real = Real::new(&scenario.config);
    for (index, step) in scenario.steps.iter().enumerate() {
        *at = Some(index);
        take(&mut model, &mut real, step, &mut census)?;
    }
    *at = None;
    for id in model.roots() {
        take(&mut model, &mut real, &Step::Drop(id), &mut census)?;
    }
    // Nothing is held, nobody waits, no timer is left, and a drain ends at its first poll.
    let reading = real.reading();
    let idle = reading.counts.iter().all(|of| of.admitted == of.finished)
        && reading
            .budgets
            .iter()
            .all(|of| (of.in_use, of.waiting) == (0, 0))
        && reading.keys == 0;
    if !idle || real.timers() != 0 {
        return Err(format!(
            "{} timers are left, and {reading:?}",
            real.timers()
        ));
    }
    for step in [Step::Drain(Id::MAX, None), Step::Poll(Id::MAX)] {
        take(&mut model, &mut real, &step, &mut Census::default())?;
    }
    if model.roots().is_empty() {
        census.count("retried after a pause", model.paused());
        Ok(census)
    } else {
        Err("an idle runtime did not drain at once".to_owned())
    }
}

fn take(
    model: &mut Model,
    real: &mut Real,
    step: &Step,
    census: &mut Census,
) -> Result<(), String> {
    if !model.applies(step) {
        return Ok(());
    }
    let before = match step {
        Step::Resize(budget, _) => Some((*budget, model.reading())),
        _ => None,
    };
    let happened = model.step(step);
    differ("what happened", &happened, &real.step(step))?;
    let reading = model.reading();
    differ("what can be read", &reading, &real.reading())?;
    census.took(step);
    happened.iter().for_each(|event| census.see(event));
    if let Some((at, before)) = before {
        census.resized(&before.picture.budgets[at], &reading.picture.budgets[at]);
    }
    if let Some(lost) = model.restless().into_iter().find(|id| !real.woken(*id)) {
        return Err(format!("{lost} has something to see and was not woken"));
    }
    match model.asleep().into_iter().find(|id| real.woken(*id)) {
        Some(woken) => Err(format!("{woken} was woken and has nothing to see")),
        None => Ok(()),
    }
}

fn differ<T: PartialEq + fmt::Debug>(what: &str, contract: &T, runtime: &T) -> Result<(), String> {
    if contract == runtime {
        return Ok(());
    }
    Err(format!(
        "{what}\n  by the contract: {contract:?}\n  by the runtime:  {runtime:?}"
    ))
}

/// A seed's failure, made small.
#[derive(Clone, Debug)]
pub struct Finding {
    pub seed: u64,
    /// Which steps of the seed's scenario are enough.
    pub kept: Vec<usize>,
    pub scenario: Scenario,
    pub difference: Difference,
}

/// # Errors
/// The seed's failure, made small.
pub fn check(seed: u64) -> Result<Census, Box<Finding>> {
    // The model is stepped while the scenario is made, so it may fail there.
    let scenario = catch_unwind(|| generate::seeded(seed)).map_err(|panic| {
        Box::new(Finding {
            seed,
            kept: Vec::new(),
            scenario: Scenario::default(),
            difference: Difference {
                step: None,
                what: format!("the model panicked: {}", said(&*panic)),
            },
        })
    })?;
    match run(&scenario) {
        Ok(census) => Ok(census),
        Err(difference) => Err(Box::new(shrink(seed, &scenario, difference))),
    }
}

/// The steps of `scenario` at these places.
pub fn keep(scenario: &Scenario, kept: &[usize]) -> Scenario {
    let steps = kept
        .iter()
        .filter_map(|at| scenario.steps.get(*at).cloned())
        .collect();
    Scenario {
        config: scenario.config.clone(),
        steps,
    }
}

/// Leaves out ever smaller runs of steps for as long as some difference remains.
fn shrink(seed: u64, scenario: &Scenario, mut difference: Difference) -> Finding {
    let mut kept: Vec<usize> = (0..scenario.steps.len()).collect();
    let mut length = kept.len().div_ceil(2);
    while length > 0 {
        let mut from = 0;
        while from < kept.len() {
            let mut fewer = kept.clone();
            fewer.drain(from..(from + length).min(kept.len()));
            match run(&keep(scenario, &fewer)) {
                Err(still) => {
                    kept = fewer;
                    difference = still;
                }
                Ok(_) => from += length,
            }
        }
        length /= 2;
    }
    let scenario = keep(scenario, &kept);
    Finding {
        seed,
        kept,
        scenario,
        difference,
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scenario { config, steps } = &self.scenario;
        writeln!(
            f,
            "seed {} parts from the contract {}",
            self.seed, self.difference
        )?;
        writeln!(f, "budgets {:?}", config.budgets)?;
        if config.retries.is_some() || !config.groups.is_empty() {
            let Config {
                retries, groups, ..
            } = config;
            writeln!(f, "retries {retries:?}, groups {groups:?}")?;
        }
        if let Some(longest) = config.nested_wait {
            writeln!(f, "nested waits of at most {longest}")?;
        }
        for (at, op) in config.operations.iter().enumerate() {
            writeln!(f, "operation {at}: {op:?}")?;
        }
        for (at, step) in steps.iter().enumerate() {
            writeln!(f, "{at:3}  {step:?}")?;
        }
        let kept: Vec<String> = self.kept.iter().map(ToString::to_string).collect();
        write!(
            f,
            "replay: cargo run --release -p model -- --seed {} --keep {}",
            self.seed,
            kept.join(",")
        )
    }
}
