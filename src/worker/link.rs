//! One daemon's socket: it feeds the machine of transit-wire/1 and does what comes out of it.
//!
//! Nothing here waits for the disk. What the ledger answers comes back to the link as a note, between frames.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::header::{AUTHORIZATION, UPGRADE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use futures_util::{FutureExt, SinkExt, StreamExt};
use serde_json::Value;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::app::{App, error, failed, unauthorized};
use super::connection::raised;
use super::dispatch::Dispatch;
use super::links::{Grown, Handle, Owner};
use super::panes::Panes;
use super::{route, rpc};
use crate::addr::Name;
use crate::clock::{Mono, Wall};
use crate::id::IdKind;
use crate::limits::{FRAME_BYTES, HEARTBEAT};
use crate::net::ws;
use crate::proto::wire::{AgentInfo, NakCode, RpcError, WorkerConfig, WorkerEnd, WorkerEvent, close};
use crate::proto::{Close, Input, Output};
use crate::store::StoreError;
use crate::store::ledger::messages::{self, Refused};
use crate::store::ledger::{credentials, deliveries, directory, roster};

/// A message up to here is read whole, so that one over the limit can be told so in order.
const MESSAGE_BYTES: usize = 2 * FRAME_BYTES;
/// Small buffers: most sockets are idle most of the time. The one for writing grows only when it is used.
const READ_BUFFER: usize = 4096;
const WRITE_BUFFER: usize = 16 * 1024;
/// Frames that are taken before what they gave rise to is sent.
const FRAMES_AT_ONCE: usize = 64;
/// Time in which a peer must take what is written to it.
const WRITE_WAIT: Duration = HEARTBEAT;
/// Time that a peer has for its half of the closing handshake.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// After a hello, daemons get this long to send late answers before lost ones are sent again.
const LATE_ANSWERS: Duration = Duration::from_secs(1);
/// Most agents of one roster.
const ROSTER_MAX: usize = 1_000;

/// `GET /api/daemon/ws`.
pub(super) async fn upgrade(
    State(app): State<App>,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    headers: HeaderMap,
) -> Response {
    let Ok(socket) = socket else {
        let mut answer = error(StatusCode::UPGRADE_REQUIRED, "WebSocket upgrade required");
        answer.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        return answer;
    };
    let owner = match bearer(&headers).map(|token| owner(&app, token)) {
        Some(Ok(Some(owner))) => owner,
        Some(Err(err)) => return failed("reading hosts", &err),
        None | Some(Ok(None)) => return unauthorized(),
    };
    socket
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_message_size(MESSAGE_BYTES)
        .max_frame_size(MESSAGE_BYTES)
        .on_upgrade(move |socket| async move { Link::new(app, owner).run(socket).await })
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn owner(app: &App, token: &str) -> Result<Option<Owner>, StoreError> {
    let token_hash = credentials::token_hash(token);
    app.db.read(|tx| {
        let Some(host) = directory::host_by_token(tx, &token_hash)? else { return Ok(None) };
        let Some(org) = directory::org(tx, &host.org_id)? else { return Ok(None) };
        Ok(Some(Owner {
            org_id: host.org_id,
            org: org.slug.to_string(),
            host_id: host.id,
            host: host.slug.to_string(),
            token_hash,
        }))
    })
}

/// What comes back to a link from the ledger and from calls.
pub(super) enum Note {
    /// A message was taken, or not.
    Sent { id: String, nak: Option<NakCode> },
    /// A call has its answer.
    Answer { rid: String, result: Result<Value, RpcError> },
    /// A roster is committed.
    Roster(HashSet<String>),
    /// A refusal of this agent is in the ledger, or failed to get there.
    Recorded(String),
    /// Others waited behind something that is gone.
    Moved(String),
    /// A refused delivery is due again then.
    Later(Wall),
}

/// One socket. It owns its host's deliveries for as long as no newer one says hello.
struct Link {
    app: App,
    handle: Arc<Handle>,
    owner: Arc<Owner>,
    end: WorkerEnd,
    dispatch: Dispatch,
    /// The agents that may send: those of the last roster, also of an earlier connection.
    senders: HashSet<String>,
    panes: Panes,
    tell: UnboundedSender<Note>,
    notes: UnboundedReceiver<Note>,
    wake_at: Mono,
}

impl Link {
    fn new(app: App, owner: Owner) -> Self {
        let now = app.mono();
        let config =
            WorkerConfig { host: owner.host.clone(), host_id: owner.host_id.clone(), org: owner.org.clone() };
        let (tell, notes) = mpsc::unbounded_channel();
        let (handle, owner) = (Handle::new(owner.clone()), Arc::new(owner));
        app.links.opened();
        let (rate, burst) = app.limits.frames;
        Self {
            end: WorkerEnd::new(config, now).with_frame_rate(rate, burst, now),
            dispatch: Dispatch::new(app.clone(), owner.clone()),
            senders: HashSet::new(),
            panes: Panes::default(),
            wake_at: now,
            app,
            handle,
            owner,
            tell,
            notes,
        }
    }

    async fn run(mut self, mut socket: WebSocket) {
        let mut stopping = self.app.stopping.clone();
        let end = loop {
            match tokio::time::timeout(WRITE_WAIT, self.act(&mut socket)).await {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(end))) => break Some(end),
                // The peer is gone, or takes nothing.
                Ok(Err(_)) | Err(_) => break None,
            }
            let wake_at = self.dispatch.wake_at().map_or(self.wake_at, |at| at.min(self.wake_at));
            let wait = wake_at.since(self.app.mono());
            tokio::select! {
                message = socket.next() => if !self.hear_all(message, &mut socket) { break None },
                Some(note) = self.notes.recv() => self.note_all(note),
                () = self.handle.ordered() => self.obey(),
                () = raised(&mut stopping) => self.end.close(close::GOING_AWAY, "the Worker stops"),
                () = tokio::time::sleep(wait) => self.time(),
            }
        };
        self.app.links.gone(&self.handle);
        if let Some(Close { code, reason }) = end {
            tracing::info!(host = self.owner.host, org = self.owner.org, code, reason, "closing a link");
            say_goodbye(&mut socket, code, reason).await;
        } else {
            tracing::info!(host = self.owner.host, org = self.owner.org, "a link is gone");
        }
    }

    /// Does what the machine wants done, and sends what is due. Answers how the connection is to end.
    async fn act(&mut self, socket: &mut WebSocket) -> Result<Option<Close>, axum::Error> {
        loop {
            while let Some(output) = self.end.poll() {
                match output {
                    Output::Write(text) => socket.feed(Message::Text(text.into())).await?,
                    Output::Event(event) => self.event(event),
                    Output::WakeAt(at) => self.wake_at = at,
                    Output::Close(end) => return Ok(Some(end)),
                }
            }
            self.dispatch.send(&mut self.end);
            match self.end.poll() {
                Some(Output::Write(text)) => socket.feed(Message::Text(text.into())).await?,
                Some(Output::Event(event)) => self.event(event),
                Some(Output::WakeAt(at)) => self.wake_at = at,
                Some(Output::Close(end)) => return Ok(Some(end)),
                None => break,
            }
        }
        socket.flush().await?;
        self.dispatch.record();
        Ok(None)
    }

    /// Takes a message, and those that are there already behind it. `false` when there will be no more.
    fn hear_all(&mut self, first: Option<Result<Message, axum::Error>>, socket: &mut WebSocket) -> bool {
        let mut next = Some(first);
        for _ in 0..FRAMES_AT_ONCE {
            let Some(message) = next else { return true };
            // Nothing comes after an error; what it means is still to be told.
            let is_last = matches!(message, Some(Err(_)));
            let heard = self.hear(message);
            if is_last || !heard {
                return heard;
            }
            next = socket.next().now_or_never();
        }
        next.is_none_or(|last| self.hear(last))
    }

    fn hear(&mut self, message: Option<Result<Message, axum::Error>>) -> bool {
        let now = self.app.mono();
        match message {
            Some(Ok(Message::Text(text))) if text.len() > FRAME_BYTES => self.end.handle(Input::TooLong, now),
            Some(Ok(Message::Text(text))) => self.end.handle(Input::Text(text.as_str()), now),
            Some(Ok(Message::Binary(_))) => self.end.handle(Input::Binary, now),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => self.end.handle(Input::Sound, now),
            Some(Err(err)) if is_too_long(&err) => self.end.handle(Input::TooLong, now),
            // The peer's goodbye is answered by the socket itself while the last of it is read.
            Some(Ok(Message::Close(_))) => self.end.close(close::GOING_AWAY, ""),
            Some(Err(err)) => match tungstenite_error(&err).and_then(ws::fault) {
                Some((code, reason)) => self.end.close(code, reason),
                None => return false,
            },
            None => return false,
        }
        true
    }

    fn note_all(&mut self, first: Note) {
        self.note(first);
        while let Ok(note) = self.notes.try_recv() {
            self.note(note);
        }
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Sent { id, nak: None } => self.end.send_ack(&id),
            Note::Sent { id, nak: Some(code) } => self.end.send_nak(&id, code),
            Note::Answer { rid, result } => self.end.rpc_result(&rid, result),
            Note::Roster(agents) => self.dispatch.present(agents),
            Note::Recorded(agent) => self.dispatch.recorded(&agent),
            Note::Moved(agent) => self.dispatch.moved(agent),
            Note::Later(at) => self.dispatch.later(at),
        }
    }

    fn obey(&mut self) {
        let orders = self.handle.orders();
        for (agent, by) in orders.grown {
            self.dispatch.grown(agent, by);
        }
        for agent in orders.overdue {
            self.dispatch.moved(agent);
        }
        if let Some(Close { code, reason }) = orders.close {
            self.end.close(code, &reason);
        }
    }

    fn time(&mut self) {
        let now = self.app.mono();
        self.end.handle(Input::Tick, now);
        self.dispatch.time(now);
    }

    fn event(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Hello { daemon_ver } => self.hello(daemon_ver),
            WorkerEvent::Roster(agents) => self.roster(agents),
            WorkerEvent::Send(frame) => {
                route::send(&self.app, &self.owner, &self.senders, frame, &self.tell);
            }
            WorkerEvent::DeliverAck { id, agent } => self.delivered(id, agent),
            WorkerEvent::DeliverNak { id, agent, code, retryable } => {
                self.refused(id, agent, code, retryable);
            }
            WorkerEvent::Rpc { rid, method, params } => {
                let (app, owner, tell) = (self.app.clone(), self.owner.clone(), self.tell.clone());
                tokio::spawn(async move {
                    let result = rpc::call(&app, &owner, &method, params).await;
                    // The link may be gone; the daemon asks again on its next one.
                    let _ = tell.send(Note::Answer { rid, result });
                });
            }
        }
    }

    fn hello(&mut self, daemon_ver: String) {
        tracing::info!(host = self.owner.host, org = self.owner.org, daemon_ver, "a daemon is linked");
        self.app.links.claim(&self.handle);
        let owner = &self.owner;
        match self.app.db.read(|tx| roster::panes(tx, &owner.org_id, &owner.host)) {
            Ok(panes) => {
                self.senders = panes.iter().map(|(name, _)| name.clone()).collect();
                self.panes.recall(panes);
            }
            Err(err) => tracing::error!(host = owner.host, %err, "reading a roster failed"),
        }
        let (owner, now) = (self.owner.clone(), self.app.wall());
        let due_at = now + LATE_ANSWERS;
        self.change(
            "recording a hello",
            move |tx| {
                directory::saw_host(tx, &owner.org_id, &owner.host_id, &daemon_ver, now)?;
                messages::reconnected(tx, &owner.org_id, &owner.host, due_at)?;
                deliveries::reconnected(tx, &owner.org_id, &owner.host, due_at)
            },
            move |_, ()| Some(Note::Later(due_at)),
        );
    }

    /// Names that are none are no agents. One that is in the pane of another that is gone is that one, renamed.
    fn roster(&mut self, mut agents: Vec<AgentInfo>) {
        agents.retain(|agent| agent.name.parse::<Name>().is_ok());
        agents.truncate(ROSTER_MAX);
        let names: HashSet<String> = agents.iter().map(|agent| agent.name.clone()).collect();
        let returned: Vec<String> = names.difference(&self.senders).cloned().collect();
        self.senders.clone_from(&names);
        let renamed = self.panes.replace(&agents);
        renamed.iter().for_each(|(old, new)| self.dispatch.renamed(old, new));
        let (owner, now) = (self.owner.clone(), self.app.wall());
        self.change(
            "storing a roster",
            move |tx| {
                for (old, new) in &renamed {
                    roster::rename(tx, &owner.org_id, &owner.host, (old, new), now)?;
                }
                roster::replace(tx, &owner.org_id, &owner.host, &agents, now)?;
                messages::release(tx, &owner.org_id, &owner.host, &returned, now)?;
                deliveries::release(tx, &owner.org_id, &owner.host, &returned, now)
            },
            |_, ()| Some(Note::Roster(names)),
        );
    }

    fn delivered(&mut self, id: String, agent: Option<String>) {
        let agent = self.panes.name_now(agent);
        self.dispatch.acknowledged(&id, agent.as_deref());
        let (owner, now) = (self.owner.clone(), self.app.wall());
        // Nobody waits for this. If it is lost, the delivery comes again and the daemon knows it.
        self.change_lazily(
            "settling a delivery",
            move |tx| {
                let (org_id, host) = (&owner.org_id, &owner.host);
                if IdKind::of(&id) == Some(IdKind::Delivery) {
                    if let Some(row) = deliveries::dispatched(tx, org_id, host, &id, agent.as_deref(), now)? {
                        tracing::debug!(host, id, agent = row.agent, "dispatched");
                    }
                    return Ok(None);
                }
                messages::injected(tx, org_id, host, &id, agent.as_deref(), now)
            },
            |_, moved| moved.map(Note::Moved),
        );
    }

    fn refused(&mut self, id: String, agent: Option<String>, code: String, retryable: bool) {
        let agent = self.panes.name_now(agent);
        let waiting = self.dispatch.refused(&id, agent.as_deref());
        tracing::info!(host = self.owner.host, id, agent, code, retryable, "a delivery was refused");
        let (owner, now, tell) = (self.owner.clone(), self.app.wall(), self.tell.clone());
        let noting =
            self.noting("recording a refusal", |app, refused: Option<(String, Refused)>| match refused? {
                (_, Refused::Later(at)) => Some(Note::Later(at)),
                (agent, Refused::Dead(bounced)) => {
                    bounced.iter().for_each(|queue| app.links.wake(queue, Grown::Messages));
                    Some(Note::Moved(agent))
                }
            });
        self.app.db.submit(
            move |tx| {
                let place = (owner.org_id.as_str(), owner.host.as_str());
                let agent = agent.as_deref();
                if let Some((agent, at)) = deliveries::refused(tx, place, &id, agent, &code, now)? {
                    return Ok(Some((agent, Refused::Later(at))));
                }
                messages::refused(tx, place, &id, agent, (&code, retryable), now)
            },
            move |outcome| {
                noting(outcome);
                // The link may be gone, and with it what waits.
                waiting.map(|agent| tell.send(Note::Recorded(agent)));
            },
        );
    }

    /// Changes the ledger; what is to be noted comes back once it is committed. A change that fails is as if the
    /// frame had been lost: whatever it was about is still due.
    fn change<T: Send + 'static>(
        &self,
        doing: &'static str,
        change: impl Fn(&crate::store::ledger::Tx<'_>) -> Result<T, StoreError> + Send + 'static,
        note: impl FnOnce(&App, T) -> Option<Note> + Send + 'static,
    ) {
        self.app.db.submit(change, self.noting(doing, note));
    }

    /// The same for a change that nobody waits for.
    fn change_lazily<T: Send + 'static>(
        &self,
        doing: &'static str,
        change: impl Fn(&crate::store::ledger::Tx<'_>) -> Result<T, StoreError> + Send + 'static,
        note: impl FnOnce(&App, T) -> Option<Note> + Send + 'static,
    ) {
        self.app.db.submit_lazily(change, self.noting(doing, note));
    }

    fn noting<T>(
        &self,
        doing: &'static str,
        note: impl FnOnce(&App, T) -> Option<Note> + Send + 'static,
    ) -> impl FnOnce(Result<T, StoreError>) + Send + 'static {
        let (app, tell) = (self.app.clone(), self.tell.clone());
        move |outcome| match outcome {
            Ok(done) => {
                if let Some(note) = note(&app, done) {
                    // The link may be gone; the next one reads the rows.
                    let _ = tell.send(note);
                }
            }
            Err(err) => tracing::error!(%err, "{doing} failed"),
        }
    }
}

/// Says why, then reads until the peer has closed too. After an error nothing more can be read as frames; what still
/// comes is dropped by the connection itself.
async fn say_goodbye(socket: &mut WebSocket, code: u16, reason: String) {
    let goodbye = async {
        let frame = CloseFrame { code, reason: reason.into() };
        let _ = socket.send(Message::Close(Some(frame))).await;
        while let Some(Ok(_)) = socket.next().await {}
    };
    let _ = tokio::time::timeout(CLOSE_WAIT, goodbye).await;
}

fn is_too_long(err: &axum::Error) -> bool {
    matches!(tungstenite_error(err), Some(tungstenite::Error::Capacity(_)))
}

fn tungstenite_error(err: &axum::Error) -> Option<&tungstenite::Error> {
    std::error::Error::source(err)?.downcast_ref()
}
