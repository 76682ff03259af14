//! The server as the SDK drives it: it lists the tools, and each call is one call of the local daemon.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool as Offered, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use super::stdio::Stdio;
use super::words;
use crate::cli::control;
use crate::cli::toolbox::{Effect, TOOLS, Tool};
use crate::limits;
use crate::proto::control::{Call, Op};
use crate::store::config::Paths;

/// Calls of the Worker at the same time. A host has a limit for all its agents, and they are not to use it up.
const WORKER_CALLS: usize = limits::RPC_OUTSTANDING / 2;
/// How long a message that is sent when the client has said its last waits for more than its being kept.
const LAST_WAIT: Duration = Duration::from_millis(300);

/// The server. Clones are the same one.
#[derive(Clone)]
pub(super) struct Server {
    paths: Arc<Paths>,
    /// The agent that a person has chosen; it may claim another name.
    as_agent: Arc<Mutex<Option<String>>>,
    stdio: Stdio,
    worker_calls: Arc<Semaphore>,
}

impl Server {
    pub(super) fn new(paths: Paths, as_agent: Option<String>, stdio: Stdio) -> Self {
        let worker_calls = Arc::new(Semaphore::new(WORKER_CALLS));
        let as_agent = Arc::new(Mutex::new(as_agent));
        Self { paths: Arc::new(paths), as_agent, stdio, worker_calls }
    }

    async fn call(&self, tool: &'static Tool, op: Op) -> CallToolResult {
        let needs_worker = matches!(op, Op::Rpc { .. } | Op::Room { .. });
        let turn = if needs_worker { self.worker_calls.acquire().await.ok() } else { None };
        let mut call = control::call_of(op, self.chosen().clone());
        self.hasten(&mut call);
        if call.encode().len() > limits::LINE_BYTES {
            return words::too_long(tool, limits::LINE_BYTES);
        }
        let (paths, asked) = (Arc::clone(&self.paths), call.clone());
        // It blocks until the daemon answers, which may take a while.
        let answered = tokio::task::spawn_blocking(move || control::ask(&paths, &asked)).await;
        drop(turn);
        match answered {
            Ok(Ok(Ok(fields))) => {
                self.follow(&call.op, &fields);
                words::answer(tool, &call.op, fields)
            }
            Ok(Ok(Err(err))) => words::refused(tool, &err),
            Ok(Err(failure)) => words::failed(tool, &failure),
            Err(_) => words::broken(tool),
        }
    }

    fn chosen(&self) -> MutexGuard<'_, Option<String>> {
        self.as_agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whom a person speaks as is the same agent under its new name.
    fn follow(&self, op: &Op, fields: &Map<String, Value>) {
        let (Op::ClaimName { .. }, Some(chosen)) = (op, &mut *self.chosen()) else { return };
        if let Some(address) = fields.get("address").and_then(Value::as_str) {
            address.clone_into(chosen);
        }
    }

    /// A client that says nothing more does not wait long for answers either.
    fn hasten(&self, call: &mut Call) {
        if let Op::Send { wait_ms, .. } = &mut call.op
            && self.stdio.is_ending()
        {
            *wait_ms = u64::try_from(LAST_WAIT.as_millis()).ok();
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let server = Implementation::new("transit", env!("CARGO_PKG_VERSION")).with_title("Transit");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(server)
            .with_instructions(words::INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(TOOLS.iter().map(offered).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = Tool::named(&request.name) else {
            let text = format!("there is no tool {:?}: see tools/list", request.name);
            return Err(ErrorData::invalid_params(text, None));
        };
        let result = match tool.op(&request.arguments.unwrap_or_default()) {
            Ok(op) => self.call(tool, op).await,
            Err(err) => words::misused(&err),
        };
        Ok(result.into())
    }
}

/// A tool as clients see it.
pub(super) fn offered(tool: &Tool) -> Offered {
    let Tool { name, title, about, effect, .. } = *tool;
    let hints = ToolAnnotations::with_title(title)
        .read_only(effect == Effect::Reads)
        .destructive(false)
        .idempotent(effect != Effect::Adds)
        .open_world(matches!(name, "send_message" | "chat_reply"));
    Offered::new(name, about, Arc::new(tool.schema())).with_title(title).with_annotations(hints)
}
