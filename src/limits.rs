//! Every number of the specifications, by name and with its unit.
//!
//! A limit that a peer can meet is here and nowhere else, so that the protocols, the stores, the documentation
//! and the tests speak of the same one. Nothing here is configuration; what an operator may change takes its
//! default from here.

use std::time::Duration;

/// Longest body of a message, in bytes (transit/1).
pub const BODY_BYTES: usize = 65_536;
/// Most runes (Unicode code points) of a body that are put into a terminal (transit/1).
pub const CLIP_RUNES: usize = 4_000;
/// Most runes of the one-line preview of a channel delivery (transit/1).
pub const PREVIEW_RUNES: usize = 100;
/// Most runes of the `user` attribute of a channel envelope (transit/1).
pub const USER_RUNES: usize = 64;

/// Longest frame of transit-wire/1, in bytes of UTF-8.
pub const FRAME_BYTES: usize = 1_048_576;
/// Frames a second that one socket may send (transit-wire/1).
pub const FRAME_RATE: u32 = 50;
/// Frames that one socket may send at once (transit-wire/1).
pub const FRAME_BURST: u32 = 100;
/// Messages a second that one sender may send (transit-wire/1).
pub const SEND_RATE: u32 = 10;
/// Messages that one sender may send at once (transit-wire/1).
pub const SEND_BURST: u32 = 10;
/// Time in which the first frame of a connection must come: `hello`, and `register` on `agent.sock`.
pub const HELLO_WAIT: Duration = Duration::from_secs(10);
/// Interval of the daemon's `pong` (the heartbeat of transit-wire/1 is inverted).
pub const HEARTBEAT: Duration = Duration::from_secs(30);
/// Silence after which either end gives a transit-wire/1 connection up.
pub const SILENCE: Duration = Duration::from_secs(90);
/// Interval at which the full roster is sent again.
pub const ROSTER_REFRESH: Duration = Duration::from_secs(60);
/// Longest name that a daemon gives a call (`rid`), in bytes. It is held until the call is answered.
pub const RID_BYTES: usize = 1_024;
/// Remote calls of one socket that may wait for their answer.
pub const RPC_OUTSTANDING: usize = 64;
/// Time after which a remote call is answered with an error.
pub const RPC_WAIT: Duration = Duration::from_secs(10);

/// Interval of the daemon's `ping` on `agent.sock` (transit-agent/1).
pub const AGENT_PING: Duration = Duration::from_secs(15);
/// Deliveries that a session may have open at once.
pub const AGENT_WINDOW: usize = 16;
/// Time without a sign of life after which a delivery to an adapter is given up, retryable.
pub const ADAPTER_WAIT: Duration = Duration::from_secs(30);
/// Time after which a delivery to an adapter is given up in spite of signs of life, retryable.
pub const ADAPTER_WAIT_MAX: Duration = Duration::from_secs(15 * 60);
/// Longest line of transit-agent/1 and of `transit.sock`, in bytes without the newline.
pub const LINE_BYTES: usize = FRAME_BYTES;

/// Longest body of an ingest request, in bytes (transit.ingest/1).
pub const INGEST_BYTES: usize = 262_144;
/// Greatest distance of `Transit-Timestamp` from the clock, in seconds; exactly this much passes.
pub const INGEST_SKEW_S: u64 = 300;
/// Most digits of `Transit-Timestamp`.
pub const TIMESTAMP_DIGITS: usize = 12;
/// Longest `event_key` and `conversation_id`, in UTF-16 code units.
pub const KEY_UNITS: usize = 200;
/// Longest `content`, in bytes of UTF-8.
pub const CONTENT_BYTES: usize = 65_536;
/// Longest `user`, in code points.
pub const INGEST_USER_POINTS: usize = 200;
/// Longest `trigger`, in code points.
pub const TRIGGER_POINTS: usize = 32;
/// Longest `reply_url`, in UTF-16 code units.
pub const REPLY_URL_UNITS: usize = 2_048;
/// Most entries of `meta`.
pub const META_ENTRIES: usize = 32;
/// Longest key of `meta`, in UTF-16 code units.
pub const META_KEY_UNITS: usize = 64;
/// Longest value of `meta`, in UTF-16 code units.
pub const META_VALUE_UNITS: usize = 1_024;
/// Deepest nesting of an ingest body.
pub const JSON_DEPTH: usize = 64;
/// Events a second that one source may send, unless the operator says otherwise.
pub const INGEST_RATE: u32 = 5;
/// Events that one source may send at once, unless the operator says otherwise.
pub const INGEST_BURST: u32 = 20;
/// Longest instructions of a source, in code points: the agent reads them with every event.
pub const INSTRUCTIONS_RUNES: usize = 1_000;
/// Longest head of an HTTP request, in bytes: more than any sender needs, and small enough for many at once.
pub const HEAD_BYTES: usize = 32 * 1024;
/// Time in which the head of an HTTP request must have come; a connection that is kept between two requests is idle
/// for no longer either.
pub const HEAD_WAIT: Duration = Duration::from_secs(10);
/// Time in which the body of an HTTP request must have come.
pub const BODY_WAIT: Duration = Duration::from_secs(30);
/// Bytes of bodies of requests that one Worker holds at once, from their coming to their commit: 256 of the longest ones.
/// Without it as many as there are connections could fill the memory.
pub const BODIES_HELD: usize = 256 * INGEST_BYTES;
/// Bytes of each body that do not count there: about what its connection costs anyway. So events of a usual size pass
/// whatever the others do.
pub const BODY_FREE: usize = 4 * 1024;
/// Time for which a body waits until there is memory for what comes next of it.
pub const BODIES_HELD_WAIT: Duration = Duration::from_secs(5);
/// Time that a reply callback may take in all.
pub const CALLBACK_WAIT: Duration = Duration::from_secs(10);
/// Time for which the old secret of a source stays valid after a rotation, unless the operator says otherwise.
pub const ROTATION_OVERLAP: Duration = Duration::from_secs(24 * 3600);

/// Connections of any kind that one Worker holds, where the limit on descriptors allows that many. An idle one costs
/// less than 8 KiB, so that this is less than half a GiB.
pub const CONNECTIONS: u64 = 50_000;
/// Descriptors that connections leave to everything else: the ledger and its readers, the posting of replies, and
/// those who are told that there is no place for them.
pub const DESCRIPTORS_KEPT: u64 = 256;
/// Connections over the limit that are told so at the same time; further ones are dropped, because telling costs a
/// descriptor too.
pub const REFUSED_AT_ONCE: usize = 64;
/// Connections at a listener for probes alone: watchers are few.
pub const PROBES: u64 = 64;
/// Sockets of one host. It needs one; a network that breaks may leave some behind that are not known to be gone.
pub const SOCKETS_OF_HOST: u32 = 16;
/// Those of them that have not said hello. Each has [`HELLO_WAIT`] for it.
pub const SOCKETS_UNGREETED: u32 = 8;
/// Time in which a peer must take something of what is written to it.
pub const WRITE_WAIT: Duration = Duration::from_secs(30);
/// Bytes of answers to calls that may wait for a socket whose daemon does not read; beyond, it is closed.
pub const ANSWERS_OWED: usize = 4 * FRAME_BYTES;
/// Agents of one roster; the rest is left out.
pub const ROSTER_MAX: usize = 1_000;
/// Longest text that a roster says of an agent, in bytes; the rest is cut off. It is shown, and kept for each agent.
pub const ROSTER_TEXT_BYTES: usize = 1_024;
/// Longest word of a daemon that is kept, in bytes: its version, the code of a refusal.
pub const WORD_BYTES: usize = 100;

/// Attempts after which a direct or room delivery is dead.
pub const DELIVERY_ATTEMPTS: u32 = 40;
/// Age at which a direct or room delivery is dead.
pub const DELIVERY_TTL: Duration = Duration::from_secs(24 * 3600);
/// Deliveries that are read from the ledger at once for one host.
pub const QUEUE_BATCH: usize = 128;
/// Undelivered entries of one agent; beyond, a send is refused with `rate_limited`.
pub const QUEUE_MAX: u64 = 1_000;
/// Messages between agents, along one reply chain, one ordered pair or in one room, that pass within [`LOOP_WINDOW`]
/// without a person or an event between them.
pub const LOOP_LIMIT: u32 = 30;
/// The time in which they are counted, and for which nothing may be counted until more pass.
pub const LOOP_WINDOW: Duration = Duration::from_secs(600);
/// Members of a room.
pub const ROOM_MEMBERS: usize = 64;
/// Rooms of an organisation: any agent may make one.
pub const ROOMS: usize = 1_000;

/// Entries that may wait in the spool.
pub const SPOOL_MAX: u64 = 10_000;
/// Age at which an event that could not be posted is dead.
pub const EVENT_TTL: Duration = Duration::from_secs(3 * 24 * 3600);
/// Attempts after which an event is dead whose age cannot be told: about as many as there are in [`EVENT_TTL`].
pub const EVENT_ATTEMPTS: u32 = 440;
/// Longest time that a peer's Retry-After is followed.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
/// Time that one attempt to post an event may take.
pub const ATTEMPT_WAIT: Duration = Duration::from_secs(30);
/// The part of [`ATTEMPT_WAIT`] in which the connection must stand.
pub const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// Time for which `(id, agent)` of an injected delivery, and what was sent, is remembered.
pub const HISTORY_KEEP: Duration = Duration::from_secs(14 * 24 * 3600);

/// Time for which the Worker keeps a message that is settled, dead or refused, unless the operator says otherwise.
pub const MESSAGES_KEEP: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time for which the Worker keeps a settled delivery and its reply, unless the operator says otherwise.
pub const DELIVERIES_KEEP: Duration = Duration::from_secs(30 * 24 * 3600);
/// Time for which a source's `event_key` is known again at the least, whatever else is kept.
pub const EVENT_KEY_KEEP: Duration = Duration::from_secs(30 * 24 * 3600);

/// Time for which an enrolment code is valid.
pub const ENROLL_TTL: Duration = Duration::from_secs(15 * 60);
/// Longest path of a Unix socket, in bytes.
pub const SOCKET_PATH_BYTES: usize = 107;

/// Longest request line of the local client API, in bytes without the newline; a carriage return counts.
pub const API_LINE_BYTES: usize = 65_536;
/// Longest `text` of `message.send`, in bytes of UTF-8.
pub const API_TEXT_BYTES: usize = 32_768;
/// Connections of the local client API at the same time, unless the operator says otherwise.
pub const API_CONNECTIONS: usize = 16;
/// Requests a minute of one connection of the local client API, unless the operator says otherwise.
pub const API_RATE: usize = 30;
/// The minute of [`API_RATE`], which slides.
pub const API_WINDOW: Duration = Duration::from_secs(60);
/// Bytes of events that may wait for one client, unless the operator says otherwise.
pub const API_EVENT_BYTES: usize = 1_048_576;
/// Frames of both kinds that may wait for one client.
pub const API_FRAMES: usize = 512;
/// Time in which a client must take one frame, and everything that waits once its queue was full.
pub const API_WRITE_WAIT: Duration = Duration::from_secs(10);
/// Silence after which a client that waits for nothing gives its place to a new one, if there is no other, unless the
/// operator says otherwise.
pub const API_IDLE: Duration = Duration::from_secs(300);
