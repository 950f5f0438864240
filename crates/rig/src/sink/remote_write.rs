//! What a receiver of Prometheus remote write does with heads and answers, after the specifications of 1.0 and
//! 2.0.
//!
//! Bodies are snappy blocks, or zstd frames as in VictoriaMetrics' extension. A request of which one sample is
//! invalid is answered with 400 and not counted at all; Prometheus would write the rest.

use sluice_loadgen::{RemoteWrite, Written};

const MEDIA_TYPE: &str = "application/x-protobuf";

/// The encoding of a body; an absent one is snappy, as Prometheus has it for clients that never said. An error is
/// the text of a 415.
pub(super) fn encoding(header: &str) -> Result<&str, String> {
    match header {
        "" => Ok("snappy"),
        "snappy" | "zstd" => Ok(header),
        _ => Err(format!("Content-Encoding {header:?}: use snappy or zstd")),
    }
}

/// The version that a request is of, by its media type; an error is the text of a 415.
pub(super) fn version(media_type: &str) -> Result<RemoteWrite, String> {
    let mut parts = media_type.split(';').map(str::trim);
    if !parts.next().unwrap_or_default().eq_ignore_ascii_case(MEDIA_TYPE) {
        return Err(format!("Content-Type {media_type:?}: use {MEDIA_TYPE}"));
    }
    let message = parts
        .filter_map(|part| part.split_once('='))
        .find(|(key, _)| key.trim().eq_ignore_ascii_case("proto"))
        .map_or(RemoteWrite::V1.message(), |(_, value)| {
            value.trim().trim_matches('"')
        });
    RemoteWrite::ALL
        .into_iter()
        .find(|version| version.message() == message)
        .ok_or_else(|| {
            let known = RemoteWrite::ALL.map(RemoteWrite::message).join(" or ");
            format!("Content-Type {media_type:?}: use proto={known}")
        })
}

/// The headers that say how much was written; 1.0 has none.
pub(super) fn written(version: RemoteWrite, written: Written) -> String {
    if version == RemoteWrite::V1 {
        return String::new();
    }
    let header = |kind: &str, number: u64| format!("X-Prometheus-Remote-Write-{kind}-Written: {number}\r\n");
    header("Samples", written.samples)
        + &header("Histograms", written.histograms)
        + &header("Exemplars", written.exemplars)
}

/// The answer to a request whose body has been looked at, or will be later.
pub(super) fn answer(version: RemoteWrite, taken: Result<Written, String>, rejected_items: u64) -> Vec<u8> {
    match taken {
        Ok(some) if rejected_items > 0 => {
            // A partial write is a 400 whose headers say what was written.
            let text = format!("the fault script rejects {rejected_items} samples");
            failure("400 Bad Request", &written(version, some), &text)
        }
        Ok(all) => format!("HTTP/1.1 204 No Content\r\n{}\r\n", written(version, all)).into_bytes(),
        Err(error) => failure("400 Bad Request", &written(version, Written::default()), &error),
    }
}

/// The answer to a request whose body is not looked at.
pub(super) fn unsupported(version: RemoteWrite, error: &str) -> Vec<u8> {
    let headers = written(version, Written::default());
    failure("415 Unsupported Media Type", &headers, error)
}

fn failure(status: &str, headers: &str, text: &str) -> Vec<u8> {
    let len = text.len() + 1;
    format!("HTTP/1.1 {status}\r\n{headers}Content-Type: text/plain\r\nContent-Length: {len}\r\n\r\n{text}\n")
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: media types and encodings as Prometheus, VictoriaMetrics and strangers send them.
    /// Guarantees: the version follows from the message's name; what is unknown is an error that says what to
    /// use.
    #[test]
    fn heads_are_understood() {
        let first = "application/x-protobuf; proto=prometheus.WriteRequest";
        assert_eq!(version(first), Ok(RemoteWrite::V1));
        assert_eq!(version("application/x-protobuf"), Ok(RemoteWrite::V1));
        let second = "Application/X-Protobuf;proto=io.prometheus.write.v2.Request";
        assert_eq!(version(second), Ok(RemoteWrite::V2));
        for (media_type, named) in [
            ("application/json", "application/json"),
            ("", "use application/x-protobuf"),
            (
                "application/x-protobuf;proto=io.prometheus.write.v3.Request",
                "v3",
            ),
        ] {
            let error = version(media_type).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
        assert_eq!([encoding(""), encoding("zstd")], [Ok("snappy"), Ok("zstd")]);
        for unknown in ["gzip", "identity"] {
            assert!(encoding(unknown).unwrap_err().contains("use snappy or zstd"));
        }
    }
}
