//! A Herdr server of our own: the answers that the real one gives, and the odd things that it does.
//!
//! One request a connection; a second line on it meets a reset. Whoever leaves `params` out is answered without an
//! id. A prompt is typed with the draft that stands in the composer in front of it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};

use crate::support::eventually;

const RULE: &str = "────────────────────────────────";

/// What a pane does with a prompt.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Prompt {
    /// Types it, and the agent takes it.
    Takes,
    /// The same, but Herdr sees nothing of it and says that it has stalled.
    SeemsStalled,
    /// Enter does nothing; the text stays where it was typed.
    Stalls,
    /// The agent asks the person something just now.
    Blocks,
    /// The pane goes away just now.
    Vanishes,
    /// It is typed, and the connection ends without an answer.
    Silent,
}

/// What a server says that is not quite a Herdr.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Odd {
    No,
    /// JSON-RPC, of another product.
    OtherProduct,
    Garbage,
    /// Megabytes without an end.
    Endless,
    /// A protocol that nobody knows.
    Newer,
}

#[derive(Clone)]
pub(super) struct Pane {
    pub(super) kind: String,
    pub(super) name: Option<String>,
    pub(super) terminal_id: String,
    pub(super) status: String,
    pub(super) seq: u64,
    pub(super) transcript: Option<PathBuf>,
    /// What stands in the composer.
    pub(super) draft: String,
    /// What was submitted.
    pub(super) log: Vec<String>,
    pub(super) shell: u32,
    pub(super) prompt: Prompt,
}

impl Pane {
    fn info(&self, pane_id: &str) -> Value {
        let mut info = json!({
            "terminal_id": self.terminal_id, "agent": self.kind, "terminal_title": "✳ work",
            "terminal_title_stripped": "work", "agent_status": self.status, "workspace_id": "w1",
            "tab_id": "w1:t1", "pane_id": pane_id, "focused": true, "state_change_seq": self.seq,
            "cwd": "/src", "foreground_cwd": "/src", "revision": 1,
        });
        if let Some(name) = &self.name {
            info["name"] = name.as_str().into();
        }
        if let Some(path) = &self.transcript {
            info["agent_session"] = json!({
                "source": "herdr:claude", "agent": self.kind, "kind": "path", "value": path,
            });
        }
        info
    }

    fn screen(&self) -> String {
        let log: String = self.log.iter().map(|text| format!("> {text}\n\n")).collect();
        format!("{log}{RULE}\n❯ {}\n{RULE}\n  auto mode on\n", self.draft.replace('\n', "\n  "))
    }

    fn submit(&mut self, is_seen: bool) {
        let text = std::mem::take(&mut self.draft);
        if text.is_empty() {
            return;
        }
        if let Some(path) = &self.transcript {
            let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
            let line = json!({ "type": "message", "message": { "role": "user", "content": text } });
            writeln!(file, "{line}").unwrap();
        }
        self.log.push(text);
        self.seq += if is_seen { 2 } else { 0 };
    }
}

struct Inner {
    panes: BTreeMap<String, Pane>,
    calls: Vec<(String, Value)>,
    odd: Odd,
    /// What the next prompt waits for.
    gate: Option<Receiver<()>>,
}

/// The server. Dropped, it is not there any more.
pub(super) struct Fake {
    inner: Arc<Mutex<Inner>>,
    path: PathBuf,
}

impl Fake {
    /// Listens where Herdr does by default in this home.
    pub(super) fn start(home: &Path) -> Self {
        let dir = home.join(".config/herdr");
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("herdr.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let inner = Arc::new(Mutex::new(Inner {
            panes: BTreeMap::new(),
            calls: Vec::new(),
            odd: Odd::No,
            gate: None,
        }));
        let served = Arc::clone(&inner);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let inner = Arc::clone(&served);
                std::thread::spawn(move || serve(&stream, &inner));
            }
        });
        Self { inner, path }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Opens a pane with an agent in it.
    pub(super) fn open(&self, pane_id: &str, name: Option<&str>) {
        let mut inner = self.inner();
        let pane = Pane {
            kind: "claude".into(),
            name: name.map(str::to_owned),
            terminal_id: format!("term_{pane_id}"),
            status: "idle".into(),
            seq: 1,
            transcript: None,
            draft: String::new(),
            log: Vec::new(),
            shell: 0,
            prompt: Prompt::Takes,
        };
        inner.panes.insert(pane_id.to_owned(), pane);
    }

    pub(super) fn close(&self, pane_id: &str) {
        self.inner().panes.remove(pane_id);
    }

    pub(super) fn with<T>(&self, pane_id: &str, change: impl FnOnce(&mut Pane) -> T) -> T {
        change(self.inner().panes.get_mut(pane_id).unwrap())
    }

    pub(super) fn be(&self, odd: Odd) {
        self.inner().odd = odd;
    }

    /// Lets the next prompt wait, as `waits`, until something is sent.
    pub(super) fn gate(&self) -> Sender<()> {
        let (open, gate) = channel();
        self.inner().gate = Some(gate);
        open
    }

    /// How often a method was called.
    pub(super) fn count(&self, method: &str) -> usize {
        self.inner().calls.iter().filter(|(called, _)| called == method).count()
    }

    /// The parameters of all calls of a method.
    pub(super) fn calls(&self, method: &str) -> Vec<Value> {
        let inner = self.inner();
        inner.calls.iter().filter(|(called, _)| called == method).map(|(_, params)| params.clone()).collect()
    }

    /// Waits until a method was called so often more.
    pub(super) fn wait_for_more(&self, method: &str, more: usize) {
        let before = self.count(method);
        eventually(|| (self.count(method) >= before + more).then_some(()));
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // Its threads go with the test; nobody finds it any more.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(stream: &UnixStream, inner: &Mutex<Inner>) {
    let mut line = String::new();
    if BufReader::new(stream).read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let mut stream = stream;
    let odd = inner.lock().unwrap().odd;
    if line.contains("\"agent.prompt\"") {
        let mut inner = inner.lock().unwrap();
        let gate = inner.gate.take();
        if let Some(gate) = gate {
            inner.calls.push(("waits".to_owned(), Value::Null));
            drop(inner);
            let _ = gate.recv();
        }
    }
    // Whoever asked may have gone.
    let _ = match odd {
        Odd::Garbage => stream.write_all(b"\x00\xff{{{\n"),
        Odd::Endless => (0..64).try_for_each(|_| stream.write_all(&[b'['; 64 * 1024])),
        Odd::OtherProduct => {
            let error = json!({"code": -32601, "message": "unknown", "data": {"kind": "unknown_method"}});
            writeln!(stream, "{}", json!({ "jsonrpc": "2.0", "id": null, "error": error }))
        }
        Odd::No | Odd::Newer => match answered(&line, inner) {
            Some(answer) => writeln!(stream, "{answer}"),
            None => Ok(()),
        },
    };
}

fn refused(id: &str, code: &str) -> Option<Value> {
    Some(json!({ "id": id, "error": { "code": code, "message": format!("{code}, as Herdr puts it") } }))
}

fn answered(line: &str, inner: &Mutex<Inner>) -> Option<Value> {
    let request: Value = serde_json::from_str(line).unwrap_or(Value::Null);
    let (Some(id), Some(method), Some(params)) =
        (request["id"].as_str(), request["method"].as_str(), request["params"].as_object())
    else {
        return refused("", "invalid_request");
    };
    let mut inner = inner.lock().unwrap();
    let params = Value::Object(params.clone());
    inner.calls.push((method.to_owned(), params.clone()));
    let result = match method {
        "ping" => {
            let protocol = if inner.odd == Odd::Newer { 99 } else { 20 };
            json!({ "type": "pong", "version": "0.8.2", "protocol": protocol, "capabilities": {} })
        }
        "agent.list" => {
            let agents: Vec<Value> = inner.panes.iter().map(|(id, pane)| pane.info(id)).collect();
            json!({ "type": "agent_list", "agents": agents })
        }
        "notification.show" => json!({ "type": "notification_show", "shown": true, "reason": "shown" }),
        _ => return of_pane(id, method, &params, &mut inner),
    };
    Some(json!({ "id": id, "result": result }))
}

fn of_pane(id: &str, method: &str, params: &Value, inner: &mut Inner) -> Option<Value> {
    let target = params["target"].as_str().or(params["pane_id"].as_str()).unwrap_or_default().to_owned();
    let names: Vec<String> = inner.panes.values().filter_map(|pane| pane.name.clone()).collect();
    let Some(pane) = inner.panes.get_mut(&target) else {
        return refused(id, if method.starts_with("agent.") { "agent_not_found" } else { "pane_not_found" });
    };
    let result = match method {
        "agent.get" => json!({ "type": "agent_info", "agent": pane.info(&target) }),
        "agent.rename" => {
            let name = params["name"].as_str().unwrap();
            if names.iter().any(|taken| taken == name) {
                return refused(id, "agent_name_taken");
            }
            pane.name = Some(name.to_owned());
            json!({ "type": "agent_info", "agent": pane.info(&target) })
        }
        "agent.prompt" => {
            pane.draft.push_str(params["text"].as_str().unwrap());
            match pane.prompt {
                Prompt::Takes => pane.submit(true),
                Prompt::SeemsStalled => {
                    pane.submit(false);
                    return refused(id, "agent_prompt_stalled");
                }
                Prompt::Stalls => return refused(id, "agent_prompt_stalled"),
                Prompt::Blocks => {
                    pane.draft.clear();
                    pane.status = "blocked".into();
                    return refused(id, "agent_blocked");
                }
                Prompt::Vanishes => {
                    inner.panes.remove(&target);
                    return refused(id, "agent_not_found");
                }
                Prompt::Silent => {
                    pane.submit(false);
                    return None;
                }
            }
            json!({ "type": "agent_prompted", "agent": pane.info(&target) })
        }
        "pane.read" => json!({ "type": "pane_read", "read": {
            "pane_id": target, "workspace_id": "w1", "tab_id": "w1:t1", "source": "visible", "format": "text",
            "text": pane.screen(), "revision": 0, "truncated": false,
        }}),
        "pane.send_keys" => {
            pane.submit(true);
            json!({ "type": "ok" })
        }
        "pane.process_info" => json!({ "type": "pane_process_info", "process_info": {
            "pane_id": target, "shell_pid": pane.shell, "foreground_process_group_id": pane.shell,
            "foreground_processes": [],
        }}),
        _ => return refused(id, "invalid_request"),
    };
    Some(json!({ "id": id, "result": result }))
}
