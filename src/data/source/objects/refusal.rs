//! Turns a store's refusal into a message that says what to do. The text that the store sends is never shown, because
//! it may repeat signed data.

use super::stores::OpenStore;
use crate::http::{HeaderMap, HttpFailure, StatusCode};

pub(super) struct ExplainedRefusal {
    pub(super) failure: HttpFailure,
    /// Whether the credentials have expired. Newer credentials of the same kind may then work.
    pub(super) expired: bool,
}

const EXPIRED: [&str; 5] = [
    "ExpiredToken",
    "ExpiredTokenException",
    "TokenRefreshRequired",
    "InvalidToken",
    "InvalidAuthenticationInfo",
];

pub(super) fn explain(
    store: &OpenStore,
    bucket: &str,
    failure: HttpFailure,
    headers: &HeaderMap,
    body: &[u8],
) -> ExplainedRefusal {
    let plain = |failure| ExplainedRefusal { failure, expired: false };
    let Some(status) = failure.status() else { return plain(failure) };
    let body = String::from_utf8_lossy(body);
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(word);
    let code = element(&body, "Code").or_else(|| header("x-ms-error-code")).unwrap_or_default();
    let region = header("x-amz-bucket-region").or_else(|| element(&body, "Region"));
    let credentials = &store.credentials;
    let said = if code.is_empty() { String::new() } else { format!(" ({code})") };
    let explained = |why: String| plain(HttpFailure::Explained(status, why));
    if EXPIRED.contains(&&*code) || status == StatusCode::UNAUTHORIZED {
        let why = format!("{credentials} is no longer valid{said}, and no newer one was found: renew it");
        return ExplainedRefusal { failure: HttpFailure::Explained(status, why), expired: true };
    }
    if let Some(region) = region.filter(|region| Some(region) != store.region.as_ref())
        && (status.is_redirection() || status == StatusCode::BAD_REQUEST || status == StatusCode::FORBIDDEN)
    {
        let asked = store.region.as_deref().unwrap_or("another one");
        return explained(format!(
            "the bucket {bucket} is in the region {region}, but the request went to {asked}: set AWS_REGION={region}"
        ));
    }
    if status.is_redirection() {
        return explained(format!(
            "the bucket {bucket} is at another endpoint or in another region ({status}{said}): set AWS_REGION, or the \
             endpoint's variable"
        ));
    }
    match &*code {
        "RequestTimeTooSkewed" | "RequestExpired" => explained(
            "this machine's clock differs too much from the store's (RequestTimeTooSkewed): synchronise it, \
             for example by NTP"
                .to_owned(),
        ),
        "SignatureDoesNotMatch" => explained(format!(
            "the secret key of {credentials} does not belong to its key id, or a proxy changes requests{said}"
        )),
        "AuthenticationFailed" => explained(format!(
            "the store rejects requests signed with {credentials}{said}: it is wrong or no longer valid"
        )),
        "InvalidAccessKeyId" | "NotSignedUp" => explained(format!(
            "the store does not know {credentials}{said}: check that it belongs to this endpoint"
        )),
        "NoSuchBucket" | "ContainerNotFound" => {
            explained(format!("there is no bucket {bucket} at this endpoint{said}"))
        }
        _ if status == StatusCode::FORBIDDEN && store.is_anonymous => explained(format!(
            "the store refuses requests without credentials{said}: the bucket is not public"
        )),
        _ if status == StatusCode::FORBIDDEN => explained(format!(
            "{credentials} lacks a permission{said}: allow it to list the bucket {bucket} and to get its objects"
        )),
        _ if status == StatusCode::BAD_REQUEST => {
            explained(format!("the store rejects the request ({status}{said})"))
        }
        _ => plain(failure),
    }
}

fn element(body: &str, name: &str) -> Option<String> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once("</")?;
    Some(word(text)).filter(|word| !word.is_empty())
}

/// Keeps only letters, digits, `-` and `_` of a server's text, at most 64 characters.
fn word(text: &str) -> String {
    text.trim().chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).take(64).collect()
}
