//! The shell every receiver shares: listeners, TLS, authentication, admission before the body,
//! inflation, and refusals.
//!
//! Promise: no byte of a body is kept without a permit of the memory budget; a slow client cannot
//! hold the server; every way a request can fail is one [`Refusal`], which a receiver turns into
//! its protocol's answer in one place.

mod activity;
mod auth;
mod body;
mod connection;
mod conversation;
mod discard;
mod endpoint;
mod frames;
mod head;
mod inflate;
mod inline;
mod intake_gate;
mod refusal;
mod reply;
mod shed;
mod streams;
mod tenancy;
mod tls;
mod turns;

pub use auth::{Authenticator, BasicAuth, BearerAuth, TokenFile, Unauthorized, Verify};
pub use body::{BodyLimits, Coding, Compressed, Received, aside, collect_framed, heavy, receive};
pub use connection::{ConnectionSettings, Listener, Peer, Serve};
pub use discard::discard;
pub use endpoint::{BindError, bind};
pub use head::{HeadFault, check_head};
pub use inflate::{InflateError, counted_size, give_back_contexts, inflate, inflated_size, is_portable};
pub use intake_gate::{Gate, Visit, WAITING_PART};
pub use refusal::Refusal;
pub use reply::ReplyBody;
pub use shed::{Entered, LatencyFigures, ShedSettings, Shedder};
pub use tenancy::{Tenancy, TenantSource};
pub use tls::{Pem, ServerTls, TlsError};
pub use turns::Turn;
