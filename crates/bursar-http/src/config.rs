//! What a client is told, checked once when it is built.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Uri, header};
use url::Url;

use crate::error::Error;
use crate::transport::Proxy;

/// How long an attempt may take, its body included, unless said otherwise.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(3);

/// How large a decoded body may be, unless said otherwise.
pub(crate) const BODY_LIMIT: u64 = 16 << 20;

/// How many headers a request or a client may set. A map of them holds no more than 32,768 and panics beyond.
pub(crate) const HEADERS: usize = 4_096;

/// The address that a client's paths are appended to.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    scheme: Scheme,
    authority: Authority,
    /// Without a slash at its end.
    prefix: String,
}

impl Base {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let invalid =
            |what: &str| Error::usage(format!("option `base_url` = {:?}: {what}", shown(text)));
        let uri = absolute(text).map_err(invalid)?;
        if uri.query().is_some() {
            return Err(invalid("it must not have a query"));
        }
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let parts = uri.into_parts();
        match (parts.scheme, parts.authority) {
            (Some(scheme), Some(authority)) => Ok(Self {
                scheme,
                authority,
                prefix,
            }),
            _ => Err(invalid("it must begin with http:// or https://")),
        }
    }
}

/// The address of one request.
pub(crate) fn address(base: Option<&Base>, path: String, query: &str) -> Result<Uri, Error> {
    // A fragment is the caller's own business and is never sent.
    let end = path.find('#').unwrap_or(path.len());
    let plain = end == path.len() && query.is_empty();
    let Some(base) = base else {
        let joint = joint(&path[..end], query);
        return absolute(&format!("{}{joint}{query}", &path[..end]))
            .map_err(|what| refused(&path, what));
    };
    if is_whole(&path) {
        let what = "the client has a base URL and takes paths alone";
        return Err(refused(&path, what));
    }
    let path_and_query = if plain && base.prefix.is_empty() && path.starts_with('/') {
        // As it stands, the usual case.
        path_and_query(path.clone())
    } else {
        path_and_query(joined(base, &path[..end], query))
    };
    let Some(path_and_query) = path_and_query else {
        // What is not ASCII or has spaces is escaped as browsers do it.
        return escaped(base, &path[..end], query).ok_or_else(|| refused(&path, "it is no URL"));
    };
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(base.scheme.clone());
    parts.authority = Some(base.authority.clone());
    parts.path_and_query = Some(path_and_query);
    Uri::from_parts(parts).map_err(|_| refused(&path, "it is no URL"))
}

/// Whether this was meant for more than a path, be it right or wrong. An address in the query of a path is a part of it.
fn is_whole(path: &str) -> bool {
    let begins = |scheme: &str| {
        let start = path.get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let relative = || Url::parse(path) == Err(url::ParseError::RelativeUrlWithoutBase);
    begins("http:") || begins("https:") || (path.contains("://") && !relative())
}

fn refused(path: &str, what: &str) -> Error {
    Error::usage(format!("request address {:?}: {what}", shown(path)))
}

/// As much of an address as may be read in a log: without credentials and without the query.
///
/// In one that is wrong nobody can say where the credentials end. What stands before the last `@` goes, and where that comes
/// after a question mark, what follows it too. A plain path has none.
pub(crate) fn shown(address: &str) -> String {
    let end = address.find(['?', '#']).unwrap_or(address.len());
    let path = address[..end].strip_prefix('/');
    let path = path.is_some_and(|rest| {
        // Parsers of URLs leave out what is no character of one.
        let odd = rest.contains("://") || rest.contains(char::is_control);
        !odd && !rest.starts_with(['/', '\\'])
    });
    let Some(at) = address.rfind('@').filter(|_| !path) else {
        return address[..end].to_owned();
    };
    let host = address.get(at + 1..end).unwrap_or("..");
    match address[..at].split_once("://") {
        Some((scheme @ ("http" | "https"), _)) => format!("{scheme}://{host}"),
        _ => host.to_owned(),
    }
}

/// What stands between a path and the query that is added to it.
fn joint(path: &str, query: &str) -> &'static str {
    match (query.is_empty(), path.contains('?')) {
        (true, _) => "",
        (false, true) => "&",
        (false, false) => "?",
    }
}

fn joined(base: &Base, path: &str, query: &str) -> String {
    let goes_on = !base.prefix.is_empty() && (path.is_empty() || path.starts_with('?'));
    let slash = if path.starts_with('/') || goes_on {
        ""
    } else {
        "/"
    };
    [&base.prefix, slash, path, joint(path, query), query].concat()
}

fn path_and_query(text: String) -> Option<PathAndQuery> {
    let text = text.is_ascii().then(|| Bytes::from(text))?;
    PathAndQuery::from_maybe_shared(text).ok()
}

fn escaped(base: &Base, path: &str, query: &str) -> Option<Uri> {
    let joint = joint(path, query);
    let Base {
        scheme,
        authority,
        prefix,
    } = base;
    let text = format!(
        "{scheme}://{authority}{prefix}/{}{joint}{query}",
        path.trim_start_matches('/')
    );
    Uri::try_from(Url::parse(&text).ok()?.as_str()).ok()
}

/// An address that is whole, on HTTP, and carries no credentials.
fn absolute(text: &str) -> Result<Uri, &'static str> {
    const FORM: &str = "it must begin with http:// or https:// and name a host";
    let uri = match Uri::try_from(text) {
        Ok(uri) if text.is_ascii() => uri,
        _ => {
            let url = Url::parse(text).map_err(|_| FORM)?;
            Uri::try_from(url.as_str()).map_err(|_| FORM)?
        }
    };
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
        return Err(FORM);
    }
    if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
        return Err("it must not carry credentials: use `basic_auth`");
    }
    let named = uri.authority().map_or("", |authority| authority.as_str());
    if Some(named) != uri.host() && uri.port_u16().is_none() {
        // The connector would take the scheme's own port instead.
        return Err("its port must be a number from 0 to 65535");
    }
    Ok(uri)
}

/// The value of an `Authorization` header.
pub(crate) fn basic(user: &str, password: &str) -> HeaderValue {
    let text = STANDARD.encode(format!("{user}:{password}"));
    secret(format!("Basic {text}")).unwrap_or_else(|_| HeaderValue::from_static(""))
}

pub(crate) fn secret(text: String) -> Result<HeaderValue, http::Error> {
    let mut value = HeaderValue::try_from(text)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Headers that say how the message is framed or the connection used; the client sets them.
pub(crate) fn is_own(name: &HeaderName) -> bool {
    [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::EXPECT,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ]
    .contains(name)
        || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// A proxy from its address, which may carry credentials.
pub(crate) fn proxy(text: &str) -> Result<Proxy, Error> {
    let invalid = |what: &str| {
        // The credentials are not repeated.
        let shown = text.rsplit('@').next().unwrap_or_default();
        Error::usage(format!("option `proxy` = {shown:?}: {what}"))
    };
    let mut url = Url::parse(text).map_err(|_| invalid("it is no URL"))?;
    if url.scheme() != "http" {
        return Err(invalid("it must begin with http://"));
    }
    let decode = |text: &str| {
        let pair = format!("x={}", text.replace('+', "%2B"));
        let decoded = url::form_urlencoded::parse(pair.as_bytes()).next();
        decoded
            .map(|(_, value)| value.into_owned())
            .unwrap_or_default()
    };
    let named = !url.username().is_empty() || url.password().is_some();
    let authorization = named.then(|| {
        basic(
            &decode(url.username()),
            &decode(url.password().unwrap_or("")),
        )
    });
    let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    if url.set_username("").and(url.set_password(None)).is_err() || !bare {
        return Err(invalid("it must name a host and a port alone"));
    }
    let uri = Uri::try_from(url.as_str()).map_err(|_| invalid("it is no URL"))?;
    Ok(Proxy { uri, authorization })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g1_a_path_is_appended_to_the_base() {
        for (base, path, query, right) in [
            ("http://a.test", "", "", "http://a.test/"),
            ("http://a.test/", "/x", "", "http://a.test/x"),
            ("http://a.test/v1/", "x/y", "", "http://a.test/v1/x/y"),
            (
                "http://a.test/v1",
                "/x?q=1",
                "r=2",
                "http://a.test/v1/x?q=1&r=2",
            ),
            ("http://a.test/v1", "?q=1", "", "http://a.test/v1?q=1"),
            (
                "https://a.test:8443",
                "/x",
                "q=1",
                "https://a.test:8443/x?q=1",
            ),
            (
                "http://a.test",
                "/a b/\u{e9}",
                "",
                "http://a.test/a%20b/%C3%A9",
            ),
            ("http://a.test", "/x#part", "q=1", "http://a.test/x?q=1"),
        ] {
            let base = Base::parse(base).unwrap();
            let uri = address(Some(&base), path.into(), query).unwrap();
            assert_eq!(uri.to_string(), right, "{path}");
        }
        let base = Base::parse("http://a.test").unwrap();
        let error = address(Some(&base), "http://b.test/x".into(), "").unwrap_err();
        assert!(error.to_string().contains("paths alone"), "{error}");
    }

    #[test]
    fn g1_without_a_base_an_address_is_whole() {
        let whole = |text: &'static str| address(None, text.into(), "").map(|uri| uri.to_string());
        assert_eq!(whole("http://a.test/x?q").unwrap(), "http://a.test/x?q");
        assert_eq!(
            whole("http://a.test/\u{e9}").unwrap(),
            "http://a.test/%C3%A9"
        );
        for wrong in [
            "/x",
            "a.test/x",
            "ftp://a.test/",
            "http://",
            "http://u:p@a.test/",
            "http://a.test:99999/",
            "http://a.test:x/",
            "http://a.test:/",
            "http://[::1]:99999/",
            "",
        ] {
            assert!(whole(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn g6_a_wrong_option_is_named_with_its_value_and_a_proxy_without_its_credentials() {
        let error = Base::parse("a.test").unwrap_err().to_string();
        assert!(
            error.contains("`base_url` = \"a.test\": it must begin with"),
            "{error}"
        );
        for wrong in [
            "http://u:secret@a.test",
            "http://u:se/secret@a.test",
            "http://a.test/?secret",
            "ftp://a.test/?secret",
            // Forms that parsers of URLs take for the first one.
            "http:u:secret@a.test",
            "http:\\\\u:secret@a.test",
            "//u:secret@a.test",
            // A password with a question mark, or a query with an at sign.
            "http://u:?secret@a.test",
            "http://a.test/?a@secret",
        ] {
            let base = Base::parse(wrong).unwrap_err().to_string();
            let request = address(None, format!("{wrong}#"), "").map_err(|e| e.to_string());
            assert!(!base.contains("secret"), "{base}");
            assert!(
                !request
                    .as_ref()
                    .is_err_and(|error| error.contains("secret")),
                "{request:?}"
            );
        }
        assert_eq!(shown("/users/@me?q=a@b"), "/users/@me");
        let base = Base::parse("http://b.test").unwrap();
        for wrong in [
            "http://u:se/secret@a.test/x",
            "http://u:secret@a.test:99999/",
            "HTTPS:u:secret@a.test",
            "ftp://u:secret@a.test/",
        ] {
            let error = address(Some(&base), wrong.to_owned(), "").unwrap_err();
            let error = error.to_string();
            assert!(error.contains("takes paths alone"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        for wrong in ["/http://u:secret@a.test/", "/\t/u:secret@a.test"] {
            assert!(!shown(wrong).contains("secret"), "{}", shown(wrong));
        }
        let nested = address(Some(&base), "x?next=http://c.test/".to_owned(), "");
        assert_eq!(
            nested.unwrap().to_string(),
            "http://b.test/x?next=http://c.test/"
        );
        for wrong in [
            "x",
            "https://u:secret@p.test",
            "http://u:secret@p.test/path",
            "http://u:secret@p.test/?query",
        ] {
            let error = proxy(wrong).unwrap_err().to_string();
            assert!(
                error.contains("`proxy`") && !error.contains("secret"),
                "{error}"
            );
        }
        let found = proxy("http://us%3Aer:p+w%40@p.test:3128").unwrap();
        assert_eq!(found.uri, "http://p.test:3128/");
        assert_eq!(found.authorization, Some(basic("us:er", "p+w@")));
        assert!(found.authorization.unwrap().is_sensitive());
        let nameless = proxy("http://:token@p.test").unwrap().authorization;
        assert_eq!(nameless, Some(basic("", "token")));
        assert_eq!(basic("a", "b"), "Basic YTpi");
    }
}
