//! The two headers of a signed request: their exact forms, and how far the timestamp may be from the clock.

use super::SIGNATURE_PREFIX;
use crate::limits;

/// What is wrong with the headers. A Worker answers all of these, and a wrong signature, with the same 401.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// No `Transit-Timestamp`.
    #[error("there is no Transit-Timestamp")]
    NoTimestamp,
    /// `Transit-Timestamp` is not 1 to 12 ASCII digits.
    #[error("the timestamp is not 1 to 12 digits of Unix seconds")]
    TimestampForm,
    /// No `Transit-Signature`.
    #[error("there is no Transit-Signature")]
    NoSignature,
    /// `Transit-Signature` is not `v1=` and 64 lowercase hexadecimal digits.
    #[error("the signature is not v1= and 64 lowercase hexadecimal digits")]
    SignatureForm,
    /// The timestamp is too far back.
    #[error("the timestamp is {by} s old, more than the {tolerance} s allowed")]
    Stale {
        /// Seconds between it and the clock.
        by: u64,
        /// Seconds that were allowed.
        tolerance: u64,
    },
    /// The timestamp is too far ahead.
    #[error("the timestamp is {by} s in the future, more than the {tolerance} s allowed")]
    Future {
        /// Seconds between it and the clock.
        by: u64,
        /// Seconds that were allowed.
        tolerance: u64,
    },
}

/// The headers of a request, in their right form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedHeaders {
    timestamp: String,
    signature: String,
    seconds: i64,
}

impl SignedHeaders {
    /// Reads both values as they were sent, without the blanks that HTTP allows around them.
    ///
    /// # Errors
    /// When one is missing or has another form. That each came exactly once is the caller's to see.
    pub fn parse(timestamp: Option<&[u8]>, signature: Option<&[u8]>) -> Result<Self, HeaderError> {
        let timestamp = timestamp.ok_or(HeaderError::NoTimestamp)?;
        let signature = signature.ok_or(HeaderError::NoSignature)?;
        let (timestamp, seconds) = parse_timestamp(timestamp)?;
        let hex = signature.strip_prefix(SIGNATURE_PREFIX.as_bytes()).ok_or(HeaderError::SignatureForm)?;
        if hex.len() != 64 || !hex.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(HeaderError::SignatureForm);
        }
        let signature = str::from_utf8(signature).map_err(|_| HeaderError::SignatureForm)?.to_owned();
        Ok(Self { timestamp, signature, seconds })
    }

    /// Refuses a timestamp that is further than `tolerance` seconds from `now_s`; exactly that far passes.
    ///
    /// # Errors
    /// [`HeaderError::Stale`] or [`HeaderError::Future`].
    pub fn check_skew(&self, now_s: i64, tolerance: u64) -> Result<(), HeaderError> {
        let by = self.seconds.abs_diff(now_s);
        match by > tolerance {
            false => Ok(()),
            true if self.seconds < now_s => Err(HeaderError::Stale { by, tolerance }),
            true => Err(HeaderError::Future { by, tolerance }),
        }
    }

    /// The timestamp as it was sent, leading zeros and all: this text is what was signed.
    pub fn timestamp(&self) -> &str {
        &self.timestamp
    }

    /// The timestamp as a number of Unix seconds.
    pub fn seconds(&self) -> i64 {
        self.seconds
    }

    /// The signature, `v1=…`.
    pub fn signature(&self) -> &str {
        &self.signature
    }
}

/// Reads a `Transit-Timestamp`: its text, and its value in Unix seconds.
///
/// # Errors
/// [`HeaderError::TimestampForm`] when it is anything but 1 to 12 ASCII digits.
pub fn parse_timestamp(timestamp: &[u8]) -> Result<(String, i64), HeaderError> {
    let digits =
        (1..=limits::TIMESTAMP_DIGITS).contains(&timestamp.len()) && timestamp.iter().all(u8::is_ascii_digit);
    let text = str::from_utf8(timestamp).ok().filter(|_| digits).ok_or(HeaderError::TimestampForm)?;
    let seconds = text.parse().map_err(|_| HeaderError::TimestampForm)?;
    Ok((text.to_owned(), seconds))
}

/// Checks forms and skew, in the Worker's order.
///
/// # Errors
/// When a header is missing, has another form, or the timestamp is more than 300 s from `now_s`.
pub fn check_headers(
    timestamp: Option<&[u8]>,
    signature: Option<&[u8]>,
    now_s: i64,
) -> Result<SignedHeaders, HeaderError> {
    let headers = SignedHeaders::parse(timestamp, signature)?;
    headers.check_skew(now_s, limits::INGEST_SKEW_S)?;
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn check(timestamp: &str, signature: &str) -> Result<SignedHeaders, HeaderError> {
        check_headers(Some(timestamp.as_bytes()), Some(signature.as_bytes()), NOW)
    }

    #[test]
    fn only_the_exact_forms_pass() {
        let right = format!("v1={}", "0a".repeat(32));
        assert_eq!(check("1700000000", &right).unwrap().signature(), right);
        assert_eq!(check("001700000000", &right).unwrap().timestamp(), "001700000000", "signed as sent");
        for timestamp in
            ["", "-1", "+1700000000", "17e8", "1700000000.0", "1700000000 ", "١٧", "0001700000000"]
        {
            assert_eq!(check(timestamp, &right), Err(HeaderError::TimestampForm), "{timestamp}");
        }
        let (upper, twice) = (format!("v1={}", "0A".repeat(32)), format!("{right},{right}"));
        for signature in
            ["", "v1=", &right[3..], &right[..66], &upper, &twice, &format!("V1={}", &right[3..])]
        {
            assert_eq!(check("1700000000", signature), Err(HeaderError::SignatureForm), "{signature}");
        }
        assert_eq!(check_headers(None, Some(b""), NOW), Err(HeaderError::NoTimestamp));
        assert_eq!(check_headers(Some(b""), None, NOW), Err(HeaderError::NoSignature));
        assert_eq!(check_headers(Some(b"1"), Some(b"v1=\xff"), NOW), Err(HeaderError::SignatureForm));
    }

    #[test]
    fn the_window_is_two_sided_and_its_ends_belong_to_it() {
        let right = format!("v1={}", "0a".repeat(32));
        assert!(check("1700000300", &right).is_ok() && check("1699999700", &right).is_ok());
        assert_eq!(check("1700000301", &right), Err(HeaderError::Future { by: 301, tolerance: 300 }));
        assert_eq!(check("1699999699", &right), Err(HeaderError::Stale { by: 301, tolerance: 300 }));
        assert!(matches!(check("999999999999", &right), Err(HeaderError::Future { .. })));
    }
}
