//! A Worker behind a reverse proxy that ends TLS: senders and daemons reach it by https and wss, and trust nobody
//! whom the machine does not trust.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::rig::Rig;
use crate::support::{Background, Home, text};

/// A certificate for localhost from an authority of its own.
pub(crate) const CERTIFY: &str = r"
    set -eu
    openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca \
        -addext basicConstraints=critical,CA:TRUE
    openssl req -newkey rsa:2048 -nodes -keyout key.pem -out csr.pem -subj /CN=localhost
    printf 'subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n' >ext
    openssl x509 -req -in csr.pem -CA ca.pem -CAkey ca.key -CAcreateserial -out cert.pem -days 2 -extfile ext
";
/// Ends TLS on a free port, which it prints, and passes bytes to the port that it is given.
pub(crate) const PROXY: &str = r"
import socket, ssl, sys, threading
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('cert.pem', 'key.pem')
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
        b.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
def serve(plain):
    try:
        secure = context.wrap_socket(plain, server_side=True)
        worker = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
    except OSError:
        return
    threading.Thread(target=pump, args=(worker, secure), daemon=True).start()
    pump(secure, worker)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
";

#[test]
fn senders_and_daemons_reach_a_worker_behind_tls() {
    let rig = Rig::start("http://127.0.0.1:9/");
    let home = Home::new();
    let made =
        Command::new("sh").args(["-c", CERTIFY]).current_dir(home.path("")).stderr(Stdio::null()).status();
    assert!(made.expect("openssl is installed").success());
    let mut proxy = Command::new("python3");
    proxy.args(["-I", "-c", PROXY, &rig.at.port().to_string()]).current_dir(home.path(""));
    let proxy = Background::start(&mut proxy);
    let url = format!("https://localhost:{}", proxy.line());
    let ca = home.path("ca.pem");

    let endpoint = format!("{url}/ingest/ci");
    let secret = rig.secret_file();
    let send = |trust: Option<&Path>| {
        let mut command = home.command("transit-send");
        command.arg(&endpoint).arg("--secret-file").arg(&secret);
        command.args(["--no-spool", "--conversation", "c", "-m", "over TLS"]);
        command.envs(trust.map(|ca| ("SSL_CERT_FILE", ca))).output().unwrap()
    };
    let refused = send(None);
    assert_eq!(refused.status.code(), Some(75), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("certificate"), "{}", text(&refused.stderr));
    let sent = send(Some(&ca));
    assert!(text(&sent.stdout).starts_with("queued"), "{}", text(&sent.stderr));

    let code = rig.admin(&["host", "enroll", "other"])["code"].as_str().unwrap().to_owned();
    let enrolled = home
        .command("transitd")
        .args(["enroll", "--url", &url, "--code", &code])
        .env("SSL_CERT_FILE", &ca)
        .output()
        .unwrap();
    assert!(enrolled.status.success(), "{}", text(&enrolled.stderr));
    let mut daemon = Background::start(
        home.command("transitd")
            .args(["run", "--ready-file"])
            .arg(home.path("ready"))
            .env("SSL_CERT_FILE", &ca),
    );
    daemon.ready(&home.path("ready"));
    let status = home.run("transitd", ["status", "--json", "--wait", "20s"], b"");
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((&status["connected"], &status["worker_url"]), (&true.into(), &url.into()));
}
