//! Addresses that an HTTP client is given: its base, its proxy, and those of requests.
//!
//! The first byte chooses what the rest is. What must hold: a password is in nothing that a client, a request or an error
//! shows, however the address is written; an address with credentials is refused and nothing is sent; a path never leads to
//! another origin than the client's base, and what is added as a query arrives as it was.

use bursar_http::Client;
use url::Url;

use crate::loopback::against;

/// Ways to begin an address, right and wrong.
const BEGINNINGS: [&str; 10] = [
    "http://",
    "https://",
    "http:",
    "http:/",
    "http:\\\\",
    "HTTP://",
    "//",
    "",
    " \thttp://",
    "ftp://",
];

/// At both ends of the password, so that no part of it is shown either.
const MARK: &str = "q7";

const BASES: [&str; 4] = [
    "http://a.test",
    "http://a.test/v1/",
    "http://A.test:81/x",
    "http://[::1]:82",
];

/// One address, or a path and a query.
///
/// # Panics
/// If something does not hold that stands in the module's head.
pub fn addresses(bytes: &[u8]) {
    let Some((mode, rest)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(rest);
    let mut pieces = text.split('\0');
    let mut next = || pieces.next().unwrap_or_default();
    let which = usize::from(mode / 4);
    match mode % 4 {
        0..=2 => {
            let (user, password, host) = (next(), next(), next());
            // Then what follows would be no password.
            let ends = |of: &str| of.contains(['/', '\\', '?', '#']);
            if ends(user) || user.contains(MARK) || host.contains(MARK) {
                return;
            }
            let beginning = BEGINNINGS[which % BEGINNINGS.len()];
            let address = format!("{beginning}{user}:{MARK}{password}{MARK}@{host}");
            match mode % 4 {
                0 => base(&address),
                1 => whole(&address),
                _ => proxy(&address),
            }
        }
        _ => path(BASES[which % BASES.len()], next(), next(), next()),
    }
}

fn hides(shown: &str, address: &str) {
    assert!(!shown.contains(MARK), "{address:?} is shown as {shown}");
}

fn base(address: &str) {
    let builder = Client::builder().base_url(address);
    hides(&format!("{builder:?}"), address);
    match builder.build() {
        Ok(client) => panic!("{address:?} is taken for a base: {client:?}"),
        Err(error) => hides(&format!("{error} {error:?}"), address),
    }
}

fn whole(address: &str) {
    let (ended, seen) = against(&[], async |port| {
        let proxy = format!("http://127.0.0.1:{port}");
        let client = Client::builder().proxy(proxy).build().expect("no base");
        let request = client.get(address);
        hides(&format!("{request:?}"), address);
        request.send_raw().await
    });
    assert_eq!(seen, Vec::<String>::new(), "{address:?} is asked for");
    match ended {
        Ok(answer) => panic!("{address:?} is answered: {answer:?}"),
        Err(error) => hides(&format!("{error} {error:?}"), address),
    }
}

fn proxy(address: &str) {
    let builder = Client::builder().proxy(address);
    hides(&format!("{builder:?}"), address);
    match builder.build() {
        Ok(client) => hides(&format!("{client:?}"), address),
        Err(error) => hides(&format!("{error} {error:?}"), address),
    }
}

fn path(base: &str, path: &str, name: &str, value: &str) {
    let (ended, seen) = against(&[b"HTTP/1.1 204 No Content\r\n\r\n"], async |port| {
        let proxy = format!("http://127.0.0.1:{port}");
        let builder = Client::builder().base_url(base).proxy(proxy);
        let client = builder.http1_only().build().expect("the base is right");
        client.get(path).query(name, value).send_raw().await
    });
    let context = || format!("{path:?} under {base:?}: {ended:?} {seen:?}");
    let Some(line) = seen.first().and_then(|head| head.lines().next()) else {
        assert!(ended.is_err(), "{}", context());
        return;
    };
    assert!(ended.is_ok(), "{}", context());
    let target = line.split(' ').nth(1).unwrap_or_default();
    let (Ok(target), Ok(base)) = (Url::parse(target), Url::parse(base)) else {
        panic!("{}", context());
    };
    assert_eq!(target.origin(), base.origin(), "{}", context());
    let credentials = !target.username().is_empty() || target.password().is_some();
    assert!(!credentials && target.fragment().is_none(), "{}", context());
    let last = target.query_pairs().last();
    let right = (name.into(), value.into());
    assert_eq!(last, Some(right), "{}", context());
}
