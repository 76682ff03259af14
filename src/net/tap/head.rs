//! The heads of an HTTP conversation, as far as a tap needs them.

/// Longest head that is looked at.
pub(super) const LONGEST: usize = 64 * 1024;

/// Where the head at the beginning of `bytes` ends, past its empty line. `from` is where it is worth to look.
pub(super) fn end(bytes: &[u8], from: usize) -> Option<usize> {
    let from = from.saturating_sub(3);
    memchr::memchr_iter(b'\n', &bytes[from..]).map(|at| from + at).find_map(|at| match bytes[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// The path of a request, without its query.
pub(super) fn path(head: &[u8]) -> String {
    let head = String::from_utf8_lossy(head);
    let target = head.lines().next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
    target.split(['?', '#']).next().unwrap_or_default().to_owned()
}

/// The status of an answer.
pub(super) fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|&b| b == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_whitespace();
    words.next().filter(|version| version.starts_with("HTTP/"))?;
    words.next()?.parse().ok()
}

/// The values of a header, in any case of letters, separated by commas.
pub(super) fn values(head: &[u8], name: &str) -> Vec<String> {
    let head = String::from_utf8_lossy(head);
    let of_name = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let of_name = of_name.filter(|(found, _)| found.trim().eq_ignore_ascii_case(name));
    of_name
        .flat_map(|(_, value)| value.split(','))
        .map(|value| value.trim().to_ascii_lowercase())
        .filter(|value| !value.is_empty())
        .collect()
}
