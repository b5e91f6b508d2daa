//! From a body's bytes to a value.

use bytes::Bytes;
use http::HeaderMap;
use serde::de::DeserializeOwned;

use crate::error::BoxError;

/// Decodes a response's body; [`Json`] unless a request names another one.
///
/// A closure is one too:
///
/// ```
/// # async fn f(client: &bursar_http::Client) -> Result<(), bursar_http::Error> {
/// use bytes::Bytes;
/// use http::HeaderMap;
///
/// let lines = client
///     .get("/report.csv")
///     .fetch_as(|_: &HeaderMap, body: &Bytes| {
///         std::str::from_utf8(body).map(|text| text.lines().count()).map_err(Into::into)
///     })
///     .await?;
/// # let _: usize = lines;
/// # Ok(())
/// # }
/// ```
pub trait Decode<T>: Send + Sync {
    /// The value that `body` stands for.
    ///
    /// # Errors
    /// The body is no such value. The request fails as [`ProtocolError`](crate::ErrorKind::ProtocolError) with this as
    /// its source.
    fn decode(&self, headers: &HeaderMap, body: &Bytes) -> Result<T, BoxError>;
}

/// JSON, by serde. An empty body counts as `null`, so that `()` and `Option` decode a 204.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

impl<T: DeserializeOwned> Decode<T> for Json {
    fn decode(&self, _: &HeaderMap, body: &Bytes) -> Result<T, BoxError> {
        let body: &[u8] = if body.is_empty() { b"null" } else { body };
        serde_json::from_slice(body).map_err(Into::into)
    }
}

impl<T, F> Decode<T> for F
where
    F: Fn(&HeaderMap, &Bytes) -> Result<T, BoxError> + Send + Sync,
{
    fn decode(&self, headers: &HeaderMap, body: &Bytes) -> Result<T, BoxError> {
        self(headers, body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g2_an_empty_body_decodes_as_null() {
        let decode = |body: &'static str| -> Result<Option<u8>, BoxError> {
            Json.decode(&HeaderMap::new(), &Bytes::from(body))
        };
        assert_eq!(decode("").unwrap(), None);
        assert_eq!(decode("7").unwrap(), Some(7));
        assert!(decode("{").is_err());
        let unit: Result<(), _> = Json.decode(&HeaderMap::new(), &Bytes::new());
        unit.unwrap();
    }
}
