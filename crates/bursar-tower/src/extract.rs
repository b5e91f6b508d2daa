//! A request's deadline as axum's extractor.

use std::convert::Infallible;

use axum_core::extract::FromRequestParts;
use http::request::Parts;

use crate::deadline::Deadline;

/// The request's deadline; [`Deadline::NONE`] if no [`DeadlineLayer`](crate::DeadlineLayer) gave it one.
impl<S: Sync> FromRequestParts<S> for Deadline {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or_default())
    }
}
