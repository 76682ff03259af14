//! The house rules that a compiler does not hold, as tests over the files themselves.
//!
//! Each rule is a function from one file to what is wrong with it; each is tried on a bad example too, so that
//! none of them can pass by seeing nothing.

mod source;

use source::{Source, files_below, root, rust_files};

/// The floors, from the ground up. A file names its own place or a lower floor.
const FLOORS: [&[&str]; 7] = [
    &["addr", "clock", "id", "limits", "secret", "text"],
    &["proto"],
    &["store"],
    &["net"],
    &["daemon", "worker"],
    &["cli"],
    &["bin"],
];

/// What no protocol may do by itself: it is told the time, and given its bytes and its ids.
const NOT_IN_PROTO: [&str; 13] = [
    "std::fs",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::env",
    "Instant::now",
    "SystemTime",
    "SystemClock",
    "getrandom",
    "fill_random",
    ".fresh(",
    "tracing::",
];

const PRINTING: [&str; 6] = ["print!", "println!", "eprint!", "eprintln!", "io::stdout", "io::stderr"];

/// How SQL statements begin, as whole words in capitals.
const SQL: [&str; 12] = [
    "SELECT ",
    "INSERT INTO ",
    "INSERT OR ",
    "UPDATE ",
    "DELETE FROM ",
    "CREATE TABLE ",
    "CREATE INDEX ",
    "CREATE UNIQUE ",
    "DROP TABLE ",
    "ALTER TABLE ",
    "PRAGMA ",
    "BEGIN IMMEDIATE",
];

/// What SQLite takes and PostgreSQL does not, or takes for something else.
const OF_SQLITE_ALONE: [&str; 27] = [
    "INSERT OR ",
    "REPLACE INTO",
    "UPDATE OR ",
    "PRAGMA",
    "rowid",
    "AUTOINCREMENT",
    "WITHOUT ROWID",
    " STRICT",
    "GLOB ",
    "IFNULL",
    "IIF(",
    "json_",
    "julianday",
    "strftime",
    "datetime(",
    "unixepoch",
    "typeof(",
    "printf(",
    "randomblob",
    "group_concat",
    "total(",
    "changes()",
    "NOCASE",
    "INDEXED BY",
    "sqlite_",
    "==",
    " IS ?",
];

/// Files of the ledger that are about the one engine, and would be another's beside it.
const OF_THE_ENGINE: [&str; 3] = ["connection.rs", "look.rs", "migrations.rs"];

const MOST_LINES: usize = 600;

fn floor(place: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&place))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The places right below the crate's root that code names after `prefix`: `crate::a`, `crate::{b::c, d}`.
fn named_after<'a>(code: &'a str, prefix: &'a str) -> impl Iterator<Item = (usize, Vec<&'a str>)> {
    code.match_indices(prefix).filter(|(at, _)| !code[..*at].ends_with(|c| is_word(c) || c == ':')).map(
        move |(at, _)| {
            let line = code[..at].matches('\n').count() + 1;
            let rest = &code[at + prefix.len()..];
            (line, first_words(rest))
        },
    )
}

/// The first word of a path, or of every path of a `{…}` group.
fn first_words(path: &str) -> Vec<&str> {
    let first = |path: &'_ str| path.find(|c| !is_word(c)).unwrap_or(path.len());
    let Some(group) = path.strip_prefix('{') else { return vec![&path[..first(path)]] };
    let (mut words, mut depth, mut begins) = (Vec::new(), 1, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => begins = true,
            c if begins && is_word(c) => {
                words.push(&group[at..at + first(&group[at..])]);
                begins = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    words
}

/// A file that names a higher floor, or the other role.
fn upward_looks(file: &Source) -> Vec<String> {
    let place = file.place();
    let Some(own) = floor(place) else { return Vec::new() };
    let up = "super::".repeat(file.depth());
    let up_from_tests = "super::".repeat(file.depth() + 1);
    let paths = ["crate::", &up, &up_from_tests].map(|prefix| named_after(&file.code, prefix).collect());
    let named = paths.into_iter().flat_map(|found: Vec<_>| found);
    named
        .flat_map(|(line, words)| words.into_iter().map(move |word| (line, word)))
        .filter(|(_, word)| {
            *word != place && floor(word).is_some_and(|floor| floor > own || floor == own && own == 4)
        })
        .map(|(line, word)| format!("{}:{line} names {word}", file.path.display()))
        .collect()
}

/// Words that the shipped code of a file holds and must not.
fn holds(file: &Source, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (line, code) in file.shipped().lines().enumerate() {
        for word in words {
            let alone = |(at, _): (usize, &str)| !word.starts_with(is_word) || !code[..at].ends_with(is_word);
            if code.match_indices(word).any(alone) {
                found.push(format!("{}:{} has {word}", file.path.display(), line + 1));
            }
        }
    }
    found
}

fn impure(file: &Source) -> Vec<String> {
    if file.place() == "proto" { holds(file, &NOT_IN_PROTO) } else { Vec::new() }
}

fn prints(file: &Source) -> Vec<String> {
    if file.place() == "cli" { Vec::new() } else { holds(file, &PRINTING) }
}

/// The Worker holds many connections. The MCP server is as asynchronous as the SDK that it is built on, which is part
/// of no other command.
fn asynchronous(file: &Source) -> Vec<String> {
    let is_mcp = file.path.starts_with("src/cli/mcp") || file.path.ends_with("src/cli/mcp.rs");
    if file.place() == "worker" || is_mcp {
        Vec::new()
    } else {
        holds(file, &["tokio", "axum::", "hyper::", "async fn"])
    }
}

fn sql_outside_the_store(file: &Source) -> Vec<String> {
    if file.place() == "store" {
        return Vec::new();
    }
    let statement = |text: &str| SQL.iter().any(|begin| text.trim_start().starts_with(begin));
    let literals = file.shipped_strings().filter(|(_, text)| statement(text));
    let literals = literals.map(|(line, _)| format!("{}:{line} has SQL", file.path.display()));
    literals.chain(holds(file, &["rusqlite"])).collect()
}

/// What of a statement another engine would not take.
fn of_sqlite_alone(statement: &str) -> Vec<&'static str> {
    let upper = statement.to_uppercase();
    let mut found: Vec<_> =
        OF_SQLITE_ALONE.into_iter().filter(|word| upper.contains(&word.to_uppercase())).collect();
    // Text stands in single quotes. One name needs double ones, because it is a word of the language elsewhere.
    found
        .extend(statement.replace('\\', "").replace("\"user\"", "").contains('"').then_some("double quotes"));
    // The larger of two values is GREATEST there.
    let of_two = |word: &str| {
        let mut calls = upper.match_indices(word).map(|(at, _)| &upper[at + word.len()..]);
        calls.any(|rest| rest.split(')').next().unwrap_or_default().contains(','))
    };
    found.extend((of_two("MAX(") || of_two("MIN(")).then_some("MAX or MIN of two"));
    // A subquery in FROM has a name.
    found.extend(
        (upper.contains("FROM (SELECT") && !upper.contains(") AS ")).then_some("a nameless subquery"),
    );
    found
}

/// The statements of the ledger that only SQLite takes.
fn not_for_both_engines(file: &Source) -> Vec<String> {
    let of_engine = OF_THE_ENGINE.iter().any(|name| file.path.ends_with(name));
    if !file.path.starts_with("src/store/ledger") || of_engine {
        return Vec::new();
    }
    // A group is a transaction of the one engine, with its savepoints.
    let is_statement = |text: &str| {
        let text = text.trim_start();
        SQL.iter().any(|begin| text.starts_with(begin) && *begin != "BEGIN IMMEDIATE")
            || ["FROM ", "WHERE ", "JOIN "].iter().any(|part| text.contains(part))
    };
    let statements = file.shipped_strings().filter(|(_, text)| is_statement(text));
    statements
        .filter(|(_, text)| !text.starts_with("PRAGMA synchronous = "))
        .flat_map(|(line, text)| of_sqlite_alone(text).into_iter().map(move |word| (line, word)))
        .map(|(line, word)| format!("{}:{line} has {word}", file.path.display()))
        .collect()
}

fn too_long(file: &Source) -> Vec<String> {
    let long = file.lines > MOST_LINES;
    long.then(|| format!("{} has {} lines", file.path.display(), file.lines)).into_iter().collect()
}

fn put_off(file: &Source) -> Vec<String> {
    let waits = file.path.starts_with("tests") && !file.path.ends_with("support.rs");
    let mut words = vec!["todo!", "unimplemented!", "#[ignore", "#[should_panic"];
    words.extend(waits.then_some("sleep("));
    holds(file, &words)
}

fn nothing_is_wrong(dirs: &[&str], rule: impl Fn(&Source) -> Vec<String>) {
    let files: Vec<Source> = dirs.iter().flat_map(|dir| rust_files(dir)).collect();
    assert!(files.len() > 20, "the files are not where this test looks");
    let wrong: Vec<String> = files.iter().flat_map(rule).collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

fn sees(rule: impl Fn(&Source) -> Vec<String>, path: &str, text: &str) {
    assert!(!rule(&Source::new(path, text)).is_empty(), "{path} passes with {text}");
}

fn lets_pass(rule: impl Fn(&Source) -> Vec<String>, path: &str, text: &str) {
    assert_eq!(rule(&Source::new(path, text)), [""; 0], "{path} with {text}");
}

#[test]
fn no_file_looks_upward() {
    nothing_is_wrong(&["src"], upward_looks);
}

#[test]
fn an_upward_look_is_seen() {
    sees(upward_looks, "src/addr.rs", "use crate::proto::lines;");
    sees(upward_looks, "src/proto/mod.rs", "use crate::{addr, net};");
    sees(upward_looks, "src/proto/wire/mod.rs", "use crate::{addr::{Host, Name}, store::spool};");
    sees(upward_looks, "src/store/mod.rs", "fn f() -> super::net::Url");
    sees(upward_looks, "src/store/spool/mod.rs", "use super::super::cli;");
    sees(upward_looks, "src/store/spool/mod.rs", "mod tests { use super::super::super::cli; }");
    sees(upward_looks, "src/daemon/uplink.rs", "crate::worker::serve()");
    sees(upward_looks, "src/worker/mod.rs", "use crate::daemon;");
    lets_pass(
        upward_looks,
        "src/daemon/uplink.rs",
        "use crate::{net::ws, store, daemon::Settings}; // crate::cli",
    );
    lets_pass(upward_looks, "src/store/spool/mod.rs", "use super::StoreError; use super::super::clock;");
    lets_pass(upward_looks, "src/net/mod.rs", "fn f() { \"crate::cli\"; other_crate::cli(); a::crate::cli }");
}

#[test]
fn the_protocols_are_pure() {
    nothing_is_wrong(&["src"], impure);
    sees(impure, "src/proto/lines.rs", "let now = std::time::Instant::now();");
    sees(impure, "src/proto/wire/mod.rs", "let id = IdKind::Message.fresh();");
    sees(impure, "src/proto/wire/mod.rs", "use std::fs::File;");
    lets_pass(
        impure,
        "src/proto/wire/mod.rs",
        "use std::time::Duration; #[cfg(test)] mod t { use std::fs; }",
    );
    lets_pass(impure, "src/net/ws.rs", "use std::net::TcpStream;");
}

#[test]
fn only_commands_print() {
    nothing_is_wrong(&["src"], prints);
    sees(prints, "src/daemon/mod.rs", "println!(\"up\");");
    sees(prints, "src/worker/mod.rs", "let out = std::io::stdout();");
    lets_pass(prints, "src/cli/output.rs", "io::stdout().lock()");
    lets_pass(prints, "src/net/mod.rs", "footprint!(); // println!");
}

#[test]
fn only_the_worker_and_the_mcp_server_are_asynchronous() {
    nothing_is_wrong(&["src"], asynchronous);
    sees(asynchronous, "src/daemon/mod.rs", "tokio::spawn(f)");
    sees(asynchronous, "src/net/ws.rs", "pub async fn run() {}");
    sees(asynchronous, "src/cli/mcp_of_another.rs", "tokio::spawn(f)");
    lets_pass(asynchronous, "src/worker/link.rs", "tokio::spawn(f)");
    lets_pass(asynchronous, "src/cli/mcp.rs", "tokio::spawn(f)");
    lets_pass(asynchronous, "src/cli/mcp/server.rs", "async fn f() {}");
}

#[test]
fn sql_stays_in_the_store() {
    nothing_is_wrong(&["src"], sql_outside_the_store);
    sees(sql_outside_the_store, "src/worker/rpc.rs", "tx.one(\"SELECT id FROM message\", &[])");
    sees(sql_outside_the_store, "src/daemon/mod.rs", "f(r#\"\n  UPDATE inbox SET state = 1\"#)");
    sees(sql_outside_the_store, "src/cli/worker.rs", "use rusqlite::Connection;");
    lets_pass(sql_outside_the_store, "src/store/spool/outbox.rs", "\"SELECT 1\"");
    lets_pass(sql_outside_the_store, "src/cli/send.rs", "\"SELECTED\"; \"Update the source\"");
}

#[test]
fn the_ledger_speaks_to_both_engines() {
    nothing_is_wrong(&["src"], not_for_both_engines);
    let rule = not_for_both_engines;
    let place = "src/store/ledger/events.rs";
    sees(rule, place, "\"INSERT OR IGNORE INTO event VALUES (1)\"");
    sees(rule, place, "r#\"SELECT id FROM event WHERE name = \"x\"\"#");
    sees(rule, place, "\"SELECT MAX(a, b) FROM event\"");
    sees(rule, place, "\"SELECT COUNT(*) FROM (SELECT 1 FROM event)\"");
    sees(rule, place, "\"SELECT rowid FROM event WHERE a = 1\"");
    lets_pass(rule, place, "\"SELECT MAX(a), MIN(b) FROM event WHERE a = 1\"; a == b; \"is == what\"");
    lets_pass(rule, "src/store/spool/outbox.rs", "\"INSERT OR IGNORE INTO outbox VALUES (1)\"");
    let steps = files_below(&root().join("src/store/sql"));
    let steps =
        steps.iter().filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("ledger_"));
    for path in steps {
        let text = std::fs::read_to_string(path).unwrap();
        let sql: String = text.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
        assert_eq!(of_sqlite_alone(&sql), [""; 0], "{}", path.display());
    }
}

#[test]
fn no_file_is_too_long() {
    nothing_is_wrong(&["src", "tests", "benches"], too_long);
    sees(too_long, "src/addr.rs", &"\n".repeat(MOST_LINES + 1));
    lets_pass(too_long, "src/addr.rs", &"\n".repeat(MOST_LINES));
}

#[test]
fn nothing_is_put_off_and_no_test_sleeps() {
    nothing_is_wrong(&["src", "tests", "benches"], put_off);
    sees(put_off, "src/addr.rs", "fn f() { todo!() }");
    sees(put_off, "tests/it/send.rs", "#[test] #[ignore] fn f() {}");
    sees(put_off, "tests/it/send.rs", "std::thread::sleep(second)");
    lets_pass(put_off, "tests/it/support.rs", "std::thread::sleep(second)");
}

/// The modules and include files that `text` does not name.
fn forgotten<'a>(names: impl IntoIterator<Item = &'a str>, listed: impl Fn(&str) -> bool) -> Vec<&'a str> {
    names.into_iter().filter(|name| !listed(name)).collect()
}

#[test]
fn every_test_file_is_listed() {
    let files = std::fs::read_dir(root().join("tests/it")).unwrap().map(|entry| entry.unwrap().path());
    let names = files.filter(|path| path.extension().is_some_and(|ext| ext == "rs"));
    let names: Vec<String> =
        names.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    let main = std::fs::read_to_string(root().join("tests/it/main.rs")).unwrap();
    let listed = |name: &str| name == "main" || main.lines().any(|line| line == format!("mod {name};"));
    assert_eq!(forgotten(names.iter().map(String::as_str), listed), [""; 0]);
    assert_eq!(forgotten(["floors", "unheard-of"], listed), ["unheard-of"]);
}

#[test]
fn every_migration_is_included() {
    let store = rust_files("src/store");
    let included =
        |name: &str| store.iter().flat_map(|file| &file.strings).any(|(_, text)| text.ends_with(name));
    let files = files_below(&root().join("src/store"));
    let sql = files.iter().filter(|path| path.extension().is_some_and(|ext| ext == "sql"));
    let names: Vec<&str> = sql.map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(forgotten(names, included), [""; 0]);
    assert_eq!(forgotten(["spool_9999_forgotten.sql"], included), ["spool_9999_forgotten.sql"]);
}

/// Whether `text` names a place that exists on one machine only.
fn names_this_machine(text: &str, checkout: &str, home: &str) -> bool {
    let checkout = Some(checkout).filter(|path| path.matches('/').count() > 1);
    let home = Some(home).filter(|path| path.starts_with("/home/") || *path == "/root");
    [checkout, home].into_iter().flatten().any(|path| text.contains(&format!("{path}/")))
}

#[test]
fn no_file_names_the_machine_it_was_written_on() {
    let checkout = root().to_str().unwrap();
    let home = std::env::var("HOME").unwrap_or_default();
    let texts =
        files_below(root()).into_iter().filter_map(|path| Some((std::fs::read_to_string(&path).ok()?, path)));
    let wrong: Vec<_> = texts.filter(|(text, _)| names_this_machine(text, checkout, &home)).collect();
    assert!(wrong.is_empty(), "{:?}", wrong.iter().map(|(_, path)| path).collect::<Vec<_>>());
    assert!(names_this_machine("see /src/transit/x", "/src/transit", "/"));
    assert!(names_this_machine("/home/jess/.cargo", "/src", "/home/jess"));
    assert!(!names_this_machine("/src/lib.rs and /tmp", "/src", "/tmp"));
}
