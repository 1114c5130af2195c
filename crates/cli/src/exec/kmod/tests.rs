use super::*;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(String::from).collect()
}

fn load(parameters: &str, how: How) -> Asked {
    Asked::Load { parameters: words(parameters), how, others: None }
}

fn unload(how: How) -> Asked {
    Asked::Unload { how, others: None }
}

#[test]
fn modprobe_of_zram_is_ours() {
    let plain = How::default();
    let quiet = How { quiet: true, ..plain };
    let first = How { first_time: true, ..plain };
    for (line, asked) in [
        ("zram", load("", plain)),
        ("zram num_devices=4", load("num_devices=4", plain)),
        ("-q zram num_devices=4", load("num_devices=4", quiet)),
        ("zram num_devices=4 --quiet", load("num_devices=4", quiet)),
        ("--first-time zram", load("", first)),
        ("-C /etc/zram zram", load("", plain)),
        ("--config=/etc/other zram", load("", plain)),
        ("-- zram", load("", plain)),
        ("-va zram", load("", How { verbose: true, ..plain })),
        ("-n zram", load("", How { dry: true, ..plain })),
        ("-r zram", unload(plain)),
        ("-rq zram", unload(quiet)),
        ("--remove --first-time zram", unload(first)),
        ("-w 100 -r zram", unload(plain)),
    ] {
        assert_eq!(modprobe(&words(line)), asked, "{line}");
    }
}

#[test]
fn all_else_goes_to_the_systems_modprobe() {
    for line in [
        "",
        "loop",
        "loop zram",
        "zramx",
        "-r loop",
        "-a loop fuse",
        "-D zram",
        "--show-depends zram",
        "-c",
        "-V",
        "-R zram",
        "-d /elsewhere zram",
        "--no-such-option zram",
        "-C zram",
    ] {
        assert_eq!(modprobe(&words(line)), Asked::Other, "{line}");
    }
}

#[test]
fn of_several_modules_zram_is_ours() {
    let others = Some(words("-q -a loop fuse"));
    let how = How { quiet: true, ..How::default() };
    let asked = modprobe(&words("-q -a loop zram fuse"));
    assert_eq!(asked, Asked::Load { parameters: Vec::new(), how, others });
    let asked = modprobe(&words("-r zram zsmalloc"));
    let others = Some(words("-r zsmalloc"));
    assert_eq!(asked, Asked::Unload { how: How::default(), others });
    let how = How { first_time: true, ..How::default() };
    let others = Some(words("loop"));
    assert_eq!(rmmod(&words("loop zram")), Asked::Unload { how, others });
}

#[test]
fn rmmod_and_insmod_of_zram_are_ours() {
    let first = How { first_time: true, ..How::default() };
    assert_eq!(rmmod(&words("zram")), unload(first));
    assert_eq!(rmmod(&words("-f -v zram")), unload(How { verbose: true, ..first }));
    for line in ["", "loop", "--help zram", "-V"] {
        assert_eq!(rmmod(&words(line)), Asked::Other, "{line}");
    }
    let path = "/lib/modules/6.1.0/kernel/drivers/block/zram/zram.ko";
    for end in ["", ".xz", ".zst", ".gz"] {
        let line = format!("{path}{end} num_devices=2");
        assert_eq!(insmod(&words(&line)), load("num_devices=2", first), "{line}");
    }
    for line in ["", "zram", "/lib/zram.ko.old", "/lib/zram/loop.ko", "/lib/zram2.ko"] {
        assert_eq!(insmod(&words(line)), Asked::Other, "{line}");
    }
}

#[test]
fn parameters_come_from_the_configuration_and_then_from_the_command_line() {
    let text = "alias x zram\noptions loop num_devices=9\noptions zram num_devices=2 other=1\n\
                options zram\ninstall zram /bin/true\n";
    let mut parameters = configured(text);
    assert_eq!(parameters, words("num_devices=2 other=1"));
    assert_eq!(num_devices(&parameters), Some("2"));
    parameters.extend(words("num_devices=0x4 num_devices_2=7"));
    assert_eq!(num_devices(&parameters), Some("0x4"));
    assert_eq!(num_devices(&words("num_devices")), Some(""));
    assert_eq!(num_devices(&words("other=1")), None);
    assert_eq!(num_devices(&[]), None);
}

#[test]
fn programs_are_known_by_their_names() {
    for (path, name) in
        [("modprobe", "modprobe"), ("/sbin/rmmod", "rmmod"), ("/usr/bin/kmod", "kmod")]
    {
        assert_eq!(called_as(OsStr::new(path)), Some(name));
    }
    for path in ["rampack", "@rampack", "/usr/bin/rampack", "rampack-swapoff", "", "modprobe2"] {
        assert_eq!(called_as(OsStr::new(path)), None, "{path}");
    }
}
