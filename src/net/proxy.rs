//! Which proxy a URL is reached through: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in either case of
//! letters, for WebSockets and requests alike.
//!
//! Every connection goes through the proxy as a tunnel (CONNECT), also for `http:` and `ws:`. Loopback never does.
//! Only `http://` proxies are known; another one is an error, never a silent way around it.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use url::{Host, Url};

use crate::secret::Secret;

/// An HTTP proxy. It shows itself without its password.
#[derive(Debug, Clone)]
pub struct Proxy {
    /// Its host, an IPv6 address without its brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The value of `Proxy-Authorization`, when the URL of the proxy holds a user.
    pub authorization: Option<Secret>,
    /// The same as user and password.
    pub(super) login: Option<(String, Option<Secret>)>,
}

/// A variable that names no proxy that can be used. The value is not shown: it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the variable {variable} names no proxy of the form http://host:port: {why}")]
pub struct ProxyError {
    /// The variable.
    pub variable: &'static str,
    /// What is wrong with it.
    pub why: &'static str,
}

/// The proxy for `url`, from a way to read the environment; `None` when it is reached directly.
///
/// # Errors
/// When the variable that applies holds something else than an HTTP proxy.
pub fn proxy_for(url: &Url, var: impl Fn(&str) -> Option<String>) -> Result<Option<Proxy>, ProxyError> {
    let set = |name: &str| var(name).filter(|value| !value.trim().is_empty());
    let names = match url.scheme() {
        "https" | "wss" => ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
        _ => ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"],
    };
    let Some((variable, value)) = names.into_iter().find_map(|name| Some((name, set(name)?))) else {
        return Ok(None);
    };
    let exceptions = set("no_proxy").or_else(|| set("NO_PROXY")).unwrap_or_default();
    let Some(host) = url.host() else { return Ok(None) };
    if is_loopback(&host) || is_exception(&host, url.port_or_known_default(), &exceptions) {
        return Ok(None);
    }
    parse(value.trim()).map(Some).map_err(|why| ProxyError { variable, why })
}

fn parse(value: &str) -> Result<Proxy, &'static str> {
    let with_scheme = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
    let url = Url::parse(&with_scheme).map_err(|_| "it is no URL")?;
    if url.scheme() != "http" {
        return Err("its scheme is not http");
    }
    let host = match url.host() {
        Some(Host::Ipv6(address)) => address.to_string(),
        Some(host) => host.to_string(),
        None => return Err("it names no host"),
    };
    let decode = |text: &str| percent_decode(text).ok_or("its user or password is not UTF-8");
    let (user, password) = (decode(url.username())?, decode(url.password().unwrap_or_default())?);
    let has_login = !user.is_empty() || !password.is_empty();
    let basic = || format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    let authorization = has_login.then(|| Secret::new(basic()).expect("it begins with a word"));
    let port = url.port_or_known_default().ok_or("it names no port")?;
    Ok(Proxy { host, port, authorization, login: has_login.then(|| (user, Secret::new(password).ok())) })
}

fn percent_decode(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        let escaped =
            (byte == b'%').then(|| after.get(..2).and_then(|digits| hex::decode(digits).ok())).flatten();
        (bytes, rest) = match escaped {
            Some(decoded) => ([bytes, decoded].concat(), &after[2..]),
            None => ([&bytes[..], &[byte]].concat(), after),
        };
    }
    String::from_utf8(bytes).ok()
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
        }
    }
}

/// Whether `NO_PROXY` names the host: `*`, a name and all below it (with or without `.` or `*.` before it), an
/// address, a network in CIDR form; each with a port if only that port is meant.
fn is_exception(host: &Host<&str>, port: Option<u16>, exceptions: &str) -> bool {
    exceptions.split([',', ' ', '\t']).map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        if entry == "*" {
            return true;
        }
        let (name, wanted) = split_port(entry);
        if wanted.is_some() && wanted != port {
            return false;
        }
        match host {
            Host::Domain(host) => is_below(host, name),
            Host::Ipv4(address) => is_within(IpAddr::V4(*address), name),
            Host::Ipv6(address) => is_within(IpAddr::V6(*address), name),
        }
    })
}

/// An entry's name or address without brackets, and its port.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    if let Some(rest) = entry.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').unwrap_or((rest, ""));
        return (address, rest.strip_prefix(':').and_then(|port| port.parse().ok()));
    }
    match entry.rsplit_once(':') {
        // More than one colon: a bare IPv6 address.
        Some((name, port)) if !name.contains(':') => match port.parse() {
            Ok(port) => (name, Some(port)),
            Err(_) => (entry, None),
        },
        _ => (entry, None),
    }
}

fn is_below(host: &str, name: &str) -> bool {
    let plain = |text: &str| text.trim_end_matches('.').to_ascii_lowercase();
    let (host, name) = (plain(host), plain(name.trim_start_matches('*').trim_start_matches('.')));
    !name.is_empty()
        && host.strip_suffix(&name).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

fn is_within(address: IpAddr, network: &str) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    let (network, length) = match network.split_once('/') {
        Some((network, length)) => (network, length.parse::<u32>().ok()),
        None => (network, Some(128)),
    };
    let (Ok(network), Some(length)) = (network.parse::<IpAddr>(), length) else { return false };
    let ((a, all), (b, other)) = (bits(address), bits(network));
    let length = length.min(all);
    all == other && (length == 0 || (a ^ b) >> (128 - length) == 0)
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(url: &str, vars: &[(&str, &str)]) -> Option<String> {
        let url = Url::parse(url).unwrap();
        let var = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        proxy_for(&url, var).unwrap().map(|proxy| proxy.to_string())
    }

    #[test]
    fn the_scheme_chooses_the_variable() {
        let vars =
            [("HTTP_PROXY", "http://plain:1"), ("https_proxy", "tls:2"), ("ALL_PROXY", "http://all:3/")];
        assert_eq!(through("http://h.example/", &vars).as_deref(), Some("plain:1"));
        assert_eq!(through("ws://h.example/", &vars).as_deref(), Some("plain:1"));
        assert_eq!(through("https://h.example/", &vars).as_deref(), Some("tls:2"));
        assert_eq!(through("wss://h.example/", &vars).as_deref(), Some("tls:2"));
        assert_eq!(through("wss://h.example/", &vars[2..]).as_deref(), Some("all:3"));
        assert_eq!(through("wss://h.example/", &[("HTTPS_PROXY", " ")]), None);
        assert_eq!(through("http://h.example/", &[("http_proxy", "[::1]:8")]).as_deref(), Some("[::1]:8"));
    }

    #[test]
    fn loopback_and_exceptions_are_reached_directly() {
        let direct = |url: &str, no_proxy: &str| {
            through(url, &[("ALL_PROXY", "http://p:1"), ("NO_PROXY", no_proxy)]).is_none()
        };
        for url in ["http://localhost:9/", "http://a.localhost/", "http://127.9.9.9/", "http://[::1]/"] {
            assert!(direct(url, ""), "{url}");
        }
        for (url, no_proxy, expected) in [
            ("http://h.example/", "*", true),
            ("http://h.example/", "other, H.Example", true),
            ("http://a.h.example/", "h.example", true),
            ("http://a.h.example/", ".h.example", true),
            ("http://a.h.example/", "*.h.example", true),
            ("http://ah.example/", "h.example", false),
            ("http://h.example/", "h.example:80", true),
            ("http://h.example:81/", "h.example:80", false),
            ("http://10.1.2.3/", "10.0.0.0/8", true),
            ("http://11.1.2.3/", "10.0.0.0/8", false),
            ("http://10.1.2.3/", "10.1.2.3", true),
            ("http://[fd00::1]/", "fd00::/8", true),
            ("http://[fd00::1]:8/", "[fd00::1]:8", true),
            ("http://[fd00::1]:8/", "0.0.0.0/0", false),
            ("http://10.1.2.3/", "0.0.0.0/0", true),
        ] {
            assert_eq!(direct(url, no_proxy), expected, "{url} {no_proxy}");
        }
    }

    #[test]
    fn a_password_is_sent_and_never_shown() {
        let url = Url::parse("http://h.example/").unwrap();
        let proxy =
            proxy_for(&url, |name| (name == "http_proxy").then(|| "http://u%40x:p%3Aw@p:8".to_owned()));
        let proxy = proxy.unwrap().unwrap();
        assert_eq!(proxy.authorization.as_ref().unwrap().expose(), "Basic dUB4OnA6dw==");
        assert!(!format!("{proxy:?} {proxy}").contains("p:w"));
    }

    #[test]
    fn another_kind_of_proxy_is_no_way_around_it() {
        let url = Url::parse("http://h.example/").unwrap();
        for value in ["socks5://u:secret@p:1", "https://p:1", "http://", "http://[", "::"] {
            let err = proxy_for(&url, |name| (name == "ALL_PROXY").then(|| value.to_owned())).unwrap_err();
            assert_eq!(err.variable, "ALL_PROXY");
            assert!(!err.to_string().contains("secret"));
        }
    }
}
