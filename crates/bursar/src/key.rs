//! Keys: what calls serialize by, held inline when short.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;

const WORDS: usize = 3;
const INLINE: usize = size_of::<[u64; WORDS]>();

/// What a call serializes by: calls of one runtime with equal keys run one after another.
///
/// Up to 24 bytes are held inline; a longer key costs one allocation. An empty key means no serialization. A number
/// is its decimal text, so `Key::from(7)` and `Key::from("7")` are one key.
///
/// ```
/// use bursar::Key;
///
/// assert_eq!(Key::from(7_u64), Key::from("7"));
/// assert!(Key::from("").is_empty());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Repr);

/// Whole words only: what is written narrower than it is read a moment later waits for the write to reach memory.
#[derive(Clone, PartialEq, Eq)]
enum Repr {
    /// Bytes in little-endian words, padded with zeros. `len` is their number and one, so that its zero tells the other
    /// form.
    Inline {
        len: NonZeroU64,
        words: [u64; WORDS],
    },
    /// Longer than fits inline. Shared, so that the key table takes its copy without an allocation.
    Heap(Arc<[u8]>),
}

impl Key {
    /// The empty key: no serialization.
    pub const NONE: Self = Self(Repr::Inline {
        len: NonZeroU64::MIN,
        words: [0; WORDS],
    });

    /// Whether the key is empty, so that nothing is serialized.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(
            self.0,
            Repr::Inline {
                len: NonZeroU64::MIN,
                ..
            }
        )
    }

    /// The key's bytes, copied.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.0 {
            Repr::Inline { len, words } => words
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .take(len.get() as usize - 1)
                .collect(),
            Repr::Heap(bytes) => bytes.to_vec(),
        }
    }
}

#[cold]
fn long(key: &[u8]) -> Key {
    Key(Repr::Heap(key.into()))
}

/// At most eight bytes as one word.
#[inline(never)]
fn last_word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// At most eight bytes as one word, and the bytes after them.
#[inline(always)]
fn word(bytes: &[u8]) -> (u64, &[u8]) {
    match bytes.split_first_chunk::<8>() {
        Some((first, rest)) => (u64::from_le_bytes(*first), rest),
        None if bytes.is_empty() => (0, bytes),
        None => (last_word(bytes), &[]),
    }
}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            Repr::Inline { len, words } => {
                state.write_u64(len.get());
                for word in words {
                    state.write_u64(*word);
                }
            }
            Repr::Heap(bytes) => bytes.hash(state),
        }
    }
}

impl Default for Key {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", String::from_utf8_lossy(&self.to_bytes()))
    }
}

impl From<&[u8]> for Key {
    // Made in place: copied right after it was written, it would cost more than all of this.
    #[inline(always)]
    fn from(key: &[u8]) -> Self {
        if key.len() > INLINE {
            return long(key);
        }
        let (first, rest) = word(key);
        let (second, rest) = word(rest);
        let (third, _) = word(rest);
        Self(Repr::Inline {
            len: NonZeroU64::MIN.saturating_add(key.len() as u64),
            words: [first, second, third],
        })
    }
}

impl From<&str> for Key {
    #[inline(always)]
    fn from(key: &str) -> Self {
        key.as_bytes().into()
    }
}

impl From<&String> for Key {
    fn from(key: &String) -> Self {
        key.as_str().into()
    }
}

impl From<String> for Key {
    fn from(key: String) -> Self {
        key.as_str().into()
    }
}

impl<K: Into<Key>> From<Option<K>> for Key {
    fn from(key: Option<K>) -> Self {
        key.map_or(Self::NONE, Into::into)
    }
}

/// A sign, and the 39 decimal digits of the largest `u128`.
const LONGEST: usize = 40;

/// The decimal text of a number, without an allocation while it fits inline.
fn decimal(negative: bool, mut magnitude: u128) -> Key {
    let mut text = [0_u8; LONGEST];
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (magnitude % 10) as u8;
        magnitude /= 10;
        if magnitude == 0 {
            break;
        }
    }
    if negative {
        at -= 1;
        text[at] = b'-';
    }
    text[at..].into()
}

macro_rules! from_numbers {
    ($($number:ty)*) => {$(
        impl From<$number> for Key {
            fn from(key: $number) -> Self {
                #[allow(unused_comparisons, reason = "one macro for signed and unsigned")]
                let negative = key < 0;
                decimal(negative, i128::from(key).unsigned_abs())
            }
        }
    )*};
}

from_numbers!(u8 u16 u32 u64 i8 i16 i32 i64);

impl From<u128> for Key {
    fn from(key: u128) -> Self {
        decimal(false, key)
    }
}

#[cfg(all(test, not(bursar_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_bytes_whether_inline_or_not() {
        for length in (0..40).chain([1_000]) {
            let text: String = ('a'..='z').cycle().take(length).collect();
            let key = Key::from(text.as_str());
            assert_eq!(key.to_bytes(), text.as_bytes());
            assert_eq!(key, Key::from(text.clone()));
            assert_ne!(key, Key::from(format!("{text}\0")), "padding is no content");
            assert_eq!(key.is_empty(), length == 0);
            assert_eq!(matches!(key.0, Repr::Heap(_)), length > INLINE);
        }
    }

    #[test]
    fn a_number_is_its_decimal_text() {
        for number in [i64::MIN, -1, 0, 7, 10, i64::MAX] {
            assert_eq!(Key::from(number), Key::from(number.to_string()));
        }
        assert_eq!(Key::from(u64::MAX), Key::from(u64::MAX.to_string()));
        assert_eq!(Key::from(u128::MAX), Key::from(u128::MAX.to_string()));
        assert!(Key::from(None::<&str>).is_empty());
    }

    #[test]
    fn keys_that_differ_are_hashed_to_different_numbers() {
        use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let keys = (0..1_000)
            .map(|key| Key::from(format!("{key}, told at length or not").repeat(key % 3)));
        let hashes: std::collections::HashSet<u64> = keys.map(|key| hasher.hash_one(key)).collect();
        // A third of them are empty.
        assert_eq!(hashes.len(), 667);
    }

    #[test]
    fn a_key_is_four_words() {
        assert_eq!(size_of::<Key>(), 32);
    }
}
