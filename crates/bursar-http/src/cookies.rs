//! The cookies of one client.
//!
//! A cookie goes back to the host that set it and to no other: a `Domain` attribute is not widened, since without a
//! list of public suffixes a host could set cookies for its neighbours.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cookie_store::{CookieStore, RawCookie};
use http::{HeaderMap, HeaderValue, Uri, header};
use url::Url;

/// A jar that all requests of one client share.
#[derive(Default)]
pub(crate) struct Jar(Mutex<CookieStore>);

impl Jar {
    fn lock(&self) -> MutexGuard<'_, CookieStore> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what the jar has for `uri` to the one `Cookie` header, after what the caller set.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap, uri: &Uri) {
        let Ok(url) = Url::parse(&uri.to_string()) else {
            return;
        };
        let own: Vec<String> = self
            .lock()
            .get_request_values(&url)
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if own.is_empty() {
            return;
        }
        let mut all: Vec<&[u8]> = headers
            .get_all(header::COOKIE)
            .iter()
            .map(HeaderValue::as_bytes)
            .collect();
        all.extend(own.iter().map(String::as_bytes));
        let joined = all.join(&b"; "[..]);
        if let Ok(mut value) = HeaderValue::from_bytes(&joined) {
            value.set_sensitive(true);
            headers.insert(header::COOKIE, value);
        }
    }

    /// Keeps what a response sets.
    pub(crate) fn keep(&self, headers: &HeaderMap, uri: &Uri) {
        let set = headers.get_all(header::SET_COOKIE);
        if set.iter().next().is_none() {
            return;
        }
        let Ok(url) = Url::parse(&uri.to_string()) else {
            return;
        };
        let mut jar = self.lock();
        for value in set {
            let parsed = std::str::from_utf8(value.as_bytes())
                .ok()
                .and_then(|text| RawCookie::parse(text.to_owned()).ok());
            let Some(mut cookie) = parsed else { continue };
            cookie.unset_domain();
            // What the jar refuses (a cookie for another path form, an expired one) is not kept: that is its answer.
            drop(jar.insert_raw(&cookie, &url));
        }
    }
}

impl fmt::Debug for Jar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jar")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(jar: &Jar, uri: &'static str, cookie: &'static str) {
        let mut headers = HeaderMap::new();
        headers.append(header::SET_COOKIE, HeaderValue::from_static(cookie));
        jar.keep(&headers, &Uri::from_static(uri));
    }

    fn sent(jar: &Jar, uri: &'static str, own: Option<&'static str>) -> Vec<String> {
        let mut headers = HeaderMap::new();
        if let Some(own) = own {
            headers.insert(header::COOKIE, HeaderValue::from_static(own));
        }
        jar.add_to(&mut headers, &Uri::from_static(uri));
        let all = headers.get_all(header::COOKIE).iter();
        all.map(|value| value.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn g9_cookies_go_back_to_the_host_that_set_them_in_one_header() {
        let jar = Jar::default();
        set(&jar, "http://a.test/x", "id=1; Path=/");
        set(&jar, "http://a.test/x", "wide=2; Domain=test; Path=/");
        set(&jar, "https://a.test/x", "safe=3; Secure; Path=/");
        set(&jar, "http://a.test/x", "nonsense");
        let mut found = sent(&jar, "http://a.test/y", None);
        assert_eq!(found.len(), 1);
        let mut pairs: Vec<_> = found.remove(0).split("; ").map(str::to_owned).collect();
        pairs.sort();
        assert_eq!(pairs, ["id=1", "wide=2"]);
        assert!(sent(&jar, "http://b.test/", None).is_empty());
        assert!(sent(&jar, "http://b.test/", Some("own=1")) == ["own=1"]);
        let both = sent(&jar, "http://a.test/", Some("own=1"));
        assert!(
            both.len() == 1 && both[0].starts_with("own=1; "),
            "{both:?}"
        );
        set(&jar, "http://a.test/", "id=; Max-Age=0; Path=/");
        let left = sent(&jar, "http://a.test/", None);
        assert_eq!(left, ["wide=2"]);
    }
}
