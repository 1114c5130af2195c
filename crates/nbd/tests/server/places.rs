//! How many connections there may be, of whom, and who gives way.

use super::*;

/// Reads a byte on a stream that was used before.
fn use_it_again(mut stream: impl Read + Write) {
    stream.write_all(&request_bytes(0, READ, 2, 0, 1)).unwrap();
    stream.read_exact(&mut [0; 16 + 1]).unwrap();
}

#[test]
fn no_more_connections_than_allowed() {
    let options = Options { max_connections: 2, ..Options::default() };
    let server = common::new_server(Arc::new(One::new("disk", "", plain(4096))), options).unwrap();
    let connect = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (server.spawn(Stream::from(theirs)).is_ok(), ours)
    };
    let (first, second) = (connect(), connect());
    assert!(first.0 && second.0);
    use_it(&first.1);
    use_it(&second.1);
    let third = connect();
    assert!(!third.0, "the others have an export each");
    assert!(is_turned_away(third.1));
    use_it_again(&first.1);
    drop((first.1, second.1));
    while server.connections() > 0 {
        std::thread::yield_now();
    }
    assert!(connect().0);
    server.shutdown();
    server.join();
    assert!(!connect().0, "a server that is shut down takes nobody");
}

#[test]
fn who_has_the_answer_has_its_place() {
    let options = Options { max_connections: 1, ..Options::default() };
    let server = common::new_server(Arc::new(One::new("disk", "", plain(4096))), options).unwrap();
    for _ in 0..200 {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        server.spawn(Stream::from(theirs)).unwrap();
        ours.write_all(&hello(Style::Simple)).unwrap();
        ours.read_exact(&mut [0; 18 + 20 + 12 + 20]).unwrap();
        // At once: the server has just sent the answer.
        assert!(server.spawn(Stream::from(UnixStream::pair().unwrap().1)).is_err());
        drop(ours);
        while server.connections() > 0 {
            std::thread::yield_now();
        }
    }
    server.shutdown();
    server.join();
}

#[test]
fn clients_that_do_not_choose_give_way() {
    let options = Options { max_connections: 6, ..Options::default() };
    let server = common::new_server(Arc::new(One::new("disk", "", plain(4096))), options).unwrap();
    let connect = || connect_own(&server);
    let used = connect();
    use_it(&used);
    let idle: Vec<_> = (0..5).map(|_| connect()).collect();
    let mut others = vec![];
    for oldest in idle {
        let other = connect();
        use_it(&other);
        others.push(other);
        expect_end(oldest);
    }
    use_it_again(&used);
    server.shutdown();
    server.join();
}

/// A server with 16 places: 15 for strangers.
fn server_with_16_places() -> Server {
    let options = Options { max_connections: 16, ..Options::default() };
    common::new_server(Arc::new(One::new("disk", "", plain(4096))), options).unwrap()
}

/// One more client on a socket of its own; what it asked is answered.
fn connect_own(server: &Server) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    server.spawn(Stream::from(theirs)).unwrap();
    ours
}

#[test]
fn clients_over_tcp_leave_places_for_others() {
    let server = server_with_16_places();
    let listener = Listener::tcp((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = listener.tcp_address().unwrap();
    server.listen(listener).unwrap();
    let connect = || {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    };
    // Half of what there is for them is for other addresses.
    let used: Vec<_> = (0..7).map(|_| connect()).collect();
    for stream in &used {
        use_it(stream);
    }
    assert!(is_turned_away(connect()));
    let local: Vec<_> = (0..9).map(|_| connect_own(&server)).collect();
    local.iter().for_each(use_it);
    for stream in &used {
        use_it_again(stream);
    }
    for stream in &local {
        use_it_again(stream);
    }
    server.shutdown();
    server.join();
}

/// The same on a socket for two users, and an idle client on a socket of its own.
fn server_for_users(directory: &TempDir) -> (Server, PathBuf, UnixStream) {
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = directory.join("nbd.sock");
    let server = server_with_16_places();
    server.listen(Listener::unix_for(&path, &[65534, 12]).unwrap()).unwrap();
    let own_idle = connect_own(&server);
    (server, path, own_idle)
}

#[test]
fn users_have_shares_of_the_places() {
    if !testkit::met("users_have_shares_of_the_places", &[testkit::Need::Root]) {
        return;
    }
    let directory = TempDir::new();
    let (server, path, own_idle) = server_for_users(&directory);
    let connect = |user, count: usize| -> Vec<UnixStream> {
        let all: Vec<_> = (0..count).map(|_| connect_as(user, path.clone()).unwrap()).collect();
        all.iter().for_each(use_it);
        all
    };
    let (greedy, next) = (connect(65534, 7), connect(12, 4));
    for user in [65534, 12] {
        assert!(is_turned_away(connect_as(user, path.clone()).unwrap()), "user {user}");
    }
    let own: Vec<_> = (0..4).map(|_| connect_own(&server)).collect();
    own.iter().for_each(use_it);
    greedy.iter().chain(&next).for_each(use_it_again);
    use_it(&own_idle);
    server.shutdown();
    server.join();
}

#[test]
fn who_does_not_choose_gives_way_to_clients_like_it() {
    if !testkit::met("who_does_not_choose_gives_way_to_clients_like_it", &[testkit::Need::Root]) {
        return;
    }
    let directory = TempDir::new();
    let (server, path, own_idle) = server_for_users(&directory);
    // A server takes the connections of a listener in order.
    let greet = |user| {
        let mut stream = connect_as(user, path.clone()).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        stream
    };
    let mut idle: Vec<_> = (0..7).map(|_| greet(65534)).collect();
    let other_idle = greet(12);
    for _ in 0..3 {
        let newer = greet(65534);
        let oldest = idle.remove(0);
        expect_end(oldest);
        idle.push(newer);
    }
    use_it(&own_idle);
    // It has its greeting already.
    (&other_idle).write_all(&hello(Style::Simple)).unwrap();
    (&other_idle).read_exact(&mut [0; 20 + 12 + 20]).unwrap();
    use_it_again(&other_idle);
    // Those that gave way see their end a moment before they are no longer counted.
    while server.connections() > 9 {
        std::thread::yield_now();
    }
    assert_eq!(server.connections(), 9);
    server.shutdown();
    server.join();
}
