//! Proxies: gone through, named when they refuse, and their passwords never shown.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};

use serde_json::Value;

use super::{PROGRAM, Server, code, home, reports};
use crate::support::{Home, Nobody, text};

const NOWHERE: &str = "http://worker.invalid:8787/ingest/ci";

fn command(home: &Home, url: &str, variables: &[(&str, &str)], options: &[&str]) -> Command {
    let mut command = home.command(PROGRAM);
    command.args([url, "--secret-file", "secret", "--conversation", "c", "-m", "hi", "--json"]);
    command.args(["--timeout", "5s"]).args(options).envs(variables.iter().copied());
    command
}

fn run(home: &Home, variables: &[(&str, &str)], options: &[&str]) -> Output {
    command(home, NOWHERE, variables, options).output().unwrap()
}

fn error(output: &Output) -> String {
    let report: Value = reports(output).remove(0);
    assert_eq!(report["outcome"], "spooled", "{report}");
    report["error"].as_str().unwrap().to_owned()
}

#[test]
fn a_proxy_is_gone_through_and_its_password_is_not_shown() {
    let home = home();
    let proxy = Server::start("HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n");
    let url = format!("http://u:hush@{}", proxy.at);
    let output = run(&home, &[("HTTP_PROXY", &url)], &[]);
    let (head, _) = proxy.request();
    assert!(head.starts_with("CONNECT worker.invalid:8787 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nHost: worker.invalid:8787"), "{head}");
    assert!(head.contains("Proxy-Authorization: Basic dTpodXNo"), "{head}");
    let said = error(&output);
    assert!(said.contains(&format!("the proxy {} asks for a login (407)", proxy.at)), "{said}");
    let unkept = run(&home, &[("HTTP_PROXY", &url)], &["--no-spool", "-vv"]);
    assert_eq!((code(&unkept), text(&unkept.stdout)), (75, ""));
    assert!(text(&unkept.stderr).contains("(407)"), "{}", text(&unkept.stderr));
    for output in [&output, &unkept] {
        assert!(!format!("{output:?}").contains("hush") && !format!("{output:?}").contains("dTpodXNo"));
    }
    proxy.request();
    let spool = std::fs::read(home.data().join("spool.db-wal")).unwrap();
    assert!(!spool.windows(4).any(|bytes| bytes == b"hush"));
}

#[test]
fn the_request_for_a_tunnel_comes_in_one_piece() {
    let home = home();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://u:hush@{}", listener.local_addr().unwrap());
    let once = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut first = [0; 4096];
        let read = stream.read(&mut first).unwrap();
        stream.write_all(b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n").unwrap();
        String::from_utf8_lossy(&first[..read]).into_owned()
    });
    let said = error(&run(&home, &[("HTTP_PROXY", &url)], &[]));
    let first = once.join().unwrap();
    assert!(first.starts_with("CONNECT worker.invalid:8787 ") && first.ends_with("\r\n\r\n"), "{first}");
    assert!(said.contains("asks for a login (407)"), "{said}");
}

#[test]
fn loopback_and_exceptions_are_reached_without_it() {
    let home = home();
    let proxy = Server::start("HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n");
    let url = format!("http://u:hush@{}", proxy.at);
    let said = error(&run(&home, &[("HTTP_PROXY", &url), ("NO_PROXY", "invalid")], &[]));
    assert!(said.contains("could not connect: worker.invalid:8787: "), "{said}");
    let server = Server::status("202 Accepted");
    let output = command(&home, &server.url(), &[("ALL_PROXY", &url)], &[]).output().unwrap();
    assert_eq!(reports(&output)[0]["outcome"], "queued");
    assert_eq!(proxy.requests.try_iter().count(), 0);
}

#[test]
fn a_proxy_that_refuses_or_is_not_there_is_named_with_its_reason() {
    let home = home();
    let reserved = Nobody::new();
    let nobody = reserved.at;
    let refusing = Server::status("502 Bad");
    let garbage = Server::start("what?\r\n\r\n");
    for (proxy, says) in [
        (
            refusing.at.to_string(),
            format!("the proxy {} does not connect to worker.invalid: it answered 502", refusing.at),
        ),
        (garbage.at.to_string(), "the answer makes no sense".to_owned()),
        (nobody.to_string(), format!("could not connect: the proxy {nobody}: ")),
        ("proxy.invalid:8".to_owned(), "could not connect: the proxy proxy.invalid:8: ".to_owned()),
    ] {
        let said = error(&run(&home, &[("http_proxy", &proxy)], &[]));
        assert!(said.contains(&says), "{proxy}: {said}");
        let unkept = run(&home, &[("http_proxy", &proxy)], &["--no-spool"]);
        assert_eq!((code(&unkept), text(&unkept.stdout)), (75, ""), "{proxy}");
    }
}

#[test]
fn a_variable_that_names_no_proxy_is_a_wrong_configuration() {
    let home = home();
    for (variable, value) in [
        ("HTTP_PROXY", "socks5://u:hush@127.0.0.1:1"),
        ("http_proxy", "http://"),
        ("ALL_PROXY", "https://u:hush@127.0.0.1:1"),
        ("HTTP_PROXY", "http://u:hush@[::1"),
    ] {
        let unkept = run(&home, &[(variable, value)], &["--no-spool"]);
        assert_eq!((code(&unkept), text(&unkept.stdout)), (78, ""), "{value}");
        assert!(text(&unkept.stderr).contains(&format!("the variable {variable} names no proxy")));
        let kept = run(&home, &[(variable, value)], &[]);
        assert!(error(&kept).contains(variable), "another process may get it out");
        assert!(!format!("{unkept:?}{kept:?}").contains("hush"), "{value}");
    }
    let to = "https://worker.invalid/ingest/ci";
    let unkept = command(&home, to, &[("HTTPS_PROXY", "ftp://x")], &["--no-spool"]).output().unwrap();
    assert_eq!(code(&unkept), 78, "{}", text(&unkept.stderr));
    home.file("roots.pem", "no certificate");
    let roots = [("SSL_CERT_FILE", "roots.pem")];
    let unkept = command(&home, to, &roots, &["--no-spool"]).output().unwrap();
    assert_eq!(code(&unkept), 78, "{}", text(&unkept.stderr));
}
