//! An HTTP client that knows what left the wire.
//!
//! Every failure says what went wrong (its [kind](ErrorKind)) and what became of the request (its
//! [outcome](Error::outcome)): whether it was never sent, refused, or may have been executed. Retries follow from that
//! and from the method, so that a POST is sent twice only when the first one is known not to have happened. A client may
//! run under a [contract](ClientBuilder::contract) of a [`bursar::Runtime`] and then spends its budgets.
//!
//! ```
//! use bursar_http::{Client, ErrorKind};
//! use std::time::Duration;
//!
//! # async fn f() -> Result<(), bursar_http::Error> {
//! #[derive(serde::Serialize)]
//! struct Order {
//!     item: u32,
//! }
//!
//! #[derive(serde::Deserialize)]
//! struct Receipt {
//!     number: u64,
//! }
//!
//! let shop = Client::builder()
//!     .base_url("https://shop.example.com/v1")
//!     .timeout(Duration::from_secs(2))
//!     .build()?;
//! let placed = shop
//!     .post("/orders")
//!     .idempotency_key("order-7")
//!     .json(&Order { item: 3 })
//!     .fetch::<Receipt>()
//!     .await;
//! match placed {
//!     Ok(receipt) => println!("{}", receipt.number),
//!     Err(error) if error.kind() == ErrorKind::Unavailable => println!("{}", error.outcome()),
//!     Err(error) => return Err(error),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! What kind and outcome each situation has, and the defaults, stand in tables in `docs/http.md` of the repository.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod ambient;
mod attempt;
mod body;
mod builder;
mod client;
mod clients;
mod codec;
mod config;
mod cookies;
mod download;
mod error;
mod multipart;
mod payload;
mod redirect;
mod request;
mod run;
mod schedule;
mod stream;
mod submit;
mod surface;
mod terminators;
mod token;
mod transport;
mod turn;
mod verdict;

pub use builder::ClientBuilder;
pub use client::Client;
pub use clients::{Clients, ClientsBuilder};
pub use codec::{Decode, Json};
pub use error::{Error, ErrorKind};
pub use multipart::Multipart;
pub use request::{NoBody, Request, WithBody};
pub use stream::BodyStream;
pub use submit::SubmitStats;
pub use surface::{Detached, OneShot, Registered, Surface};
pub use turn::{TurnClient, TurnHttp};

/// The guide's examples, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/http.md")]
struct Guide;
