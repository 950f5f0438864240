//! Workloads that more than one measuring program runs.

mod batch_path;
mod requests;

pub use batch_path::BatchPath;
pub use requests::{SHAPES, kind, request, requests};
