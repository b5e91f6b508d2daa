//! One attempt: the request, the redirects that follow, the head of the answer.

use std::borrow::Cow;

use bursar::{Attempt, Effect, Outcome};
use http::{HeaderMap, HeaderValue, Method, Response, Uri, header, response::Parts};
use hyper::body::Incoming;

use crate::ambient::{self, Deadline};
use crate::body::RequestBody;
use crate::cookies::Jar;
use crate::error::{Error, ErrorKind};
use crate::payload::{Origin, Payload};
use crate::redirect::{self, Turn};
use crate::transport::{Flight, Outgoing, Transport};
use crate::verdict;

/// What all attempts of all requests of one client have in common.
#[derive(Debug)]
pub(crate) struct Ways {
    pub(crate) transport: Transport,
    /// How many redirects are followed. `None` follows none and hands them out.
    pub(crate) redirects: Option<u32>,
    pub(crate) cookies: Option<Jar>,
    pub(crate) compression: bool,
}

/// What all attempts of one request have in common.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: RequestBody,
    pub(crate) effect: Effect,
    /// Bytes of the decoded body.
    pub(crate) limit: u64,
}

/// Where an attempt stands: at first at the plan's own address, then wherever redirects lead.
struct Hop<'a> {
    method: Cow<'a, Method>,
    uri: Cow<'a, Uri>,
    headers: Cow<'a, HeaderMap>,
    body: Cow<'a, RequestBody>,
    /// What failures mean at least, after what was answered so far.
    floor: Option<Outcome>,
    left: u32,
}

impl Ways {
    /// Sends the request, follows redirects and returns the answer's head and its body, still to come.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the exchange.
    pub(crate) async fn exchange(
        &self,
        plan: &Plan,
        mut deadline: Deadline,
        attempt: Option<&Attempt>,
    ) -> Result<(Parts, Payload), Error> {
        let mut hop = Hop {
            method: Cow::Borrowed(&plan.method),
            uri: Cow::Borrowed(&plan.uri),
            headers: Cow::Borrowed(&plan.headers),
            body: Cow::Borrowed(&plan.body),
            floor: None,
            left: self.redirects.unwrap_or(0),
        };
        loop {
            let (response, mut flight) = self.send(&hop, &mut deadline, attempt).await?;
            self.keep_cookies(response.headers(), &hop.uri);
            let turn = redirect::turn(response.status(), &hop.method);
            let (Some(turn), true) = (turn, self.redirects.is_some()) else {
                return self.open(response, flight, deadline, hop, plan);
            };
            hop.follow(&response, turn, plan.effect)?;
            // Nobody reads this body: hyper takes what has arrived, or closes.
            drop(response);
            flight.land();
        }
    }

    /// The headers with what the jar adds, if there is one.
    pub(crate) fn with_cookies(&self, headers: &HeaderMap, uri: &Uri) -> Option<HeaderMap> {
        self.cookies.as_ref().map(|jar| {
            let mut headers = headers.clone();
            jar.add_to(&mut headers, uri);
            headers
        })
    }

    /// Keeps what a response sets, if there is a jar.
    pub(crate) fn keep_cookies(&self, headers: &HeaderMap, uri: &Uri) {
        if let Some(jar) = &self.cookies {
            jar.keep(headers, uri);
        }
    }

    async fn send(
        &self,
        hop: &Hop<'_>,
        deadline: &mut Deadline,
        attempt: Option<&Attempt>,
    ) -> Result<(Response<Incoming>, Flight), Error> {
        let with_cookies = self.with_cookies(&hop.headers, &hop.uri);
        let outgoing = Outgoing {
            method: &hop.method,
            uri: &hop.uri,
            headers: with_cookies.as_ref().unwrap_or(&hop.headers),
            body: &hop.body,
        };
        self.transport
            .send(outgoing, deadline, attempt)
            .await
            .map_err(|error| error.at_least(hop.floor))
    }

    fn open(
        &self,
        response: Response<Incoming>,
        flight: Flight,
        deadline: Deadline,
        hop: Hop<'_>,
        plan: &Plan,
    ) -> Result<(Parts, Payload), Error> {
        let moved = match hop.uri {
            Cow::Owned(uri) => Some((hop.method.into_owned(), uri)),
            Cow::Borrowed(_) => None,
        };
        let origin = Origin {
            moved,
            limit: plan.limit,
            floor: hop.floor,
            effect: plan.effect,
            decompress: self.compression,
        };
        Payload::open(response, flight, deadline, origin)
    }
}

impl Hop<'_> {
    /// Goes where `response` leads.
    fn follow(
        &mut self,
        response: &Response<Incoming>,
        turn: Turn,
        effect: Effect,
    ) -> Result<(), Error> {
        if turn == Turn::Get && *self.method != Method::GET && *self.method != Method::HEAD {
            // It was answered: whatever fails from here on, the request itself may have been executed.
            self.floor = verdict::once_answered(response.status(), effect).or(self.floor);
        }
        let refuse = |hop: &Self, what: &'static str| {
            Error::new(ErrorKind::ProtocolError, Outcome::Permanent, what)
                .at_least(hop.floor)
                .to(&hop.method, &hop.uri)
        };
        if self.left == 0 {
            return Err(refuse(
                self,
                "there are more redirects than the client follows",
            ));
        }
        self.left -= 1;
        let location = response.headers().get(header::LOCATION);
        let target = redirect::target(&self.uri, location).map_err(|what| refuse(self, what))?;
        match turn {
            Turn::Keep if self.body.is_stream() => {
                let what = "the redirect asks for the body again, and a stream is sent once";
                return Err(refuse(self, what));
            }
            Turn::Keep => {}
            Turn::Get => {
                if *self.method != Method::HEAD {
                    self.method = Cow::Owned(Method::GET);
                }
                self.body = Cow::Owned(RequestBody::Empty);
                redirect::strip_body(self.headers.to_mut());
            }
        }
        if !redirect::same_origin(&self.uri, &target) {
            redirect::strip_credentials(self.headers.to_mut());
        }
        self.uri = Cow::Owned(target);
        Ok(())
    }
}

/// The failure that a typed terminator makes of a status.
pub(crate) fn failed_status(plan: &Plan, response: Response<bytes::Bytes>) -> Error {
    let status = response.status();
    let pause = response
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value: &HeaderValue| value.to_str().ok())
        .and_then(|value| bursar::retry_after(value, ambient::wall_clock()));
    let outcome = verdict::of_status(status, plan.effect, pause.is_some());
    let what = format!("the server answered {status}");
    Error::new(ErrorKind::InternalFailure, outcome, what)
        .to(&plan.method, &plan.uri)
        .with_response(response, pause)
}
