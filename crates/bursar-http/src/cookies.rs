//! The cookies of one client.
//!
//! A cookie goes back to the host that set it and to no other: a `Domain` attribute is not widened, since without a
//! list of public suffixes a host could set cookies for its neighbours.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cookie_store::{Cookie, CookieStore, RawCookie, StoreAction};
use http::{HeaderMap, HeaderValue, Uri, header};
use url::Url;

/// The least that RFC 6265 (6.1) asks a client to keep, and no more, since servers choose what is set: bytes of one cookie,
/// cookies of one host, and all of them.
const LONGEST: usize = 4_096;
const MOST_OF_ONE_HOST: usize = 50;
const MOST: usize = 3_000;

/// A jar that all requests of one client share.
#[derive(Default)]
pub(crate) struct Jar(Mutex<Kept>);

/// The cookies and how many there are, those counted that have expired and were not swept out.
#[derive(Default)]
struct Kept {
    store: CookieStore,
    of_host: HashMap<String, usize>,
    all: usize,
}

impl Jar {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what the jar has for `uri` to the one `Cookie` header, after what the caller set.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap, uri: &Uri) {
        let Ok(url) = Url::parse(&uri.to_string()) else {
            return;
        };
        let own: Vec<String> = self
            .lock()
            .store
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
                .filter(|text| text.len() <= LONGEST)
                .and_then(|text| RawCookie::parse(text.to_owned()).ok());
            let Some(mut cookie) = parsed else { continue };
            cookie.unset_domain();
            if let Ok(cookie) = Cookie::try_from_raw_cookie(&cookie, &url) {
                jar.put(cookie.into_owned(), &url);
            }
        }
    }
}

impl Kept {
    /// Keeps one cookie, unless there are too many and it replaces none.
    fn put(&mut self, cookie: Cookie<'static>, url: &Url) {
        let host = String::from(&cookie.domain);
        let path = String::from(&cookie.path);
        if !self.store.contains_any(&host, &path, cookie.name()) && self.is_full(&host) {
            self.sweep();
            if self.is_full(&host) {
                return;
            }
        }
        // What the store refuses (an expired one) is not kept: that is its answer.
        if let Ok(StoreAction::Inserted) = self.store.insert(cookie, url) {
            self.all += 1;
            *self.of_host.entry(host).or_default() += 1;
        }
    }

    fn is_full(&self, host: &str) -> bool {
        let of_host = self.of_host.get(host).copied().unwrap_or(0);
        self.all >= MOST || of_host >= MOST_OF_ONE_HOST
    }

    /// Removes what has expired: the store keeps it.
    fn sweep(&mut self) {
        let all = self.store.iter_any();
        let expired = all.filter(|cookie| cookie.is_expired()).map(|cookie| {
            let name = cookie.name().to_owned();
            let host = String::from(&cookie.domain);
            (host, String::from(&cookie.path), name)
        });
        for (host, path, name) in expired.collect::<Vec<_>>() {
            self.store.remove(&host, &path, &name);
            self.all -= 1;
            if let Some(of_host) = self.of_host.get_mut(&host) {
                *of_host -= 1;
            }
        }
        self.of_host.retain(|_, of_host| *of_host > 0);
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

    #[test]
    fn g9_a_server_cannot_fill_the_jar() {
        let jar = Jar::default();
        let keep = |host: &str, cookie: String| {
            let mut headers = HeaderMap::new();
            headers.append(header::SET_COOKIE, HeaderValue::try_from(cookie).unwrap());
            let uri = Uri::try_from(format!("http://{host}.test/")).unwrap();
            jar.keep(&headers, &uri);
        };
        let kept = || jar.lock().store.iter_unexpired().count();
        keep("a", format!("long={}", "x".repeat(LONGEST)));
        assert_eq!(kept(), 0);
        for number in 0..100 {
            keep("a", format!("c{number}=1"));
        }
        assert_eq!(kept(), MOST_OF_ONE_HOST);
        keep("a", "c7=2".to_owned());
        let sent = sent(&jar, "http://a.test/", None).remove(0);
        assert!(sent.contains("c7=2") && !sent.contains("c7=1"), "{sent}");
        // What has expired makes room.
        keep("a", "c7=; Max-Age=0".to_owned());
        keep("a", "new=1".to_owned());
        assert_eq!(kept(), MOST_OF_ONE_HOST);
        for host in 0..70 {
            for number in 0..50 {
                keep(&format!("h{host}"), format!("c{number}=1"));
            }
        }
        assert_eq!(kept(), MOST);
    }
}
