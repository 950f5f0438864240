//! What can be wrong with a body, where, and how it is said.

/// A body that is not what it claims to be.
///
/// Errors are cold: the fast passes only answer "bad", and a second, careful walk names the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault} in {} (byte {offset})", if path.is_empty() { "the request" } else { path.as_str() })]
pub struct WireError {
    /// What is wrong.
    pub fault: Fault,
    /// The field it is in, as in `resource_spans[2].scope_spans[0].spans[14].trace_id`; empty for the request
    /// itself. A field the schema does not know is written as `#number`.
    pub path: String,
    /// Offset in the body of the field key or the value that is wrong.
    pub offset: usize,
}

/// What is wrong with a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A value, or a length, reaches beyond the end of the message that holds it.
    #[error("truncated: the value reaches beyond the end of its message")]
    Truncated,
    /// A varint is longer than ten bytes or does not fit 64 bits.
    #[error("malformed varint: longer than 64 bits")]
    Varint,
    /// A field key does not fit 32 bits, has field number 0, or a wire type that does not exist.
    #[error("malformed field key")]
    Key,
    /// A field of the schema has another wire type than the schema says.
    #[error("wrong wire type {found}")]
    WireType {
        /// The wire type found, 0 to 5.
        found: u8,
    },
    /// A group ends that did not begin, or ends under another number.
    #[error("unbalanced group")]
    Group,
    /// Messages or groups are nested deeper than 100 levels (prost's recursion limit).
    #[error("nested deeper than 100 levels")]
    Depth,
    /// A string is not UTF-8.
    #[error("string is not UTF-8")]
    Utf8,
    /// A trace or profile id is neither absent nor 16 bytes, or a span id neither absent nor 8 bytes.
    #[error("id of {found} bytes, must be {want} or empty")]
    IdLength {
        /// Bytes found.
        found: usize,
        /// Bytes an id of this sort has.
        want: usize,
    },
    /// An edit does not lie on a field boundary, overlaps another, or reaches beyond the body.
    #[error("edit is not on a field boundary")]
    Edit,
}

impl WireError {
    pub(crate) fn at(fault: Fault, offset: usize) -> Self {
        Self {
            fault,
            path: String::new(),
            offset,
        }
    }
}
