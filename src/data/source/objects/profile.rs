//! Reads the files in which Amazon's tools store keys, regions and endpoints by profile: `~/.aws/credentials` and
//! `~/.aws/config`.

use std::collections::HashMap;
use std::env;
use std::path::PathBuf;

#[derive(Default)]
pub(super) struct AwsProfile {
    pub(super) name: String,
    /// The file that contains the keys, or the configuration file if there are no keys.
    pub(super) file: PathBuf,
    pub(super) keys: Option<ProfileKeys>,
    pub(super) region: Option<String>,
    pub(super) endpoint: Option<String>,
    /// Set if the profile gets its credentials in a way that Foreload does not support. The text names that way, as a
    /// phrase that follows the profile's name in a message.
    pub(super) unusable: Option<&'static str>,
}

pub(super) struct ProfileKeys {
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) token: Option<String>,
}

/// Reads the profile that `AWS_PROFILE` names, or else `default`.
///
/// # Errors
/// A message if a profile is named, but no file contains it.
pub(super) fn find() -> Result<AwsProfile, String> {
    let asked = ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"].iter().find_map(|name| env::var(name).ok());
    let asked = asked.filter(|name| !name.is_empty());
    let name = asked.clone().unwrap_or_else(|| "default".to_owned());
    let place = |variable: &str, usual: &str| {
        let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".aws").join(usual));
        env::var_os(variable).map(PathBuf::from).or_else(home).unwrap_or_default()
    };
    let credentials = place("AWS_SHARED_CREDENTIALS_FILE", "credentials");
    let config = place("AWS_CONFIG_FILE", "config");
    let keys = std::fs::read_to_string(&credentials).map(|text| section(&text, &name)).unwrap_or_default();
    let within = if name == "default" { name.clone() } else { format!("profile {name}") };
    let settings = std::fs::read_to_string(&config).map(|text| section(&text, &within)).unwrap_or_default();
    if asked.is_some() && keys.is_none() && settings.is_none() {
        return Err(format!(
            "AWS_PROFILE is {name}, but neither {} nor {} has this profile",
            credentials.display(),
            config.display()
        ));
    }
    let (keys, mut settings) = (keys.unwrap_or_default(), settings.unwrap_or_default());
    let file = if keys.is_empty() { config } else { credentials };
    // Both files may contain all settings. The settings of the credentials file take precedence.
    settings.extend(keys);
    let mut take = |key: &str| settings.remove(key);
    let found = (take("aws_access_key_id"), take("aws_secret_access_key"), take("aws_session_token"));
    let keys = match found {
        (Some(id), Some(secret), token) => Some(ProfileKeys { id, secret, token }),
        _ => None,
    };
    let (region, endpoint) = (take("region"), take("endpoint_url"));
    let unusable = [
        ("role_arn", "assumes a role"),
        ("sso_session", "signs in with SSO"),
        ("sso_start_url", "signs in with SSO"),
        ("login_session", "signs in with `aws login`"),
        ("credential_process", "gets its keys from a program"),
    ];
    let unusable = unusable.into_iter().find(|(key, _)| settings.contains_key(*key)).map(|(_, how)| how);
    Ok(AwsProfile { name, file, keys, region, endpoint, unusable })
}

/// Returns the settings of a section; `None` if there is no such section. Nested settings are skipped.
fn section(text: &str, name: &str) -> Option<HashMap<String, String>> {
    let mut found: Option<HashMap<String, String>> = None;
    let mut within = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(title) = trimmed.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            within = title.split_whitespace().eq(name.split_whitespace());
            if within {
                found.get_or_insert_default();
            }
            continue;
        }
        if let (true, false, Some((key, value)), Some(found)) =
            (within, line.starts_with([' ', '\t']), trimmed.split_once('='), &mut found)
        {
            // A comment after a value begins with a space and a hash.
            let value = value.split(" #").next().unwrap_or_default().trim();
            found.insert(key.trim().to_ascii_lowercase(), value.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_read_as_the_tools_write_them() {
        let text = "# mine\n[default]\naws_access_key_id = A\n aws_secret_access_key=x\n\n[profile  b]\n\
                    region=eu # near\ns3 =\n  endpoint_url = http://inner\nendpoint_url=http://outer\n\
                    [default]\nregion = us\n";
        let default = section(text, "default").unwrap();
        assert_eq!(default["aws_access_key_id"], "A");
        assert_eq!(default["region"], "us");
        assert!(!default.contains_key("aws_secret_access_key"));
        let other = section(text, "profile b").unwrap();
        assert_eq!((&*other["region"], &*other["endpoint_url"]), ("eu", "http://outer"));
        assert!(section(text, "c").is_none());
    }
}
