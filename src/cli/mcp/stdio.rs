//! stdin and stdout as the SDK's transport: one JSON-RPC message a line.
//!
//! Two threads do the blocking part. One reads; it also notices when nobody reads our stdout any more, and it reads no
//! further while too much waits to be served or to be written. The other one writes. So the end of stdin is noticed at
//! any moment, whatever the calls do, and the process waits without waking up.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::service::RoleServer;
use rmcp::transport::Transport;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, getppid, pidfd_open};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot, watch};

use super::frame::{Ear, Heard, LINE_BYTES, in_use};
use crate::cli::output::{Exit, Failure, Out};
use crate::net::wake::Wake;
use crate::proto::lines::{Line, Lines};

/// Bytes that may wait to be served or to be written before no more are read.
const HELD: usize = 2 * LINE_BYTES;
/// Requests that are served at the same time; further ones wait.
pub(super) const REQUESTS: usize = 1_024;
/// Bytes that are read at once.
const READ: usize = 64 * 1024;

/// How the conversation is.
#[derive(Debug)]
pub(super) enum Ended {
    /// It goes on.
    No,
    /// The client says nothing more.
    Silent,
    /// The client is gone, or does not take what it is told; then why.
    Gone(Option<Failure>),
}

/// What the two threads and the transport share.
struct Shared {
    /// Bytes that were heard and not taken, or said and not written.
    held: AtomicUsize,
    /// Ends the reader's wait for less to be held.
    less: Wake,
    /// The requests that are not answered yet.
    open: Mutex<HashSet<RequestId>>,
    /// Ends the wait for fewer of them.
    fewer: Notify,
    ended: watch::Sender<Ended>,
    /// The client says nothing more: what is begun from now on is not waited for.
    is_ending: AtomicBool,
}

/// A line on its way out, and who waits until it is written.
type Said = (String, Option<oneshot::Sender<bool>>);
/// A message, and how long its line was.
type Taken = (ClientJsonRpcMessage, usize);

/// The transport. Clones are the same one.
#[derive(Clone)]
pub(super) struct Stdio {
    shared: Arc<Shared>,
    heard: Arc<tokio::sync::Mutex<UnboundedReceiver<Taken>>>,
    out: Sender<Said>,
}

impl Stdio {
    /// Takes stdin and stdout of this process.
    ///
    /// # Errors
    /// When the system gives no thread or pipe.
    pub(super) fn open() -> io::Result<Self> {
        let (tell, heard) = unbounded_channel();
        let (out, said) = channel();
        let shared = Arc::new(Shared {
            held: AtomicUsize::new(0),
            less: Wake::new()?,
            open: Mutex::default(),
            fewer: Notify::new(),
            ended: watch::Sender::new(Ended::No),
            is_ending: AtomicBool::new(false),
        });
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let writer = Arc::clone(&shared);
        thread("stdout").spawn(move || writer.write(&said))?;
        let (reader, answers) = (Arc::clone(&shared), out.clone());
        thread("stdin").spawn(move || {
            let ended = reader.read(&tell, &answers);
            reader.is_ending.store(true, Ordering::Release);
            reader.end(ended);
        })?;
        Ok(Self { shared, heard: Arc::new(tokio::sync::Mutex::new(heard)), out })
    }

    /// Tells how the conversation is.
    pub(super) fn watch(&self) -> watch::Receiver<Ended> {
        self.shared.ended.subscribe()
    }

    /// The process was asked to end.
    pub(super) fn stop(&self) {
        self.shared.is_ending.store(true, Ordering::Release);
        self.shared.end(Ended::Silent);
    }

    /// Whether the client says nothing more.
    pub(super) fn is_ending(&self) -> bool {
        self.shared.is_ending.load(Ordering::Acquire)
    }

    /// Waits until all that was heard is taken and answered.
    pub(super) async fn settled(&self) {
        loop {
            let fewer = self.shared.fewer.notified();
            if self.shared.held.load(Ordering::Acquire) == 0 && self.shared.open().is_empty() {
                return;
            }
            fewer.await;
        }
    }

    /// Why the client is gone, if it failed to read or to write; told once.
    pub(super) fn why_gone(&self) -> Option<Failure> {
        let mut why = None;
        self.shared.ended.send_if_modified(|ended| {
            if let Ended::Gone(failure) = ended {
                why = failure.take();
            }
            false
        });
        why
    }

    async fn fewer_than(&self, most: usize) {
        loop {
            let fewer = self.shared.fewer.notified();
            if self.shared.open().len() < most {
                return;
            }
            fewer.await;
        }
    }

    /// Notes what a message begins or ends; answers whether it goes on to the SDK.
    fn note(&self, message: &ClientJsonRpcMessage) -> bool {
        match message {
            JsonRpcMessage::Request(request) => {
                let is_new = self.shared.open().insert(request.id.clone());
                if !is_new {
                    // The SDK would answer one of the two, and nobody could tell which.
                    let line = in_use(&request.id);
                    self.shared.hold(line.len());
                    let _ = self.out.send((line, None));
                }
                is_new
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    // The SDK answers it no more.
                    self.shared.close(id);
                }
                true
            }
            _ => true,
        }
    }
}

impl Transport<RoleServer> for Stdio {
    type Error = io::Error;

    fn name() -> Cow<'static, str> {
        "stdio".into()
    }

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let id = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        let line = serde_json::to_string(&message);
        let (shared, out) = (Arc::clone(&self.shared), self.out.clone());
        async move {
            let line = line?;
            let (tell, written) = oneshot::channel();
            shared.hold(line.len());
            // Before it is written: whoever reads the answer may use the id again at once.
            if let Some(id) = id {
                shared.close(&id);
            }
            let is_written =
                out.send((line, Some(tell))).is_ok() && written.await.is_ok_and(|written| written);
            if is_written { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            self.fewer_than(REQUESTS).await;
            let (message, bytes) = self.heard.lock().await.recv().await?;
            let goes_on = self.note(&message);
            self.shared.release(bytes);
            if goes_on {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, id: &RequestId) {
        self.open().remove(id);
        self.fewer.notify_waiters();
    }

    fn hold(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::AcqRel);
    }

    fn release(&self, bytes: usize) {
        let before = self.held.fetch_sub(bytes, Ordering::AcqRel);
        if before > HELD {
            self.less.wake();
        }
        if before == bytes {
            self.fewer.notify_waiters();
        }
    }

    /// The first end counts, unless the client turns out to be gone altogether.
    fn end(&self, ended: Ended) {
        self.ended.send_if_modified(|now| {
            let counts = matches!((&*now, &ended), (Ended::No, _) | (Ended::Silent, Ended::Gone(_)));
            if counts {
                *now = ended;
            }
            counts
        });
    }

    /// Reads until the client says nothing more or is gone, or our parent is: whoever holds our stdin open then is not
    /// the one who has started us, and what is no child of a session can call nothing in its name.
    fn read(&self, tell: &UnboundedSender<Taken>, out: &Sender<Said>) -> Ended {
        let (stdin, mut ear) = (io::stdin(), Ear::default());
        let mut lines = Lines::new(LINE_BYTES);
        let mut bytes = vec![0; READ];
        let parent = parent();
        loop {
            match self.wait(parent.as_ref()) {
                Ok(Waited::Ready) => {}
                Ok(Waited::Again) => continue,
                Ok(Waited::Over(ended)) => return ended,
                Err(err) => return Ended::Gone(Some(failed("wait for the client", &err))),
            }
            let read = match rustix::io::read(&stdin, &mut bytes) {
                Ok(read) => read,
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(err) => return Ended::Gone(Some(failed("read from the client", &err.into()))),
            };
            lines.push(&bytes[..read]);
            while let Some(line) = lines.next() {
                self.hear(&mut ear, &line, tell, out);
            }
            if read == 0 {
                if let Some(line) = lines.end() {
                    self.hear(&mut ear, &line, tell, out);
                }
                return Ended::Silent;
            }
        }
    }

    fn hear(&self, ear: &mut Ear, line: &Line, tell: &UnboundedSender<Taken>, out: &Sender<Said>) {
        match ear.hear(line) {
            Heard::Message(message) => {
                let bytes = if let Line::Text(text) = line { text.len() } else { 0 };
                self.hold(bytes);
                // Whoever does not listen any more is about to end the process.
                let _ = tell.send((*message, bytes));
            }
            Heard::Answer(answer) => {
                self.hold(answer.len());
                let _ = out.send((answer, None));
            }
            Heard::Nothing => {}
        }
    }

    /// Waits for bytes, or for less to be held, or for the end of the client.
    fn wait(&self, parent: Option<&OwnedFd>) -> io::Result<Waited> {
        let is_full = self.held.load(Ordering::Acquire) > HELD;
        let (stdin, stdout) = (io::stdin(), io::stdout());
        let wants = if is_full { PollFlags::empty() } else { PollFlags::IN };
        let parent = parent.filter(|_| !is_full);
        // Of stdout only that is told which is told always: that nobody reads it any more.
        let mut fds = [
            PollFd::from_borrowed_fd(stdin.as_fd(), wants),
            PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::empty()),
            PollFd::new(&self.less, PollFlags::IN),
            match parent {
                Some(parent) => PollFd::new(parent, PollFlags::IN),
                None => PollFd::new(&self.less, PollFlags::IN),
            },
        ];
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Waited::Again),
            Err(err) => return Err(err.into()),
        }
        let [asked, answered, less, left] = fds.map(|fd| fd.revents());
        if answered.intersects(PollFlags::ERR | PollFlags::HUP) {
            return Ok(Waited::Over(Ended::Gone(None)));
        }
        if !less.is_empty() {
            self.less.clear();
        }
        if is_full {
            // It has sent more than we can hold, and wants no answers.
            let is_over = asked.intersects(PollFlags::HUP | PollFlags::ERR);
            return Ok(if is_over { Waited::Over(Ended::Silent) } else { Waited::Again });
        }
        // What it had said before it ended still counts.
        let is_orphan = parent.is_some() && !left.is_empty();
        Ok(match asked.is_empty() {
            false => Waited::Ready,
            true if is_orphan => Waited::Over(Ended::Silent),
            true => Waited::Again,
        })
    }

    /// Writes until the client is gone.
    fn write(&self, said: &Receiver<Said>) {
        let mut out = Out::new();
        for (mut line, tell) in said {
            let bytes = line.len();
            line.push('\n');
            let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
            let is_written = written.is_ok();
            if let Err(err) = written {
                // Before anybody hears that the line was not written, and takes that for a quiet end.
                let failure = (err.kind() != io::ErrorKind::BrokenPipe).then(|| Failure::from(err));
                self.end(Ended::Gone(failure));
            }
            self.release(bytes);
            if let Some(tell) = tell {
                let _ = tell.send(is_written);
            }
            if !is_written {
                return;
            }
        }
    }
}

/// Our parent, if it can be watched: readable once it is gone. The first process of all is nobody's client.
fn parent() -> Option<OwnedFd> {
    let parent = getppid().filter(|parent| !parent.is_init())?;
    pidfd_open(parent, PidfdFlags::empty()).ok()
}

/// What the reader's wait ended with.
enum Waited {
    /// There is something to read, or the end of it.
    Ready,
    /// Nothing; it looks again.
    Again,
    /// The conversation has ended.
    Over(Ended),
}

fn failed(what: &str, err: &io::Error) -> Failure {
    Failure::new(Exit::Io, what, err)
}
