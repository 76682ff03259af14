//! A person at a shell: an event signed with openssl, posted with curl, read and answered by an agent.

use std::process::Command;

use serde_json::json;

use crate::rig::Rig;
use crate::support::{Sink, text};

/// Signs with openssl and posts with curl, as the README shows; answers the status and the body.
fn post(rig: &Rig, body: &str, sign: &str) -> (String, serde_json::Value) {
    let script = r#"
        set -eu
        ts=$(date +%s)
        sig=$(printf '%s.%s' "$ts" "$SIGN" | openssl dgst -sha256 -hmac "$(cat "$SECRET")" -r | cut -d' ' -f1)
        curl -sS --noproxy '*' -w '\n%{http_code}' -H "Transit-Timestamp: $ts" -H "Transit-Signature: v1=$sig" \
            -H 'Content-Type: application/json' --data-binary "$BODY" "$URL"
    "#;
    let out = Command::new("sh")
        .args(["-c", script])
        .env("SECRET", rig.secret_file())
        .env("BODY", body)
        .env("SIGN", sign)
        .env("URL", rig.endpoint())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    let (answer, status) = text(&out.stdout).rsplit_once('\n').unwrap();
    (status.to_owned(), serde_json::from_str(answer).unwrap())
}

#[test]
fn an_event_by_curl_and_openssl_is_delivered_once_and_answered() {
    let sink = Sink::start(&[200]);
    let rig = Rig::start(&format!("http://{}/reply/", sink.at));
    let mut agent = rig.listen("bob");
    let body = json!({
        "schema": "transit.ingest/1", "event_key": "build-1", "conversation_id": "main",
        "user": "ci", "trigger": "alert", "content": "the build broke: größe 7 ≠ 8"
    })
    .to_string();

    let (status, answer) = post(&rig, &body, &body);
    assert_eq!((status.as_str(), &answer["status"]), ("202", &json!("queued")));
    let id = answer["delivery_id"].as_str().unwrap().to_owned();
    let (status, again) = post(&rig, &body, &body);
    assert_eq!(
        (status.as_str(), &again["status"], &again["delivery_id"]),
        ("200", &json!("duplicate"), &json!(id))
    );
    let changed = body.replace('7', "8");
    assert_eq!(post(&rig, &changed, &body).0, "401", "one changed byte");

    let delivered = agent.delivered();
    assert_eq!(delivered["id"], json!(id));
    assert!(delivered["envelope"].as_str().unwrap().contains("größe 7 ≠ 8"));
    agent.ack(&id);

    let full = rig.call("bob", "read_message", &json!({"id": id}));
    assert!(full.starts_with("<transit_full "), "{full}");
    let reply = json!({"delivery_id": id, "conversation_id": "main", "message": "on it"});
    assert!(rig.call("bob", "chat_reply", &reply).contains("handled"));
    let posted = sink.next();
    assert_eq!(posted.json()["message"], "on it");
    assert_eq!(posted.json()["agent"], "bob@demo");
    assert_eq!(posted.json()["event_key"], "build-1");
    let verify = rig.verify_callback(&posted);
    assert!(verify.status.success(), "{}", text(&verify.stderr));
    assert!(agent.is_quiet(), "a duplicate must not reach the agent");
}

#[test]
fn headers_of_transit_sign_are_what_curl_sends() {
    let rig = Rig::start("http://127.0.0.1:9/");
    let body =
        json!({"schema": "transit.ingest/1", "event_key": "piped", "conversation_id": "c", "content": "hi"});
    let file = rig.home.file("event.json", body.to_string());
    let script = r#"transit-sign --secret-file "$SECRET" event.json | curl -sS --noproxy '*' -H @- --data-binary @event.json "$URL""#;
    let path = format!("{}:{}", crate::support::programs().display(), std::env::var("PATH").unwrap());
    let out = Command::new("sh")
        .args(["-c", script])
        .current_dir(file.parent().unwrap())
        .env("PATH", path)
        .env("SECRET", rig.secret_file())
        .env("URL", rig.endpoint())
        .output()
        .unwrap();
    assert!(text(&out.stdout).contains("\"queued\""), "{out:?}");
}
