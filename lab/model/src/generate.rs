//! Scenarios from a source of choices: a seeded generator, or bytes that a fuzzer makes up.
//!
//! Steps are chosen with the model's state in view, so that most of them mean something: few calls on few units, times
//! that often coincide, and something done to whoever waits or runs.

use bursar::Effect;

use crate::model::Model;
use crate::scenario::{Config, Form, Id, Move, Op, Retries, Spec, Step, Via, Word};

/// Where choices come from.
pub trait Choices {
    /// A number below `below`, or `None` when there are no more choices. `below` is at least 1.
    fn choose(&mut self, below: u32) -> Option<u32>;
}

/// SplitMix64: small, seedable, and good enough to choose steps.
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

impl Choices for Seeded {
    fn choose(&mut self, below: u32) -> Option<u32> {
        let high = self.next() >> 32;
        Some(((high * u64::from(below)) >> 32) as u32)
    }
}

/// One byte a choice, until they run out.
impl Choices for &[u8] {
    fn choose(&mut self, below: u32) -> Option<u32> {
        let (first, rest) = self.split_first()?;
        *self = rest;
        Some(u32::from(*first) % below)
    }
}

/// A runtime and what is done to it.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    pub config: Config,
    pub steps: Vec<Step>,
}

const MOST_STEPS: usize = 60;
const MOST_CALLS: usize = 7;

/// The scenario of a seed.
pub fn seeded(seed: u64) -> Scenario {
    scenario(&mut Seeded::new(seed))
}

/// A scenario from these choices; shorter if they run out.
pub fn scenario(choices: &mut impl Choices) -> Scenario {
    let mut generator = Generator {
        choices,
        next: 0,
        draining: false,
    };
    let Some(config) = generator.config() else {
        return Scenario {
            config: Config {
                budgets: vec![1],
                ..Config::default()
            },
            steps: Vec::new(),
        };
    };
    let mut model = Model::new(config.clone());
    let mut steps = Vec::new();
    let length = generator.below(MOST_STEPS as u32).unwrap_or(0) as usize + 8;
    while steps.len() < length && generator.next < Id::MAX - 4 {
        let Some(step) = generator.step(&config, &model) else {
            break;
        };
        model.step(&step);
        steps.push(step);
    }
    Scenario { config, steps }
}

struct Generator<'c, C> {
    choices: &'c mut C,
    next: Id,
    draining: bool,
}

const EFFECTS: [Effect; 3] = [Effect::Pure, Effect::Idempotent, Effect::NonIdempotent];

/// Those after which a call may go on more often than others.
const WORDS: [Word; 8] = [
    Word::Success,
    Word::Transient,
    Word::Transient,
    Word::Permanent,
    Word::Throttled,
    Word::Throttled,
    Word::Uncertain,
    Word::Unclassified,
];

impl<C: Choices> Generator<'_, C> {
    fn below(&mut self, below: u32) -> Option<u32> {
        self.choices.choose(below)
    }

    /// True in `percent` of a hundred.
    fn chance(&mut self, percent: u32) -> Option<bool> {
        Some(self.below(100)? < percent)
    }

    fn maybe<T>(
        &mut self,
        percent: u32,
        make: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<Option<T>> {
        if self.chance(percent)? {
            make(self).map(Some)
        } else {
            Some(None)
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let at = self.below(from.len() as u32)?;
        Some(from[at as usize])
    }

    /// Few distinct lengths, so that moments coincide.
    fn time(&mut self) -> Option<u64> {
        self.pick(&[5, 10, 10, 15, 20, 30])
    }

    fn config(&mut self) -> Option<Config> {
        let budgets: Vec<u32> = (0..self.below(3)? + 1)
            .map(|_| Some(self.below(4)? + 1))
            .collect::<Option<_>>()?;
        let groups: Vec<Retries> = (0..self.below(4)?.saturating_sub(1))
            .map(|_| self.retries())
            .collect::<Option<_>>()?;
        let operations = (0..self.below(4)? + 1)
            .map(|_| self.op(&budgets, groups.len()))
            .collect::<Option<_>>()?;
        Some(Config {
            budgets,
            operations,
            retries: self.maybe(25, Self::retries)?,
            groups,
            nested_wait: self.maybe(40, Self::time)?,
        })
    }

    fn retries(&mut self) -> Option<Retries> {
        Some(Retries {
            burst: self.below(3)?,
            percent: self.pick(&[0, 10, 50, 100, 150])?,
        })
    }

    fn op(&mut self, budgets: &[u32], groups: usize) -> Option<Op> {
        let mut claims = Vec::new();
        for (at, capacity) in budgets.iter().enumerate() {
            if self.chance(65)? {
                // Light ones more often than heavy ones.
                let units = self.below(*capacity)?.min(self.below(*capacity)?) + 1;
                claims.push((at, units));
            }
        }
        let effect = self.maybe(80, |of| of.pick(&EFFECTS))?;
        let timeout = self.maybe(40, Self::time)?;
        let backoff = self.maybe(60, |of| {
            let base = of.pick(&[1, 5, 10])?;
            Some((base, base + of.pick(&[0, 5, 10, 30])?))
        })?;
        Some(Op {
            claims,
            reject: self.chance(20)?,
            key_required: self.chance(4)?,
            key_space: self.maybe(25, |of| Some(of.below(2)? as u8))?,
            effect,
            grace: if timeout.is_some() {
                self.maybe(40, Self::time)?
            } else {
                None
            },
            timeout,
            attempts: self.pick(&[0, 1, 2, 3, 3, 4])?,
            on_transient: self.chance(60)?,
            on_uncertain: self.chance(60)? && effect != Some(Effect::NonIdempotent),
            on_throttled: self.chance(60)? && backoff.is_some(),
            if_keyed: self.chance(40)?,
            backoff,
            group: self
                .maybe(40, |of| of.below(groups.max(1) as u32))?
                .map(|at| at as usize)
                .filter(|at| *at < groups),
            max_wait: self.maybe(30, Self::time)?,
            max_waiting: self.maybe(20, |of| of.below(3))?,
        })
    }

    fn spec(&mut self, config: &Config, model: &Model) -> Option<Spec> {
        let operation = self.below(config.operations.len() as u32)? as usize;
        let via = self.pick(&[Via::Contract, Via::Builder, Via::Builder, Via::Operation])?;
        let form = match (self.below(8)?, via) {
            (0, _) => Form::Held,
            (1, Via::Contract | Via::Builder) => Form::Admit,
            _ => Form::Value,
        };
        let mut spec = Spec {
            operation,
            via,
            form,
            ..Spec::default()
        };
        if via != Via::Contract {
            spec.key = if self.chance(50)? {
                self.below(3)? as u8 + 1
            } else {
                0
            };
            spec.within = self.maybe(25, |of| of.pick(&[0, 5, 10, 10, 15, 20, 30]))?;
            let at = model.now();
            spec.deadline = self.maybe(10, |of| Some(at + of.time()? - 5))?;
            spec.token = self.chance(20)?;
            spec.effect = self.maybe(30, |of| of.pick(&EFFECTS))?;
            spec.idempotency_key = self
                .maybe(30, |of| of.below(2))?
                .map_or(0, |of| of as u8 + 1);
        }
        Some(spec)
    }

    fn id(&mut self) -> Id {
        self.next += 1;
        self.next - 1
    }

    fn what(&mut self, config: &Config, model: &Model) -> Option<Move> {
        Some(match self.below(24)? {
            22..=23 => Move::Spawn(self.id(), self.spec(config, model)?),
            20..=21 => Move::AnswerLater(self.pick(&WORDS)?, self.pick(&[0, 1, 5, 5, 10, 15])?),
            0..=9 => Move::Answer(self.pick(&WORDS)?),
            10..=11 => Move::AnswerWhenCancelled(self.pick(&WORDS)?),
            12 => Move::Panic,
            13..=14 => Move::Block(self.time()?),
            15 => Move::Yield,
            16 => Move::Drain,
            _ => Move::Nest(self.id(), self.spec(config, model)?),
        })
    }

    fn step(&mut self, config: &Config, model: &Model) -> Option<Step> {
        let roots = model.roots();
        let running = model.running();
        loop {
            let step = match self.below(43)? {
                0..=6 if roots.len() < MOST_CALLS => {
                    Step::Call(self.id(), self.spec(config, model)?)
                }
                0..=15 if !roots.is_empty() => Step::Poll(self.pick(&roots)?),
                16..=19 => match model.restless().as_slice() {
                    [] => continue,
                    restless => Step::Poll(self.pick(restless)?),
                },
                20..=25 | 33..=36 if !running.is_empty() => {
                    Step::Tell(self.pick(&running)?, self.what(config, model)?)
                }
                26 if !roots.is_empty() => Step::Drop(self.pick(&roots)?),
                27..=28 => Step::Advance(self.pick(&[1, 4, 5, 5, 10, 15])?),
                29..=30 if !roots.is_empty() => Step::Fire(self.pick(&roots)?),
                31 if self.draining || self.chance(15)? => {
                    self.draining = true;
                    Step::Drain(self.id(), self.maybe(50, Self::time)?)
                }
                32 => {
                    let budget = self.below(config.budgets.len() as u32)?;
                    Step::Resize(budget as usize, self.below(5)? + 1)
                }
                // Pauses end, and what has been given up for them is found taken.
                37..=42 if model.pauses() => Step::Advance(self.pick(&[5, 10])?),
                _ => continue,
            };
            if model.applies(&step) {
                return Some(step);
            }
        }
    }
}
