//! URIs with secrets, for messages and logs.

use alloc::{borrow::ToOwned, format, string::String};
use core::fmt::Write;

/// The URI without a password before its `@`, and without the values of parameters that are
/// secrets.
#[must_use]
pub fn without_secrets(uri: &str) -> String {
    let (scheme, rest) = uri.split_once("://").unwrap_or(("", uri));
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = path.find('/').map_or((path, ""), |at| path.split_at(at));
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => authority.to_owned(),
    };
    let mut text = format!("{scheme}://{authority}{path}");
    for (n, parameter) in query.split('&').filter(|it| !it.is_empty()).enumerate() {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let open = ["bucket", "db", "endpoint", "region", "root"].contains(&name);
        let _ = write!(text, "{}{name}={}", if n == 0 { '?' } else { '&' }, shown(open, value));
    }
    text
}

fn shown(open: bool, value: &str) -> &str {
    if open { value } else { "…" }
}

#[cfg(test)]
mod tests {
    use super::without_secrets;

    #[test]
    fn secrets_are_not_shown() {
        let uri = "redis://me:word@host:6379/2?root=a&password=p";
        assert_eq!(without_secrets(uri), "redis://…@host:6379/2?root=a&password=…");
        let uri = "s3://b/p?access_key_id=AK&secret_access_key=SK&region=r";
        assert_eq!(without_secrets(uri), "s3://b/p?access_key_id=…&secret_access_key=…&region=r");
        assert_eq!(without_secrets("fs:///mnt/nfs"), "fs:///mnt/nfs");
    }
}
