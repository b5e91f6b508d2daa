//! Keys: what calls serialize by, held inline when short.

use std::fmt;
use std::sync::Arc;

const INLINE: usize = 22;

/// What a call serializes by: calls of one runtime with equal keys run one after another.
///
/// Up to 22 bytes are held inline; a longer key costs one allocation. An empty key means no serialization. A number
/// is its decimal text, so `Key::from(7)` and `Key::from("7")` are one key.
///
/// ```
/// use bursar::Key;
///
/// assert_eq!(Key::from(7_u64), Key::from("7"));
/// assert!(Key::from("").is_empty());
/// ```
#[derive(Clone)]
pub struct Key(Repr);

#[derive(Clone)]
enum Repr {
    Inline {
        len: u8,
        bytes: [u8; INLINE],
    },
    /// Shared, so that the key table takes its copy without an allocation.
    Heap(Arc<[u8]>),
}

impl Key {
    /// The empty key: no serialization.
    pub const NONE: Self = Self(Repr::Inline {
        len: 0,
        bytes: [0; INLINE],
    });

    /// The key's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Heap(bytes) => bytes,
        }
    }

    /// Whether the key is empty, so that nothing is serialized.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

impl Default for Key {
    fn default() -> Self {
        Self::NONE
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key {}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", String::from_utf8_lossy(self.as_bytes()))
    }
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Self {
        if key.len() > INLINE {
            return Self(Repr::Heap(key.into()));
        }
        let mut bytes = [0; INLINE];
        bytes[..key.len()].copy_from_slice(key);
        Self(Repr::Inline {
            len: key.len() as u8,
            bytes,
        })
    }
}

impl From<&str> for Key {
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

/// Decimal digits of the largest `u128`.
const DIGITS: usize = 39;

/// The decimal text of a number, without an allocation while it fits inline.
fn decimal(negative: bool, mut magnitude: u128) -> Key {
    let mut text = [0_u8; DIGITS + 1];
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
        for length in [0, 1, 21, 22, 23, 1_000] {
            let text = "k".repeat(length);
            let key = Key::from(text.as_str());
            assert_eq!(key.as_bytes(), text.as_bytes());
            assert_eq!(key, Key::from(text.clone()));
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
    fn a_key_is_three_words() {
        assert_eq!(size_of::<Key>(), 24);
        assert_eq!(size_of::<Option<Key>>(), 24);
    }
}
