//! Requests to Herdr and what it answers, as values.
//!
//! Fields that Herdr leaves out when they are empty or false are absent here too; fields that are not known are
//! ignored. Only what a request cannot do without is asked for.

use std::time::Duration;

use serde_json::{Value, json};

use crate::text;

/// The protocols of Herdr that are spoken here.
pub const PROTOCOLS: [u64; 3] = [19, 20, 22];

/// Time for an ordinary answer.
const WAIT: Duration = Duration::from_secs(5);
/// Time that Herdr may wait for an agent to come to the end of what it was told.
const PROMPT_WAIT: Duration = Duration::from_secs(30);
/// Code points that are kept of a text of Herdr's.
const TEXT_RUNES: usize = 1_024;

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The method.
    pub method: &'static str,
    /// Its parameters, an object.
    pub params: Value,
    /// How long to wait for the whole answer.
    pub wait: Duration,
}

impl Request {
    fn new(method: &'static str, params: Value) -> Self {
        Self { method, params, wait: WAIT }
    }

    /// Who is there, and what does it speak?
    pub fn ping() -> Self {
        Self::new("ping", json!({}))
    }

    /// All panes that host an agent.
    pub fn agents() -> Self {
        Self::new("agent.list", json!({}))
    }

    /// The agent in this pane.
    pub fn agent(pane_id: &str) -> Self {
        Self::new("agent.get", json!({ "target": pane_id }))
    }

    /// Gives the agent in this pane a name.
    pub fn rename(pane_id: &str, name: &str) -> Self {
        Self::new("agent.rename", json!({ "target": pane_id, "name": name }))
    }

    /// Types a text into the pane, presses Enter, and waits for what the agent makes of it.
    pub fn prompt(pane_id: &str, text: &str) -> Self {
        let until = ["idle", "done", "blocked"];
        let wait = json!({ "until": until, "timeout_ms": PROMPT_WAIT.as_millis() as u64 });
        let params = json!({ "target": pane_id, "text": text, "wait": wait });
        Self { method: "agent.prompt", params, wait: PROMPT_WAIT + WAIT }
    }

    /// What the pane shows, as text.
    pub fn read(pane_id: &str) -> Self {
        Self::new("pane.read", json!({ "pane_id": pane_id, "source": "visible" }))
    }

    /// What the pane shows, with the colours in which it does.
    pub fn read_styled(pane_id: &str) -> Self {
        let params =
            json!({ "pane_id": pane_id, "source": "visible", "format": "ansi", "strip_ansi": false });
        Self::new("pane.read", params)
    }

    /// Presses Enter in the pane.
    pub fn enter(pane_id: &str) -> Self {
        Self::new("pane.send_keys", json!({ "pane_id": pane_id, "keys": ["enter"] }))
    }

    /// Which processes run in the pane.
    pub fn processes(pane_id: &str) -> Self {
        Self::new("pane.process_info", json!({ "pane_id": pane_id }))
    }

    /// Tells the person something.
    pub fn notify(title: &str, body: &str) -> Self {
        Self::new("notification.show", json!({ "title": title, "body": body }))
    }

    /// The request as one line, without its newline.
    pub fn encode(&self, id: &str) -> String {
        json!({ "id": id, "method": self.method, "params": self.params }).to_string()
    }
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Herdr has refused.
    #[error("Herdr has refused: {message} ({code})")]
    Refused {
        /// A stable word of Herdr's.
        code: String,
        /// Herdr's text.
        message: String,
    },
    /// There is no Herdr that we speak with. Nothing has come of the request.
    #[error("{0}")]
    Unavailable(String),
    /// The request went out, and what came of it is not known.
    #[error("Herdr did not answer: {0}")]
    Lost(String),
}

impl Fault {
    /// The code of a refusal.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            Self::Unavailable(_) | Self::Lost(_) => None,
        }
    }

    /// Whether Herdr says that the pane, or the agent in it, is not there.
    pub fn is_gone(&self) -> bool {
        matches!(self.code(), Some("agent_not_found" | "pane_not_found"))
    }
}

/// Reads the answer to the request `id`: its result.
///
/// # Errors
/// Herdr's refusal, or that this is no answer of Herdr's.
pub fn answer(line: &str, id: &str) -> Result<Value, Fault> {
    let lost = |why: &str| Fault::Lost(why.to_owned());
    let Ok(Value::Object(mut answer)) = serde_json::from_str(line) else {
        return Err(lost("the line is no object"));
    };
    if let Some(error) = answer.get("error") {
        return Err(refusal(error));
    }
    if answer.get("id").and_then(Value::as_str) != Some(id) {
        return Err(lost("it answers another request"));
    }
    match answer.remove("result") {
        Some(result @ Value::Object(_)) => Ok(result),
        _ => Err(lost("it has no result")),
    }
}

/// Herdr's codes are words. JSON-RPC's are numbers: what speaks that is another product, with other methods.
fn refusal(error: &Value) -> Fault {
    let message = said(error, "message");
    match error.get("code").and_then(Value::as_str) {
        Some(code) => Fault::Refused { code: text::clip(&text::visible(code), 64).to_owned(), message },
        None => Fault::Unavailable("what listens there is not Herdr".to_owned()),
    }
}

/// The protocol and the version in the answer to a ping.
///
/// # Errors
/// When it is none.
pub fn protocol(pong: &Value) -> Result<(u64, String), Fault> {
    let protocol = pong.get("protocol").and_then(Value::as_u64);
    match protocol {
        Some(protocol) if pong.get("type").and_then(Value::as_str) == Some("pong") => {
            Ok((protocol, said(pong, "version")))
        }
        _ => Err(Fault::Unavailable("what listens there does not answer a ping as Herdr does".to_owned())),
    }
}

/// What an agent is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It waits for a prompt.
    Idle,
    /// The same, and nobody has looked since.
    Done,
    /// It works.
    Working,
    /// It asks the person something.
    Blocked,
    /// Herdr cannot tell.
    Unknown,
}

impl Status {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Done => "done",
            Self::Working => "working",
            Self::Blocked => "blocked",
            Self::Unknown => "unknown",
        }
    }

    fn of(word: &str) -> Self {
        match word {
            "idle" => Self::Idle,
            "done" => Self::Done,
            "working" => Self::Working,
            "blocked" => Self::Blocked,
            _ => Self::Unknown,
        }
    }
}

/// An agent in a pane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// The pane; public, and used for every request about it.
    pub pane_id: String,
    /// The terminal in it, which is never another one's; empty when Herdr does not say.
    pub terminal_id: String,
    /// The name that somebody gave it.
    pub name: Option<String>,
    /// What program it is: `claude`, `pi`, …; empty when Herdr does not say.
    pub kind: String,
    /// What it is doing.
    pub status: Status,
    /// It is only being started.
    pub launch_pending: bool,
    /// Counts the changes of `status`.
    pub seq: u64,
    /// The file in which the agent keeps its session, if it has told one.
    pub transcript: Option<String>,
    /// Where it works.
    pub cwd: String,
    /// The title of its terminal.
    pub title: String,
}

impl Agent {
    /// Reads the agent in an answer that holds one; `None` when it has no pane.
    pub fn read(agent: &Value) -> Option<Self> {
        let pane_id = agent.get("pane_id").and_then(Value::as_str).filter(|id| !id.is_empty())?.to_owned();
        let session = agent.get("agent_session");
        let is_path = session.and_then(|session| session.get("kind")).and_then(Value::as_str) == Some("path");
        let transcript = session.filter(|_| is_path).and_then(|session| session.get("value"));
        let or = |first: String, second: &str| if first.is_empty() { said(agent, second) } else { first };
        Some(Self {
            pane_id,
            terminal_id: said(agent, "terminal_id"),
            name: agent
                .get("name")
                .and_then(Value::as_str)
                .filter(|name| !name.is_empty())
                .map(str::to_owned),
            kind: said(agent, "agent"),
            status: Status::of(&said(agent, "agent_status")),
            launch_pending: agent.get("launch_pending").and_then(Value::as_bool).unwrap_or(false),
            seq: agent.get("state_change_seq").and_then(Value::as_u64).unwrap_or(0),
            transcript: transcript.and_then(Value::as_str).map(str::to_owned),
            cwd: or(said(agent, "foreground_cwd"), "cwd"),
            title: or(said(agent, "terminal_title_stripped"), "title"),
        })
    }

    /// The agent of an answer to `agent.get`, `agent.rename` or `agent.prompt`.
    pub fn of(result: &Value) -> Option<Self> {
        Self::read(result.get("agent")?)
    }

    /// Whether it would take what is typed for the answer to a question, or is not ready for anything.
    pub fn is_held(&self) -> bool {
        self.status == Status::Blocked || self.launch_pending
    }
}

/// The agents of an answer to `agent.list`, at most `most`.
pub fn agents(result: &Value, most: usize) -> Vec<Agent> {
    let all = result.get("agents").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(Agent::read).take(most).collect()
}

/// The screen in an answer to `pane.read`.
pub fn pane_text(result: &Value) -> Option<&str> {
    result.get("read")?.get("text")?.as_str()
}

/// The processes of a pane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Processes {
    /// The one that the pane was opened with.
    pub shell: Option<u32>,
    /// Those that have the terminal now.
    pub foreground: Vec<u32>,
}

/// Most processes of one pane that are looked at.
const MOST_PROCESSES: usize = 64;

/// The processes in an answer to `pane.process_info`.
pub fn processes(result: &Value) -> Processes {
    let Some(info) = result.get("process_info") else { return Processes::default() };
    let pid = |value: Option<&Value>| {
        value.and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 1)
    };
    let foreground = info.get("foreground_processes").and_then(Value::as_array).map(Vec::as_slice);
    Processes {
        shell: pid(info.get("shell_pid")),
        foreground: foreground
            .unwrap_or_default()
            .iter()
            .take(MOST_PROCESSES)
            .filter_map(|process| pid(process.get("pid")))
            .collect(),
    }
}

/// A text of Herdr's, of which there is never more than is needed; empty when it is absent.
fn said(object: &Value, field: &str) -> String {
    let said = object.get(field).and_then(Value::as_str).unwrap_or_default();
    text::attribute(text::clip(said, TEXT_RUNES)).into_owned()
}
