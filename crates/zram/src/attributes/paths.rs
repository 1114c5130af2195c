//! The paths in values of attributes.

use alloc::{format, string::String, vec::Vec};

use control::{Absolute, ControlError};

use super::keys::{word, words};

/// `value` of the attribute `name` of a device, with each relative path in it as `absolute` has it.
///
/// # Errors
/// The error of `absolute`; `EINVAL` for an absolute path that the attribute cannot take.
pub fn with_absolute_paths(
    name: &str,
    value: &str,
    absolute: &mut Absolute<'_>,
) -> Result<String, ControlError> {
    let is_relative = |path: &str| !path.is_empty() && !path.starts_with('/');
    match name {
        "backing_dev" => {
            let path = value.strip_suffix('\n').unwrap_or(value);
            if is_relative(path) { absolute(path) } else { Ok(value.into()) }
        }
        "algorithm_params" | "switch_algorithm" => {
            let is_it = |(key, path): &(&str, Option<&str>)| {
                *key == "dict" && path.is_some_and(is_relative)
            };
            if !words(value).any(|word| is_it(&word)) {
                return Ok(value.into());
            }
            let with = |it: (&str, Option<&str>)| {
                let (key, path) = match it {
                    (key, Some(path)) if is_it(&it) => (key, absolute(path)?),
                    (key, path) => return Ok(word(key, path)),
                };
                match path.contains('"') {
                    true => Err(ControlError::invalid(format!(
                        "dict={path}: a path with double quotes is none for a dictionary"
                    ))),
                    false => Ok(word(key, Some(&path))),
                }
            };
            let with: Result<Vec<String>, ControlError> = words(value).map(with).collect();
            Ok(with?.join(" "))
        }
        _ => Ok(value.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(name: &str, value: &str, directory: &str) -> Result<String, ControlError> {
        with_absolute_paths(name, value, &mut |path| Ok(format!("{directory}/{path}")))
    }

    #[test]
    fn relative_paths_are_made_absolute() {
        for (name, value, expected) in [
            ("backing_dev", "loop0\n", "/my dir/loop0"),
            ("backing_dev", " a b\t", "/my dir/ a b\t"),
            ("backing_dev", "/dev/loop0\n", "/dev/loop0\n"),
            ("backing_dev", "\n", "\n"),
            (
                "algorithm_params",
                "algo=zstd dict=d level=3\n",
                "algo=zstd dict=\"/my dir/d\" level=3",
            ),
            ("algorithm_params", "dict=\"a b\"", "dict=\"/my dir/a b\""),
            ("switch_algorithm", "dict=../d algo=lz4", "dict=\"/my dir/../d\" algo=lz4"),
            ("switch_algorithm", "dict=/d algo=lz4\n", "dict=/d algo=lz4\n"),
            ("comp_algorithm", "lz4", "lz4"),
        ] {
            assert_eq!(made(name, value, "/my dir").unwrap(), expected, "{name}");
        }
        let read = "dict=\"/my dir/d\" level=3";
        let read: Vec<_> = words(read).collect();
        assert_eq!(read, [("dict", Some("/my dir/d")), ("level", Some("3"))]);
        assert!(
            made("switch_algorithm", "dict=d", "/a\"b").unwrap_err().message.contains("quotes")
        );
    }

    #[test]
    fn a_directory_that_is_not_known_is_an_error() {
        let mut asked = 0;
        let mut unknown = |_: &str| {
            asked += 1;
            Err(ControlError::invalid("where?"))
        };
        for (name, value) in [("backing_dev", "a"), ("algorithm_params", "dict=a")] {
            assert!(with_absolute_paths(name, value, &mut unknown).is_err());
        }
        assert!(with_absolute_paths("backing_dev", "/a", &mut unknown).is_ok());
        assert_eq!(asked, 2);
    }
}
