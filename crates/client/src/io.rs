//! The bytes of a connection, encrypted or not.

use std::io::{IoSlice, Read};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::error::chain;
use crate::tls;

/// What TLS found wrong with a connection after its handshake. HTTP libraries keep only the text
/// of an I/O error, if that; this keeps what it was.
#[derive(Debug, Clone, Default)]
pub(crate) struct TlsFault(Arc<OnceLock<String>>);

impl TlsFault {
    pub(crate) fn reason(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    fn look(&self, error: std::io::Error) -> std::io::Error {
        if tls::needs_mending(&error) {
            let _ = self.0.set(chain(&error));
        }
        error
    }
}

/// A connection, encrypted or not.
pub(crate) enum Io {
    Plain(TcpStream),
    Tls(Box<Encrypted>),
}

impl Io {
    pub(crate) fn encrypted(stream: TlsStream<TcpStream>) -> Self {
        Io::Tls(Box::new(Encrypted {
            stream,
            fault: TlsFault::default(),
        }))
    }

    /// The protocol agreed on in the handshake, if TLS agreed on one.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        match self {
            Io::Plain(_) => None,
            Io::Tls(tls) => tls.stream.get_ref().1.alpn_protocol(),
        }
    }

    /// Where a fault found later will be.
    pub(crate) fn fault(&self) -> TlsFault {
        match self {
            Io::Plain(_) => TlsFault::default(),
            Io::Tls(tls) => tls.fault.clone(),
        }
    }
}

/// TLS over TCP.
pub(crate) struct Encrypted {
    stream: TlsStream<TcpStream>,
    fault: TlsFault,
}

impl Encrypted {
    /// Looks behind a failed write. In TLS 1.3 the server judges our certificate after we consider the
    /// handshake done: it sends an alert and closes, and a write that comes after that fails while the
    /// alert lies unread in the socket. It is read directly: the reactor has not heard of it yet.
    /// What else is found stays in rustls for the next read.
    fn look_behind(&mut self, error: std::io::Error) -> std::io::Error {
        let (tcp, tls) = self.stream.get_mut();
        let socket = socket2::SockRef::from(&*tcp);
        let mut space = [0u8; 1024];
        while let Ok(read @ 1..) = (&*socket).read(&mut space) {
            let mut found = &space[..read];
            while !found.is_empty() {
                if !matches!(tls.read_tls(&mut found), Ok(1..)) {
                    return error;
                }
                if let Err(reason) = tls.process_new_packets() {
                    return self.fault.look(std::io::Error::other(reason));
                }
            }
        }
        error
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Io::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Io::Tls(tls) => {
                let read = ready!(Pin::new(&mut tls.stream).poll_read(cx, buf));
                Poll::Ready(read.map_err(|error| tls.fault.look(error)))
            }
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            Io::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Io::Tls(tls) => {
                let written = ready!(Pin::new(&mut tls.stream).poll_write(cx, buf));
                Poll::Ready(written.map_err(|error| tls.look_behind(error)))
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Io::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Io::Tls(tls) => {
                let flushed = ready!(Pin::new(&mut tls.stream).poll_flush(cx));
                Poll::Ready(flushed.map_err(|error| tls.look_behind(error)))
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Io::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Io::Tls(tls) => Pin::new(&mut tls.stream).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Io::Plain(tcp) => tcp.is_write_vectored(),
            Io::Tls(tls) => tls.stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            Io::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Io::Tls(tls) => {
                let written = ready!(Pin::new(&mut tls.stream).poll_write_vectored(cx, bufs));
                Poll::Ready(written.map_err(|error| tls.look_behind(error)))
            }
        }
    }
}
