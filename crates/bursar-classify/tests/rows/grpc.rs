//! gRPC over a real HTTP/2 connection, with a server that answers, resets, or is not there.

use std::net::SocketAddr;
use std::time::Duration;

use ::tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use ::tonic::metadata::MetadataMap;
use ::tonic::transport::Endpoint;
use ::tonic::{Code, Request, Status};
use bursar::Outcome::{Permanent, Throttled, Transient, Uncertain};
use bursar_classify::tonic::{TABLE, failure, outcome};
use bytes::{Buf, BufMut};

use super::expect;

const CODES: &[(&str, Code)] = &[
    ("RESOURCE_EXHAUSTED", Code::ResourceExhausted),
    ("ABORTED", Code::Aborted),
    ("UNAVAILABLE", Code::Unavailable),
    ("DEADLINE_EXCEEDED", Code::DeadlineExceeded),
    ("CANCELLED", Code::Cancelled),
    ("UNKNOWN", Code::Unknown),
    ("INTERNAL", Code::Internal),
    ("DATA_LOSS", Code::DataLoss),
    ("INVALID_ARGUMENT", Code::InvalidArgument),
    ("NOT_FOUND", Code::NotFound),
    ("ALREADY_EXISTS", Code::AlreadyExists),
    ("PERMISSION_DENIED", Code::PermissionDenied),
    ("FAILED_PRECONDITION", Code::FailedPrecondition),
    ("OUT_OF_RANGE", Code::OutOfRange),
    ("UNIMPLEMENTED", Code::Unimplemented),
    ("UNAUTHENTICATED", Code::Unauthenticated),
    // No failure, so nothing is known of it as one.
    ("*", Code::Ok),
];

#[test]
fn a_code_is_the_servers_word() {
    let of = |key: &str, _| {
        let (_, code) = CODES
            .iter()
            .find(|(name, _)| *name == key)
            .expect("a code of gRPC");
        outcome(&Status::new(*code, "in its own words"))
    };
    expect(
        TABLE,
        of,
        &[
            (Throttled, Throttled, &["RESOURCE_EXHAUSTED"]),
            (Transient, Transient, &["ABORTED"]),
            (
                Uncertain,
                Uncertain,
                &[
                    "UNAVAILABLE",
                    "DEADLINE_EXCEEDED",
                    "CANCELLED",
                    "UNKNOWN",
                    "INTERNAL",
                    "DATA_LOSS",
                    "OUT_OF_RANGE",
                    "*",
                ],
            ),
            (
                Permanent,
                Permanent,
                &[
                    "INVALID_ARGUMENT",
                    "NOT_FOUND",
                    "ALREADY_EXISTS",
                    "PERMISSION_DENIED",
                ],
            ),
            (
                Permanent,
                Permanent,
                &["FAILED_PRECONDITION", "UNIMPLEMENTED", "UNAUTHENTICATED"],
            ),
        ],
    );
}

#[test]
fn the_servers_pushback_is_the_failures() {
    let told = |code, pushback: &str| {
        let mut metadata = MetadataMap::new();
        metadata.insert("grpc-retry-pushback-ms", pushback.parse().unwrap());
        let failure = failure(Status::with_metadata(code, "busy", metadata));
        (failure.outcome(), failure.pushback())
    };
    assert_eq!(
        told(Code::ResourceExhausted, "1500"),
        (Throttled, Some(Duration::from_millis(1500)))
    );
    // What is no number of milliseconds says: do not come back.
    assert_eq!(told(Code::ResourceExhausted, "-1"), (Permanent, None));
    assert_eq!(told(Code::Aborted, "soon"), (Permanent, None));
    assert_eq!(told(Code::Aborted, "+5"), (Permanent, None));
    assert_eq!(told(Code::Unavailable, "-1"), (Uncertain, None));
    assert_eq!(failure(Status::aborted("no pushback")).pushback(), None);
}

/// Messages that are bytes and nothing else.
#[derive(Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining()).into()))
    }
}

/// What the server does with a call.
#[derive(Clone, Copy)]
enum Then {
    Status(u16),
    Reset(h2::Reason),
    /// Begins an answer that is longer than the client takes.
    Much,
    /// Drops the connection with the call on it.
    Vanish,
}

async fn server(then: Then) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let mut held = Vec::new();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                match then {
                    Then::Status(code) => {
                        let response = http::Response::builder()
                            .header("content-type", "application/grpc")
                            .header("grpc-status", code)
                            .body(())
                            .unwrap();
                        respond.send_response(response, true).unwrap();
                    }
                    Then::Reset(reason) => respond.send_reset(reason),
                    Then::Much => {
                        let response = http::Response::builder()
                            .header("content-type", "application/grpc")
                            .body(())
                            .unwrap();
                        let mut body = respond.send_response(response, false).unwrap();
                        // Not compressed, and of so many bytes.
                        let prefix = bytes::Bytes::from_static(&[0, 0x7f, 0xff, 0xff, 0xff]);
                        body.send_data(prefix, false).unwrap();
                        held.push(body);
                    }
                    Then::Vanish => break,
                }
            }
        }
    });
    address
}

/// One call, and the status that it fails with.
async fn call(address: SocketAddr) -> Status {
    let channel = Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect_lazy();
    let mut client = ::tonic::client::Grpc::new(channel);
    if let Err(error) = client.ready().await {
        return Status::from_error(error.into());
    }
    let path = http::uri::PathAndQuery::from_static("/shop.Orders/Place");
    client
        .unary(Request::new(b"once".to_vec()), path, Raw)
        .await
        .unwrap_err()
}

#[tokio::test]
async fn what_the_server_says_comes_through() {
    let status = call(server(Then::Status(8)).await).await;
    assert_eq!(
        (status.code(), outcome(&status)),
        (Code::ResourceExhausted, Throttled)
    );
    let status = call(server(Then::Status(14)).await).await;
    assert_eq!(
        (status.code(), outcome(&status)),
        (Code::Unavailable, Uncertain)
    );
}

#[tokio::test]
async fn an_answer_that_is_too_long_comes_after_the_effect() {
    let status = call(server(Then::Much).await).await;
    assert_eq!(
        (status.code(), outcome(&status)),
        (Code::OutOfRange, Uncertain),
        "{status:?}"
    );
}

#[tokio::test]
async fn what_was_never_sent_or_refused_is_transient() {
    let (address, _reserved) = tokio::task::spawn_blocking(super::sockets::closed)
        .await
        .unwrap();
    let status = call(address).await;
    assert_eq!(
        (status.code(), outcome(&status)),
        (Code::Unavailable, Transient),
        "{status:?}"
    );

    // Whatever code the client finds for it.
    let status = call(server(Then::Reset(h2::Reason::REFUSED_STREAM)).await).await;
    assert_eq!(outcome(&status), Transient, "{status:?}");
}

#[tokio::test]
async fn what_is_lost_in_the_middle_is_uncertain_whatever_its_code() {
    for then in [
        Then::Vanish,
        Then::Reset(h2::Reason::INTERNAL_ERROR),
        // tonic's code for this one would say that it was refused for load.
        Then::Reset(h2::Reason::ENHANCE_YOUR_CALM),
    ] {
        let status = call(server(then).await).await;
        assert_eq!(outcome(&status), Uncertain, "{status:?}");
    }
}
