//! The shell every exporter shares: HTTP/1.1 and h2 pools, DNS re-resolution, TLS, compression.
//!
//! Promise: a request has one deadline for everything it does; its uncompressed body is never
//! copied together; a connection that went away while nobody used it is not an error anybody sees;
//! names are resolved again for every connection, and no connection outlives its age; an answer
//! costs at most [`MAX_ANSWER_BYTES`]. What an answer *means* is the exporter's business.

mod answer;
mod auth;
mod client;
mod compress;
mod connect;
mod destination;
mod egress;
mod error;
mod h1;
mod h2;
mod inflate;
mod io;
mod resolve;
mod said;
mod sign;
mod slices;
mod tls;

pub use answer::{Answer, MAX_ANSWER_BYTES};
pub use auth::{Auth, Credentials};
pub use client::{AGENT, Client, ClientSettings, Protocol};
pub use compress::{
    Compression, UnknownCompression, compress, compress_slices, expected_bytes, give_back_contexts,
};
pub use connect::ConnectSettings;
pub use destination::{Destination, InvalidEndpoint};
pub use egress::{Egress, EgressPermit, EgressPool};
pub use error::{Addresses, Phase, SendError};
pub use h1::Http1Settings;
pub use h2::Http2Settings;
pub use inflate::inflate;
pub use resolve::{FixedAddress, Resolve, Resolving, SystemResolver};
pub use said::{MAX_DELAY, MAX_WORDS_BYTES, retry_after, words};
pub use sign::{Sign, Signing};
pub use slices::Slices;
pub use tls::{ClientTls, Pem, TlsError, TlsVersion};
