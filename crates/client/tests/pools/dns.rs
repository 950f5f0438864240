//! Names and addresses.

use std::net::SocketAddr;
use std::sync::Mutex;

use sluice_client::{Resolve, Resolving};

use super::support::h1::{Reply, Server, Step};
use super::*;

/// A resolver that says what the test last told it.
struct Told(Mutex<Result<Vec<SocketAddr>, &'static str>>);

impl Told {
    fn tell(&self, answer: Result<Vec<SocketAddr>, &'static str>) {
        *self.0.lock().unwrap() = answer;
    }
}

impl Default for Wrapped {
    fn default() -> Self {
        Wrapped(Arc::new(Told(Mutex::new(Err("nothing told yet")))))
    }
}

struct Wrapped(Arc<Told>);

impl Resolve for Wrapped {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Resolving<'a> {
        let answer = self.0.0.lock().unwrap().clone();
        Box::pin(async move { answer.map_err(std::io::Error::other) })
    }
}

fn told_settings(protocol: Protocol) -> (ClientSettings, Arc<Told>) {
    let resolver = Wrapped::default();
    let told = resolver.0.clone();
    let mut settings = settings("http://backend.example:4318", protocol);
    settings.connect.resolver = Arc::new(resolver);
    (settings, told)
}

async fn server() -> Server {
    Server::start([], Step::Answer(Reply::status(200))).await
}

/// Scenario: the name moves to another address while connections to the old one still work.
/// Guarantees: within the age of a connection every request goes to the new address; until then none fails.
#[tokio::test(start_paused = true)]
async fn a_changed_answer_takes_effect_within_the_age() {
    let (old, new) = (server().await, server().await);
    let (mut settings, told) = told_settings(Protocol::Http1);
    settings.connect.max_connection_age = Duration::from_secs(60);
    let client = Client::new(settings).unwrap();
    told.tell(Ok(vec![old.addr]));
    post(&client, "x").await.unwrap();
    told.tell(Ok(vec![new.addr]));
    for _ in 0..5 {
        tokio::time::advance(Duration::from_secs(10)).await;
        post(&client, "x").await.unwrap();
    }
    assert_eq!((old.connections(), new.connections()), (1, 0));
    tokio::time::advance(Duration::from_secs(10)).await;
    post(&client, "x").await.unwrap();
    assert_eq!((old.connections(), new.connections()), (1, 1));
}

/// Scenario: a name with two addresses; requests at the same time.
/// Guarantees: connections are spread over both.
#[tokio::test]
async fn connections_go_round_the_addresses() {
    let (one, two) = (server().await, server().await);
    let (settings, told) = told_settings(Protocol::Http1);
    told.tell(Ok(vec![one.addr, two.addr]));
    let client = Arc::new(Client::new(settings).unwrap());
    let requests: Vec<_> = (0..8)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { post(&client, vec![0u8; 300_000]).await })
        })
        .collect();
    for request in requests {
        request.await.unwrap().unwrap();
    }
    assert!(one.connections() > 0 && two.connections() > 0);
}

/// Scenario: the first address refuses, the second (another family when there is one) works.
/// Guarantees: the request is answered.
#[tokio::test]
async fn a_dead_address_is_passed_over() {
    let live = server().await;
    let dead = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let v6: SocketAddr = "[::1]:1".parse().unwrap();
    for addresses in [
        vec![dead, live.addr],
        vec![v6, live.addr],
        vec![live.addr, v6, dead],
    ] {
        for protocol in [Protocol::Http1] {
            let (settings, told) = told_settings(protocol);
            told.tell(Ok(addresses.clone()));
            let client = Client::new(settings).unwrap();
            post(&client, "x").await.unwrap();
        }
    }
}

/// Scenario: the resolver fails from the start; then it works; then it fails again past the connection's age.
/// Guarantees: an error that names the host; later the addresses known before serve.
#[tokio::test(start_paused = true)]
async fn a_resolver_that_is_down_does_not_stop_a_known_destination() {
    let live = server().await;
    let (settings, told) = told_settings(Protocol::Http1);
    let client = Client::new(settings).unwrap();
    told.tell(Err("no such name"));
    let error = post(&client, "x").await.unwrap_err();
    assert!(
        matches!(&error, SendError::Resolve { host, .. } if host == "backend.example"),
        "{error:?}"
    );
    told.tell(Ok(vec![live.addr]));
    post(&client, "x").await.unwrap();
    told.tell(Err("server failure"));
    tokio::time::advance(Duration::from_secs(600)).await;
    post(&client, "x").await.unwrap();
    assert_eq!(live.connections(), 2);
}

/// Scenario: an address that never answers the SYN, alone.
/// Guarantees: the connect time-out ends it, before the request's own deadline.
#[tokio::test(start_paused = true)]
async fn a_silent_address_ends_at_the_connect_timeout() {
    // A listener whose backlog is full drops SYNs.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket
        .bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
        .unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut fill = Vec::new();
    for _ in 0..4 {
        let filler = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        filler.set_nonblocking(true).unwrap();
        let _ = filler.connect(&address.into());
        fill.push(filler);
    }
    let client = client(&format!("http://{address}"), Protocol::Http1);
    let before = tokio::time::Instant::now();
    let error = post_within(&client, "x", Duration::from_secs(60))
        .await
        .unwrap_err();
    assert!(matches!(error, SendError::Connect { .. }), "{error:?}");
    assert!(
        before.elapsed() <= Duration::from_secs(6),
        "{:?}",
        before.elapsed()
    );
}

/// Scenario: what listens at the address of an `https` endpoint takes the connection and says nothing, as what waits for plain requests does.
/// Guarantees: the connect time-out ends it, and says that it was TLS that had no answer.
#[tokio::test(start_paused = true)]
async fn who_does_not_speak_tls_is_told_apart_from_who_is_not_there() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = client(&format!("https://{address}"), Protocol::Http1);
    let error = post_within(&client, "x", Duration::from_secs(60))
        .await
        .unwrap_err();
    assert!(matches!(error, SendError::Tls { .. }), "{error:?}");
    let told = error.to_string();
    assert!(
        told.contains(&address.to_string()) && told.contains("does it speak TLS?"),
        "{told}"
    );
}
