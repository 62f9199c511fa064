//! The secret that the nodes of a job share.

use base::error::{Error, Result};
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use subtle::ConstantTimeEq;

/// Minimum number of characters of a token, so that it cannot be guessed: half of what [`Token::random`] makes.
const SHORTEST: usize = 32;

/// Maximum number of characters of a token, so that it fits into a header.
const LONGEST: usize = 1024;

/// A secret that every request must carry as `Authorization: Bearer`. Nothing prints it, not even `Debug`.
#[derive(Clone)]
pub struct Token(HeaderValue);

impl Token {
    /// Makes a token from the text that the user or the launcher's store provides.
    ///
    /// # Errors
    /// [`Error::Config`] for `peers` unless `text` is 32 to 1024 visible ASCII characters.
    pub fn new(text: &str) -> Result<Self> {
        let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        if !(SHORTEST..=LONGEST).contains(&text.len()) || !visible {
            return Err(Error::config(
                "peers",
                format!(
                    "token: has {} bytes, but must have {SHORTEST} to {LONGEST} visible ASCII characters; \
                     `openssl rand -hex 32` prints one",
                    text.len()
                ),
            ));
        }
        let mut value = HeaderValue::try_from(format!("Bearer {text}")).expect("visible characters");
        // Code that prints headers omits sensitive values.
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// Makes a new token of 256 random bits.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the system provides no random numbers.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 32];
        // A read of 32 bytes is never partial.
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(|error| {
            Error::Unavailable(format!("no random numbers for the peers' token: {error}"))
        })?;
        Ok(Self::of_job(&bytes))
    }

    /// Makes the token of a job from the `secret` that only its ranks share.
    pub fn of_job(secret: &[u8; 32]) -> Self {
        Self::new(&hexadecimal(secret)).expect("64 visible characters")
    }

    /// Returns the token as text, to pass it to the job's other nodes.
    pub fn reveal(&self) -> &str {
        self.0.to_str().ok().and_then(|text| text.strip_prefix("Bearer ")).expect("a bearer token")
    }

    /// Returns the `Authorization` header of a request.
    pub fn header(&self) -> HeaderValue {
        self.0.clone()
    }

    /// Whether a request carries this token. The time of the comparison depends on the token's length only.
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
        given.ct_eq(self.0.as_bytes()).into()
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_to_itself_alone_and_is_not_shown() {
        let token = Token::random().unwrap();
        let mut headers = HeaderMap::new();
        assert!(!token.is_in(&headers));
        headers.insert(AUTHORIZATION, token.header());
        assert!(token.is_in(&headers));
        assert!(!Token::random().unwrap().is_in(&headers));
        headers.insert(AUTHORIZATION, token.reveal().parse().unwrap());
        assert!(!token.is_in(&headers));
        assert!(Token::new(token.reveal()).unwrap().header() == token.header());
        for shown in [format!("{token:?}"), format!("{:?}", token.header())] {
            assert!(!shown.contains(token.reveal()), "{shown}");
        }
    }

    #[test]
    fn what_is_no_token_is_refused_without_being_shown() {
        for wrong in ["", "short", &"x".repeat(1025), &"a b".repeat(20), &"é".repeat(40), &"a\n".repeat(40)]
        {
            let error = Token::new(wrong).unwrap_err().to_string();
            assert!(error.starts_with("config: peers: token: "), "{error}");
            assert!(wrong.is_empty() || !error.contains(wrong), "{error}");
        }
    }
}
