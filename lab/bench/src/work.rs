//! What a handler does, where it does anything.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Work for the processor, the same every time.
#[derive(Clone, Copy, Debug)]
pub struct Work(u32);

impl Work {
    /// None.
    pub const NONE: Self = Self(0);

    /// As much as takes so long when nothing disturbs it.
    #[must_use]
    pub fn lasting(time: Duration) -> Self {
        const TRIAL: u32 = 100_000;
        let best = (0..16).map(|_| {
            let began = Instant::now();
            Self(TRIAL).run();
            began.elapsed()
        });
        let best = best.min().unwrap_or(time).as_nanos().max(1);
        Self((u128::from(TRIAL) * time.as_nanos() / best) as u32)
    }

    /// Does it.
    pub fn run(self) {
        let mut state = black_box(1_u64);
        for _ in 0..self.0 {
            state = black_box(state.rotate_left(5) ^ 0x9e37_79b9);
        }
    }
}
