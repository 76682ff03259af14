//! Who is connected: one host, one socket.
//!
//! Everything here is a hint or an order to a link's own task. A lost hint costs a delay, never a message.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, watch};

use super::app::{App, lock};
use crate::limits::{SOCKETS_OF_HOST, SOCKETS_UNGREETED};
use crate::proto::Close;
use crate::proto::wire::close;
use crate::store::StoreError;
use crate::store::ledger::messages::Queue;
use crate::store::ledger::{Tx, credentials, directory};

/// Whose socket it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) org_id: String,
    /// The organisation's slug.
    pub(super) org: String,
    pub(super) host_id: String,
    /// The host's name.
    pub(super) host: String,
    /// The hash of the token that opened it.
    pub(super) token_hash: String,
}

impl Owner {
    /// Whose device token this is.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) fn of_token(app: &App, token: &str) -> Result<Option<Self>, StoreError> {
        let token_hash = credentials::token_hash(token);
        app.db.read(|tx| {
            let Some(host) = directory::host_by_token(tx, &token_hash)? else { return Ok(None) };
            let Some(org) = directory::org(tx, &host.org_id)? else { return Ok(None) };
            Ok(Some(Self {
                org_id: host.org_id,
                org: org.slug.to_string(),
                host_id: host.id,
                host: host.slug.to_string(),
                token_hash,
            }))
        })
    }

    /// Whether the token that opened the socket still opens this host's.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) fn is_good(&self, tx: &Tx<'_>) -> Result<bool, StoreError> {
        Ok(directory::host_by_token(tx, &self.token_hash)?.is_some_and(|host| host.id == self.host_id))
    }

    /// The queue of one of the host's agents.
    pub(super) fn queue(&self, agent: &str) -> Queue {
        Queue { org_id: self.org_id.clone(), host: self.host.clone(), agent: agent.to_owned() }
    }
}

/// How others reach a link.
pub(super) struct Handle {
    pub(super) owner: Arc<Owner>,
    orders: Mutex<Orders>,
    given: Notify,
    is_replaced: AtomicBool,
}

/// What a queue has grown by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Grown {
    Messages,
    Deliveries,
}

/// What a link has been told since it looked last.
#[derive(Default)]
pub(super) struct Orders {
    /// Agents whose queues have grown, and by what.
    pub(super) grown: BTreeSet<(String, Grown)>,
    /// Agents in whose queues something is due that was passed over.
    pub(super) overdue: BTreeSet<String>,
    /// The link is to end.
    pub(super) close: Option<Close>,
}

impl Handle {
    pub(super) fn new(owner: Arc<Owner>) -> Arc<Self> {
        let (orders, is_replaced) = Default::default();
        Arc::new(Self { owner, orders, given: Notify::new(), is_replaced })
    }

    /// Whether a newer link has taken its host's place. Known before that one's hello is in the ledger.
    pub(super) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Acquire)
    }

    /// Ends once there are orders.
    pub(super) async fn ordered(&self) {
        self.given.notified().await;
    }

    #[cfg(feature = "simulation")]
    pub(super) fn has_orders(&self) -> bool {
        let orders = lock(&self.orders);
        !orders.grown.is_empty() || !orders.overdue.is_empty() || orders.close.is_some()
    }

    pub(super) fn orders(&self) -> Orders {
        std::mem::take(&mut *lock(&self.orders))
    }

    pub(super) fn close(&self, code: u16, reason: &str) {
        lock(&self.orders).close = Some(Close { code, reason: reason.to_owned() });
        self.given.notify_one();
    }
}

/// The links whose hello was good, and the number of all sockets.
pub(super) struct Links {
    /// By organisation and host.
    by_host: Mutex<BTreeMap<(String, String), Arc<Handle>>>,
    open: watch::Sender<usize>,
    /// Sockets by host id: all, and those without a hello.
    of_host: Mutex<BTreeMap<String, (u32, u32)>>,
}

/// A host's leave to have one socket more, until it is let go. Whoever stops waits for that: a process that ended in
/// the middle of a goodbye would have the system reset the connection.
pub(super) struct Leave {
    app: App,
    host_id: String,
    is_greeted: bool,
}

impl Leave {
    /// `None` when the host has as many as it may have.
    pub(super) fn ask(app: &App, host_id: &str) -> Option<Self> {
        let mut of_host = lock(&app.links.of_host);
        let (all, ungreeted) = of_host.get(host_id).copied().unwrap_or_default();
        if all >= SOCKETS_OF_HOST || ungreeted >= SOCKETS_UNGREETED {
            return None;
        }
        of_host.insert(host_id.to_owned(), (all + 1, ungreeted + 1));
        app.links.open.send_modify(|open| *open += 1);
        Some(Self { app: app.clone(), host_id: host_id.to_owned(), is_greeted: false })
    }

    /// It has said hello.
    pub(super) fn greeted(&mut self) {
        if !std::mem::replace(&mut self.is_greeted, true)
            && let Some((_, ungreeted)) = lock(&self.app.links.of_host).get_mut(&self.host_id)
        {
            *ungreeted -= 1;
        }
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        self.greeted();
        let mut of_host = lock(&self.app.links.of_host);
        if let Some((all, _)) = of_host.get_mut(&self.host_id) {
            *all -= 1;
            if *all == 0 {
                of_host.remove(&self.host_id);
            }
        }
        drop(of_host);
        self.app.links.open.send_modify(|open| *open -= 1);
    }
}

impl Default for Links {
    fn default() -> Self {
        Self { by_host: Mutex::default(), open: watch::Sender::new(0), of_host: Mutex::default() }
    }
}

impl Links {
    /// A link is at its end, and with it its host's place, unless a newer one has taken that.
    pub(super) fn gone(&self, handle: &Arc<Handle>) {
        let mut by_host = lock(&self.by_host);
        let key = (handle.owner.org_id.clone(), handle.owner.host.clone());
        if by_host.get(&key).is_some_and(|held| Arc::ptr_eq(held, handle)) {
            by_host.remove(&key);
        }
    }

    /// Waits until all sockets are gone, the last word said on each.
    pub(super) async fn closed(&self) {
        let _ = self.open.subscribe().wait_for(|&open| open == 0).await;
    }

    /// A good hello: the link takes its host's place, and an older one is told to go.
    pub(super) fn claim(&self, handle: &Arc<Handle>) {
        let key = (handle.owner.org_id.clone(), handle.owner.host.clone());
        let older = lock(&self.by_host).insert(key, handle.clone());
        if let Some(older) = older.filter(|older| !Arc::ptr_eq(older, handle)) {
            older.is_replaced.store(true, Ordering::Release);
            older.close(close::REPLACED, "replaced by a new daemon connection");
        }
    }

    /// Says that there is something new for an agent.
    pub(super) fn wake(&self, queue: &Queue, by: Grown) {
        self.order(queue, |orders| orders.grown.insert((queue.agent.clone(), by)));
    }

    /// Says that something is due in an agent's queue, be it old or new.
    pub(super) fn wake_for_all(&self, queue: &Queue) {
        self.order(queue, |orders| orders.overdue.insert(queue.agent.clone()));
    }

    fn order(&self, queue: &Queue, give: impl FnOnce(&mut Orders) -> bool) {
        let key = (queue.org_id.clone(), queue.host.clone());
        let Some(handle) = lock(&self.by_host).get(&key).cloned() else { return };
        if give(&mut lock(&handle.orders)) {
            handle.given.notify_one();
        }
    }

    /// The number of links whose hello was good, and of all sockets.
    pub(super) fn count(&self) -> (usize, usize) {
        (lock(&self.by_host).len(), *self.open.borrow())
    }

    /// All links whose hello was good.
    pub(super) fn all(&self) -> Vec<Arc<Handle>> {
        lock(&self.by_host).values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(host: &str) -> Arc<Handle> {
        Handle::new(Arc::new(Owner {
            org_id: "org_1".into(),
            org: "default".into(),
            host_id: format!("hst_{host}"),
            host: host.into(),
            token_hash: String::new(),
        }))
    }

    #[test]
    fn a_newer_link_replaces_the_older_and_only_its_own_end_frees_the_place() {
        let links = Links::default();
        let (older, newer) = (handle("titan"), handle("titan"));
        links.claim(&older);
        links.claim(&older);
        assert!(older.orders().close.is_none(), "a second claim of the same link replaces nothing");
        links.claim(&newer);
        assert_eq!(older.orders().close.unwrap().code, close::REPLACED);
        links.gone(&older);
        links.wake(&newer.owner.queue("jess"), Grown::Messages);
        links.wake(&handle("other").owner.queue("jess"), Grown::Messages);
        assert_eq!(newer.orders().grown, BTreeSet::from([("jess".to_owned(), Grown::Messages)]));
        assert_eq!(links.all().len(), 1);
        links.gone(&newer);
        assert!(links.all().is_empty());
    }
}
