//! What the core reads: keys from any bytes, and its own figures from JSON.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use bursar::{DrainReport, Key, Snapshot, Stats};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Two keys, of what stands before a length and after it.
///
/// # Panics
/// If keys are equal and their bytes are not, or the other way round; or if equal ones differ in their hash or text.
pub fn keys(bytes: &[u8]) {
    let Some((at, bytes)) = bytes.split_first() else {
        return;
    };
    let (left, right) = bytes.split_at(usize::from(*at).min(bytes.len()));
    let [of_left, of_right] = [left, right].map(Key::from);
    for (key, bytes) in [(&of_left, left), (&of_right, right)] {
        assert_eq!(key.to_bytes(), bytes, "{key:?}");
        assert_eq!(key.is_empty(), bytes.is_empty(), "{key:?}");
        assert_eq!(key == &Key::NONE, bytes.is_empty(), "{key:?}");
        let Ok(text) = std::str::from_utf8(bytes) else {
            continue;
        };
        assert_eq!(key, &Key::from(text), "{text:?}");
        assert_eq!(key, &Key::from(text.to_owned()), "{text:?}");
        assert_eq!(key, &Key::from(Some(text)), "{text:?}");
        // A number is its decimal text.
        if let Some(number) = text
            .parse::<u128>()
            .ok()
            .filter(|of| of.to_string() == text)
        {
            assert_eq!(key, &Key::from(number), "{text:?}");
        }
        if let Some(number) = text.parse::<i64>().ok().filter(|of| of.to_string() == text) {
            assert_eq!(key, &Key::from(number), "{text:?}");
        }
    }
    assert_eq!(
        of_left == of_right,
        left == right,
        "{of_left:?} {of_right:?}"
    );
    let copy = Key::from(left.to_vec().as_slice());
    let state = RandomState::new();
    assert_eq!(state.hash_one(&of_left), state.hash_one(&copy), "{copy:?}");
    assert_eq!(format!("{of_left:?}"), format!("{copy:?}"));
}

/// JSON that stands for figures of a runtime, or for nothing.
///
/// # Panics
/// If what is read is written as something else, or cannot be shown.
pub fn figures(bytes: &[u8]) {
    again::<Stats>(bytes);
    again::<Snapshot>(bytes);
    again::<DrainReport>(bytes);
}

/// Read, written and read again it is the same; and it can be shown.
fn again<T: DeserializeOwned + Serialize + PartialEq + fmt::Debug + fmt::Display>(bytes: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(bytes) else {
        return;
    };
    let text = serde_json::to_string(&read).expect("what was read can be written");
    match serde_json::from_str::<T>(&text) {
        Ok(again) => assert_eq!(again, read, "{text}"),
        Err(error) => panic!("{error}: {text}"),
    }
    assert!(!read.to_string().is_empty());
}
