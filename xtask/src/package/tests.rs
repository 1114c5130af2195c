use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use testkit::{Need, TempDir, is_long, met};

use super::*;

/// The most that `systemd-analyze security` may say of each service.
const EXPOSURE: [(&str, f64); 3] =
    [("rampack.service", 6.5), ("rampack-swap.service", 6.5), ("rampack-nbd.service", 3.0)];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// What `dist` leaves, with little in it.
fn built() -> TempDir {
    let place = TempDir::new();
    let pages = ["man/rampack.1", "man/rampack.toml.5", "man/rampack-attributes.7"];
    for name in pages.into_iter().chain(["completions/_rampack"]) {
        put(&place.join(name), b"text").unwrap();
    }
    put(&place.join("completions/rampack.bash"), b"text").unwrap();
    put(&place.join("completions/rampack.fish"), b"text").unwrap();
    put(&place.join("rampack"), b"#!/bin/sh\n").unwrap();
    fs::set_permissions(place.join("rampack"), Permissions::from_mode(0o755)).unwrap();
    place
}

/// All files below a directory, as paths below it.
fn below(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for path in files(&next).unwrap() {
            match path.is_dir() {
                true => left.push(path),
                false => {
                    found.insert(path.strip_prefix(directory).unwrap().display().to_string());
                }
            }
        }
    }
    found
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn options_are_understood_or_refused_by_name() {
    let options = Options::parse(&["--from", "a", "--out", "b"]).unwrap();
    assert_eq!(options, Options { from: Some("a".into()), out: Some("b".into()) });
    let error = Options::parse(&["--deb"]).unwrap_err().to_string();
    assert!(error.contains("--deb") && error.contains("--from"), "{error}");
    assert!(Options::parse(&["--out"]).is_err());
}

#[test]
fn manuals_completions_and_changes_are_where_each_distribution_has_them() {
    let (from, to) = (built(), TempDir::new());
    stage(&top(), from.path(), to.path()).unwrap();
    let both = [
        "bash-completion/completions/rampack",
        "fish/vendor_completions.d/rampack.fish",
        "man/man1/rampack.1.gz",
        "man/man5/rampack.toml.5.gz",
        "man/man7/rampack-attributes.7.gz",
    ];
    let own = [
        "doc/rampack/changelog.gz",
        "doc/rampack/changelog.Debian.gz",
        "zsh/vendor-completions/_rampack",
    ];
    assert_eq!(below(&to.join("deb")), names(&[&both[..], &own].concat()));
    let own = ["doc/rampack/CHANGELOG.md", "zsh/site-functions/_rampack"];
    assert_eq!(below(&to.join("rpm")), names(&[&both[..], &own].concat()));
    // Nothing but the program has to be there.
    for name in ["man", "completions"] {
        fs::remove_dir_all(from.join(name)).unwrap();
    }
    stage(&top(), from.path(), to.path()).unwrap();
    assert_eq!(below(&to.join("rpm")), names(&["doc/rampack/CHANGELOG.md"]));
    fs::remove_file(from.join("rampack")).unwrap();
    let error = stage(&top(), from.path(), to.path()).unwrap_err().to_string();
    assert!(error.contains("rampack"), "{error}");
}

#[test]
fn both_packages_have_the_program_and_its_services() {
    let name = "both_packages_have_the_program_and_its_services";
    if !is_long() {
        println!("{name}: `cargo xtask test --long` makes packages");
        return;
    }
    let needs = [
        Need::program("cargo-deb", "cargo-deb of crates.io"),
        Need::program("cargo-generate-rpm", "cargo-generate-rpm of crates.io"),
        Need::program("dpkg-deb", "dpkg"),
        Need::program("rpm", "rpm"),
    ];
    if !met(name, &needs) {
        return;
    }
    let (from, out) = (built(), TempDir::new());
    let place = |dir: &TempDir| dir.path().to_str().unwrap().to_owned();
    let words = ["--from", &place(&from), "--out", &place(&out)];
    assert!(run(&top(), out.path(), &words).unwrap());
    let said = |words: &[&str]| {
        let file = files(out.path()).unwrap().into_iter();
        let kind = if words[0] == "rpm" { "rpm" } else { "deb" };
        let file = file.into_iter().find(|it| it.extension().is_some_and(|it| it == kind)).unwrap();
        let output = Command::new(words[0]).args(&words[1..]).arg(file).output().unwrap();
        assert!(output.status.success(), "{words:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let deb = said(&["dpkg-deb", "--contents"]);
    let rpm = said(&["rpm", "--query", "--list", "--package"]);
    let units = EXPOSURE.map(|(name, _)| format!("usr/lib/systemd/system/{name}"));
    let others = [
        "usr/bin/rampack",
        "usr/share/doc/rampack/examples/rampack.toml",
        "usr/share/doc/rampack/examples/nbd.toml",
        "usr/share/man/man1/rampack.1.gz",
        "usr/share/man/man5/rampack.toml.5.gz",
        "usr/share/man/man7/rampack-attributes.7.gz",
        "usr/share/bash-completion/completions/rampack",
    ];
    for path in units.iter().map(String::as_str).chain(others) {
        for (kind, list) in [("deb", &deb), ("rpm", &rpm)] {
            assert!(list.lines().any(|line| line.ends_with(path)), "{kind}: {path}\n{list}");
        }
    }
    let is_program = |line: &str| line.starts_with("-rwxr-xr-x 0/0");
    assert!(deb.lines().any(|line| line.ends_with("/bin/rampack") && is_program(line)), "{deb}");
    assert!(deb.lines().any(|line| line.ends_with("/doc/rampack/copyright")), "{deb}");
    // What an administrator has written is no file of a package.
    assert!(!deb.contains("./etc/") && !rpm.contains("/etc/"), "{deb}{rpm}");
    let control = said(&["dpkg-deb", "--field"]);
    for line in ["Package: rampack", &format!("Version: {}-1", env!("CARGO_PKG_VERSION"))] {
        assert!(control.lines().any(|it| it == line), "{control}");
    }
    // The scripts that keep an upgrade from stopping the daemon are in both.
    let scripts = said(&["rpm", "--query", "--scripts", "--package"]);
    assert!(scripts.contains("systemctl reload"), "{scripts}");
    assert!(said(&["dpkg-deb", "--info"]).contains("postinst"));
}

/// The services, with a program that there is.
fn services() -> TempDir {
    let place = TempDir::new();
    for (name, _) in EXPOSURE {
        let text = fs::read_to_string(top().join("dist/systemd").join(name)).unwrap();
        assert!(text.contains("ExecStart=rampack "), "{name}");
        let stub = text.replace("=rampack ", "=/bin/echo ");
        fs::write(place.join(name), stub).unwrap();
    }
    place
}

#[test]
fn the_services_are_what_systemd_understands() {
    let needs = [Need::program("systemd-analyze", "systemd")];
    if !met("the_services_are_what_systemd_understands", &needs) {
        return;
    }
    let place = services();
    for (name, _) in EXPOSURE {
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no", "--recursive-errors=no"]).arg(place.join(name));
        let output = verify.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let ours: Vec<&str> = said.lines().filter(|line| line.contains("rampack")).collect();
        assert!(output.status.success() && ours.is_empty(), "{name}: {said}");
    }
}

#[test]
fn the_services_expose_no_more_than_they_must() {
    let needs = [Need::program("systemd-analyze", "systemd")];
    if !met("the_services_expose_no_more_than_they_must", &needs) {
        return;
    }
    let place = services();
    for (name, most) in EXPOSURE {
        let mut security = Command::new("systemd-analyze");
        let output = security.args(["security", "--offline=true"]).arg(place.join(name)).output();
        let said = String::from_utf8(output.unwrap().stdout).unwrap();
        let words = said.rsplit("exposure level for ").next().unwrap_or_default();
        let level: Option<f64> = words.split_whitespace().nth(1).and_then(|it| it.parse().ok());
        assert!(level.is_some_and(|level| level <= most), "{name}: at most {most}\n{said}");
    }
}
