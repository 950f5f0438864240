//! Answers as servers write them, by the protobuf definitions rather than by the code under test.

use prost::Message;

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
pub struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    pub retry_delay: Option<Duration>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
pub struct Duration {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// A status with a detail nobody knows and, with `delay`, a RetryInfo.
pub fn status(code: i32, message: &str, delay: Option<std::time::Duration>) -> Vec<u8> {
    let mut details = vec![Any {
        type_url: "type.googleapis.com/google.rpc.DebugInfo".into(),
        value: vec![10, 1, 65],
    }];
    if let Some(delay) = delay {
        let delay = Duration {
            seconds: delay.as_secs() as i64,
            nanos: delay.subsec_nanos() as i32,
        };
        details.push(Any {
            type_url: "type.googleapis.com/google.rpc.RetryInfo".into(),
            value: RetryInfo {
                retry_delay: Some(delay),
            }
            .encode_to_vec(),
        });
    }
    Status {
        code,
        message: message.into(),
        details,
    }
    .encode_to_vec()
}
