//! Servers that do what a test tells them, request by request: answer, stall, cut, go away.
//! Used by the tests of sluice-client and, by path, of the exporters in sluice-otlp.

#![allow(dead_code, reason = "each test crate uses its own part")]

pub mod h1;
pub mod h2;
pub mod tls;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// One request as a server saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Which of the server's connections it came on, from 0.
    pub connection: usize,
    pub path: String,
    pub headers: http::HeaderMap,
    pub body: Vec<u8>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// What to do with the requests to come, in order; afterwards the default, over and over.
#[derive(Debug)]
pub struct Script<S> {
    steps: Mutex<VecDeque<S>>,
    then: S,
}

impl<S: Clone> Script<S> {
    pub fn new(steps: impl IntoIterator<Item = S>, then: S) -> Arc<Self> {
        Arc::new(Self {
            steps: Mutex::new(steps.into_iter().collect()),
            then,
        })
    }

    pub fn next(&self) -> S {
        self.steps
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or_else(|| self.then.clone())
    }
}
