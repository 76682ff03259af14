//! `transit-worker room`.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::{Value, json};

use super::{OrgArg, Session};
use crate::addr::{AddrError, AgentAddr, Name};
use crate::cli::output::{Exit, Failure, Out};
use crate::id::IdKind;
use crate::limits::BODY_BYTES;
use crate::store::ledger::messages::{self, Queue};
use crate::store::ledger::rooms::{self, By, Member, Policy, Post, RoomRow};
use crate::text;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Make a room that nobody is in yet.
    Create {
        #[command(flatten)]
        one: One,
        /// Who may join: every agent, or only whom `room add` adds.
        #[arg(long, value_name = "POLICY", value_parser = ["open", "invite"], default_value = "open")]
        policy: String,
        /// Messages of agents, with nobody else between, before the loop guard refuses; 0 turns it off [default: the
        /// server's].
        #[arg(long, value_name = "N")]
        loop_limit: Option<u32>,
    },
    /// Change a room; what is not named stays as it is.
    Update {
        #[command(flatten)]
        one: One,
        /// Who may join; members stay.
        #[arg(long, value_name = "POLICY", value_parser = ["open", "invite"])]
        policy: Option<String>,
        /// Messages of agents, with nobody else between, before the loop guard refuses; 0 turns it off.
        #[arg(long, value_name = "N")]
        loop_limit: Option<u32>,
        /// The server's limit holds again.
        #[arg(long, conflicts_with = "loop_limit")]
        no_loop_limit: bool,
    },
    /// List the rooms.
    List {
        #[command(flatten)]
        org: OrgArg,
    },
    /// Show a room and who is in it.
    Show(One),
    /// Put an agent into a room, whatever its policy.
    Add(OneMember),
    /// Take an agent out of a room. Messages that wait for it still reach it.
    Remove(OneMember),
    /// Delete a room and what it holds together. Messages on their way still arrive, events that nobody was there for
    /// are settled; its name is free again.
    Delete(One),
    /// Say something in a room, as the operator; answers go to the room.
    Post {
        #[command(flatten)]
        one: One,
        /// The file with the body, byte for byte; - or none is stdin.
        #[arg(value_name = "FILE", conflicts_with = "message")]
        body: Option<PathBuf>,
        /// The body itself.
        #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
        message: Option<String>,
        /// The id of the message that it answers.
        #[arg(long, value_name = "ID")]
        reply_to: Option<String>,
    },
    /// Print the latest messages of a room, oldest first.
    History {
        #[command(flatten)]
        one: One,
        /// At most so many.
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u32,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct One {
    /// The room's name, with or without its #.
    name: String,
    #[command(flatten)]
    org: OrgArg,
}

#[derive(Debug, clap::Args)]
pub(super) struct OneMember {
    #[command(flatten)]
    one: One,
    /// The agent: NAME@HOST.
    #[arg(value_name = "ADDR")]
    address: String,
}

pub(super) fn run(verb: Verb, session: &Session) -> Result<Exit, Failure> {
    match verb {
        Verb::Create { one, policy, loop_limit } => create(session, &one, &policy, loop_limit),
        Verb::Update { one, policy, loop_limit, no_loop_limit } => {
            let loop_limit = if no_loop_limit { Some(None) } else { loop_limit.map(Some) };
            update(session, &one, policy.as_deref(), loop_limit)
        }
        Verb::List { org } => {
            let org = session.org(&org)?.id;
            let all = session.read("list the rooms", |tx| rooms::list(tx, &org))?;
            session.print(all.iter().map(|room| (record(room), line(room))))
        }
        Verb::Show(one) => show(session, &one),
        Verb::Add(args) => add(session, &args),
        Verb::Remove(args) => remove(session, &args),
        Verb::Delete(one) => {
            const WHAT: &str = "delete the room";
            let (org, name, now) = (session.org(&one.org)?.id, one.room(WHAT)?, session.now);
            let room = session.write(WHAT, move |tx| rooms::delete(tx, &org, &name, now))?;
            session.print([(json!({ "room": record(&room) }), format!("Room #{} is gone.", room.name))])
        }
        Verb::Post { one, body, message, reply_to } => {
            let body = read_body(body.as_deref(), message)?;
            post(session, &one, body, reply_to)
        }
        Verb::History { one, limit } => history(session, &one, limit),
    }
}

impl One {
    fn room(&self, what: &str) -> Result<Name, Failure> {
        let name = self.name.strip_prefix('#').unwrap_or(&self.name);
        name.parse().map_err(|err: AddrError| Failure::new(Exit::Data, what, err))
    }
}

/// clap has let only these words through.
fn policy(word: &str) -> Result<Policy, Failure> {
    word.parse().map_err(|err: &str| Failure::new(Exit::Usage, "read --policy", err))
}

fn create(session: &Session, one: &One, word: &str, loop_limit: Option<u32>) -> Result<Exit, Failure> {
    const WHAT: &str = "create the room";
    let (org, name, policy, now) = (session.org(&one.org)?.id, one.room(WHAT)?, policy(word)?, session.now);
    let room = session.write(WHAT, move |tx| rooms::create(tx, &org, &name, policy, loop_limit, now))?;
    let who = match room.policy {
        Policy::Open => "Any agent may join it.",
        Policy::Invite => "Only whom you add is in it.",
    };
    session.print([(json!({ "room": record(&room) }), format!("Room #{} is there. {who}", room.name))])
}

fn update(
    session: &Session,
    one: &One,
    word: Option<&str>,
    loop_limit: Option<Option<u32>>,
) -> Result<Exit, Failure> {
    const WHAT: &str = "update the room";
    let (org, name, policy) = (session.org(&one.org)?.id, one.room(WHAT)?, word.map(policy).transpose()?);
    let room = session.write(WHAT, move |tx| rooms::update(tx, &org, &name, policy, loop_limit))?;
    let limit = loop_limit_words(&room);
    let words = format!("Room #{} is changed: {}, loop guard {limit}.", room.name, room.policy.as_str());
    session.print([(json!({ "room": record(&room) }), words)])
}

fn show(session: &Session, one: &One) -> Result<Exit, Failure> {
    const WHAT: &str = "show the room";
    let (org, name) = (session.org(&one.org)?.id, one.room(WHAT)?);
    let (room, members) = session.read(WHAT, |tx| {
        let room = rooms::get(tx, &org, &name)?;
        let members = rooms::members(tx, &org, &room)?;
        Ok((room, members))
    })?;
    let mut shown = record(&room);
    shown["last_seq"] = json!(room.last_number);
    shown["members"] = members.iter().map(member_record).collect();
    let mut lines = vec![
        format!("room        #{}", room.name),
        format!("policy      {}", room.policy.as_str()),
        format!("loop guard  {}", loop_limit_words(&room)),
        format!("messages    {}", room.last_number),
        format!("made        {}", room.created_at),
    ];
    lines.extend(members.iter().map(|member| {
        let away = if member.is_known { "" } else { ", cannot be written to" };
        format!("member      {} since {}{away}", member.queue.address(), member.joined_at)
    }));
    session.print([(shown, lines.join("\n"))])
}

fn member(session: &Session, args: &OneMember, what: &str) -> Result<(Name, Queue), Failure> {
    let name = args.one.room(what)?;
    let agent: AgentAddr = args.address.parse().map_err(|err| Failure::new(Exit::Data, what, err))?;
    let org_id = session.org(&args.one.org)?.id;
    Ok((name, Queue { org_id, host: agent.host.to_string(), agent: agent.name.to_string() }))
}

fn add(session: &Session, args: &OneMember) -> Result<Exit, Failure> {
    const WHAT: &str = "add to the room";
    let (name, queue) = member(session, args, WHAT)?;
    let now = session.now;
    let room = session.write(WHAT, move |tx| {
        rooms::join(tx, &name, &queue, By::Operator, now)?;
        rooms::get(tx, &queue.org_id, &name)
    })?;
    let words = format!("{} is in #{}.", args.address, room.name);
    session.print([(json!({ "room": record(&room), "member": args.address }), words)])
}

fn remove(session: &Session, args: &OneMember) -> Result<Exit, Failure> {
    const WHAT: &str = "remove from the room";
    let (name, queue) = member(session, args, WHAT)?;
    let now = session.now;
    let room = session.write(WHAT, move |tx| {
        rooms::leave(tx, &name, &queue, now)?;
        rooms::get(tx, &queue.org_id, &name)
    })?;
    let words = format!("{} is not in #{} any more.", args.address, room.name);
    session.print([(json!({ "room": record(&room), "member": args.address }), words)])
}

/// The body of a message, which keeps the rules of one that an agent sends.
fn read_body(file: Option<&Path>, text: Option<String>) -> Result<String, Failure> {
    const WHAT: &str = "read the body";
    let named = file.filter(|file| *file != Path::new("-"));
    let name = named.map_or_else(|| "stdin".to_owned(), |file| file.display().to_string());
    let bytes = match text {
        Some(text) => text.into_bytes(),
        None => {
            let mut bytes = Vec::new();
            // One byte more than is allowed is enough to know; an endless stream ends here.
            let longest = BODY_BYTES as u64 + 1;
            let read = match named {
                Some(file) => File::open(file).and_then(|file| file.take(longest).read_to_end(&mut bytes)),
                None => std::io::stdin().lock().take(longest).read_to_end(&mut bytes),
            };
            read.map_err(|err| Failure::new(Exit::NoInput, format_args!("read {name}"), err))?;
            bytes
        }
    };
    if bytes.len() > BODY_BYTES {
        let rule = format!("a message has at most {BODY_BYTES} bytes (body_too_large)");
        return Err(Failure::new(Exit::Data, WHAT, rule));
    }
    let body = String::from_utf8(bytes).map_err(|err| {
        let at = err.utf8_error().valid_up_to();
        Failure::new(Exit::Data, WHAT, format_args!("it is not UTF-8 at byte {at}"))
    })?;
    if body.is_empty() { Err(Failure::new(Exit::Data, WHAT, "it is empty")) } else { Ok(body) }
}

fn post(session: &Session, one: &One, body: String, reply_to: Option<String>) -> Result<Exit, Failure> {
    const WHAT: &str = "post to the room";
    let (org, name, now) = (session.org(&one.org)?.id, one.room(WHAT)?, session.now);
    if let Some(id) = reply_to.as_deref().filter(|id| IdKind::of(id).is_none()) {
        return Err(Failure::new(
            Exit::Data,
            format_args!("answer {id}"),
            "it is no id like tx_0123456789ab",
        ));
    }
    let room = name.clone();
    let post = session.write(WHAT, move |tx| {
        messages::post_as_operator(tx, &org, &name, &body, reply_to.as_deref(), now)
    })?;
    let words = format!("{} is number {} in #{room}.", post.id, post.number);
    session.print([(json!({ "message": post_record(&post) }), words)])
}

fn history(session: &Session, one: &One, limit: u32) -> Result<Exit, Failure> {
    const WHAT: &str = "read the room's history";
    let (org, name) = (session.org(&one.org)?.id, one.room(WHAT)?);
    let posts = session.read(WHAT, |tx| {
        let room = rooms::get(tx, &org, &name)?;
        rooms::history(tx, &org, &room, limit)
    })?;
    let mut out = Out::new();
    for post in &posts {
        if session.json {
            out.json(&post_record(post))?;
        } else {
            let Post { number, created_at, sender, id, body, .. } = post;
            writeln!(out, "{number}  {created_at}  {sender}  {id}")?;
            for line in text::body(body).lines() {
                writeln!(out, "    {line}")?;
            }
        }
    }
    out.finish()?;
    Ok(Exit::Ok)
}

fn record(room: &RoomRow) -> Value {
    json!({
        "name": room.name,
        "policy": room.policy.as_str(),
        "loop_limit": room.loop_limit,
        "members": room.members,
        "created_at": room.created_at.to_string(),
    })
}

fn member_record(member: &Member) -> Value {
    json!({
        "agent": member.queue.address(),
        "joined_at": member.joined_at.to_string(),
        "known": member.is_known,
    })
}

fn post_record(post: &Post) -> Value {
    json!({
        "id": post.id,
        "seq": post.number,
        "from": post.sender,
        "body": post.body,
        "reply_to": post.reply_to,
        "created_at": post.created_at.to_string(),
    })
}

fn line(room: &RoomRow) -> String {
    let name = format!("#{}", room.name);
    format!("{name:<33}  {:<6}  {:>2} members  made {}", room.policy.as_str(), room.members, room.created_at)
}

fn loop_limit_words(room: &RoomRow) -> String {
    match room.loop_limit {
        None => "as the server's".to_owned(),
        Some(0) => "off".to_owned(),
        Some(limit) => format!("{limit} messages"),
    }
}
