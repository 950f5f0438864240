//! What talking to AWS takes, on top of `object_store`'s parts.
//!
//! What the crate promises:
//!
//! - [`Signer`] signs whole requests (Signature Version 4, the body's hash included) with credentials that are found, and renewed, as
//!   the SDKs do it: environment, web identity, container, instance.
//! - [`Connector`] lets `object_store` use sluice's own HTTP client and TLS settings, so that there is one of each in the process.
//! - [`check_credential`] and [`check_url`] say what `object_store` would panic over.

mod connector;
mod fit;
mod signer;

pub use connector::Connector;
pub use fit::{check_credential, check_url};
pub use signer::{Signer, SignerSettings};
