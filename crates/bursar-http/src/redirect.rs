//! Where a redirect leads and what goes along: pure decisions.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use url::Url;

/// What a redirect does to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Method and body stay.
    Keep,
    /// It becomes a GET (a HEAD stays one) without a body.
    Get,
}

/// Whether this status sends the request elsewhere, and as what.
pub(crate) fn turn(status: StatusCode, method: &Method) -> Option<Turn> {
    match status.as_u16() {
        301 | 302 if *method == Method::POST => Some(Turn::Get),
        301 | 302 | 307 | 308 => Some(Turn::Keep),
        303 => Some(Turn::Get),
        _ => None,
    }
}

/// Where `location` leads, seen from `from`.
pub(crate) fn target(from: &Uri, location: Option<&HeaderValue>) -> Result<Uri, &'static str> {
    let location = location.ok_or("the redirect names no location")?;
    let location = std::str::from_utf8(location.as_bytes())
        .map_err(|_| "the redirect's location is no text")?;
    let base = Url::parse(&from.to_string()).map_err(|_| "the redirect starts from no URL")?;
    let target = base
        .join(location)
        .map_err(|_| "the redirect's location is no URL")?;
    if !matches!(target.scheme(), "http" | "https") {
        return Err("the redirect leads away from HTTP");
    }
    if !target.username().is_empty() || target.password().is_some() {
        return Err("the redirect's location carries credentials");
    }
    Uri::try_from(target.as_str()).map_err(|_| "the redirect's location is no URL")
}

/// Scheme, host and port agree.
pub(crate) fn same_origin(a: &Uri, b: &Uri) -> bool {
    let port = |uri: &Uri| {
        uri.port_u16().or(match uri.scheme_str() {
            Some("http") => Some(80),
            Some("https") => Some(443),
            _ => None,
        })
    };
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    a.scheme() == b.scheme() && host(a) == host(b) && port(a) == port(b)
}

const CREDENTIALS: [HeaderName; 3] = [
    header::AUTHORIZATION,
    header::COOKIE,
    header::PROXY_AUTHORIZATION,
];

pub(crate) fn is_credential(name: &HeaderName) -> bool {
    CREDENTIALS.contains(name)
}

/// Takes away what must not go to another origin.
pub(crate) fn strip_credentials(headers: &mut HeaderMap) {
    for name in CREDENTIALS {
        headers.remove(name);
    }
    // It named the old host.
    headers.remove(header::HOST);
}

/// What describes a body that no longer goes along.
pub(crate) fn strip_body(headers: &mut HeaderMap) {
    for name in [
        header::CONTENT_TYPE,
        header::CONTENT_ENCODING,
        header::CONTENT_LANGUAGE,
        header::CONTENT_LOCATION,
    ] {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g9_what_a_redirect_makes_of_a_request() {
        use Turn::{Get, Keep};
        for (status, get, post, put) in [
            (300, None, None, None),
            (301, Some(Keep), Some(Get), Some(Keep)),
            (302, Some(Keep), Some(Get), Some(Keep)),
            (303, Some(Get), Some(Get), Some(Get)),
            (304, None, None, None),
            (307, Some(Keep), Some(Keep), Some(Keep)),
            (308, Some(Keep), Some(Keep), Some(Keep)),
            (200, None, None, None),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(turn(status, &Method::GET), get, "{status}");
            assert_eq!(turn(status, &Method::POST), post, "{status}");
            assert_eq!(turn(status, &Method::PUT), put, "{status}");
        }
    }

    #[test]
    fn g9_where_a_location_leads() {
        let from = Uri::from_static("https://a.test:8443/x/y?q=1");
        let to = |location: &'static str| {
            target(&from, Some(&HeaderValue::from_static(location))).map(|uri| uri.to_string())
        };
        for (location, right) in [
            ("z", "https://a.test:8443/x/z"),
            ("/z", "https://a.test:8443/z"),
            ("?q=2", "https://a.test:8443/x/y?q=2"),
            ("//b.test/z", "https://b.test/z"),
            ("http://b.test", "http://b.test/"),
            ("../../../z", "https://a.test:8443/z"),
            ("/a b", "https://a.test:8443/a%20b"),
        ] {
            assert_eq!(to(location).as_deref(), Ok(right), "{location}");
        }
        for wrong in [
            "ftp://a.test/",
            "http://",
            "http://u:p@b.test/",
            "file:///etc",
        ] {
            assert!(to(wrong).is_err(), "{wrong}");
        }
        assert!(target(&from, None).is_err());
    }

    #[test]
    fn g9_an_origin_is_scheme_host_and_port() {
        let a = Uri::from_static("https://a.test/x");
        for (other, same) in [
            ("https://a.test:443/y", true),
            ("https://A.test/", true),
            ("http://a.test/x", false),
            ("https://a.test:8443/x", false),
            ("https://b.test/x", false),
        ] {
            assert_eq!(same_origin(&a, &Uri::from_static(other)), same, "{other}");
        }
    }

    #[test]
    fn g9_credentials_stay_with_their_origin() {
        let mut headers = HeaderMap::new();
        for name in [
            "authorization",
            "cookie",
            "proxy-authorization",
            "host",
            "accept",
        ] {
            headers.append(name, HeaderValue::from_static("1"));
            headers.append(name, HeaderValue::from_static("2"));
        }
        strip_credentials(&mut headers);
        let left: Vec<_> = headers.keys().map(|name| name.as_str()).collect();
        assert_eq!(left, ["accept"]);
    }
}
