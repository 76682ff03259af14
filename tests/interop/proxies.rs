//! The samples of `docs/operating.md` before a Worker, run by the proxies that they are for: what is to pass passes,
//! events and WebSockets alike, and nothing else does.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::rig::Rig;
use crate::support::{Background, Home, eventually, text};
use crate::tls::CERTIFY;

/// The block after the line `NAME:` of the guide, with what only that machine has replaced by what this one has.
fn sample(name: &str, replaced: &[(&str, &str)]) -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operating.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let (_, rest) = guide.split_once(&format!("\n{name}:\n\n```")).expect("the guide has this sample");
    let (_, rest) = rest.split_once('\n').unwrap();
    let mut sample = rest.split_once("\n```").unwrap().0.to_owned();
    for (there, here) in replaced {
        assert!(sample.contains(there), "{name}: no {there}");
        sample = sample.replace(there, here);
    }
    sample
}

/// A port that was free a moment ago: proxies take none by themselves.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A proxy before a rig, and the authority that its certificate is from.
struct Door {
    proxy: Background,
    home: Home,
    url: String,
    ca: PathBuf,
}

impl Door {
    /// Starts a proxy on ports until one is free, and waits until it serves.
    fn open(rig: &Rig, start: impl Fn(&Home, u16, u16) -> (Background, PathBuf)) -> Self {
        eventually(|| {
            let (home, port) = (Home::new(), free_port());
            let (proxy, ca) = start(&home, port, rig.at.port());
            let mut door = Self { proxy, home, url: format!("https://localhost:{port}"), ca };
            // Somebody else may have taken the port.
            let serves = eventually(|| {
                let is_over = door.proxy.has_ended();
                door.curl("/healthz", &[]).map(|_| !is_over).or(is_over.then_some(false))
            });
            serves.then_some(door)
        })
    }

    /// The status and the body of a request; `None` when nobody answers.
    fn curl(&self, path: &str, options: &[&str]) -> Option<(String, String)> {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--noproxy", "*", "-w", "\n%{http_code}", "--cacert"]).arg(&self.ca).args(options);
        let out = curl.arg(format!("{}{path}", self.url)).output().expect("curl is installed");
        let (body, status) = text(&out.stdout).rsplit_once('\n')?;
        (status != "000").then(|| (status.to_owned(), body.to_owned()))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.home.command(program);
        command.env("SSL_CERT_FILE", &self.ca);
        command
    }
}

/// Everything that the guide says passes, and what it says does not.
fn passes_what_the_guide_says(rig: &Rig, door: &Door) {
    for path in ["/metrics", "/readyz", "/healthz", "/", "/api", "/api/daemon/ws/", "/ingestion"] {
        let (status, _) = door.curl(path, &[]).unwrap();
        assert_eq!(status, "404", "{path}");
    }

    // A host comes by the proxy, for enrolment and with its WebSocket.
    let code = rig.admin(&["host", "enroll", "far"])["code"].as_str().unwrap().to_owned();
    let enrolled =
        door.command("transitd").args(["enroll", "--url", &door.url, "--code", &code]).output().unwrap();
    assert!(enrolled.status.success(), "{}", text(&enrolled.stderr));
    let ready = door.home.path("daemon.ready");
    let mut daemon = Background::start(door.command("transitd").args(["run", "--ready-file"]).arg(&ready));
    daemon.ready(&ready);
    let status = door.home.run("transitd", ["status", "--json", "--wait", "20s"], b"");
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((&status["connected"], &status["worker_url"]), (&json!(true), &json!(door.url)), "{status}");
    let agent =
        Background::start(door.command("transit-agent").args(["listen", "--name", "cat", "--auto-ack"]));
    assert!(agent.line().contains("\"registered\""));

    // An event comes by the proxy and goes to that host. Its bytes are as they were signed.
    let secret = door.home.path("secret");
    let made = rig.admin(&["source", "create", "far-ci", "--target", "cat@far", "--rate", "100"]);
    std::fs::write(&secret, made["secret"].as_str().unwrap()).unwrap();
    let send = |body: &str| {
        let mut command = door.command("transit-send");
        command.arg(format!("{}/ingest/far-ci", door.url)).arg("--secret-file").arg(&secret);
        let out = command.args(["--no-spool", "--conversation", "c", "-m", body]).output().unwrap();
        assert!(text(&out.stdout).starts_with("queued"), "{}", text(&out.stderr));
    };
    for body in ["größe 7 ≠ 8".to_owned(), "x".repeat(60_000)] {
        send(&body);
        let frame: Value = serde_json::from_str(&agent.line()).unwrap();
        let shown = body.chars().take(90).collect::<String>();
        assert!(frame["envelope"].as_str().unwrap().contains(&shown), "{frame}");
    }

    // What is too long, and who is nobody, hear it from the Worker itself.
    let long = door.home.file("long", vec![b'x'; 300_000]);
    let data = format!("@{}", long.display());
    for framing in ["Content-Type: application/json", "Transfer-Encoding: chunked"] {
        let (status, body) = door
            .curl("/ingest/far-ci", &["--http1.1", "-H", framing, "-H", "Expect:", "--data-binary", &data])
            .unwrap();
        assert_eq!(
            (status.as_str(), body.as_str()),
            ("413", "{\"error\":\"request_too_large\"}"),
            "{framing}"
        );
    }
    let (status, body) = door.curl("/ingest/far-ci", &["-d", "{}"]).unwrap();
    assert_eq!((status.as_str(), body.as_str()), ("401", "{\"error\":\"Unauthorized\"}"));
    let (status, _) = door.curl("/ingest/far-ci/health", &[]).unwrap();
    assert_eq!(status, "200");
}

#[test]
fn the_sample_for_nginx_passes_what_the_guide_says() {
    let rig = Rig::start("http://127.0.0.1:9/");
    let door = Door::open(&rig, |home, port, worker| {
        let made = Command::new("sh")
            .args(["-c", CERTIFY])
            .current_dir(home.path(""))
            .stderr(Stdio::null())
            .status();
        assert!(made.expect("openssl is installed").success());
        let shown = |name: &str| home.path(name).display().to_string();
        let server = sample(
            "nginx",
            &[
                ("127.0.0.1:8787", &format!("127.0.0.1:{worker}")),
                ("listen 443 ssl", &format!("listen 127.0.0.1:{port} ssl")),
                ("transit.example.org", "localhost"),
                ("/etc/ssl/transit.pem", &shown("cert.pem")),
                ("/etc/ssl/transit.key", &shown("key.pem")),
            ],
        );
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|what| format!("{what}_temp_path {};\n", shown(what)))
            .collect();
        let config = format!(
            "daemon off;\nmaster_process off;\npid {};\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{server}\n}}\n",
            shown("nginx.pid")
        );
        let config = home.file("nginx.conf", config);
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let mut nginx = Command::new("nginx");
        nginx.env("PATH", path).args(["-e", "stderr", "-p"]).arg(home.path("")).arg("-c").arg(config);
        (Background::start(&mut nginx), home.path("ca.pem"))
    });
    passes_what_the_guide_says(&rig, &door);
}

#[test]
fn the_sample_for_caddy_passes_what_the_guide_says() {
    let rig = Rig::start("http://127.0.0.1:9/");
    let door = Door::open(&rig, |home, port, worker| {
        let site = sample(
            "Caddy",
            &[
                ("127.0.0.1:8787", &format!("127.0.0.1:{worker}")),
                ("transit.example.org", &format!("localhost:{port}")),
            ],
        );
        // What would reach beyond this test: its control port, the trust of this machine, port 80.
        let config = format!("{{\nadmin off\nskip_install_trust\nauto_https disable_redirects\n}}\n{site}\n");
        let config = home.file("Caddyfile", config);
        let mut caddy = Command::new("caddy");
        caddy.args(["run", "--adapter", "caddyfile", "--config"]).arg(config);
        caddy
            .env("HOME", home.path(""))
            .env("XDG_DATA_HOME", home.path(""))
            .env("XDG_CONFIG_HOME", home.path(""));
        (Background::start(&mut caddy), home.path("caddy/pki/authorities/local/root.crt"))
    });
    passes_what_the_guide_says(&rig, &door);
}
