use std::net::{IpAddr, Ipv4Addr};

use control::Errno;
use testkit::{Rng, seed};

use super::*;

const RUNS: usize = 20_000;

fn address(rng: &mut Rng) -> SocketAddr {
    let ip = *rng.pick(&[Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED]);
    SocketAddr::new(IpAddr::V4(ip), *rng.pick(&[0, 10809, 10810]))
}

fn asked(rng: &mut Rng) -> Asked {
    let names = ["disksize", "comp_algorithm", "mem_limit", "when_full", "num_devices"];
    let some = names.iter().filter(|_| rng.one_in(2)).collect::<Vec<_>>();
    some.into_iter().map(|name| (name.to_string(), rng.below(3).to_string())).collect()
}

fn some<T: Copy + Ord>(rng: &mut Rng, all: impl Iterator<Item = T>) -> BTreeSet<T> {
    all.filter(|_| rng.one_in(2)).collect()
}

fn state(rng: &mut Rng) -> (Kept, Configured, Observed) {
    let roots = ["/run/a", "/run/b"].map(PathBuf::from);
    let ublk = |rng: &mut Rng| rng.one_in(3).then(|| rng.below(4) as u32);
    let has_files = rng.one_in(2);
    let mut disks = Vec::new();
    let mut areas = Vec::new();
    for id in 0..rng.below(4) as u32 {
        let ublk = ublk(rng);
        let has_file = has_files && ublk.is_none() && !rng.one_in(4);
        disks.push(KeptDisk { id, ublk, has_file });
    }
    for number in 0..rng.below(3) as usize {
        areas.push(KeptArea { number, ublk: ublk(rng) });
    }
    let kept = Kept {
        root: (!rng.one_in(5)).then(|| rng.pick(&roots).clone()),
        asked: (!rng.one_in(5)).then(|| asked(rng)),
        has_files,
        has_control: rng.one_in(2),
        has_nbd: rng.one_in(2),
        nbd_tcp: rng.one_in(2).then(|| address(rng)),
        disks,
        areas,
    };
    let fuse = [Transport::Fuse, Transport::FuseClassic, Transport::FuseRing];
    let transports = [&[Transport::Auto, Transport::Nbd, Transport::Ublk], &fuse[..]].concat();
    let configured = Configured {
        root: rng.pick(&roots).clone(),
        transport: *rng.pick(&transports),
        nbd: NbdOptions {
            tcp: rng.one_in(2).then(|| address(rng)),
            tls_certificates: rng.one_in(2).then(|| "/etc/pki".into()),
            tls_verify_peer: rng.one_in(2),
            read_only: rng.one_in(2),
            allow_uid: some(rng, 1000..1003).into_iter().collect(),
        },
        asked: asked(rng),
    };
    let observed = Observed {
        has_control: rng.one_in(2),
        has_nbd: rng.one_in(2),
        has_files: !rng.one_in(4),
        used_disks: some(rng, 0..4),
        areas: some(rng, 0..3),
        used_areas: some(rng, 0..3),
    };
    (kept, configured, observed)
}

/// What the kernel uses is never given up.
fn gives_up_nothing_used(kept: &Kept, observed: &Observed, plan: &Plan) -> Result<(), String> {
    for area in kept.areas.iter().filter(|it| observed.used_areas.contains(&it.number)) {
        if plan.left.contains(&area.number) == observed.areas.contains(&area.number) {
            return Err(format!("swap{} is in use, and is given up", area.number));
        }
    }
    for disk in kept.disks.iter().filter(|it| observed.used_disks.contains(&it.id)) {
        if plan.closed.contains(&disk.id) {
            return Err(format!("zram{} is in use, and its way is closed", disk.id));
        }
        if disk.ublk.is_some() && !plan.by_driver {
            return Err(format!("zram{} is in use by ublk, which is not served", disk.id));
        }
        if disk.has_file && observed.has_files && !plan.files {
            return Err(format!("zram{} is in use by its file, which is not served", disk.id));
        }
        if kept.root.as_ref().is_some_and(|root| *root != plan.root) {
            return Err(format!("zram{} is in use, and its root is left", disk.id));
        }
    }
    Ok(())
}

/// Nothing is open wider than configured.
fn is_no_wider(kept: &Kept, configured: &Configured, plan: &Plan) -> Result<(), String> {
    if plan.serves != configured.nbd {
        return Err("NBD is not served as configured".into());
    }
    let has_nbd = !configured.transport.is_fuse();
    let asked = configured.nbd.tcp.filter(|_| has_nbd);
    if !has_nbd && plan.nbd {
        return Err("the socket of NBD goes on, and is not configured".into());
    }
    match (asked, kept.nbd_tcp, plan.nbd_tcp) {
        (None, _, true) => return Err("a port that was kept goes on".into()),
        (Some(asked), Some(kept), true)
            if asked.ip() != kept.ip() || asked.port() != 0 && asked.port() != kept.port() =>
        {
            return Err("another address is served than is asked for".into());
        }
        _ => {}
    }
    let reached = |way: Option<Transport>| way.is_some_and(|it| it == configured.transport);
    for disk in &kept.disks {
        let is_asked = match (disk.ublk, disk.has_file) {
            (Some(_), _) => reached(Some(Transport::Ublk)),
            (None, true) => reached(Some(Transport::Auto)) || configured.transport.is_fuse(),
            (None, false) => true,
        };
        let name = format!("zram{}", disk.id);
        let is_said = plan.said.iter().any(|text| text.contains(&name));
        if !is_asked && !plan.closed.contains(&disk.id) && !is_said {
            return Err(format!("nobody is told of a way to {name} that is not configured"));
        }
    }
    Ok(())
}

/// One object does not change what becomes of another.
fn is_for_each(
    judge: &dyn Fn(&Kept, &Configured, &Observed) -> Plan,
    (kept, configured, observed): (&Kept, &Configured, &Observed),
    plan: &Plan,
) -> Result<(), String> {
    for disk in &kept.disks {
        let (disks, areas) = (vec![disk.clone()], Vec::new());
        let alone = judge(&Kept { disks, areas, ..kept.clone() }, configured, observed);
        if alone.closed.contains(&disk.id) != plan.closed.contains(&disk.id) {
            return Err(format!("another object changes what becomes of zram{}", disk.id));
        }
    }
    for area in &kept.areas {
        let (disks, areas) = (Vec::new(), vec![area.clone()]);
        let alone = judge(&Kept { disks, areas, ..kept.clone() }, configured, observed);
        if alone.left.contains(&area.number) != plan.left.contains(&area.number) {
            return Err(format!("another object changes what becomes of swap{}", area.number));
        }
    }
    Ok(())
}

/// What is asked for otherwise than before is followed or said.
fn says_what_it_leaves(kept: &Kept, configured: &Configured, plan: &Plan) -> Result<(), String> {
    let has_objects = kept.has_files || !kept.disks.is_empty() || !kept.areas.is_empty();
    let is_said = |name: &str| plan.said.iter().any(|text| text.contains(name));
    if plan.root != configured.root && !is_said("--root") {
        return Err("another root is served without a word".into());
    }
    let Some(before) = kept.asked.as_ref().filter(|_| has_objects) else { return Ok(()) };
    for name in before.keys().chain(configured.asked.keys()) {
        let (before, now) = (before.get(name), configured.asked.get(name));
        let is_followed = now.is_some() && plan.changes.get(name) == now;
        if before != now && !is_followed && !is_said(name) {
            return Err(format!("{name} is passed over without a word"));
        }
        if Followed::default().asked(plan).get(name) != if is_followed { now } else { before } {
            return Err(format!("what is followed of {name} is forgotten: nobody is told again"));
        }
        if before == now && plan.changes.contains_key(name) {
            return Err(format!("{name} is set again, whatever was set since"));
        }
    }
    Ok(())
}

/// Makes plans of random states by `judge`. Returns what they break first.
fn check(judge: &dyn Fn(&Kept, &Configured, &Observed) -> Plan) -> Result<(), String> {
    let mut rng = Rng::new(seed("plan"));
    for _ in 0..RUNS {
        let (kept, configured, observed) = state(&mut rng);
        let plan = judge(&kept, &configured, &observed);
        gives_up_nothing_used(&kept, &observed, &plan)
            .and_then(|()| is_no_wider(&kept, &configured, &plan))
            .and_then(|()| is_for_each(judge, (&kept, &configured, &observed), &plan))
            .and_then(|()| says_what_it_leaves(&kept, &configured, &plan))
            .map_err(|why| format!("{why}: {kept:?} {configured:?} {observed:?} {plan:?}"))?;
    }
    Ok(())
}

#[test]
fn a_plan_keeps_its_promises() {
    if let Err(why) = check(&plan) {
        panic!("{why}");
    }
}

#[test]
fn plans_that_break_a_promise_are_found() {
    type Spoils = fn(&Kept, &Configured, &Observed, &mut Plan);
    let flaws: [(&str, Spoils); 10] = [
        // As if the mount alone told whether the kernel swaps to a device.
        ("is given up", |_, _, _, plan| plan.left.clear()),
        ("its way is closed", |kept, configured, _, plan| {
            if configured.transport == Transport::Nbd {
                plan.closed.extend(kept.disks.iter().map(|disk| disk.id));
            }
        }),
        ("which is not served", |_, configured, _, plan| {
            plan.by_driver = configured.transport == Transport::Ublk;
        }),
        ("its root is left", |_, configured, _, plan| plan.root.clone_from(&configured.root)),
        ("not served as configured", |_, _, _, plan| plan.serves.allow_uid.clear()),
        ("a port that was kept goes on", |_, configured, _, plan| {
            if configured.nbd.tcp.is_none() {
                plan.nbd_tcp = true;
            }
        }),
        ("another address is served", |kept, configured, _, plan| {
            let is_asked = configured.nbd.tcp.is_some() && !configured.transport.is_fuse();
            plan.nbd_tcp = kept.nbd_tcp.is_some() && is_asked;
        }),
        ("that is not configured", |_, _, _, plan| plan.closed.clear()),
        ("another object changes", |kept, _, _, plan| {
            if kept.disks.len() > 1 {
                plan.closed.clear();
                plan.said.extend((0..4).map(|id| format!("zram{id}")));
            }
        }),
        ("without a word", |_, _, _, plan| plan.said.clear()),
    ];
    for (promise, spoil) in flaws {
        let spoiled = |kept: &Kept, configured: &Configured, observed: &Observed| {
            let mut plan = plan(kept, configured, observed);
            spoil(kept, configured, observed, &mut plan);
            plan
        };
        let found = check(&spoiled).expect_err(promise);
        let found = found.split(": Kept").next().unwrap_or_default();
        // A flaw may break a promise that is looked at earlier.
        let is_named = found.contains(promise)
            || found.contains("nobody is told")
            || found.contains("is given up");
        assert!(is_named, "{promise}: {found}");
    }
}

#[test]
fn a_socket_that_nobody_asks_for_is_closed() {
    let address = Some("127.0.0.1:10809".parse().unwrap());
    let (root, observed) =
        (Some(PathBuf::new()), Observed { has_nbd: true, ..Observed::default() });
    let kept = Kept { root, nbd_tcp: address, has_nbd: true, ..Kept::default() };
    let configured = Configured { transport: Transport::Fuse, ..Configured::default() };
    let made = plan(&kept, &configured, &observed);
    assert_eq!((made.nbd, made.nbd_tcp), (false, false));
    let made = plan(&kept, &Configured::default(), &observed);
    assert_eq!((made.nbd, made.nbd_tcp), (true, false));
}

#[test]
fn a_limit_changes_and_a_size_is_said() {
    let of = |pairs: &[(&str, &str)]| -> Asked {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    };
    let disks = vec![KeptDisk { id: 0, ublk: None, has_file: false }];
    let before = of(&[("disksize", "1G"), ("mem_limit", "100M"), ("comp_algorithm", "lz4")]);
    let kept = Kept { asked: Some(before), disks, ..Kept::default() };
    let asked = of(&[("disksize", "2G"), ("mem_limit", "200M"), ("comp_algorithm", "lz4")]);
    let configured = Configured { asked, ..Configured::default() };
    let made = plan(&kept, &configured, &Observed::default());
    assert_eq!(made.changes, of(&[("mem_limit", "200M")]));
    assert_eq!(
        made.said,
        ["disksize=2G is not followed: what the daemon before left was made with disksize=1G"]
    );
}

#[test]
fn each_device_is_compared_with_its_own_options() {
    let of = |pairs: &[(&str, &str)]| -> Asked {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    };
    let disk = |id| KeptDisk { id, ublk: None, has_file: false };
    let before = of(&[
        ("zram0/disksize", "1G"),
        ("zram0/mem_limit", "1M"),
        ("zram0/mount", "/a"),
        ("zram1/disksize", "1G"),
        ("zram1/mem_limit", "1M"),
        ("zram2/disksize", "1G"),
    ]);
    let kept = Kept { asked: Some(before), disks: vec![disk(0), disk(1)], ..Kept::default() };
    let asked = of(&[
        ("zram0/disksize", "2G"),
        ("zram0/mem_limit", "2M"),
        ("zram0/level", "2"),
        ("zram3/disksize", "4G"),
    ]);
    let configured = Configured { asked, ..Configured::default() };
    // The driver ublk says itself whether it changes a size.
    let by_driver = vec![KeptDisk { id: 0, ublk: Some(3), has_file: false }, disk(1)];
    let made = plan(&Kept { disks: by_driver, ..kept.clone() }, &configured, &Observed::default());
    assert_eq!(made.changes, of(&[("zram0/disksize", "2G"), ("zram0/mem_limit", "2M")]));
    let made = plan(&kept, &configured, &Observed::default());
    assert_eq!(made.changes, of(&[("zram0/disksize", "2G"), ("zram0/mem_limit", "2M")]));
    assert_eq!(made.said, ["zram0: level=2 is not followed: it was made with no level"]);
    let gone: Vec<&String> = made.gone.iter().collect();
    assert_eq!(gone, ["zram0/mount", "zram1"]);
    assert_eq!(
        made.stays(),
        [
            "zram0 is to be mounted no more, and stays at /a until `rampack config apply --remove`",
            "zram1 is not configured any more, and stays until `rampack config apply --remove` or \
             `rampack remove zram1`",
        ]
    );
    // zram2 was removed meanwhile, and zram3 is new.
    let mut followed = of(&[
        ("zram0/disksize", "1G"),
        ("zram0/mem_limit", "1M"),
        ("zram0/mount", "/a"),
        ("zram1/disksize", "1G"),
        ("zram1/mem_limit", "1M"),
        ("zram3/disksize", "4G"),
    ]);
    assert_eq!(made.asked, followed);
    // What fails is asked for as before: it is another value the next time, too.
    let mut outcome = Followed::default();
    let busy = ControlError::new(Errno::EBUSY, "page 7 holds data");
    outcome.note(("zram0/disksize", "2G"), "zram0", &Err(busy));
    outcome.note(("zram0/mem_limit", "2M"), "zram0", &Ok(()));
    followed.insert("zram0/mem_limit".into(), "2M".into());
    assert_eq!(outcome.asked(&made), followed);
    let notes: Vec<String> = outcome.notes().collect();
    let stays = "zram0: disksize stays: page 7 holds data (EBUSY)";
    assert_eq!(notes, ["zram0: mem_limit is 2M now", stays]);
}

/// What a disk is saved to at the end changes with what is asked for, and with nothing else.
#[test]
fn a_disk_is_saved_as_before_until_something_else_is_asked_for() {
    let of = |pairs: &[(&str, &str)]| -> Asked {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    };
    let planned = |before: Option<Asked>, now: &Asked| {
        let disks = vec![KeptDisk { id: 0, ublk: None, has_file: false }];
        let kept = Kept { asked: before, disks, ..Kept::default() };
        let configured = Configured { asked: now.clone(), ..Configured::default() };
        plan(&kept, &configured, &Observed::default())
    };
    let (a, b) = (of(&[("zram0/size", "1")]), "zram0/snapshot");
    let with = |path: &str| a.clone().into_iter().chain(of(&[(b, path)])).collect::<Asked>();
    // An older program has kept none.
    let changed = [(&a, with("/a"), "/a"), (&with("/a"), with("/b"), "/b")];
    for (before, now, path) in changed {
        let made = planned(Some(before.clone()), &now);
        assert_eq!(made.changes, of(&[(b, path)]));
        assert_eq!(Followed::default().asked(&made), now);
    }
    let made = planned(Some(with("/a")), &a);
    assert_eq!((&made.changes, Followed::default().asked(&made)), (&of(&[(b, "")]), a.clone()));
    // Of a configuration that cannot be read, what was asked for before is asked for.
    assert_eq!(planned(Some(with("/a")), &with("/a")).changes, Asked::new());
    // A disk that is not configured any more stays as it is, and so does what nobody says.
    let gone = planned(Some(with("/a")), &of(&[("zram1/size", "1")]));
    assert_eq!(gone.changes, Asked::new());
    let up = of(&[("snapshot", "/a")]);
    assert_eq!(planned(Some(up.clone()), &Asked::new()).changes, Asked::new());
    assert_eq!(planned(Some(Asked::new()), &up).changes, up);
}
