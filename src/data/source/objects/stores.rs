//! Opens object stores with the endpoints, regions and credentials of the environment.

use super::connector::{StoreConnector, StoreFailure};
use super::profile::{self, AwsProfile};
use super::{ObjectUrl, StoreKind};
use crate::http::{BlockingHttp, HttpFailure};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::list::PaginatedListStore;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use std::env;
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

/// An open store. Credentials are requested when a request first needs them.
pub(super) struct OpenStore {
    pub(super) objects: Arc<dyn ObjectStore>,
    pub(super) pages: Arc<dyn PaginatedListStore>,
    pub(super) credentials: String,
    pub(super) is_anonymous: bool,
    pub(super) region: Option<String>,
}

fn patience() -> RetryConfig {
    RetryConfig {
        max_retries: 1,
        retry_timeout: Duration::from_secs(20),
        backoff: BackoffConfig { max_backoff: Duration::from_secs(1), ..BackoffConfig::default() },
    }
}

/// # Errors
/// A message that says what is wrong with the environment.
pub(super) fn open(url: &ObjectUrl, http: &Arc<BlockingHttp>) -> Result<OpenStore, String> {
    let connector = StoreConnector::new(http.clone());
    match url.kind {
        StoreKind::S3 => s3(url, connector),
        StoreKind::Google => google(url, connector),
        StoreKind::Azure => azure(url, connector),
    }
}

fn s3(url: &ObjectUrl, connector: StoreConnector) -> Result<OpenStore, String> {
    use AmazonS3ConfigKey as Key;
    let mut builder = AmazonS3Builder::from_env();
    let has = |builder: &AmazonS3Builder, key| builder.get_config_value(&key).is_some();
    let is_anonymous = builder.get_config_value(&Key::SkipSignature).is_some_and(|skip| skip == "true");
    let AwsProfile { name, file, keys, region, endpoint, unusable } = profile::find()?;
    if let Some(region) = region.filter(|_| !has(&builder, Key::Region)) {
        builder = builder.with_region(region);
    }
    let has_endpoint = has(&builder, Key::Endpoint) || has(&builder, Key::S3Endpoint);
    if let Some(endpoint) = endpoint.filter(|_| !has_endpoint) {
        builder = builder.with_endpoint(endpoint);
    }
    let credentials = if is_anonymous {
        "anonymous access (AWS_SKIP_SIGNATURE)".to_owned()
    } else if has(&builder, Key::AccessKeyId) || has(&builder, Key::SecretAccessKey) {
        "the key of AWS_ACCESS_KEY_ID".to_owned()
    } else if has(&builder, Key::WebIdentityTokenFile) && has(&builder, Key::RoleArn) {
        "the web identity of AWS_WEB_IDENTITY_TOKEN_FILE".to_owned()
    } else if let Some(keys) = keys {
        builder = builder.with_access_key_id(keys.id).with_secret_access_key(keys.secret);
        if let Some(token) = keys.token {
            builder = builder.with_token(token);
        }
        format!("the key of the profile {name} in {}", file.display())
    } else if let Some(why) = unusable {
        return Err(format!(
            "the profile {name} in {} {why}, which is not supported: run\n  \
             eval \"$(aws configure export-credentials --format env)\"\nwhich puts its keys into the environment",
            file.display()
        ));
    } else if has(&builder, Key::ContainerCredentialsRelativeUri) {
        "the role of the container".to_owned()
    } else if has(&builder, Key::ContainerCredentialsFullUri) {
        "the identity of the pod".to_owned()
    } else if env::var("AWS_EC2_METADATA_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true")) {
        return Err(no_credentials(StoreKind::S3, None));
    } else {
        "the role of the instance".to_owned()
    };
    let region = builder.get_config_value(&Key::Region).unwrap_or_else(|| "us-east-1".to_owned());
    let store = builder
        .with_bucket_name(&url.bucket)
        .with_allow_http(true)
        .with_retry(patience())
        .with_http_connector(connector)
        .build();
    let store = Arc::new(store.map_err(|error| root_cause(&error))?);
    Ok(OpenStore { objects: store.clone(), pages: store, credentials, is_anonymous, region: Some(region) })
}

fn google(url: &ObjectUrl, connector: StoreConnector) -> Result<OpenStore, String> {
    use GoogleConfigKey as Key;
    let mut builder = GoogleCloudStorageBuilder::from_env();
    let value = |key| builder.get_config_value(&key);
    let is_anonymous = value(Key::SkipSignature).is_some_and(|skip| skip == "true");
    let credentials = if is_anonymous {
        "anonymous access (GOOGLE_SKIP_SIGNATURE)"
    } else if value(Key::BearerToken).is_some() {
        "the token of GOOGLE_BEARER_TOKEN"
    } else if value(Key::ServiceAccount).is_some() || value(Key::ServiceAccountKey).is_some() {
        "the service account of GOOGLE_SERVICE_ACCOUNT"
    } else if value(Key::ApplicationCredentials).is_some() {
        "the account of GOOGLE_APPLICATION_CREDENTIALS"
    } else {
        "the application's default account, or that of the instance,"
    };
    let credentials = credentials.to_owned();
    if let Ok(host) = env::var("STORAGE_EMULATOR_HOST")
        && value(Key::BaseUrl).is_none()
    {
        let base = if host.contains("://") { host } else { format!("http://{host}") };
        builder = builder.with_base_url(base.trim_end_matches('/'));
    }
    let store = builder
        .with_bucket_name(&url.bucket)
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .with_retry(patience())
        .with_http_connector(connector)
        .build();
    let store = Arc::new(store.map_err(|error| root_cause(&error))?);
    Ok(OpenStore { objects: store.clone(), pages: store, credentials, is_anonymous, region: None })
}

fn azure(url: &ObjectUrl, connector: StoreConnector) -> Result<OpenStore, String> {
    use AzureConfigKey as Key;
    let mut builder = MicrosoftAzureBuilder::from_env();
    let value = |key| builder.get_config_value(&key);
    let has = |key| value(key).is_some();
    let is_anonymous = value(Key::SkipSignature).is_some_and(|skip| skip == "true");
    let credentials = if is_anonymous {
        "anonymous access (AZURE_SKIP_SIGNATURE)"
    } else if has(Key::Token) {
        "the token of AZURE_STORAGE_TOKEN"
    } else if has(Key::AccessKey) {
        "the key of AZURE_STORAGE_ACCOUNT_KEY"
    } else if has(Key::ClientId) && has(Key::AuthorityId) && has(Key::FederatedTokenFile) {
        "the workload identity of AZURE_FEDERATED_TOKEN_FILE"
    } else if has(Key::ClientId) && has(Key::AuthorityId) && has(Key::ClientSecret) {
        "the client of AZURE_CLIENT_ID"
    } else if has(Key::SasKey) {
        "the signature of AZURE_STORAGE_SAS_TOKEN"
    } else if value(Key::UseEmulator).is_some_and(|used| used == "true") {
        "the emulator's key"
    } else if value(Key::UseAzureCli).is_some_and(|used| used == "true") {
        "the login of the Azure CLI"
    } else {
        "the managed identity"
    };
    let credentials = credentials.to_owned();
    builder = match url.bucket.contains('@') {
        true => builder.with_url(format!("{}://{}", url.scheme, url.bucket)),
        false => builder.with_container_name(&url.bucket),
    };
    let store = builder.with_allow_http(true).with_retry(patience()).with_http_connector(connector).build();
    let store = store.map_err(|error| match root_cause(&error) {
        why if why.contains("Account must be") => {
            "the storage account is missing: set AZURE_STORAGE_ACCOUNT_NAME, or give it in the URL, as in \
             abfss://container@account.dfs.core.windows.net/prefix"
                .to_owned()
        }
        why => why,
    });
    let store = Arc::new(store?);
    Ok(OpenStore { objects: store.clone(), pages: store, credentials, is_anonymous, region: None })
}

impl OpenStore {
    pub(super) fn signing_failure(&self, kind: StoreKind, error: &object_store::Error) -> HttpFailure {
        let tried = format!("{}: {}", self.credentials, root_cause(error));
        HttpFailure::Final(no_credentials(kind, Some(&tried)))
    }
}

fn no_credentials(kind: StoreKind, tried: Option<&str>) -> String {
    let (keys, public) = match kind {
        StoreKind::S3 => {
            ("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile of ~/.aws", "AWS_SKIP_SIGNATURE=true")
        }
        StoreKind::Google => ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SKIP_SIGNATURE=true"),
        StoreKind::Azure => ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_SKIP_SIGNATURE=true"),
    };
    let tried = tried.map(|tried| format!(" (tried last: {tried})")).unwrap_or_default();
    format!("no credentials were found: set {keys}, or {public} for a public bucket{tried}")
}

/// Returns the innermost error that an error of the crate contains, in one line. The outer errors contain addresses,
/// perhaps with tokens.
pub(super) fn root_cause(error: &object_store::Error) -> String {
    let mut last: &dyn StdError = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let text = last.to_string();
    let line = text.lines().next().unwrap_or_default();
    let line = line.split('?').next().unwrap_or_default();
    line.chars().take(200).collect()
}

pub(super) fn failure_within(error: &object_store::Error) -> Option<&StoreFailure> {
    let mut last: &dyn StdError = error;
    loop {
        if let Some(found) = last.downcast_ref() {
            return Some(found);
        }
        last = last.source()?;
    }
}
