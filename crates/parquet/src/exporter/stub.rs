//! A store for tests, S3, GCS or Azure as they are asked: it keeps what is put under a condition once, answers otherwise as it is told, and
//! gives out tokens.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// As it is.
const OK: u16 = 200;

/// It ends with the test's runtime.
pub(super) struct Stub {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// What any name has; absent: what was put.
    object: Option<Vec<u8>>,
    put_status: AtomicU16,
    put_code: Mutex<&'static str>,
    get_status: AtomicU16,
    get_pause: Mutex<Duration>,
    /// By path: lines of metadata, and the content.
    kept: Mutex<HashMap<String, (String, Vec<u8>)>>,
    requests: Mutex<Vec<Received>>,
}

/// A request that came.
#[derive(Debug, Clone)]
pub(super) struct Received {
    /// With all its lines.
    pub head: String,
    pub body: Vec<u8>,
}

impl Stub {
    /// It has one object by any name, knows nothing about it but its size, and answers PUT with this.
    pub async fn start(object: Vec<u8>, put_status: u16) -> Self {
        let stub = Self::serve(Some(object)).await;
        stub.answer_puts(put_status);
        stub
    }

    /// It keeps what is put; where that is taken, and a condition says so, it answers with this.
    pub async fn keeping(taken: u16) -> Self {
        let stub = Self::serve(None).await;
        stub.answer_puts(taken);
        stub
    }

    async fn serve(object: Option<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            object,
            get_status: AtomicU16::new(OK),
            ..Shared::default()
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

    /// From now on such answers have this code of S3's in their body.
    pub fn explain_puts(&self, code: &'static str) {
        *self.shared.put_code.lock() = code;
    }

    /// From now on HEAD and GET are answered with this, and POST.
    pub fn answer_gets(&self, status: u16) {
        self.shared.get_status.store(status, Ordering::Relaxed);
    }

    /// From now on GET takes so long.
    pub fn slow_down(&self, pause: Duration) {
        *self.shared.get_pause.lock() = pause;
    }

    /// What was put and kept, by its path.
    pub fn kept(&self) -> HashMap<String, Vec<u8>> {
        let kept = self.shared.kept.lock();
        kept.iter()
            .map(|(path, (_, content))| (path.clone(), content.clone()))
            .collect()
    }

    /// What came so far, of this method.
    pub fn requests(&self, method: &str) -> Vec<Received> {
        let requests = self.shared.requests.lock();
        requests
            .iter()
            .filter(|one| one.head.starts_with(method))
            .cloned()
            .collect()
    }
}

/// The value of a header, as it was sent.
pub(super) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

/// A status with further lines of the head, and a body.
type Answer = (u16, String, Vec<u8>);

impl Shared {
    fn put(&self, path: &str, head: &str, body: Vec<u8>) -> Answer {
        let told = self.put_status.load(Ordering::Relaxed);
        let is_conditional = header(head, "if-none-match") == Some("*")
            || header(head, "x-goog-if-generation-match") == Some("0");
        let mut kept = self.kept.lock();
        if self.object.is_some() || is_conditional && kept.contains_key(path) {
            let code = *self.put_code.lock();
            let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>");
            return (told, String::new(), body.into_bytes());
        }
        let metadata = head
            .lines()
            .filter(|line| line.to_ascii_lowercase().contains("-meta-"));
        let metadata = metadata.map(|line| format!("{line}\r\n")).collect();
        kept.insert(path.to_owned(), (metadata, body));
        (OK, String::new(), Vec::new())
    }

    fn get(&self, path: &str, head: &str) -> Answer {
        let status = self.get_status.load(Ordering::Relaxed);
        if status != OK {
            return (status, String::new(), Vec::new());
        }
        let kept = self.kept.lock();
        let (metadata, object) = match (&self.object, kept.get(path)) {
            (Some(object), _) => (String::new(), object),
            (None, Some((metadata, object))) => (metadata.clone(), object),
            (None, None) => return (404, String::new(), Vec::new()),
        };
        let range = header(head, "range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        match range {
            Some((first, last)) => {
                let [first, last] = [first, last].map(|at| at.parse::<usize>().unwrap());
                let place = format!("content-range: bytes {first}-{last}/{}\r\n", object.len());
                (206, place + &metadata, object[first..=last].to_vec())
            }
            None => (OK, metadata, object.clone()),
        }
    }

    /// Somebody asks for a token.
    fn token(&self) -> Answer {
        // Both spellings: seconds from now, and a date as text.
        let token = r#"{"access_token": "given", "expires_in": 3600, "expires_on": "4102444800"}"#;
        (
            self.get_status.load(Ordering::Relaxed),
            String::new(),
            token.into(),
        )
    }
}

async fn serve(connection: TcpStream, shared: Arc<Shared>) {
    let mut connection = BufReader::new(connection);
    loop {
        let (mut head, mut line) = (String::new(), String::new());
        while line != "\r\n" {
            line.clear();
            match connection.read_line(&mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => head.push_str(&line),
            }
        }
        let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        connection.read_exact(&mut body).await.unwrap();
        let mut words = head.split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let path = target.split('?').next().unwrap();
        shared.requests.lock().push(Received {
            head: head.clone(),
            body: body.clone(),
        });
        let pause = *shared.get_pause.lock();
        let (status, lines, body) = match method {
            _ if path.ends_with("/token") => shared.token(),
            "PUT" => shared.put(path, &head, body),
            "HEAD" => shared.get(path, &head),
            "GET" => {
                tokio::time::sleep(pause).await;
                shared.get(path, &head)
            }
            _ => (500, String::new(), Vec::new()),
        };
        let answer = format!(
            "HTTP/1.1 {status} Told\r\netag: \"1\"\r\nlast-modified: Sun, 22 Nov 2026 12:00:00 GMT\r\ncontent-length: {}\r\n{lines}\r\n",
            body.len()
        );
        let body = if method == "HEAD" { &[][..] } else { &body };
        if connection
            .write_all(&[answer.as_bytes(), body].concat())
            .await
            .is_err()
        {
            return;
        }
    }
}
