//! TLS over TCP: what is said before it, who gets in, and all the rest inside it.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use block::BlockDevice;
use common::*;
use nbd::{Listener, One, Options, Server, Stream, Tls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use testkit::TempDir;

const ERR_TLS_REQD: u32 = 0x8000_0005;
const MIB: usize = 1 << 20;

/// Makes an authority with certificates for a server and a client in `directory`.
fn make_certificates(directory: &Path) {
    let write = |name: &str, text: String| fs::write(directory.join(name), text).unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    write("ca-cert.pem", params.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(params, key);
    for who in ["server", "client"] {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let params = CertificateParams::new(names).unwrap();
        let key = KeyPair::generate().unwrap();
        write(&format!("{who}-cert.pem"), params.signed_by(&key, &issuer).unwrap().pem());
        write(&format!("{who}-key.pem"), key.serialize_pem());
    }
}

struct Place {
    directory: TempDir,
    server: Server,
    address: SocketAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.server.shutdown();
        self.server.join();
    }
}

fn place(device: Arc<dyn BlockDevice>, verify_peer: bool) -> Place {
    place_with(device, verify_peer, Options::default())
}

fn place_with(device: Arc<dyn BlockDevice>, verify_peer: bool, options: Options) -> Place {
    let directory = TempDir::new();
    make_certificates(directory.path());
    let tls = Some(Tls::from_directory(directory.path(), verify_peer).unwrap());
    let grace = Duration::from_millis(200);
    let options = Options { tls, grace, ..options };
    let server = common::new_server(Arc::new(One::new("disk", "secret", device)), options).unwrap();
    let listener = Listener::tcp((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = listener.tcp_address().unwrap();
    server.listen(listener).unwrap();
    Place { directory, server, address }
}

fn take(stream: &mut impl Read, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).expect("the server answers");
    bytes
}

/// The kind and the data of a reply to an option.
fn answer(stream: &mut impl Read) -> (u32, Vec<u8>) {
    let header = take(stream, 20);
    let data = take(stream, be32(&header, 16) as usize);
    (be32(&header, 12), data)
}

impl Place {
    /// A client after the greeting, in the clear.
    fn greeted(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(take(&mut stream, 18), b"NBDMAGICIHAVEOPT\0\x03");
        stream.write_all(&[0, 0, 0, 3]).unwrap();
        stream
    }

    /// A client that has started TLS; its handshake happens at the first use.
    fn secured(&self, with_certificate: bool) -> StreamOwned<ClientConnection, TcpStream> {
        let mut stream = self.greeted();
        stream.write_all(&option_bytes(OPT_STARTTLS, &[])).unwrap();
        assert_eq!(answer(&mut stream), (ACK, vec![]));
        let at = |name: &str| self.directory.join(name);
        let one = |name: &str| CertificateDer::from_pem_file(at(name)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(one("ca-cert.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = if with_certificate {
            let key = PrivateKeyDer::from_pem_file(at("client-key.pem")).unwrap();
            config.with_client_auth_cert(vec![one("client-cert.pem")], key).unwrap()
        } else {
            config.with_no_client_auth()
        };
        let name = "localhost".try_into().unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        StreamOwned::new(connection, stream)
    }
}

/// Negotiates from the first option on.
fn begin(stream: &mut (impl Read + Write)) {
    stream.write_all(&hello(Style::Simple)[4..]).unwrap();
    assert_eq!(answer(stream).0, REP_INFO);
    assert_eq!(answer(stream), (ACK, vec![]));
}

fn simple(stream: &mut impl Read) -> (u64, u32) {
    let bytes = take(stream, 16);
    assert_eq!(bytes[..4], [0x67, 0x44, 0x66, 0x98]);
    (be64(&bytes, 8), be32(&bytes, 4))
}

#[test]
fn nothing_is_told_before_tls() {
    let place = place(plain(4096), false);
    let mut stream = place.greeted();
    let about = info_data("disk", &[1, 2, 3]);
    let meta = meta_data("disk", &["base:allocation"]);
    let options: [(u32, &[u8]); 7] = [
        (OPT_LIST, &[]),
        (OPT_INFO, &about),
        (OPT_GO, &about),
        (OPT_STRUCTURED, &[]),
        (OPT_LIST_META, &meta),
        (OPT_SET_META, &meta),
        (99, &[]),
    ];
    for (option, data) in options {
        stream.write_all(&option_bytes(option, data)).unwrap();
        let (kind, text) = answer(&mut stream);
        assert_eq!(kind, ERR_TLS_REQD, "option {option}");
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("TLS") && !text.contains("disk"), "{text}");
    }
    stream.write_all(&option_bytes(OPT_STARTTLS, b"x")).unwrap();
    assert_eq!(answer(&mut stream).0, ERR_INVALID);
    stream.write_all(&option_bytes(OPT_EXPORT_NAME, b"disk")).unwrap();
    assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)), "there is no answer to this");
    // Without TLS it is an option like any unknown one; a unix socket has none.
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    place.server.spawn(Stream::from(theirs)).unwrap();
    take(&mut ours, 18);
    ours.write_all(&[0, 0, 0, 3]).unwrap();
    ours.write_all(&option_bytes(OPT_STARTTLS, &[])).unwrap();
    assert_eq!(answer(&mut ours).0, ERR_UNSUP);
    begin(&mut ours);
}

#[test]
fn a_disk_over_tls() {
    let place = place(plain(32 * MIB), false);
    let mut stream = place.secured(false);
    stream.write_all(&option_bytes(OPT_STARTTLS, &[])).unwrap();
    assert_eq!(answer(&mut stream).0, ERR_INVALID, "it is on");
    begin(&mut stream);
    let data: Vec<u8> = (0..32 * MIB).map(|at| (at / 4096 * 7 + at % 251) as u8).collect();
    stream.write_all(&request_bytes(0, WRITE, 1, 0, 32 * MIB as u32)).unwrap();
    stream.write_all(&data).unwrap();
    assert_eq!(simple(&mut stream), (1, 0));
    for (offset, length) in [(0, 32 * MIB), (5, 1), (4095, 3 * MIB), (MIB, 17), (0, 300 << 10)] {
        let request = request_bytes(0, READ, 2, offset as u64, length as u32);
        stream.write_all(&request).unwrap();
        assert_eq!(simple(&mut stream), (2, 0));
        assert!(take(&mut stream, length) == data[offset..offset + length]);
    }
    // Many at once, in pieces that fit nothing.
    let requests: Vec<u8> =
        (0..500u64).flat_map(|cookie| request_bytes(0, READ, cookie, cookie * 61, 5000)).collect();
    for piece in requests.chunks(97) {
        stream.write_all(piece).unwrap();
    }
    for cookie in 0..500 {
        assert_eq!(simple(&mut stream), (cookie, 0));
        let at = cookie as usize * 61;
        assert!(take(&mut stream, 5000) == data[at..at + 5000]);
    }
    stream.write_all(&request_bytes(0, DISC, 3, 0, 0)).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "TLS is ended in order");
}

#[test]
fn replies_of_other_threads_come_over_tls() {
    let device = Gated::new(256 * 4096, [3]);
    let place = place(device.clone(), false);
    let mut stream = place.secured(false);
    begin(&mut stream);
    for cookie in 0..40 {
        stream.write_all(&request_bytes(0, READ, cookie, 0, MIB as u32)).unwrap();
        stream.write_all(&request_bytes(0, READ, 100 + cookie, 8 * PAGE, 4096)).unwrap();
    }
    device.until_waiting(16);
    device.release_all();
    let mut seen = vec![];
    for _ in 0..80 {
        let (cookie, error) = simple(&mut stream);
        assert_eq!(error, 0);
        take(&mut stream, if cookie < 100 { MIB } else { 4096 });
        seen.push(cookie);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..40).chain(100..140).collect::<Vec<_>>());
}

#[test]
fn clients_may_need_a_certificate() {
    let place = place(plain(4096), true);
    let mut stream = place.secured(true);
    begin(&mut stream);
    let mut stranger = place.secured(false);
    // The client learns it with the first answer.
    let _ = stranger.write_all(&option_bytes(OPT_LIST, &[]));
    assert!(stranger.read_exact(&mut [0; 20]).is_err(), "it has no certificate");
}

#[test]
fn a_client_that_ends_no_record_is_cut_off() {
    let handshake = Duration::from_secs(3);
    let place = place_with(plain(4096), false, Options { handshake, ..Options::default() });
    let mut stream = place.secured(false);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
    // A record begins, and does not go on.
    stream.sock.write_all(&[0x17]).unwrap();
    loop {
        match stream.sock.read(&mut [0; 4096]) {
            Ok(0) => break,
            // What TLS has to say.
            Ok(_) => {}
            Err(error) => panic!("it still has its place: {error}"),
        }
    }
}

#[test]
fn what_follows_in_the_clear_does_not_count() {
    let place = place(plain(4096), false);
    let mut stream = place.greeted();
    let both = [option_bytes(OPT_STARTTLS, &[]), option_bytes(OPT_LIST, &[])].concat();
    stream.write_all(&both).unwrap();
    assert_eq!(answer(&mut stream), (ACK, vec![]));
    assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)), "the connection is over");
    // Neither does what is no TLS at all.
    let mut stream = place.greeted();
    stream.write_all(&option_bytes(OPT_STARTTLS, &[])).unwrap();
    assert_eq!(answer(&mut stream), (ACK, vec![]));
    stream.write_all(&option_bytes(OPT_LIST, &[])).unwrap();
    let mut rest = vec![];
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() < 20 && !rest.starts_with(&[0, 3, 0xe8, 0x89]), "{rest:?}");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let directory = TempDir::new();
    let wrong = |verify: bool| Tls::from_directory(directory.path(), verify).unwrap_err();
    assert!(wrong(false).to_string().contains("server-cert.pem"), "{}", wrong(false));
    make_certificates(directory.path());
    Tls::from_directory(directory.path(), true).unwrap();
    fs::write(directory.join("ca-cert.pem"), "nothing").unwrap();
    Tls::from_directory(directory.path(), false).unwrap();
    let text = wrong(true).to_string();
    assert!(text.contains("ca-cert.pem: there is no certificate in it"), "{text}");
    // A key of another certificate.
    fs::copy(directory.join("client-key.pem"), directory.join("server-key.pem")).unwrap();
    assert!(wrong(false).to_string().contains("server-cert.pem"), "{}", wrong(false));
    fs::remove_file(directory.join("server-key.pem")).unwrap();
    assert!(wrong(false).to_string().contains("server-key.pem"), "{}", wrong(false));
}
