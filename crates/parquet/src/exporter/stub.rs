//! A store for tests: it answers PUT as it is told, has one object by any name, and knows nothing about it but its size.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// It ends with the test's runtime.
pub(super) struct Stub {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    object: Vec<u8>,
    put_status: AtomicU16,
}

impl Stub {
    pub async fn start(object: Vec<u8>, put_status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            object,
            put_status: AtomicU16::new(put_status),
        });
        let served = shared.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, served.clone()));
            }
        });
        Self { address, shared }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on PUT is answered with this.
    pub fn answer_puts(&self, status: u16) {
        self.shared.put_status.store(status, Ordering::Relaxed);
    }
}

async fn serve(connection: TcpStream, shared: Arc<Shared>) {
    let object = &shared.object;
    let mut connection = BufReader::new(connection);
    loop {
        let (mut head, mut line) = (String::new(), String::new());
        while line != "\r\n" {
            line.clear();
            match connection.read_line(&mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => head.push_str(&line.to_ascii_lowercase()),
            }
        }
        let header = |name: &str| Some(head.split_once(name)?.1.split_once("\r\n")?.0.trim());
        let length = header("\r\ncontent-length:").map_or(0, |length| length.parse().unwrap());
        connection.read_exact(&mut vec![0; length]).await.unwrap();
        let range = header("\r\nrange: bytes=").and_then(|range| range.split_once('-'));
        let range = range.map(|(first, last)| [first, last].map(|at| at.parse::<usize>().unwrap()));
        let (answer, body) = match (head.split(' ').next(), range) {
            (Some("put"), _) => {
                let status = shared.put_status.load(Ordering::Relaxed);
                (
                    format!("{status} Told\r\netag: \"1\"\r\ncontent-length: 0"),
                    &[][..],
                )
            }
            (Some("head"), _) => (format!("200 OK\r\ncontent-length: {}", object.len()), &[][..]),
            (Some("get"), Some([first, last])) => {
                let body = &object[first..=last];
                let place = format!("content-range: bytes {first}-{last}/{}", object.len());
                let answer = format!("206 Partial\r\n{place}\r\ncontent-length: {}", body.len());
                (answer, body)
            }
            _ => ("500 Unexpected\r\ncontent-length: 0".to_owned(), &[][..]),
        };
        let answer = format!("HTTP/1.1 {answer}\r\n\r\n");
        if connection
            .write_all(&[answer.as_bytes(), body].concat())
            .await
            .is_err()
        {
            return;
        }
    }
}
