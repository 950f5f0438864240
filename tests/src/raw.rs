//! HTTP/1 by hand, byte by byte.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::within;

/// A TCP connection on which a test writes what it likes.
#[derive(Debug)]
pub struct RawHttp {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// An answer as it came.
#[derive(Debug, Clone)]
pub struct RawReply {
    /// `HTTP/1.1 200 OK`
    pub line: String,
    /// The status code.
    pub status: u16,
    /// Header names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl RawReply {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }
}

impl RawHttp {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> Self {
        Self {
            stream: TcpStream::connect(address).await.unwrap(),
            unread: Vec::new(),
        }
    }

    /// Writes; false when the server no longer reads.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok() && self.stream.flush().await.is_ok()
    }

    /// Says that nothing more will be written.
    pub async fn finish_writing(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Whether there is nothing to read at the moment.
    pub fn is_silent(&mut self) -> bool {
        let mut byte = [0; 1];
        self.unread.is_empty()
            && matches!(self.stream.try_read(&mut byte), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }

    async fn more(&mut self) -> bool {
        let read = within(
            "the server says something, or closes",
            self.stream.read_buf(&mut self.unread),
        )
        .await;
        matches!(read, Ok(read) if read > 0)
    }

    /// The next answer, `100 Continue` included; `None` when the connection is closed instead.
    pub async fn reply(&mut self) -> Option<RawReply> {
        self.reply_to("POST").await
    }

    /// The next answer to a request with this method: one to HEAD has no body.
    pub async fn reply_to(&mut self, method: &str) -> Option<RawReply> {
        let end = loop {
            if let Some(end) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            if !self.more().await {
                return None;
            }
        };
        let head = String::from_utf8(self.unread.drain(..end + 4).collect()).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let line = lines.next().unwrap().to_owned();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<_> = lines
            .map(|line| {
                let (name, value) = line.split_once(':').unwrap();
                (name.to_ascii_lowercase(), value.trim().to_owned())
            })
            .collect();
        let mut reply = RawReply {
            line,
            status,
            headers,
            body: Vec::new(),
        };
        if method == "HEAD" || status < 200 || status == 204 {
            return Some(reply);
        }
        if let Some(length) = reply.header("content-length") {
            let length: usize = length.parse().unwrap();
            while self.unread.len() < length {
                assert!(self.more().await, "the answer is cut short: {reply:?}");
            }
            reply.body = self.unread.drain(..length).collect();
        } else {
            assert_eq!(
                reply.header("transfer-encoding"),
                None,
                "no answer here is chunked: {reply:?}"
            );
            while self.more().await {}
            reply.body = std::mem::take(&mut self.unread);
        }
        Some(reply)
    }

    /// Waits until the server has closed the connection, and returns what it said before.
    pub async fn closed(mut self) -> Vec<u8> {
        while self.more().await {}
        self.unread
    }
}
