//! Durations as seconds, in numbers that every reader of JSON takes.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

pub(super) fn serialize<S: Serializer>(of: &Duration, to: S) -> Result<S::Ok, S::Error> {
    of.as_secs_f64().serialize(to)
}

pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Duration, D::Error> {
    Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(D::Error::custom)
}

/// The same where there may be none.
pub(super) mod optional {
    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(
        of: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        of.map(|of| of.as_secs_f64()).serialize(to)
    }

    pub(in super::super) fn deserialize<'d, D: Deserializer<'d>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        Option::<f64>::deserialize(from)?
            .map(|seconds| Duration::try_from_secs_f64(seconds).map_err(D::Error::custom))
            .transpose()
    }
}
