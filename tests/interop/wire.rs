//! `transit-wire-dump --proxy` between the two ends of the Python library `websockets`, which compress, split and
//! ping as they please, with everything recorded before the proxy and behind it.

use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::rig::{Rig, until};
use crate::support::{Background, Home, text};
use crate::tls;

/// Prints the port to pass on to, reads that of the proxy, talks, and says whether both sides of the proxy saw the
/// same bytes.
const PEERS: &str = r#"
import asyncio, json, sys, websockets

async def recording(port):
    """Passes one connection on to a port, and keeps what passed each way."""
    seen, done = [b'', b''], asyncio.Event()
    async def pump(way, reader, writer):
        while data := await reader.read(65536):
            seen[way] += data
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof(): writer.write_eof()
    async def serve(reader, writer):
        there_reader, there_writer = await asyncio.open_connection('127.0.0.1', port)
        await asyncio.gather(pump(0, reader, there_writer), pump(1, there_reader, writer), return_exceptions=True)
        there_writer.close(); writer.close(); done.set()
    server = await asyncio.start_server(serve, '127.0.0.1', 0)
    return server.sockets[0].getsockname()[1], seen, done

async def worker(ws):
    async for text in ws:
        frame = json.loads(text) if isinstance(text, str) else None
        if frame is None: continue
        if frame['t'] == 'hello':
            await ws.send(json.dumps({'t': 'hello_ok', 'host_id': 'hst_0123456789ab', 'org': 'default'}))
        elif frame['t'] == 'send':
            await (await ws.ping())
            await ws.send([p for p in json.dumps({'t': 'send_ack', 'id': frame['id']})])
        elif frame['t'] == 'roster':
            return await ws.close(4000, 'replaced ✓')

async def main():
    async with websockets.serve(worker, '127.0.0.1', 0) as server:
        behind, inner, inner_done = await recording(server.sockets[0].getsockname()[1])
        print(behind, flush=True)
        before, outer, outer_done = await recording(int(await asyncio.to_thread(sys.stdin.readline)))
        async with websockets.connect(f'ws://127.0.0.1:{before}/api/daemon/ws') as ws:
            agreed = getattr(ws, 'extensions', None) or ws.protocol.extensions
            assert 'PerMessageDeflate' in repr(agreed), agreed
            await ws.send(json.dumps({'t': 'hello', 'proto': 1, 'daemon_ver': '1', 'host': 'titan'}))
            assert json.loads(await ws.recv())['t'] == 'hello_ok'
            for n in range(200):
                frame = {'t': 'send', 'id': 'tx_%012x' % n, 'from': 'a@titan', 'to': 'b@titan',
                         'body': 'to be or not to be, ' * (n * 5), 'ts': '2026-01-01T00:00:00Z'}
                text = json.dumps(frame)
                await ws.send([text[:9], text[9:50], text[50:]])
                assert json.loads(await ws.recv()) == {'t': 'send_ack', 'id': frame['id']}
            await ws.send(json.dumps({'t': 'roster', 'agents': []}))
            try:
                await ws.recv()
            except websockets.ConnectionClosed as closed:
                print(closed.rcvd.code, closed.rcvd.reason, flush=True)
        await asyncio.gather(inner_done.wait(), outer_done.wait())
        print('same' if inner == outer and all(inner) else 'different', flush=True)
asyncio.run(main())
"#;

/// A Python that has the library.
fn python() -> String {
    let named = std::env::var("PYTHON").ok();
    let has_it = |python: &String| {
        let asked = Command::new(python).args(["-c", "import websockets"]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    let candidates = named.into_iter().chain(["python3", "/usr/bin/python3"].map(str::to_owned));
    candidates
        .into_iter()
        .find(has_it)
        .expect("python3 with websockets is installed (apt install python3-websockets)")
}

#[test]
fn a_library_that_compresses_and_splits_notices_nothing_of_the_proxy() {
    let home = Home::new();
    let mut peers =
        Background::start(Command::new(python()).args(["-c", PEERS]).env("PYTHONIOENCODING", "utf-8"));
    let to = format!("ws://127.0.0.1:{}", peers.line());
    let mut dump = home.command("transit-wire-dump");
    dump.args(["--proxy", "127.0.0.1:0", "--to", &to, "--write", "wire.ndjson", "--quiet"]);
    let mut dump = Background::start(&mut dump);
    let listening = dump.error();
    let port = listening.split_once("127.0.0.1:").unwrap().1.split(',').next().unwrap();
    peers.write(format!("{port}\n"));
    assert_eq!(peers.line(), "4000 replaced ✓");
    assert_eq!(peers.line(), "same");
    assert!(peers.wait().success());
    dump.signal(Signal::TERM);
    assert!(dump.wait().success());

    let checked = home.run("transit-wire-dump", ["--check", "wire.ndjson"], b"");
    assert!(checked.status.success(), "{}{}", text(&checked.stdout), text(&checked.stderr));
    let written = std::fs::read_to_string(home.path("wire.ndjson")).unwrap();
    for (what, count) in [
        (r#""t":"send","#, 200),
        (r#""t":"send_ack""#, 200),
        (r#""dir":"worker>daemon","note":"ping""#, 200),
        (r#""dir":"daemon>worker","note":"pong""#, 200),
        (r#""note":"close","code":4000,"reason":"replaced ✓""#, 2),
        (r#""note":"blind""#, 0),
    ] {
        assert_eq!(written.matches(what).count(), count, "{what}");
    }
}

#[test]
fn a_daemon_reaches_a_worker_behind_tls_through_the_proxy() {
    let mut running = Vec::new();
    let rig = Rig::start_through("http://127.0.0.1:9/", |home, worker| {
        let mut certify = Command::new("sh");
        let made =
            certify.args(["-c", tls::CERTIFY]).current_dir(home.path("")).stderr(Stdio::null()).status();
        assert!(made.expect("openssl is installed").success());
        let mut secure = Command::new("python3");
        secure.args(["-I", "-c", tls::PROXY, &worker.port().to_string()]).current_dir(home.path(""));
        let secure = Background::start(&mut secure);
        let to = format!("https://localhost:{}", secure.line());
        let mut dump = home.command("transit-wire-dump");
        dump.args(["--proxy", "127.0.0.1:0", "--to", &to, "--write", "wire.ndjson"]);
        let dump = Background::start(dump.env("SSL_CERT_FILE", home.path("ca.pem")));
        let at = dump.error().split_once(" at ").unwrap().1.split(',').next().unwrap().parse().unwrap();
        running.extend([secure, dump]);
        at
    });
    let mut agent = rig.listen("bob");
    let id = rig.post("build-1", "the build broke").json()["delivery_id"].as_str().unwrap().to_owned();
    assert_eq!(agent.delivered()["id"], id.as_str());
    agent.ack(&id);
    until(&rig, &["delivery", "show", &id], |row| row["state"] == "dispatched");
    let dump = running.last_mut().unwrap();
    dump.signal(Signal::TERM);
    assert!(dump.wait().success());
    let checked = rig.home.run("transit-wire-dump", ["--check", "wire.ndjson"], b"");
    assert!(checked.status.success(), "{}{}", text(&checked.stdout), text(&checked.stderr));

    // Nobody whom the machine does not trust is passed anything.
    let mut dump = rig.home.command("transit-wire-dump");
    let to = format!("https://localhost:{}", rig.at.port());
    let mut dump = Background::start(dump.args(["--proxy", "127.0.0.1:0", "--to", &to]));
    let at = dump.error().split_once(" at ").unwrap().1.split(',').next().unwrap().to_owned();
    let asked = Command::new("curl").args(["-s", "-m", "20", &format!("http://{at}/")]).status();
    assert!(!asked.expect("curl is installed").success());
    dump.signal(Signal::TERM);
    assert!(dump.wait().success());
    let said = dump.error();
    let server = "connection 1: the way to the server broke: could not set up TLS with localhost: ";
    assert!(said.contains(server), "{said}");
    assert_eq!(dump.last_error(), None, "it is told once");
}
