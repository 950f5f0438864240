//! A destination that counts: OTLP/HTTP and Prometheus remote write on blocking threads, OTLP/gRPC and the
//! control port on hyper.
//!
//! What it knows of every item comes from the ids in the bodies. Checking them costs about as much as a fast
//! gateway needs to forward them, so there are three depths, see [`Check`].

mod control;
mod fault;
mod grpc;
mod http;
mod intake;
mod recognise;
mod remote_write;
mod response;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use sluice_loadgen::Signal;

use crate::account::AccountReport;
pub use fault::{Faults, Script, Transport, Treatment};
use intake::Intake;
pub use intake::{Check, Stats};

/// Where a sink listens and what it looks at.
#[derive(Clone, Debug)]
pub struct SinkOptions {
    /// Address for OTLP/HTTP and remote write; port 0 takes a free one.
    pub http: String,
    /// Address for OTLP/gRPC.
    pub grpc: String,
    /// Address for the account and the faults.
    pub control: String,
    /// How closely it looks.
    pub check: Check,
    /// What it does wrong from the start.
    pub faults: Script,
}

impl Default for SinkOptions {
    fn default() -> Self {
        SinkOptions {
            http: "127.0.0.1:0".into(),
            grpc: "127.0.0.1:0".into(),
            control: "127.0.0.1:0".into(),
            check: Check::Now,
            faults: Script::default(),
        }
    }
}

/// A running sink. Its threads run until the process ends, except for gRPC and control, which end with this
/// value.
#[derive(Debug)]
pub struct Sink {
    http: SocketAddr,
    grpc: SocketAddr,
    control: SocketAddr,
    intake: Arc<Intake>,
    /// Runs gRPC and control on a thread of its own.
    _runtime: tokio::runtime::Runtime,
}

impl Sink {
    /// Starts listening.
    pub fn start(options: SinkOptions) -> Result<Sink, String> {
        let bind =
            |address: &str| bind(address).map_err(|error| format!("cannot listen on {address}: {error}"));
        let (http, grpc, control) = (
            bind(&options.http)?,
            bind(&options.grpc)?,
            bind(&options.control)?,
        );
        let address = |listener: &TcpListener| listener.local_addr().map_err(|error| error.to_string());
        let (http_address, grpc_address, control_address) =
            (address(&http)?, address(&grpc)?, address(&control)?);
        let intake = Arc::new(Intake::new(options.check, options.faults));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("sink-grpc")
            .enable_all()
            .build()
            .map_err(|error| format!("cannot start the runtime: {error}"))?;
        runtime.spawn(grpc::serve(grpc, intake.clone()));
        runtime.spawn(control::serve(control, intake.clone()));
        let accepting = intake.clone();
        std::thread::Builder::new()
            .name("sink-http".into())
            .spawn(move || http::accept(&http, &accepting))
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Sink {
            http: http_address,
            grpc: grpc_address,
            control: control_address,
            intake,
            _runtime: runtime,
        })
    }

    /// Where OTLP/HTTP and remote write are served.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Where OTLP/gRPC is served.
    pub fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    /// Where the account is told and the faults are changed.
    pub fn control(&self) -> SocketAddr {
        self.control
    }

    /// What has arrived so far.
    pub fn stats(&self) -> Stats {
        self.intake.stats()
    }

    /// The account of a signal, after everything that was kept has been checked.
    pub fn account(&self, signal: Signal) -> AccountReport {
        self.intake.account(signal)
    }

    /// Everything the sink knows, as it prints it when it ends.
    pub fn summary(&self) -> serde_json::Value {
        serde_json::json!({ "stats": self.stats(), "account": self.intake.accounts() })
    }
}

fn bind(address: &str) -> io::Result<TcpListener> {
    TcpListener::bind(address)
}
