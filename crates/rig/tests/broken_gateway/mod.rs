//! A gateway with one defect, to see that the rig finds it.
#![allow(dead_code, reason = "each test uses its own part")]

mod grpc;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use prost::Message;

/// What it does wrong.
#[derive(Clone, Copy, Debug)]
pub enum Defect {
    /// Nothing.
    None,
    /// Leaves out one item in so many.
    DropItem { every: usize },
    /// Sends this request twice.
    DuplicateRequest { number: usize },
    /// Sends this request and the next in the wrong order.
    SwapRequests { number: usize },
}

/// It serves one connection: it answers at once, and forwards when the connection ends.
pub struct BrokenGateway {
    address: SocketAddr,
    thread: JoinHandle<()>,
}

impl BrokenGateway {
    /// In front of a destination, over HTTP in and out.
    pub fn http(to: SocketAddr, defect: Defect) -> BrokenGateway {
        BrokenGateway::start(move |listener| {
            let (stream, _) = listener.accept().unwrap();
            forward(to, misbehave(receive(stream), defect));
        })
    }

    /// The same over gRPC.
    pub fn grpc(to: SocketAddr, defect: Defect) -> BrokenGateway {
        BrokenGateway::start(move |listener| grpc::serve(listener, to, defect))
    }

    fn start(serve: impl FnOnce(TcpListener) + Send + 'static) -> BrokenGateway {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || serve(listener));
        BrokenGateway { address, thread }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until everything has been forwarded.
    pub fn finish(self) {
        self.thread.join().unwrap();
    }
}

/// Head up to and with the blank line, and how long the body is.
fn head(stream: &mut TcpStream) -> Option<(String, usize)> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap() == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let len = head
        .split("Content-Length: ")
        .nth(1)
        .unwrap()
        .split("\r\n")
        .next()
        .unwrap();
    let len = len.parse().unwrap();
    Some((head, len))
}

/// The bodies of a connection until it ends, each answered with success.
pub fn receive(mut stream: TcpStream) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    while let Some((_, len)) = head(&mut stream) {
        let mut body = vec![0; len];
        stream.read_exact(&mut body).unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .unwrap();
        bodies.push(body);
    }
    bodies
}

fn misbehave(mut bodies: Vec<Vec<u8>>, defect: Defect) -> Vec<Vec<u8>> {
    match defect {
        Defect::None => {}
        Defect::DropItem { every } => {
            let mut seen = 0;
            for body in &mut bodies {
                let mut request = ExportLogsServiceRequest::decode(body.as_slice()).unwrap();
                for resource in &mut request.resource_logs {
                    for scope in &mut resource.scope_logs {
                        scope.log_records.retain(|_| {
                            seen += 1;
                            seen % every != 0
                        });
                    }
                }
                *body = request.encode_to_vec();
            }
        }
        Defect::DuplicateRequest { number } => bodies.push(bodies[number].clone()),
        Defect::SwapRequests { number } => bodies.swap(number, number + 1),
    }
    bodies
}

fn forward(to: SocketAddr, bodies: Vec<Vec<u8>>) {
    let mut stream = TcpStream::connect(to).unwrap();
    for body in bodies {
        let request = format!("POST /v1/logs HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len());
        // In one piece: a body would wait for the acknowledgement of its head, 40 ms each.
        stream.write_all(&[request.as_bytes(), &body].concat()).unwrap();
        let (head, len) = head(&mut stream).unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(len, 0);
    }
}
