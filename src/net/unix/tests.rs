//! Whose sockets are taken, replaced and left alone.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use super::place::*;
use super::*;
use crate::net::wake::Wake;

fn paths(data: &Path) -> Paths {
    Paths { config: data.join("config.json"), data: data.to_owned() }
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let paths = paths(dir.path());
    assert!(matches!(connect(&paths, AGENT_SOCK), Err(SocketError::NoDaemon { .. })));
    let bound = Bound::bind(&paths, AGENT_SOCK).unwrap();
    assert_eq!(fs::metadata(bound.path()).unwrap().mode() & 0o777, 0o600);
    assert!(connect(&paths, AGENT_SOCK).is_ok());
    assert!(matches!(Bound::bind(&paths, AGENT_SOCK), Err(SocketError::Live { .. })));
    let path = bound.path().to_owned();
    drop(bound);
    assert!(!path.exists());
    drop(UnixListener::bind(&path).unwrap());
    assert!(matches!(connect(&paths, AGENT_SOCK), Err(SocketError::NoDaemon { .. })));
    let again = Bound::bind(&paths, AGENT_SOCK).unwrap();
    assert!(connect(&paths, AGENT_SOCK).is_ok());
    fs::remove_file(&path).unwrap();
    fs::write(&path, "somebody else's").unwrap();
    drop(again);
    assert!(path.exists(), "only the own socket is removed");
    assert!(matches!(Bound::bind(&paths, AGENT_SOCK), Err(SocketError::InTheWay { .. })));
    assert!(matches!(connect(&paths, AGENT_SOCK), Err(SocketError::InTheWay { .. })));
}

#[test]
fn of_many_that_bind_at_once_one_listens() {
    let dir = tempfile::tempdir().unwrap();
    drop(UnixListener::bind(dir.path().join(API_SOCK)).unwrap());
    let start = std::sync::Barrier::new(8);
    let bound: Vec<_> = std::thread::scope(|scope| {
        let bind = || {
            start.wait();
            Bound::bind_in(dir.path(), API_SOCK)
        };
        let all: Vec<_> = (0..8).map(|_| scope.spawn(bind)).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(bound.iter().filter(|bound| bound.is_ok()).count(), 1);
    assert!(bound.iter().all(|bound| matches!(bound, Ok(_) | Err(SocketError::Live { .. }))));
    assert!(connect_in(dir.path(), API_SOCK).is_ok());
}

#[test]
fn the_kernel_names_the_peer_and_a_wake_up_ends_the_wait() {
    let dir = tempfile::tempdir().unwrap();
    let paths = paths(dir.path());
    let bound = Bound::bind(&paths, TRANSIT_SOCK).unwrap();
    let wake = Wake::new().unwrap();
    let _client = connect(&paths, TRANSIT_SOCK).unwrap();
    let (_, peer) = bound.accept(&wake).unwrap().unwrap();
    assert_eq!(peer, Peer { pid: std::process::id(), uid: our_uid() });
    wake.wake();
    assert!(bound.accept(&wake).unwrap().is_none());
}

#[test]
fn a_socket_of_the_service_manager_stays_and_must_be_the_right_one() {
    let dir = tempfile::tempdir().unwrap();
    let paths = paths(dir.path());
    let at = dir.path().join(AGENT_SOCK);
    let listener = UnixListener::bind(&at).unwrap();
    fs::set_permissions(&at, fs::Permissions::from_mode(0o666)).unwrap();
    let passed = listener.try_clone().unwrap();
    assert!(matches!(Bound::adopt(&paths, TRANSIT_SOCK, passed), Err(SocketError::Elsewhere { .. })));
    let bound = Bound::adopt(&paths, AGENT_SOCK, listener).unwrap();
    assert_eq!(fs::metadata(&at).unwrap().mode() & 0o777, 0o600);
    let _client = connect(&paths, AGENT_SOCK).unwrap();
    assert!(bound.accept(&Wake::new().unwrap()).unwrap().is_some());
    drop(bound);
    assert!(at.exists(), "the next daemon listens on it");
}

#[test]
fn a_deep_directory_gets_a_short_one_that_every_command_finds() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("d".repeat(120));
    fs::create_dir(&deep).unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&deep, &link).unwrap();
    let bound = Bound::bind(&paths(&deep), AGENT_SOCK).unwrap();
    assert!(fits(bound.path()) && !bound.path().starts_with(&deep));
    assert!(connect(&paths(&deep), AGENT_SOCK).is_ok());
    assert!(connect(&paths(&link), AGENT_SOCK).is_ok(), "by whatever name it goes");
    let run = bound.path().parent().unwrap().to_owned();
    assert_eq!(fs::metadata(&run).unwrap().mode() & 0o777, 0o700);
    drop(bound);
    fs::set_permissions(&run, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(Bound::bind(&paths(&deep), AGENT_SOCK), Err(SocketError::Untrusted { .. })));
    fs::remove_dir(&run).unwrap();
    std::os::unix::fs::symlink(dir.path(), &run).unwrap();
    assert!(matches!(Bound::bind(&paths(&deep), AGENT_SOCK), Err(SocketError::Untrusted { .. })));
    assert!(matches!(connect(&paths(&deep), AGENT_SOCK), Err(SocketError::Untrusted { .. })));
    fs::remove_file(&run).unwrap();
}
