//! Talking to a sink's control port.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::account::{AccountReport, Outlines, SentIds};
use crate::sink::Stats;

/// Checking what was kept during a saturated run takes its time.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Tells the sink how to recognise what will be sent.
pub fn put_outlines(control: &str, outlines: &Outlines) -> Result<(), String> {
    call(control, "PUT", "/outlines", &json(outlines)?).map(drop)
}

/// Tells the sink what was sent.
pub fn post_sent(control: &str, sent: &SentIds) -> Result<(), String> {
    call(control, "POST", "/sent", &json(sent)?).map(drop)
}

/// Changes the faults of the sink.
pub fn put_faults(control: &str, script: &str) -> Result<(), String> {
    call(control, "PUT", "/faults", script.as_bytes()).map(drop)
}

/// What has arrived so far; costs the sink next to nothing.
pub fn stats(control: &str) -> Result<Stats, String> {
    get(control, "/stats")
}

/// The account of every signal, after everything that was kept has been checked.
pub fn account(control: &str) -> Result<BTreeMap<String, AccountReport>, String> {
    get(control, "/account")
}

/// A page of a gateway, or of anything else that speaks HTTP.
pub(crate) fn page(address: &str, path: &str) -> Result<String, String> {
    call(address, "GET", path, b"").map(|body| String::from_utf8_lossy(&body).into_owned())
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, String> {
    serde_json::to_vec(value).map_err(|error| error.to_string())
}

fn get<T: DeserializeOwned>(control: &str, path: &str) -> Result<T, String> {
    let body = call(control, "GET", path, b"")?;
    serde_json::from_slice(&body)
        .map_err(|error| format!("{control}{path}: not what a sink answers: {error}"))
}

fn call(control: &str, method: &str, path: &str, body: &[u8]) -> Result<Vec<u8>, String> {
    let exchange = || {
        let mut stream = TcpStream::connect(control)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {control}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = exchange()
        .map_err(|error| format!("{method} {control}{path}: {error}; is it a sink's control port?"))?;
    let head_end = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let (head, body) = answer.split_at(head_end.map_or(answer.len(), |at| at + 4));
    if !head.starts_with(b"HTTP/1.1 200") {
        let status = String::from_utf8_lossy(head.split(|byte| *byte == b'\r').next().unwrap_or_default());
        return Err(format!(
            "{method} {control}{path}: {status}: {}",
            String::from_utf8_lossy(body)
        ));
    }
    Ok(body.to_vec())
}
