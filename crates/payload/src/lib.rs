//! One received request on its way through the house: validated bytes, what they are, what they
//! cost, whose they are, and who waits for them.
//!
//! Promise: a [`Payload`] is immutable once made; its memory [`Permit`](sluice_admission::Permit)
//! is released exactly when the last holder drops it.

mod encoding;
mod payload;
mod signal;
mod tenant;
mod wire_format;

pub use encoding::{Encoding, UnknownEncoding};
pub use payload::{Frame, Payload};
pub use signal::Signal;
pub use tenant::{MAX_TENANT_NAME_BYTES, MAX_TENANTS, TenantId, Tenants};
pub use wire_format::WireFormat;
