//! The writer's answers, given by a task of the runtime to those who wait for them.
//!
//! For a task that is woken by a thread outside, tokio wakes a worker, which finds it and wakes another to look for more; at
//! one request at a time that is a wake-up too many for each (docs/decisions.md). A descriptor wakes one worker, as bytes in a
//! socket do, and whom it tells from there runs where it was told.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::NotPersisted;

pub(crate) type Answered = oneshot::Sender<Result<(), NotPersisted>>;

#[derive(Default)]
struct Waiting {
    /// Written to, never read: it is watched for edges, and the sum of its writes does not overflow.
    bell: Option<Arc<OwnedFd>>,
    given: Vec<(Answered, Result<(), NotPersisted>)>,
    ends: bool,
}

/// Answers on their way. Without a task each is given at once.
#[derive(Default)]
pub(crate) struct Answers(Mutex<Waiting>);

impl Answers {
    /// Starts the task, if there is a runtime to run it. It ends with the runtime, or when [`end`](Self::end) says so.
    pub fn attend(self: &Arc<Self>) -> io::Result<()> {
        if Handle::try_current().is_err() {
            return Ok(());
        }
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        #[expect(
            deprecated,
            reason = "what replaces it is unsafe, for descriptors that are closed while they are watched: this one is owned"
        )]
        let watched = AsyncFd::with_interest(bell.clone(), Interest::READABLE)?;
        self.0.lock().bell = Some(bell);
        let task = Task(self.clone());
        tokio::spawn(async move {
            // Fails when the runtime ends.
            while let Ok(mut rung) = watched.readable().await {
                rung.clear_ready();
                if task.0.give() {
                    break;
                }
            }
        });
        Ok(())
    }

    /// Answers when [`ring`](Self::ring) says so. Whether somebody waits for it, as far as is known now: who does not wait any more
    /// later knows that it may have been on its way.
    pub fn add(&self, answered: Answered, result: Result<(), NotPersisted>) -> bool {
        let mut waiting = self.0.lock();
        if waiting.bell.is_none() {
            return answered.send(result).is_ok();
        }
        let is_awaited = !answered.is_closed();
        waiting.given.push((answered, result));
        is_awaited
    }

    /// Has what was added answered.
    pub fn ring(&self) {
        let waiting = self.0.lock();
        let is_due = waiting.ends || !waiting.given.is_empty();
        let bell = waiting.bell.clone().filter(|_| is_due);
        drop(waiting);
        if let Some(bell) = bell {
            // Fails only where the sum would overflow, and it has rung then.
            let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
        }
    }

    /// There will be no more.
    pub fn end(&self) {
        self.0.lock().ends = true;
        self.ring();
    }

    /// Gives what there is; whether that was all.
    fn give(&self) -> bool {
        let (given, ends) = {
            let mut waiting = self.0.lock();
            (std::mem::take(&mut waiting.given), waiting.ends)
        };
        for (answered, result) in given {
            // The client may have hung up; its payload is stored all the same.
            let _ = answered.send(result);
        }
        ends
    }
}

/// Without it, answers are given at once again.
struct Task(Arc<Answers>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.0.lock().bell = None;
        self.0.give();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: answers of a thread outside to a task, one after the other; then two at once, the first to somebody who has gone.
    /// Guarantees: each arrives; who has gone is known; the task that gives them ends when there are no more.
    #[tokio::test]
    async fn answers_arrive() {
        let answers = Arc::new(Answers::default());
        answers.attend().unwrap();
        let (ask, asked) = std::sync::mpsc::channel::<Vec<Answered>>();
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let writer = std::thread::spawn({
            let answers = answers.clone();
            move || {
                for group in asked {
                    for one in group {
                        told.send(answers.add(one, Ok(()))).unwrap();
                    }
                    answers.ring();
                }
                answers.end();
            }
        });
        for _ in 0..1000 {
            let (answered, waiting) = oneshot::channel();
            ask.send(vec![answered]).unwrap();
            assert_eq!(waiting.await, Ok(Ok(())));
            assert_eq!(heard.recv().await, Some(true));
        }
        let ((gone, _), (answered, waiting)) = (oneshot::channel(), oneshot::channel());
        ask.send(vec![gone, answered]).unwrap();
        assert_eq!(waiting.await, Ok(Ok(())));
        assert_eq!(
            (heard.recv().await, heard.recv().await),
            (Some(false), Some(true))
        );
        drop(ask);
        writer.join().unwrap();
        while Arc::strong_count(&answers) > 1 {
            tokio::task::yield_now().await;
        }
    }

    /// Scenario: no runtime; one that ends with an answer on its way, and one that comes after it.
    /// Guarantees: all of them arrive.
    #[test]
    fn without_a_runtime_answers_are_given_at_once() {
        let answers = Arc::new(Answers::default());
        answers.attend().unwrap();
        let (answered, mut waiting) = oneshot::channel();
        assert!(answers.add(answered, Ok(())));
        assert_eq!(waiting.try_recv(), Ok(Ok(())));

        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async { answers.attend() }).unwrap();
        let (answered, mut waiting) = oneshot::channel();
        assert!(answers.add(answered, Ok(())));
        assert!(waiting.try_recv().is_err());
        drop(runtime);
        assert_eq!(waiting.try_recv(), Ok(Ok(())));
        let (answered, mut waiting) = oneshot::channel();
        assert!(answers.add(answered, Ok(())));
        assert_eq!(waiting.try_recv(), Ok(Ok(())));
    }
}
