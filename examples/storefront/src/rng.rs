//! Seeded numbers: a sequence, and a hash of one thing.
//!
//! Both are SplitMix64. The sequence makes the shipped data, so it must never change; the hash decides what a
//! loopback service does with one request, so that the same seed meets the same faults whatever the scheduler does.

/// The increment of SplitMix64: the golden ratio in 64 bits.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

const fn finish(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A deterministic sequence of numbers.
#[derive(Debug, Clone)]
pub struct Rng(u64);

#[allow(dead_code, reason = "each of the two binaries uses its own part")]
impl Rng {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        finish(self.0)
    }

    /// A number from 0 up to and without `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // The bias of a plain product is bound / 2^64: nothing here can see it.
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// A number from 0 up to and without 1.
    pub fn unit(&mut self) -> f64 {
        unit(self.next())
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &'a [&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// The share of `u64`'s range that lies below `value`: from 0 up to and without 1.
#[allow(dead_code, reason = "only the service hashes")]
pub fn unit(value: u64) -> f64 {
    (value >> 11) as f64 / (1u64 << 53) as f64
}

/// A number that depends on the seed, a name and an ordinal alone.
#[allow(dead_code, reason = "only the service hashes")]
pub fn hash(seed: u64, name: &str, ordinal: u64) -> u64 {
    let mut state = finish(seed.wrapping_add(GOLDEN));
    for byte in name.bytes() {
        state = finish(state ^ u64::from(byte)).wrapping_add(GOLDEN);
    }
    finish(state ^ ordinal.wrapping_mul(GOLDEN))
}
