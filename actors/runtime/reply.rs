//! The answer to a command.

use tokio::sync::oneshot;

/// Where the answer to a command goes.
///
/// Anyone who asked may have gone meanwhile: then the answer is lost, and nobody misses it. One that is
/// dropped shows the asker that no answer comes.
#[derive(Debug)]
pub struct Reply<T>(oneshot::Sender<T>);

impl<T> Reply<T> {
    /// A reply, and where its answer arrives.
    pub fn channel() -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), receiver)
    }

    /// Sends the answer.
    pub fn send(self, answer: T) {
        self.0.send(answer).ok(); // an error: nobody waits any more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: an answer arrives where it is waited for, and one that comes too late harms nobody.

    #[test]
    fn an_answer_arrives_and_a_dropped_reply_ends_the_wait() {
        let (reply, mut answer) = Reply::channel();
        reply.send(7);
        assert_eq!(answer.try_recv(), Ok(7));
        let (reply, mut answer) = Reply::<u8>::channel();
        drop(reply);
        assert_eq!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }

    #[test]
    fn an_answer_that_nobody_waits_for_is_lost() {
        let (reply, answer) = Reply::channel();
        drop(answer);
        reply.send(7);
    }
}
