//! Posting replies: each recorded one, signed, to where its source permits, until it is taken.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

use super::app::{App, lock};
use super::connection::raised;
use super::metrics::{ANSWERED_ERROR, NOT_PERMITTED, POSTED, UNREACHABLE};
use crate::limits::{CALLBACK_WAIT, CONNECT_WAIT};
use crate::net::fetch::{AddressPolicy, Answer, Client, FetchError, Request};
use crate::proto::ingest::{Reply, SIGNATURE_HEADER, Signer, TIMESTAMP_HEADER, reply_url_allowed};
use crate::store::StoreError;
use crate::store::ledger::replies::{self, DueReply};
use crate::store::ledger::sources::{self, SourceRow};

/// Replies that are posted at the same time, in all and to one source: a slow receiver holds up only its own.
const POSTS: usize = 64;
const POSTS_OF_SOURCE: usize = 4;
/// How often the ledger is looked at without a hint: operators change it from other processes.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What came of an attempt: the error in words.
pub(super) type Outcome = Result<(), String>;

/// A reply, by organisation and delivery.
pub(super) type Key = (String, String);

/// How the rest of the Worker reaches the posting of replies.
#[derive(Default)]
pub(super) struct Callbacks {
    poked: Notify,
    waiting: Mutex<HashMap<Key, Vec<oneshot::Sender<Outcome>>>>,
}

impl Callbacks {
    /// Says that there may be something to post.
    pub(super) fn poke(&self) {
        self.poked.notify_one();
    }

    /// Ends once there may be something to post.
    pub(super) async fn poked(&self) {
        self.poked.notified().await;
    }

    /// The outcome of the next attempt to post this reply.
    pub(super) fn outcome(&self, org_id: &str, delivery_id: &str) -> oneshot::Receiver<Outcome> {
        let (tell, told) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        waiting.retain(|_, asked| {
            asked.retain(|one| !one.is_closed());
            !asked.is_empty()
        });
        waiting.entry((org_id.to_owned(), delivery_id.to_owned())).or_default().push(tell);
        told
    }

    fn tell(&self, key: &Key, outcome: Outcome) {
        for asked in lock(&self.waiting).remove(key).unwrap_or_default() {
            // Whoever asked may have stopped waiting.
            let _ = asked.send(outcome.clone());
        }
    }
}

/// Runs until the process stops, and then until what is being posted is recorded.
pub(super) async fn run(app: App, allow_private: bool) {
    let policy = if allow_private { AddressPolicy::Any } else { AddressPolicy::PublicOnly };
    let mut posting = Posting { client: Client::new(policy), posts: JoinSet::new(), keys: HashSet::new() };
    let mut stopping = app.stopping.clone();
    loop {
        let next = posting.start_due(&app).unwrap_or_else(|err| {
            tracing::error!(%err, "reading replies failed");
            LOOK_AGAIN
        });
        tokio::select! {
            () = app.callbacks.poked() => {}
            Some(ended) = posting.posts.join_next() => posting.ended(ended),
            () = tokio::time::sleep(next) => {}
            () = raised(&mut stopping) => break,
        }
    }
    while posting.posts.join_next().await.is_some() {}
}

struct Posting {
    client: Client,
    posts: JoinSet<Key>,
    keys: HashSet<Key>,
}

impl Posting {
    /// Starts to post what is due; answers when to look again.
    fn start_due(&mut self, app: &App) -> Result<Duration, StoreError> {
        let (due, look_again) = due(app)?;
        for post in due {
            let key = post.key();
            if self.keys.len() < POSTS && self.keys.insert(key.clone()) {
                let (app, client) = (app.clone(), self.client.clone());
                self.posts.spawn_blocking(move || {
                    post.attempt(&app, |request| client.post(request));
                    key
                });
            }
        }
        Ok(look_again)
    }

    fn ended(&mut self, ended: Result<Key, tokio::task::JoinError>) {
        match ended {
            Ok(key) => {
                self.keys.remove(&key);
            }
            // Which one it was is not known; trying one twice at worst is what receivers are ready for.
            Err(err) => {
                tracing::error!(%err, "posting a reply failed");
                self.keys.clear();
            }
        }
    }
}

/// The replies that are due, and when to look again.
pub(super) fn due(app: &App) -> Result<(Vec<Post>, Duration), StoreError> {
    let now = app.wall();
    let (due, next) = app.db.read(|tx| {
        let mut due = Vec::new();
        for (org_id, integration_id) in replies::due_sources(tx, now)? {
            let Some(source) = sources::by_id(tx, &org_id, &integration_id)? else { continue };
            let of_source = replies::due(tx, &org_id, &integration_id, now, POSTS_OF_SOURCE)?;
            due.extend(of_source.into_iter().map(|reply| Post { reply, source: source.clone() }));
        }
        Ok((due, replies::next_due(tx, now)?))
    })?;
    let wait = next.map_or(i64::MAX, |next| next.0.saturating_sub(now.0));
    Ok((due, Duration::from_millis(wait.max(0).unsigned_abs()).min(LOOK_AGAIN)))
}

/// One attempt to post a reply.
pub(super) struct Post {
    source: SourceRow,
    reply: DueReply,
}

impl Post {
    pub(super) fn key(&self) -> Key {
        (self.reply.org_id.clone(), self.reply.delivery_id.clone())
    }

    /// Posts the reply once, through `through`, and records what came of it, before anybody is told.
    pub(super) fn attempt(
        &self,
        app: &App,
        through: impl FnOnce(&Request<'_>) -> Result<Answer, FetchError>,
    ) {
        let outcome = self.post(app, through);
        let (now, told, row) = (app.wall(), outcome.clone(), self.reply.clone());
        let recorded = app.db.write(move |tx| match &told {
            Ok(()) => replies::posted(tx, &row, now),
            Err(error) => replies::failed(tx, &row, error, now).map(drop),
        });
        let (source, delivery_id) = (self.source.name.as_str(), &self.reply.delivery_id);
        match &outcome {
            Ok(()) => tracing::info!(source, delivery_id, "a reply was posted"),
            Err(err) => tracing::warn!(source, delivery_id, err, "a reply could not be posted"),
        }
        let outcome = match recorded {
            Ok(()) => outcome,
            Err(err) => {
                tracing::error!(source, delivery_id, %err, "recording a reply failed");
                Err("the outcome could not be recorded".to_owned())
            }
        };
        app.callbacks.tell(&self.key(), outcome);
    }

    /// The prefix is checked again: it may have been revoked since the event was accepted.
    fn post(&self, app: &App, through: impl FnOnce(&Request<'_>) -> Result<Answer, FetchError>) -> Outcome {
        let Self { source, reply } = self;
        let now = app.wall();
        let name = source.name.as_str();
        let count = |outcome| app.metrics.callbacks.one(outcome);
        let nowhere = || {
            count(NOT_PERMITTED);
            format!("{name} has no permitted reply destination")
        };
        let url = reply.reply_url.as_ref().or(source.reply_url.as_ref()).ok_or_else(nowhere)?;
        let url = reply_url_allowed(url, &source.prefixes).map_err(|_| nowhere())?;
        let secret = source.reply_secret(&app.key, reply.secret_no, now).map_err(|err| err.to_string())?;
        let body = Reply {
            source: name,
            conversation_id: &reply.conversation_id,
            event_key: &reply.event_key,
            delivery_id: &reply.delivery_id,
            agent: &reply.agent,
            message: &reply.message,
            user: reply.user.as_deref(),
        }
        .to_body();
        let timestamp = now.unix_seconds().to_string();
        let signature = Signer::new(&secret).sign(&timestamp, &body);
        let headers = [
            ("content-type", "application/json"),
            (TIMESTAMP_HEADER, timestamp.as_str()),
            (SIGNATURE_HEADER, signature.as_str()),
        ];
        let request = Request {
            url: &url,
            headers: &headers,
            body: &body,
            timeout: CALLBACK_WAIT,
            connect_timeout: CONNECT_WAIT,
        };
        match through(&request) {
            Ok(answer) if (200..300).contains(&answer.status) => {
                count(POSTED);
                Ok(())
            }
            Ok(answer) => {
                count(ANSWERED_ERROR);
                Err(format!("callback failed ({})", answer.status))
            }
            Err(err) => {
                count(UNREACHABLE);
                Err(format!("callback failed: {err}"))
            }
        }
    }
}
