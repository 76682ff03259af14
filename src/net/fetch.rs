//! One HTTP request and its answer, blocking.
//!
//! Redirects are never followed, statuses are answers and not errors, and every request ends within its time. What
//! proxies the environment names hold (see [`super::proxy`]), except where only public addresses may be reached:
//! there the address that was checked is the one that is dialled, by ourselves.

mod gathered;

use std::cell::Cell;
use std::io::Read;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{ConnectionDetails, Connector, DefaultConnector, NextTimeout, Transport};
use ureq::{Agent, ProxyProtocol, Timeout};
use url::Url;

use self::gathered::Gathered;
use super::proxy::{Proxy, proxy_for};
use super::{public, tls};

/// Most of an answer's body that is read.
const ANSWER_BYTES: u64 = 64 * 1024;

/// Which addresses may be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressPolicy {
    /// All of them: the operator chose the URL.
    Any,
    /// Only public ones: somebody else chose the URL.
    PublicOnly,
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Where to, `http` or `https`.
    pub url: &'a Url,
    /// Headers beyond those that HTTP itself needs.
    pub headers: &'a [(&'a str, &'a str)],
    /// The body.
    pub body: &'a [u8],
    /// Time for all of it.
    pub timeout: Duration,
    /// The part of it in which the connection must stand.
    pub connect_timeout: Duration,
}

/// An answer, of which at least the head came whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// `Retry-After`, as it was sent.
    pub retry_after: Option<String>,
    /// `Date`, as it was sent: what the server's clock says.
    pub date: Option<String>,
    /// The body, at most 64 KiB of it.
    pub body: Vec<u8>,
    /// The connection ended before the body did.
    pub is_cut: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The URL cannot be asked.
    #[error("{0}")]
    Url(String),
    /// No address of the host may be dialled.
    #[error("{host} has no public address")]
    Private {
        /// The host.
        host: String,
    },
    /// What the environment says cannot be used: a variable that names no proxy, or root certificates that are none.
    #[error("{0}")]
    Config(String),
    /// The proxy does not let us through.
    #[error("{0}")]
    Proxy(String),
    /// No connection stands; nothing was sent.
    #[error("could not connect: {0}")]
    Connect(String),
    /// The request may have been received; nothing came back in time.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// The request may have been received; the connection ended before an answer came.
    #[error("no answer: {0}")]
    Closed(String),
    /// What came back is no HTTP.
    #[error("the answer makes no sense: {0}")]
    Garbage(String),
}

/// Keeps connections between requests. Clones share them.
#[derive(Debug, Clone)]
pub struct Client {
    policy: AddressPolicy,
    plain: Agent,
    tls: Arc<OnceLock<Agent>>,
}

impl Client {
    /// A client that dials what `policy` allows.
    pub fn new(policy: AddressPolicy) -> Self {
        Self { policy, plain: agent(policy, TlsConfig::default()), tls: Arc::default() }
    }

    /// Posts the request. One that meets a kept connection just as the other side gives it up is posted again, so that
    /// it may be received twice.
    ///
    /// # Errors
    /// When there is no answer. Every status is one.
    pub fn post(&self, request: &Request<'_>) -> Result<Answer, FetchError> {
        let began = Instant::now();
        let mut left = request.timeout;
        loop {
            let made = CONNECTIONS.get();
            let answer = self.post_within(request, left);
            let was_kept = CONNECTIONS.get() == made;
            left = request.timeout.saturating_sub(began.elapsed());
            // Each time a kept connection is used up, so that the last one is new.
            if !(was_kept && matches!(answer, Err(FetchError::Closed(_))) && !left.is_zero()) {
                return answer;
            }
        }
    }

    /// Asks for what is at `url`.
    ///
    /// # Errors
    /// When there is no answer. Every status is one.
    pub fn get(&self, url: &Url, timeout: Duration) -> Result<Answer, FetchError> {
        let proxy = self.proxy(url)?;
        let config = self.agent(url)?.get(url.as_str()).config().timeout_global(Some(timeout));
        let built = config.proxy(proxy.as_ref().map(convert).transpose()?).build();
        match built.call() {
            Ok(response) => Ok(read(response)),
            Err(err) => Err(explain(err, url, proxy.as_ref())),
        }
    }

    fn post_within(&self, request: &Request<'_>, timeout: Duration) -> Result<Answer, FetchError> {
        let mut builder = self.agent(request.url)?.post(request.url.as_str());
        for (name, value) in request.headers {
            builder = builder.header(*name, *value);
        }
        let config = builder
            .config()
            .timeout_global(Some(timeout))
            .timeout_resolve(Some(request.connect_timeout))
            .timeout_connect(Some(request.connect_timeout));
        let proxy = self.proxy(request.url)?;
        let built = config.proxy(proxy.as_ref().map(convert).transpose()?).build();
        match built.send(request.body) {
            Ok(response) => Ok(read(response)),
            Err(err) => Err(explain(err, request.url, proxy.as_ref())),
        }
    }

    fn agent(&self, url: &Url) -> Result<&Agent, FetchError> {
        if url.scheme() != "https" {
            return Ok(&self.plain);
        }
        if let Some(agent) = self.tls.get() {
            return Ok(agent);
        }
        // Reading the roots takes longer than a request to the next machine, so only TLS pays for it.
        let roots = tls::roots().map_err(|err| FetchError::Config(err.to_string()))?;
        let roots: Vec<_> = roots.iter().map(|root| Certificate::from_der(root)).collect();
        let config = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&roots))
            .unversioned_rustls_crypto_provider(tls::provider())
            .build();
        Ok(self.tls.get_or_init(|| agent(self.policy, config)))
    }

    fn proxy(&self, url: &Url) -> Result<Option<Proxy>, FetchError> {
        if self.policy == AddressPolicy::PublicOnly {
            return Ok(None);
        }
        let proxy = proxy_for(url, |name| std::env::var(name).ok());
        proxy.map_err(|err| FetchError::Config(err.to_string()))
    }
}

fn convert(proxy: &Proxy) -> Result<ureq::Proxy, FetchError> {
    let host = if proxy.host.contains(':') { format!("[{}]", proxy.host) } else { proxy.host.clone() };
    let mut builder = ureq::Proxy::builder(ProxyProtocol::Http).host(&host).port(proxy.port);
    if let Some((user, password)) = &proxy.login {
        builder = builder.username(user);
        if let Some(password) = password {
            builder = builder.password(password.expose());
        }
    }
    // What ureq would say could hold the password.
    builder.build().map_err(|_| FetchError::Config(format!("the proxy {proxy} cannot be used")))
}

fn agent(policy: AddressPolicy, tls: TlsConfig) -> Agent {
    let config = Agent::config_builder()
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .user_agent(concat!("transit/", env!("CARGO_PKG_VERSION")))
        .proxy(None)
        .tls_config(tls)
        .build();
    let (connector, resolver) = (Counted(DefaultConnector::default()), DefaultResolver::default());
    match policy {
        AddressPolicy::Any => Agent::with_parts(config, connector, resolver),
        AddressPolicy::PublicOnly => Agent::with_parts(config, connector, PublicResolver(resolver)),
    }
}

thread_local! {
    /// The connections that this thread has set out to make. A request that adds none to them goes over a kept one.
    static CONNECTIONS: Cell<u64> = const { Cell::new(0) };
    /// A connection is being made. One that is made meanwhile is that to its proxy.
    static IS_CONNECTING: Cell<bool> = const { Cell::new(false) };
}

/// Connects as usual, and counts. A proxy gets what is written to it in one piece.
#[derive(Debug)]
struct Counted(DefaultConnector);

impl Connector for Counted {
    type Out = Box<dyn Transport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<()>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        CONNECTIONS.set(CONNECTIONS.get() + 1);
        let is_to_proxy = IS_CONNECTING.replace(true);
        let made = self.0.connect(details, chained);
        IS_CONNECTING.set(is_to_proxy);
        Ok(made?.map(|made| if is_to_proxy { Gathered::new(made).boxed() } else { made }))
    }
}

/// Finds addresses as usual and hands on only the public ones, which are then the ones that are dialled.
#[derive(Debug)]
struct PublicResolver(DefaultResolver);

/// Told apart from other failures of looking a name up.
#[derive(Debug, thiserror::Error)]
#[error("no public address")]
struct NotPublic;

impl Resolver for PublicResolver {
    fn resolve(
        &self,
        uri: &ureq::http::Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.0.resolve(uri, config, timeout)?;
        let mut public = self.empty();
        found
            .iter()
            .filter(|address| public::is_public(address.ip()))
            .for_each(|address| public.push(*address));
        if public.is_empty() { Err(ureq::Error::Other(Box::new(NotPublic))) } else { Ok(public) }
    }
}

fn read(mut response: ureq::http::Response<ureq::Body>) -> Answer {
    // Two of them are one list to HTTP, and a list is no time.
    let asked: Vec<_> =
        response.headers().get_all("retry-after").iter().map(|value| value.to_str()).collect();
    let asked = asked.into_iter().collect::<Result<Vec<_>, _>>().ok().filter(|asked| !asked.is_empty());
    let retry_after = asked.map(|asked| asked.join(", "));
    let date = response.headers().get("date").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let status = response.status().as_u16();
    let mut body = Vec::new();
    let read = response.body_mut().as_reader().take(ANSWER_BYTES).read_to_end(&mut body);
    Answer { status, retry_after, date, body, is_cut: read.is_err() }
}

fn explain(err: ureq::Error, url: &Url, proxy: Option<&Proxy>) -> FetchError {
    use std::io::ErrorKind;
    let host = || url.host_str().unwrap_or_default().to_owned();
    // With a proxy it is the proxy that is looked up and dialled.
    let dialled = match (proxy, url.port_or_known_default()) {
        (Some(proxy), _) => format!("the proxy {proxy}"),
        (None, Some(port)) => format!("{}:{port}", host()),
        (None, None) => host(),
    };
    match err {
        ureq::Error::BadUri(why) => FetchError::Url(why),
        ureq::Error::Http(why) => FetchError::Url(why.to_string()),
        ureq::Error::Other(other) if other.is::<NotPublic>() => FetchError::Private { host: host() },
        ureq::Error::ConnectProxyFailed(why) => refused_by_proxy(&why, &host(), &dialled),
        ureq::Error::HostNotFound => FetchError::Connect(format!("{dialled} was not found")),
        ureq::Error::Timeout(Timeout::Resolve) => {
            FetchError::Connect(format!("looking up {dialled} took too long"))
        }
        ureq::Error::Timeout(Timeout::Connect) => FetchError::Connect(format!("{dialled}: it took too long")),
        ureq::Error::Timeout(_) => FetchError::NoAnswer("it took too long".to_owned()),
        ureq::Error::Tls(why) => FetchError::Connect(why.to_owned()),
        ureq::Error::Rustls(why) => FetchError::Connect(why.to_string()),
        ureq::Error::Io(err) => match err.kind() {
            ErrorKind::UnexpectedEof => FetchError::Closed("the connection was closed".to_owned()),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => FetchError::Closed(err.to_string()),
            _ => FetchError::Connect(format!("{dialled}: {err}")),
        },
        other => FetchError::Garbage(other.to_string()),
    }
}

/// A proxy's no, with its status; the one that asks for a login has a way out.
fn refused_by_proxy(why: &str, host: &str, proxy: &str) -> FetchError {
    let status = why.split(|c: char| !c.is_ascii_digit()).find(|digits| digits.len() == 3);
    FetchError::Proxy(match status {
        Some("407") => format!(
            "{proxy} asks for a login (407): put user:password@ before its host in the variable that names it"
        ),
        Some(status) => format!("{proxy} does not connect to {host}: it answered {status}"),
        None => format!("{proxy} does not connect to {host}: {why}"),
    })
}
